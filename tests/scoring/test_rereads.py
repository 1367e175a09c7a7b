"""Repeated reads: the same requests in other calls, kept read by read, averaged."""

from __future__ import annotations

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.engines import Capabilities, Grader
from steadyscore.errors import InputError
from steadyscore.runs.table import FIRST_STAGE
from steadyscore.scoring import perturbation
from steadyscore.scoring.config import AuditConfig, open_scorer, scorer_for
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.perturbation import average_reads, noise_floor
from steadyscore.scoring.scorer import Settings
from steadyscore.window.readout import SlotLogits
from tests.helpers.pools import some_instances, write_collection


class Batched(Grader):
    """A grader whose grades move with who shares a call, by at most `size`; it keeps the calls."""

    name = "batched"
    capabilities = Capabilities(gives="distribution", distribution="exact")

    def __init__(self, size=0.0, failing=""):
        self.size, self.failing, self.calls = size, failing, []

    def identity(self):
        return {}

    def grade_logits(self, prompts, *, label_mass=False):
        self.calls.append([prompt.prefix[-1].text + prompt.body[1].text for prompt in prompts])
        if self.failing and any(self.failing in prompt.prefix[-1].text for prompt in prompts):
            raise RuntimeError("gave up")
        moved = self.size * (sum(len(text) for text in self.calls[-1]) % 7) / 7
        return [SlotLogits(np.tile([0.0, moved, 0, 0.0], (len(prompt.markers), 1))) for prompt in prompts]


@pytest.fixture
def source(tmp_path):
    return open_collection(str(write_collection(tmp_path / "c.jsonl", some_instances(queries=6, candidates=6))))


def scorer_of(backend, source, width=3):
    return scorer_for(backend, source.collection, AuditConfig(settings=Settings(width=width)))


def test_a_request_shares_its_calls_with_other_queries_and_with_others_each_time(source):
    grader = Batched()
    noise_floor(scorer_of(grader, source), source, AuditConfig(noise_reads=4))
    assert sorted(map(len, grader.calls)) == [6] * 8  # 12 windows, in two calls each time
    assert all(len({text.split()[3] for text in call}) > 1 for call in grader.calls)
    first = [frozenset(call) for call in grader.calls if grader.calls[0][0] in call]
    assert len(set(first)) > 1


def test_what_batching_moves_is_the_noise_and_an_engine_that_nothing_moves_has_none(source):
    moved, _ = noise_floor(scorer_of(Batched(2.0), source), source, AuditConfig(noise_reads=5))
    still, _ = noise_floor(scorer_of(Batched(), source), source, AuditConfig(noise_reads=5))
    assert [query.scores.shape for query in moved] == [(5, 6)] * 6
    assert max(np.ptp(query.scores, axis=0).max() for query in moved) > 0.01
    assert max(np.ptp(query.scores, axis=0).max() for query in still) == 0


def test_without_a_number_of_reads_some_queries_are_read_three_times(source, monkeypatch):
    monkeypatch.setattr(perturbation, "NOISE_QUERIES", 2)
    found, _ = noise_floor(scorer_of(Batched(), source), source, AuditConfig())
    assert [query.scores.shape for query in found] == [(3, 6)] * 2


def test_reads_are_kept_one_by_one_and_those_that_are_there_are_not_made_again(source):
    kept = []
    noise_floor(scorer_of(Batched(1.0), source), source, AuditConfig(noise_reads=2), keep=kept.append)
    assert [len(query.scores) for found in kept for query in found] == [1] * 6 + [2] * 6
    grader = Batched(1.0)
    more, _ = noise_floor(scorer_of(grader, source), source, AuditConfig(noise_reads=3), kept[-1], keep=kept.append)
    assert len(grader.calls) == 2  # one read more
    assert all(np.array_equal(new.scores[:2], old.scores) for new, old in zip(more, kept[1], strict=True))
    fewer, _ = noise_floor(scorer_of(grader, source), source, AuditConfig(), more)
    assert [query.query_id for query in fewer] == [query.query_id for query in more]
    assert len(grader.calls) == 2


def test_a_query_that_fails_is_named_and_the_others_of_its_call_are_read(source):
    found, failed = noise_floor(scorer_of(Batched(failing="thing 2"), source), source, AuditConfig(noise_reads=2))
    assert [(failure.query_id, failure.reason) for failure in failed] == [("q2", "RuntimeError: gave up")]
    assert [query.query_id for query in found] == ["q0", "q1", "q3", "q4", "q5"]


def test_a_local_model_is_close_to_itself_in_other_batches(source, tiny_folder):
    config = AuditConfig(settings=Settings(width=1), noise_reads=2)
    scorer = open_scorer(f"hf:{tiny_folder}", source.collection, config)
    for query in noise_floor(scorer, source, config)[0]:
        assert np.ptp(query.scores, axis=0).max() < 1e-5
        order = scorer.score_orders(next(i for i in source.instances() if i.id == query.query_id), np.arange(6)[None], [0])
        assert query.scores[0] == pytest.approx(order.scores[0], abs=1e-5)


def test_a_mitigated_scorer_is_read_query_by_query(source):
    averaged = mitigate(scorer_of(Batched(1.0), source), ["self-consistency:2"])
    found, _ = noise_floor(averaged, source, AuditConfig(noise_reads=2))
    assert [query.scores.shape for query in found] == [(2, 6)] * 6


def test_the_mean_of_the_reads_stands_as_the_first_stage_order(source):
    query = noise_floor(scorer_of(Batched(1.0), source), source, AuditConfig(noise_reads=4))[0][0]
    mean = average_reads(query)
    assert mean.permutations.tolist() == [FIRST_STAGE, 0]
    assert mean.first_stage == pytest.approx(query.scores.mean(axis=0))


def test_scores_that_exist_cannot_be_read_again(source, tmp_path):
    from steadyscore.scoring.score import score_collection

    config = AuditConfig(permutations=2)
    run = score_collection(open_scorer("synthetic:none", source.collection, config), source, tmp_path / "run", config)
    with pytest.raises(InputError, match="needs a scorer that can score again"):
        noise_floor(open_scorer(f"scores:{run.folder}/scores.parquet", source.collection, config), source, config)
