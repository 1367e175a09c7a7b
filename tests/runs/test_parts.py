"""Parts of a run: named by their content, counted once whoever wrote them, merged at any moment, never believed when damaged."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.errors import DamagedFile, UnusableScorer
from steadyscore.machine import disk
from steadyscore.machine.places import Place, StorePath
from steadyscore.runs import parts as parts_module
from steadyscore.runs.folder import Run
from steadyscore.runs.parts import Ledger, Parts
from steadyscore.runs.records import Start
from steadyscore.runs.table import Scored, from_table, to_table
from steadyscore.terms import Failure

QUERIES, PERMUTATIONS = [f"q{i}" for i in range(4)], 3
ABOUT = {"name": "s", "collection": "c", "task": "passage_reranking", "command": []}
ASKED = {"permutations": PERMUTATIONS, "scheme": "hashed"}


def rows(query_id: str, numbers, shift: float = 0.0) -> Scored:
    """What the scorer gives a query under some permutations: always the same."""
    scores = [[int(query_id[1:]) + number / 10 + place / 100 + shift for place in range(3)] for number in numbers]
    return Scored(query_id, ("a", "b", "c"), np.array(list(numbers)), np.array(scores))


def begin(folder: Place) -> Run:
    run = Run.create_or_resume(folder, ASKED, **ABOUT)
    run.begin_session(Start({}))
    return run


def finish(run: Run) -> None:
    run.flush()
    lacking = [query for query in QUERIES if len(run.ledger.numbers(query)) < PERMUTATIONS]
    listed = [{"query_id": query, "query": query, "judged": [1]} for query in QUERIES]
    run.finish(listed, [Failure(query, "not yet") for query in lacking])


def complete(folder: Place) -> Run:
    """Score what is missing and finish, as the same command does."""
    run = begin(folder)
    for query in QUERIES:
        if missing := [number for number in range(PERMUTATIONS) if number not in run.ledger.numbers(query)]:
            run.append(rows(query, missing))
    finish(run)
    return run


def stored_keys(run: Run) -> set[tuple[str, int]]:
    """Every key that is on disk, once it was found that its scores are right and there once."""
    keys = []
    for query in run.ledger.where:
        for table in run.ledger.tables([query]):
            for scored in from_table(table):
                assert np.array_equal(scored.scores, rows(query, scored.permutations.tolist()).scores), query
                keys += [(query, int(number)) for number in scored.permutations]
    assert len(keys) == len(set(keys))
    return set(keys)


@contextlib.contextmanager
def cut_before(change: int):
    """This process ends before it gives or removes a name for the n-th time."""
    done = 0

    def counted(real):
        def do(*args, **options):
            nonlocal done
            done += 1
            if done == change:
                raise KeyboardInterrupt
            return real(*args, **options)

        return do

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", counted(os.replace))
        patch.setattr(Path, "unlink", counted(Path.unlink))
        with contextlib.suppress(KeyboardInterrupt):
            yield


KEYS = st.lists(st.tuples(st.sampled_from(QUERIES), st.integers(0, PERMUTATIONS - 1)), min_size=1, max_size=6, unique=True)
STEPS = st.one_of(
    st.tuples(st.just("score"), KEYS, st.integers(1, 6)),
    st.tuples(st.just("score twice"), KEYS, KEYS),
    st.tuples(st.just("finish"), st.integers(1, 14)),
    st.tuples(st.just("flip"), st.integers(0, 20), st.integers(0, 10_000)),
    st.tuples(st.just("delete"), st.integers(0, 20)),
)


@settings(deadline=None, max_examples=40)
@given(st.lists(STEPS, max_size=7))
def test_whatever_happens_no_score_is_lost_doubled_or_wrong(steps):
    """Against a model that holds a set of keys: what was written whole is there, but for what was damaged or deleted."""
    top = Path(tempfile.mkdtemp())
    folder, model, is_spoiled = top / "run", set(), False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk.os, "fsync", lambda _: None)
        patch.setattr(parts_module, "GROUP_ROWS", 8)  # several compacted parts
        for kind, *given_values in steps:
            files = sorted(folder.glob("parts/*/*.parquet"))
            if kind == "score":
                keys, change = given_values
                run = begin(folder)
                with cut_before(change):
                    for query, number in keys:
                        run.append(rows(query, [number]))
                        run.flush()
                run = Run.open(folder)
                model |= stored_keys(run) & set(keys)
            elif kind == "score twice":  # two processes that know nothing of each other
                for run, keys in [(begin(folder), given_values[0]), (begin(folder), given_values[1])]:
                    for query, number in keys:
                        run.append(rows(query, [number]))
                    run.flush()
                    model |= set(keys)
            elif kind == "finish":
                with cut_before(given_values[0]):
                    finish(begin(folder))
            elif files:
                file, is_spoiled = files[given_values[0] % len(files)], True
                if kind == "delete":
                    file.unlink()
                else:
                    content = bytearray(file.read_bytes())
                    content[given_values[1] % len(content)] ^= 1
                    file.write_bytes(content)
            keys = stored_keys(begin(folder))
            assert keys <= model if is_spoiled else keys == model
            model = keys
        run = complete(folder)
        assert stored_keys(run) == {(query, number) for query in QUERIES for number in range(PERMUTATIONS)}
        whole = complete(top / "whole")
        for name in ("scores.parquet", "queries.parquet"):
            assert (folder / name).read_bytes() == (whole.folder / name).read_bytes()
        assert Run.open(folder).is_complete
        assert all(file.name.startswith("c-") for file in run.parts.files())
    shutil.rmtree(top)


# -- one by one


@pytest.fixture(params=["here", "store"])
def folder(request, tmp_path) -> Place:
    return tmp_path if request.param == "here" else StorePath(f"memory://{tmp_path.name}")


def test_a_part_is_what_its_name_says_or_is_damaged(folder):
    parts = Parts(folder, "scores", "Do this.")
    file = parts.put("s1", to_table(rows("q0", [0, 1])), {"keys": 2})
    table, note = parts.read(file)
    assert (table.num_rows, note) == (6, {"keys": 2})
    assert parts.put("s1", to_table(rows("q0", [0, 1])), {"keys": 2}) == file
    content = file.read_bytes()
    for spoiled in (content[:-1], content[:100] + b"x" + content[101:], b""):
        file.write_bytes(spoiled)
        with pytest.raises(DamagedFile, match=r"is damaged: it is not what was written\. Do this\."):
            parts.read(file)


def test_the_rows_of_a_query_are_found_wherever_they_are_and_each_is_taken_once(folder):
    parts = Parts(folder, "scores")
    parts.put("s1", to_table(rows("q0", [2, 3])), {})
    parts.put("s2", to_table(rows("q0", [0, 2])), {})
    parts.put("c", to_table(rows("q1", [0])), {})
    ledger = parts.ledger()
    assert ledger.numbers("q0") == {0, 2, 3}
    assert ledger.numbers("absent") == set()
    assert ledger.doubled == {"q0"}
    (table,) = ledger.tables(["q0", "absent", "q1"])
    assert [(scored.query_id, scored.permutations.tolist()) for scored in from_table(table)] == [("q0", [0, 2, 3]), ("q1", [0])]
    (fewer,) = ledger.tables(["q0"], lambda number: number < 3)
    assert next(from_table(fewer)).permutations.tolist() == [0, 2]


def test_two_scorings_that_differ_are_said_and_a_deterministic_scorer_is_refused(tmp_path):
    def scored_twice(folder: Path, **capabilities) -> Run:
        one, other = (
            Run.create_or_resume(folder, ASKED, **ABOUT, capabilities={"gives": "score", **capabilities}) for _ in range(2)
        )
        for run, shift in ((one, 0.0), (other, 0.5)):
            run.begin_session(Start({}))
            run.append(rows("q0", [0], shift))
            run.flush()
        return Run.create_or_resume(folder, ASKED, **ABOUT)

    run = scored_twice(tmp_path / "noisy")
    finish(run)
    assert run.record.notes == ["3 scores were made by two processes and differ by up to 0.5; those of one of them are taken."]
    with pytest.raises(UnusableScorer, match=r"declared deterministic\. Delete .*parquet or .*parquet"):
        finish(scored_twice(tmp_path / "sure", deterministic=True))


def test_a_reader_sees_a_run_whole_while_its_parts_are_merged(tmp_path, monkeypatch):
    complete(tmp_path / "run")
    run = begin(tmp_path / "run")
    run.append(rows("q0", [0]))
    run.flush()
    reader, real, merged = Run.open(tmp_path / "run"), Parts.files, []

    def listed(parts, group=""):
        files = real(parts, group)
        if parts.folder.name == "scores" and not merged:
            merged.append(files)
            monkeypatch.setattr(Parts, "files", real)
            begin(tmp_path / "run")  # which merges what is loose
        return files

    monkeypatch.setattr(Parts, "files", listed)
    assert stored_keys(reader) == {(query, number) for query in QUERIES for number in range(PERMUTATIONS)}
    assert isinstance(reader.ledger, Ledger)
    assert merged
