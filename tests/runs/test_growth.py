"""A run that is asked for more holds what a run made whole holds, byte for byte, and nothing is scored twice."""

from __future__ import annotations

import contextlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from steadyscore.collection import open_collection
from steadyscore.errors import InputError, RunMismatch
from steadyscore.runs import folder as run_folder
from steadyscore.runs.folder import Run
from steadyscore.runs.layout import output_schema
from steadyscore.runs.records import Cost, Fingerprint, ShrunkWindow
from steadyscore.runs.requests import is_growth
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer
from steadyscore.scoring.score import check_query_ids, missing_numbers, score_collection
from tests.helpers.pools import some_instances, write_collection

SMALL = AuditConfig(permutations=3, cut=Cut(queries=3))


@pytest.fixture
def source(tmp_path):
    return str(write_collection(tmp_path / "some.jsonl", some_instances(queries=6, candidates=7)))


def score(source: str, folder: Path, config: AuditConfig, asked: list | None = None, stop_after: int | None = None) -> Run:
    """Score into a folder; `asked` collects (query, permutation) of every order that the scorer was shown."""
    scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, config)
    real = scorer.score_orders

    def watched(instance, orders, permutations):
        if asked is not None:
            if stop_after is not None and len({query for query, _ in asked}) == stop_after:
                raise KeyboardInterrupt
            asked.extend((instance.id, number) for number in permutations)
        return real(instance, orders, permutations)

    scorer.score_orders = watched
    return score_collection(scorer, source, folder, config, command=["again"])


def assert_same_scores(one: Run, other: Run) -> None:
    """A run that was repaired cost more than one that was not, and holds the same."""
    for name in ("scores.parquet", "queries.parquet"):
        assert (one.folder / name).read_bytes() == (other.folder / name).read_bytes()
    assert one.record.fingerprint == other.record.fingerprint


def assert_same_tables(one: Run, other: Run) -> None:
    assert_same_scores(one, other)
    assert one.record.coverage.windows == other.record.coverage.windows


@pytest.mark.parametrize(
    "large",
    [
        AuditConfig(permutations=3, cut=Cut(queries=5)),
        AuditConfig(permutations=3),
        AuditConfig(permutations=8, cut=Cut(queries=3)),
        AuditConfig(permutations=8),
    ],
    ids=["queries", "all-queries", "permutations", "both"],
)
def test_a_run_that_grew_is_a_run_made_whole(source, tmp_path, large):
    before, more = [], []
    score(source, tmp_path / "grown", SMALL, before)
    grown = score(source, tmp_path / "grown", large, more)
    assert_same_tables(grown, score(source, tmp_path / "whole", large))
    assert not set(before) & set(more)
    assert len(more) == len(set(more))
    assert grown.record.command == ["again"]


def test_a_growth_that_was_stopped_goes_on(source, tmp_path, monkeypatch):
    large = AuditConfig(permutations=6)
    monkeypatch.setattr(run_folder, "HELD_HERE", 0.0)
    score(source, tmp_path / "run", SMALL)
    asked: list = []
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", large, asked, stop_after=2)
    assert [len(query.permuted) for query in Run.open(tmp_path / "run").read_queries()] == [3, 3, 3], (
        "readers have what was whole"
    )
    again: list = []
    grown = score(source, tmp_path / "run", large, again)
    assert not set(asked) & set(again)
    assert_same_tables(grown, score(source, tmp_path / "whole", large))


GROWTHS = pytest.mark.parametrize(
    "large", [replace(SMALL, permutations=6), AuditConfig(permutations=3)], ids=["permutations", "queries"]
)
"""A run of SMALL that has more permutations, and one that has more queries."""


def changes_on_disk(monkeypatch, stop: int) -> list:
    """Names that were given and removed; this process ends before number `stop`."""
    done: list = []

    def counted(change):
        def change_or_stop(*args, **options):
            done.append(args)
            if len(done) == stop:
                raise KeyboardInterrupt
            return change(*args, **options)

        return change_or_stop

    for owner, name in ((os, "replace"), (os, "link"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    return done


@GROWTHS
@pytest.mark.parametrize("goes", ["on", "back"])
def test_a_stop_before_any_change_of_a_growth_loses_nothing(source, tmp_path, monkeypatch, large, goes):
    small, whole = score(source, tmp_path / "small", SMALL), score(source, tmp_path / "whole", large)
    wanted = whole if goes == "on" else small
    for stop in range(1, 100):
        folder = Path(shutil.copytree(tmp_path / "small", tmp_path / f"run-{stop}"))
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            done = changes_on_disk(patch, stop)
            score(source, folder, large)
        if len(done) < stop:
            break
        assert_same_scores(score(source, folder, large if goes == "on" else SMALL), wanted)
        assert_same_scores(score(source, folder, large), whole)
    assert stop > 10


@GROWTHS
def test_a_growth_that_did_not_end_goes_back_to_what_was_asked_before(source, tmp_path, monkeypatch, large):
    monkeypatch.setattr(run_folder, "HELD_HERE", 0.0)
    before = score(source, tmp_path / "run", SMALL)
    write_output(before)
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", large, [], stop_after=2)
    asked: list = []
    back = score(source, tmp_path / "run", SMALL, asked)
    assert not asked
    assert back.has("outputs.parquet")
    assert_same_scores(back, score(source, tmp_path / "small", SMALL))
    more: list = []
    assert_same_scores(score(source, tmp_path / "run", large, more), score(source, tmp_path / "whole", large))
    assert len({query for query, _ in more}) < len(score(source, tmp_path / "run", large).read_queries())


def write_output(run: Run) -> None:
    run.write(
        "outputs.parquet", pa.table({"query_id": ["q0"], "permutation": [0], "reader": ["r"], "output": ["yes"]}, output_schema())
    )


def test_a_growth_in_which_every_query_fails_can_be_undone(source, tmp_path):
    score(source, tmp_path / "run", SMALL)
    large = replace(SMALL, permutations=5)
    scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, large)

    def fail(*_):
        raise ValueError("out of order")

    scorer.score_orders = fail
    with pytest.raises(InputError, match="scored none of the 3 queries"):
        score_collection(scorer, source, tmp_path / "run", large)
    assert_same_tables(score(source, tmp_path / "run", SMALL), score(source, tmp_path / "small", SMALL))


def test_what_readers_wrote_of_fewer_permutations_does_not_count(source, tmp_path):
    write_output(score(source, tmp_path / "run", SMALL))
    grown = score(source, tmp_path / "run", replace(SMALL, permutations=5))
    assert not grown.has("outputs.parquet")
    assert score(source, tmp_path / "run", SMALL).has("outputs.parquet")


@pytest.mark.parametrize(
    ("smaller", "message"),
    [
        (AuditConfig(permutations=2, cut=Cut(queries=3)), "permutations was 3, now 2"),
        (AuditConfig(permutations=3, cut=Cut(queries=2)), "queries was 3, now 2"),
        (AuditConfig(permutations=5, cut=Cut(queries=5), seed=1), "seed was 0, now 1"),
    ],
)
def test_a_run_does_not_shrink_and_grows_in_nothing_else(source, tmp_path, smaller, message):
    score(source, tmp_path / "run", SMALL)
    with pytest.raises(RunMismatch, match=message):
        score(source, tmp_path / "run", smaller)


def test_an_unfinished_run_may_be_asked_for_more(source, tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "HELD_HERE", 0.0)
    asked, more, large = [], [], AuditConfig(permutations=5)
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", SMALL, asked, stop_after=2)
    assert_same_scores(score(source, tmp_path / "run", large, more), score(source, tmp_path / "whole", large))
    assert not set(asked) & set(more)


@pytest.mark.parametrize("table", ["scores", "queries"])
@GROWTHS
def test_a_damaged_run_grows_and_what_was_lost_is_made_again(source, tmp_path, table, large):
    run = score(source, tmp_path / "run", SMALL)
    for part in (run.folder / "parts" / table).iterdir():
        part.unlink()
    assert not Run.open(run.folder).is_complete
    assert_same_scores(score(source, run.folder, large), score(source, tmp_path / "whole", large))
    assert_same_scores(score(source, run.folder, SMALL), score(source, tmp_path / "small", SMALL))


def test_a_query_that_has_all_its_permutations_is_not_scored_again(source, tmp_path):
    run = score(source, tmp_path / "run", SMALL)
    scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, SMALL)
    instance = next(iter(open_collection(source).instances()))
    assert missing_numbers(scorer, instance, SMALL, run.ledger.numbers(instance.id)) == []
    assert missing_numbers(scorer, instance, replace(SMALL, permutations=5), run.ledger.numbers(instance.id)) == [3, 4]


def test_a_query_that_fails_in_a_growth_keeps_the_permutations_it_had(source, tmp_path):
    score(source, tmp_path / "run", SMALL)
    for permutations in (5, 8):  # it fails in one growth, and in the next
        large = replace(SMALL, permutations=permutations)
        scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, large)
        real = scorer.score_orders

        def fail(instance, orders, numbers, real=real):
            if instance.id == "q1":
                raise ValueError("out of order")
            return real(instance, orders, numbers)

        scorer.score_orders = fail
        run = score_collection(scorer, source, tmp_path / "run", large)
        assert [query.query_id for query in run.iter_queries()] == ["q0", "q2"]
    asked: list = []
    grown = score(source, tmp_path / "run", large, asked)
    assert asked == [("q1", number) for number in range(3, 8)]
    assert_same_tables(grown, score(source, tmp_path / "whole", large))


def test_windows_that_were_cut_to_fit_are_named_before_and_after_a_growth(source, tmp_path):
    for config in (SMALL, replace(SMALL, permutations=6)):
        scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, config)
        real, chars = scorer.score_orders, config.permutations

        def cut(instance, orders, permutations, scorer=scorer, real=real, chars=chars):
            cut = ShrunkWindow(query_id=instance.id, window=1, chars=chars)
            return replace(real(instance, orders, permutations), cost=Cost(shrunk=(cut,)))

        scorer.score_orders = cut
        run = score_collection(scorer, source, tmp_path / "run", config)
    assert [(cut.query_id, cut.chars) for cut in run.record.coverage.shrunk] == [
        (query, chars) for query in ("q0", "q1", "q2") for chars in (3, 6)
    ]


def test_a_latin_square_of_more_orders_is_another_one():
    (old, more), (hashed, more_hashed) = (
        [Fingerprint.of({"permutations": m, "scheme": scheme}) for m in (3, 6)] for scheme in ("balanced", "hashed")
    )
    assert not is_growth(old, more)
    assert is_growth(hashed, more_hashed)
    assert not is_growth(old, old)


def test_queries_are_chosen_by_id_and_more_of_them_are_added(source, tmp_path):
    asked, more = [], []
    run = score(source, tmp_path / "run", AuditConfig(permutations=2, cut=Cut(query_ids=("q4", "q1"))), asked)
    assert [query.query_id for query in run.iter_queries()] == ["q1", "q4"]
    grown = score(source, tmp_path / "run", AuditConfig(permutations=2, cut=Cut(query_ids=("q1", "q4", "q2"))), more)
    assert [query.query_id for query in grown.iter_queries()] == ["q1", "q2", "q4"]
    assert {query for query, _ in more} == {"q2"}
    with pytest.raises(RunMismatch, match="query_ids was"):
        score(source, tmp_path / "run", AuditConfig(permutations=2, cut=Cut(query_ids=("q1", "q3"))))


def test_ids_that_no_collection_has_are_named_before_anything_is_scored(source):
    with pytest.raises(InputError, match="no query has the id q77, q8 in"):
        check_query_ids([open_collection(source)], Cut(query_ids=("q1", "q8", "q77")))


def test_small_pools_grow_to_all_the_orders_they_have_and_no_further(tmp_path):
    source = str(write_collection(tmp_path / "small.jsonl", some_instances(queries=2, candidates=3)))
    asked: list = []
    score(source, tmp_path / "run", AuditConfig(permutations=4))
    grown = score(source, tmp_path / "run", AuditConfig(permutations=10), asked)
    assert sorted(asked) == [(query, number) for query in ("q0", "q1") for number in (4, 5)]
    again: list = []
    larger = score(source, tmp_path / "run", AuditConfig(permutations=20), again)
    assert again == []
    assert [len(query.permuted) for query in larger.read_queries()] == [6, 6]
    assert_same_scores(larger, score(source, tmp_path / "whole", AuditConfig(permutations=20)))
    assert grown.record.status == larger.record.status == "complete"


def test_a_run_of_the_papers_scheme_names_the_flag_that_goes_on_with_its_orders(source, tmp_path):
    hashed = replace(SMALL, scheme="hashed")
    before = score(source, tmp_path / "run", hashed)
    with pytest.raises(RunMismatch, match=r'scheme was "hashed", now "distinct" \(--set scheme=hashed goes on as it was\)'):
        score(source, tmp_path / "run", replace(SMALL, permutations=8))
    grown = score(source, tmp_path / "run", replace(hashed, permutations=8))
    assert [len(query.permuted) for query in grown.read_queries()] == [8, 8, 8]
    assert before.record.fingerprint.scheme == "hashed"
