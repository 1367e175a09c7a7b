"""A complete run that grows holds what a run made whole holds, byte for byte, and nothing is scored twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from steadyscore.collection import open_collection
from steadyscore.errors import InputError, RunMismatch
from steadyscore.runs import folder
from steadyscore.runs.folder import Run
from steadyscore.runs.growth import is_growth
from steadyscore.runs.layout import Session
from steadyscore.scoring.score import AuditConfig, Cut, check_query_ids, open_scorer, score_collection, score_query
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
    assert one.record["fingerprint"] == other.record["fingerprint"]


def assert_same_tables(one: Run, other: Run) -> None:
    assert_same_scores(one, other)
    assert one.record["coverage"]["windows"] == other.record["coverage"]["windows"]
    assert not (one.folder / "earlier.parquet").exists()


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
    assert grown.record["command"] == ["again"]


def test_a_growth_that_was_stopped_goes_on(source, tmp_path, monkeypatch):
    large = AuditConfig(permutations=6)
    monkeypatch.setitem(Run.append.__kwdefaults__, "seconds", 0.0)
    score(source, tmp_path / "run", SMALL)
    asked: list = []
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", large, asked, stop_after=2)
    assert not Run.open(tmp_path / "run").is_complete
    again: list = []
    grown = score(source, tmp_path / "run", large, again)
    assert not set(asked) & set(again)
    assert_same_tables(grown, score(source, tmp_path / "whole", large))


GROWTHS = pytest.mark.parametrize(
    "large", [replace(SMALL, permutations=6), AuditConfig(permutations=3)], ids=["permutations", "queries"]
)
"""A run of SMALL that has more permutations, and one that has more queries."""


@contextmanager
def killed(monkeypatch, function: str, call: int) -> Iterator[None]:
    """A process that ends before it calls a function of run folders for the n-th time."""
    where = folder if hasattr(folder, function) else Run
    real, calls = getattr(where, function), []

    def die(*given):
        calls.append(given)
        if len(calls) == call:
            raise KeyboardInterrupt
        return real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(where, function, die)
        with pytest.raises(KeyboardInterrupt):
            yield


@GROWTHS
@pytest.mark.parametrize("killed_in", ["_write_record", "_restore_shards", "finish", "write_tables", "_list_tables"])
@pytest.mark.parametrize("goes", ["on", "back"])
def test_a_kill_between_the_steps_of_a_growth_loses_nothing(source, tmp_path, monkeypatch, large, killed_in, goes):
    score(source, tmp_path / "run", SMALL)

    with killed(monkeypatch, killed_in, 2 if killed_in.startswith("_write") or killed_in == "write_tables" else 1):
        score(source, tmp_path / "run", large)
    wanted = large if goes == "on" else SMALL
    assert_same_scores(score(source, tmp_path / "run", wanted), score(source, tmp_path / "whole", wanted))
    assert_same_scores(score(source, tmp_path / "run", large), score(source, tmp_path / "large", large))
    assert sorted(file.name for file in (tmp_path / "run").iterdir()) == ["queries.parquet", "run.json", "scores.parquet"]


@GROWTHS
def test_a_growth_that_did_not_end_is_undone_by_the_command_before_it(source, tmp_path, monkeypatch, large):
    monkeypatch.setitem(Run.append.__kwdefaults__, "seconds", 0.0)
    before = score(source, tmp_path / "run", SMALL)
    before.write("outputs.parquet", before.read("queries.parquet"))
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", large, [], stop_after=2)
    asked: list = []
    undone = score(source, tmp_path / "run", SMALL, asked)
    assert not asked
    assert undone.has("outputs.parquet")
    assert_same_tables(undone, score(source, tmp_path / "small", SMALL))
    assert_same_scores(score(source, tmp_path / "run", large), score(source, tmp_path / "whole", large))


@GROWTHS
@pytest.mark.parametrize("stopped_in", ["finish", "_list_tables"])
@pytest.mark.parametrize(
    ("killed_in", "goes"), [("_write_record", "on"), ("_write_record", "back"), ("restore_table", "back"), ("damage_of", "back")]
)
def test_a_kill_while_a_growth_is_undone_loses_nothing(source, tmp_path, monkeypatch, large, stopped_in, killed_in, goes):
    score(source, tmp_path / "run", SMALL)
    with killed(monkeypatch, stopped_in, 1):
        score(source, tmp_path / "run", large)
    with killed(monkeypatch, killed_in, 1):
        score(source, tmp_path / "run", SMALL)
    wanted = large if goes == "on" else SMALL
    assert_same_scores(score(source, tmp_path / "run", wanted), score(source, tmp_path / "whole", wanted))
    assert_same_scores(score(source, tmp_path / "run", large), score(source, tmp_path / "large", large))


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


def test_what_readers_wrote_of_fewer_permutations_goes(source, tmp_path):
    run = score(source, tmp_path / "run", SMALL)
    run.write("outputs.parquet", run.read("queries.parquet"))
    grown = score(source, tmp_path / "run", replace(SMALL, permutations=5))
    assert not grown.has("outputs.parquet")


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


def test_an_unfinished_run_is_finished_before_it_grows(source, tmp_path, monkeypatch):
    monkeypatch.setitem(Run.append.__kwdefaults__, "seconds", 0.0)
    with pytest.raises(KeyboardInterrupt):
        score(source, tmp_path / "run", SMALL, [], stop_after=2)
    with pytest.raises(RunMismatch, match="is not complete, so it cannot grow yet"):
        score(source, tmp_path / "run", AuditConfig(permutations=3))


@pytest.mark.parametrize("file", ["scores.parquet", "queries.parquet"])
@GROWTHS
def test_a_damaged_run_is_repaired_before_it_grows(source, tmp_path, file, large):
    run = score(source, tmp_path / "run", SMALL)
    (run.folder / file).unlink()
    with pytest.raises(RunMismatch, match="is not complete, so it cannot grow yet"):
        score(source, run.folder, large)
    assert Run.open(run.folder).record["fingerprint"]["queries"] == 3
    assert_same_scores(score(source, run.folder, SMALL), score(source, tmp_path / "small", SMALL))
    assert_same_scores(score(source, run.folder, large), score(source, tmp_path / "whole", large))


def test_a_query_that_has_all_its_permutations_is_not_scored_again(source, tmp_path):
    run = score(source, tmp_path / "run", SMALL)
    scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, SMALL)
    known, session = next(run.iter_queries()), Session()
    instance = next(iter(open_collection(source).instances()))
    assert score_query(scorer, instance, SMALL, session, known, place=0) is known
    assert not session


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
    assert not (tmp_path / "run" / "unfinished.parquet").exists()


def test_windows_that_were_cut_to_fit_are_named_before_and_after_a_growth(source, tmp_path):
    for config in (SMALL, replace(SMALL, permutations=6)):
        scorer = open_scorer("synthetic:companion:0.3", open_collection(source).collection, config)
        real, chars = scorer.score_orders, config.permutations

        def cut(instance, orders, permutations, scorer=scorer, real=real, chars=chars):
            scorer.shrunk.append((instance.id, 0, chars))
            return real(instance, orders, permutations)

        scorer.score_orders = cut
        run = score_collection(scorer, source, tmp_path / "run", config)
    assert [(cut["query_id"], cut["chars"]) for cut in run.record["coverage"]["shrunk"]] == [
        (query, chars) for query in ("q0", "q1", "q2") for chars in (3, 6)
    ]


def test_a_latin_square_of_more_orders_is_another_one():
    old = {"permutations": 3, "scheme": "balanced"}
    assert not is_growth(old, old | {"permutations": 6})
    assert is_growth(old | {"scheme": "hashed"}, {"permutations": 6, "scheme": "hashed"})
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
    assert grown.record["status"] == larger.record["status"] == "complete"


def test_a_run_of_the_papers_scheme_names_the_flag_that_goes_on_with_its_orders(source, tmp_path):
    hashed = replace(SMALL, scheme="hashed")
    before = score(source, tmp_path / "run", hashed)
    with pytest.raises(RunMismatch, match=r'scheme was "hashed", now "distinct" \(--scheme hashed goes on as it was\)'):
        score(source, tmp_path / "run", replace(SMALL, permutations=8))
    grown = score(source, tmp_path / "run", replace(hashed, permutations=8))
    assert [len(query.permuted) for query in grown.read_queries()] == [8, 8, 8]
    assert before.record["fingerprint"]["scheme"] == "hashed"
