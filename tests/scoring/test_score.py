import math
from dataclasses import replace

import numpy as np
import pytest

import steadyscore
from steadyscore.collection import open_collection
from steadyscore.engines import Engine
from steadyscore.errors import ModelError
from steadyscore.runs import folder as run_folder
from steadyscore.runs.folder import Run
from steadyscore.runs.records import Cost, ShrunkWindow
from steadyscore.scoring.config import AuditConfig, Cut, open_scorer, refuse_mismatch
from steadyscore.scoring.score import count_shown, cut_instances, draw_orders, score_collection
from steadyscore.scoring.scorer import Scorer, ideal_gains
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from tests.helpers.pools import some_instances, write_collection

POOL = Instance("q", "query", tuple(Candidate(f"d{i}", f"text {i}", relevance=i % 4) for i in range(8)))


def test_what_is_cut_from_the_pool_stays_in_the_ideal():
    (cut,) = cut_instances([POOL], Cut(pool=3))
    assert len(cut.pool) == 3
    assert ideal_gains(cut).tolist() == ideal_gains(POOL).tolist()


def test_only_the_first_queries_are_taken():
    assert [i.id for i in cut_instances([POOL] * 5, Cut(queries=2))] == ["q", "q"]


def test_balanced_orders_put_every_candidate_in_every_slot_equally_often():
    config = AuditConfig(permutations=8, scheme="balanced")
    orders = draw_orders(POOL, config, 4)
    slots = np.argsort(orders, axis=1) % 4
    assert all((np.bincount(column, minlength=4) == 2).all() for column in slots.T)
    assert np.array_equal(orders, draw_orders(POOL, config, 4))


@pytest.mark.parametrize(("n", "permutations"), [(6, 12), (4, 20), (5, 119), (3, 10), (2, 5), (1, 4)])
@pytest.mark.parametrize("scheme", ["balanced", "distinct"])
def test_no_order_of_a_pool_is_shown_twice(scheme, n, permutations):
    pool, config = replace(POOL, pool=POOL.pool[:n]), AuditConfig(permutations=permutations, scheme=scheme)
    orders = draw_orders(pool, config, n)
    assert len(orders) == len(np.unique(orders, axis=0)) == min(permutations, math.factorial(n)) == count_shown(config, n) - 1
    visits = [np.bincount(column, minlength=n) for column in orders.T]
    assert scheme != "balanced" or np.ptp(visits) <= 1


def test_the_papers_scheme_shows_as_many_of_every_pool():
    pool, config = replace(POOL, pool=POOL.pool[:2]), AuditConfig(permutations=10, scheme="hashed")
    assert len(draw_orders(pool, config, 2)) == count_shown(config, 2) - 1 == 10


def test_without_the_canonical_row_only_permutations_are_scored(tmp_path):
    file = write_collection(tmp_path / "c.jsonl", some_instances(2))
    config = AuditConfig(permutations=3, canonical=False)
    scorer = open_scorer("synthetic:none", open_collection(str(file)).collection, config)
    queries = score_collection(scorer, str(file), tmp_path / "run", config).read_queries()
    assert all(q.first_stage is None and q.permutations.tolist() == [0, 1, 2] for q in queries)


class Adapted(Engine):
    """An engine with an adapter on it that was trained behind another prompt."""

    def __init__(self, engine, **adapter):
        self.name, self.capabilities, self.encoder, self.context = (
            engine.name,
            engine.capabilities,
            engine.encoder,
            engine.context,
        )
        self._engine, self._adapter = engine, adapter

    def identity(self):
        return {**self._engine.identity(), "adapter": self._adapter}

    def grade_logits(self, prompts, *, label_mass=False):
        return self._engine.grade_logits(prompts, label_mass=label_mass)


def test_an_adapter_behind_another_prompt_is_refused(tiny_engine):
    plain = Scorer(tiny_engine, PASSAGE_RERANKING)
    prompt_hash = plain.identity()["prompt_hash"]
    tokens = [15, 16, 17, 18]
    refuse_mismatch(
        Scorer(Adapted(tiny_engine, task="passage_reranking", prompt_hash=prompt_hash, grade_tokens=tokens), PASSAGE_RERANKING)
    )
    with pytest.raises(ModelError, match=r"trained with prompt other.* Pass --set allow_base_mismatch=yes"):
        refuse_mismatch(
            Scorer(Adapted(tiny_engine, task="passage_reranking", prompt_hash="other", grade_tokens=tokens), PASSAGE_RERANKING)
        )


def test_failed_queries_are_tried_again_by_the_same_command(tmp_path):
    file = write_collection(tmp_path / "c.jsonl", some_instances(3))
    config = AuditConfig(permutations=2)
    scorer = open_scorer("synthetic:none", open_collection(str(file)).collection, config)
    real = scorer.score_orders

    def flaky(instance, *rest):
        if instance.id == "q1":
            raise ConnectionError("gone")
        return real(instance, *rest)

    scorer.score_orders = flaky
    first = score_collection(scorer, str(file), tmp_path / "run", config)
    assert [f.query_id for f in first.record.failed] == ["q1"]
    scorer.score_orders = real
    again = score_collection(scorer, str(file), tmp_path / "run", config)
    assert again.record.failed == []
    assert sorted(q.query_id for q in again.read_queries()) == ["q0", "q1", "q2"]


class Charging:
    """Makes a scorer look like an endpoint that charges a request a query and cuts the first window of each."""

    def __init__(self, scorer, fails=lambda instance: None):
        self.real, self.fails, self.requests = scorer.score_orders, fails, 0
        scorer.backend.spent = lambda: {"requests": self.requests, "cost": self.requests / 4}
        scorer.score_orders = self.score_orders

    def score_orders(self, instance, *rest):
        self.requests += 1
        self.fails(instance)
        cut = ShrunkWindow(query_id=instance.id, window=1, chars=100)
        return replace(self.real(instance, *rest), cost=Cost(shrunk=(cut,)))


def charging(file, config, fails=lambda instance: None):
    scorer = open_scorer("synthetic:none", open_collection(str(file)).collection, config)
    Charging(scorer, fails)
    return scorer


def test_what_a_run_cost_is_added_up_over_its_sessions(tmp_path):
    """Stopped by the user, by a failed query and by nothing: cut windows, windows and money are those of all three."""
    file = write_collection(tmp_path / "c.jsonl", some_instances(4))
    config = AuditConfig(permutations=2)

    def stop(instance):
        if instance.id == "q2":
            raise KeyboardInterrupt

    def fail(instance):
        if instance.id == "q3":
            raise ConnectionError("gone")

    with pytest.raises(KeyboardInterrupt):
        score_collection(charging(file, config, stop), str(file), tmp_path / "run", config)
    assert Run.open(tmp_path / "run").scored_ids() == {"q0", "q1"}, "what was scored before the stop stays"
    second = score_collection(charging(file, config, fail), str(file), tmp_path / "run", config).record.coverage
    assert [cut.query_id for cut in second.shrunk] == ["q0", "q1", "q2"]
    third = score_collection(charging(file, config), str(file), tmp_path / "run", config).record
    assert third.coverage.shrunk == [ShrunkWindow(f"q{i}", 1, 100) for i in range(4)]
    assert third.coverage.spent == {"requests": 3 + 2 + 1, "cost": 6 / 4}
    assert third.coverage.windows == 4 * 3
    assert [session.windows for session in third.sessions] == [2 * 3, 1 * 3, 1 * 3]
    assert third.coverage.seconds == pytest.approx(sum(session.seconds for session in third.sessions), abs=0.1)


def test_a_session_is_on_disk_while_it_runs(tmp_path, monkeypatch):
    """So that a kill loses the account of no more than the last shard."""
    file, config, seen = write_collection(tmp_path / "c.jsonl", some_instances(3)), AuditConfig(permutations=2), []
    monkeypatch.setattr(run_folder, "HELD_HERE", 0.0)
    scorer = charging(file, config, lambda instance: seen.append(Run.open(tmp_path / "run").record.sessions))
    score_collection(scorer, str(file), tmp_path / "run", config)
    assert [len(sessions[0].shrunk) for sessions in seen[1:]] == [1, 2]
    assert seen[2][0].spent == {"requests": 2, "cost": 0.5}


def test_a_second_collection_is_not_charged_for_the_first(tmp_path):
    config = AuditConfig(permutations=2)
    files = [write_collection(tmp_path / f"{name}.jsonl", some_instances(count)) for name, count in (("a", 3), ("b", 2))]
    scorer = charging(files[0], config)
    runs = [score_collection(scorer, str(file), tmp_path / file.stem, config) for file in files]
    assert [run.record.coverage.spent for run in runs] == [{"requests": n, "cost": n / 4} for n in (3, 2)]
    assert [len(run.record.coverage.shrunk) for run in runs] == [3, 2]


# -- what the data says of itself


def scored_pools(sign):
    return [
        row | {"candidates": [c | {"score": sign * (9.0 - i)} for i, c in enumerate(row["candidates"])]}
        for row in some_instances(3)
    ]


@pytest.mark.parametrize("sign", [1, -1], ids=["falling", "rising"])
def test_first_stage_scores_against_the_order_of_the_pool_are_said(sign):
    (found,) = steadyscore.audit("synthetic:slot", scored_pools(sign), permutations=2)
    sentence = "the first-stage scores of 3 of 3 queries contradict the order of the pool; the order was taken."
    assert (sentence in str(found.remarks())) is (sign < 0)
    assert (sentence in found.to_json()["warnings"]) is (sign < 0)


def test_more_queries_than_there_are_is_said():
    for asked in (3, 500):
        (found,) = steadyscore.audit("synthetic:slot", some_instances(3), permutations=2, queries=asked)
        assert ("500 queries were asked for, and 3 are all there are." in found.to_json()["warnings"]) is (asked == 500)


def test_what_an_earlier_call_asked_for_is_not_said_of_a_run_that_went_on(tmp_path):
    how = {"permutations": 2, "out": tmp_path, "report": False, "quiet": True}
    steadyscore.audit("synthetic:slot", some_instances(3), queries=500, **how)
    (found,) = steadyscore.audit("synthetic:slot", some_instances(3), **how)
    assert "were asked for" not in str(found.remarks())
