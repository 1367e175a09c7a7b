"""Folders of format 1, as version 0.2 wrote them (`format_1/`), are read, resumed and grown; nothing is scored twice."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.errors import DamagedFile, RunMismatch
from steadyscore.runs.folder import Run
from steadyscore.runs.table import read_table
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.score import score_collection
from tests.helpers.pools import some_instances, write_collection
from tests.runs.test_folder import FORMAT_1


@pytest.fixture
def data(tmp_path):
    return str(write_collection(tmp_path / "c.jsonl", some_instances(queries=5, candidates=4)))


def old(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FORMAT_1 / name, tmp_path / name))


def score(data: str, folder: Path, permutations: int = 3) -> tuple[Run, set]:
    """The run, and the (query, permutation) pairs that were scored now."""
    config, asked = AuditConfig(permutations=permutations, chars=1200, scheme="hashed"), set()
    scorer = open_scorer("synthetic:slot", open_collection(data).collection, config)
    real = scorer.score_orders

    def watched(instance, orders, numbers):
        asked.update((instance.id, number) for number in numbers)
        return real(instance, orders, numbers)

    scorer.score_orders = watched
    return score_collection(scorer, data, folder, config), asked


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_complete_run_is_read_as_it_is(tmp_path, data):
    folder = old("complete", tmp_path)
    before, run = files_of(folder), Run.open(folder)
    assert run.is_complete
    assert run.read("scores.parquet").equals(read_table(folder / "scores.parquet"))
    assert run.read("queries.parquet").equals(read_table(folder / "queries.parquet"))
    assert run.record.coverage.windows == 20
    assert len(run.read_noise()) == 5
    assert run.read_perturbed(["q0", "q1"])
    assert run.record.starts[0].versions["steadyscore"]
    assert files_of(folder) == before, "reading changes nothing"


def test_a_complete_run_grows_and_its_tables_are_those_of_a_run_made_whole(tmp_path, data):
    folder = old("complete", tmp_path)
    again, asked = score(data, folder)
    assert not asked
    assert again.is_complete
    grown, asked = score(data, folder, permutations=5)
    assert asked == {(f"q{i}", number) for i in range(5) for number in (3, 4)}
    whole, _ = score(data, tmp_path / "whole", permutations=5)
    for name in ("scores.parquet", "queries.parquet"):
        assert (folder / name).read_bytes() == (whole.folder / name).read_bytes()
    assert grown.record.coverage.windows == whole.record.coverage.windows
    assert main(["doctor", str(folder)]) == 0


@pytest.mark.parametrize(
    ("name", "permutations", "missing"),
    [
        ("half", 3, {(f"q{i}", number) for i in (2, 3, 4) for number in (-1, 0, 1, 2)}),
        ("shares", 3, None),
        ("grown", 5, {(f"q{i}", number) for i in (2, 3, 4) for number in (3, 4)}),
        ("grown", 3, set()),
    ],
    ids=["unfinished", "of-workers", "growing", "growing-and-asked-as-before"],
)
def test_what_was_scored_is_not_scored_again(tmp_path, data, name, permutations, missing):
    folder = old(name, tmp_path)
    assert not Run.open(folder).is_complete
    run, asked = score(data, folder, permutations)
    assert asked == missing if missing is not None else len(asked) < 5 * 4
    whole, _ = score(data, tmp_path / "whole", permutations)
    assert run.read("scores.parquet").equals(whole.read("scores.parquet"))
    assert not (folder / "shards").exists()
    assert not (folder / "earlier.parquet").exists()


def test_a_damaged_table_is_named_by_who_reads_and_scored_again_by_who_writes(tmp_path, data, caplog, capsys):
    folder = old("complete", tmp_path)
    content = bytearray((folder / "scores.parquet").read_bytes())
    content[500] ^= 1
    (folder / "scores.parquet").write_bytes(content)
    with pytest.raises(DamagedFile, match=r"scores\.parquet is damaged.*To repair the run"):
        Run.open(folder)
    assert main(["doctor", str(folder)]) == 1
    assert re.search(r"scores\.parquet\s+damaged", capsys.readouterr().out)
    run, asked = score(data, folder)
    assert "scores.parquet is damaged" in caplog.text
    assert len(asked) == 20
    assert (folder / "damaged" / "scores.parquet").exists()
    assert np.isfinite(run.read_queries()[0].scores).all()


def test_another_command_is_refused_as_it_was(tmp_path, data):
    with pytest.raises(RunMismatch, match="permutations was 3, now 2"):
        score(data, old("complete", tmp_path), permutations=2)


def test_an_import_that_was_cut_anywhere_begins_again(tmp_path, data, monkeypatch):
    import os

    whole, _ = score(data, tmp_path / "whole")
    real = os.replace
    for stop in range(1, 40):
        folder, changes = Path(shutil.copytree(FORMAT_1 / "shares", tmp_path / f"cut-{stop}")), []

        def cut(*args, changes=changes, stop=stop):
            changes.append(args)
            if len(changes) == stop:
                raise KeyboardInterrupt
            return real(*args)

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", cut)
            try:
                score(data, folder)
            except KeyboardInterrupt:
                pass
            else:
                break
        run, _ = score(data, folder)
        assert run.read("scores.parquet").equals(whole.read("scores.parquet")), stop
    assert stop > 5


def test_a_run_whose_identity_held_the_code_of_its_scorer_forgets_it(tmp_path):
    folder = old("complete", tmp_path)
    record = json.loads((folder / "run.json").read_text())
    record["fingerprint"]["scorer"] = {"kind": "python", "function": "f", "source": "def f(): ...", "state": "0123456789abcdef"}
    del record["sha256"]
    (folder / "run.json").write_text(json.dumps(record))
    assert Run.open(folder).record.fingerprint.scorer == {"kind": "python", "function": "f"}
