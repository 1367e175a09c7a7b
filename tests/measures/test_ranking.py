"""Ranking quality: golden values, agreement with pytrec_eval and ir_measures, the real pools, and what must always hold."""

from __future__ import annotations

import itertools
import json

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steadyscore.errors import InputError
from steadyscore.measures.ranking import (
    average_precision,
    best_ndcg,
    chance_ndcg,
    delta_ndcg_pool,
    mean_ndcg,
    ndcg,
    order_spread,
    rank,
    ranking,
    recall,
    reciprocal_rank,
    worst_ndcg,
)
from tests.helpers.paths import SHARED

NAN = np.nan


def random_queries(rng, queries=40, permutations=3, n=12, outside=5):
    """Scores with many ties, graded relevance with gaps, and judged documents outside the pool."""
    scores = rng.integers(0, 5, (queries, permutations, n)) / 4
    relevance = rng.choice([NAN, -1, 0, 0, 1, 2, 3], (queries, n))
    relevance[0] = 0  # judged, nothing relevant
    elsewhere = rng.choice([NAN, 0, 1, 3], (queries, outside))
    return scores, relevance, np.concatenate([relevance, elsewhere], axis=-1)


def strict_run(columns):
    """A run whose scores fall with rank, so that trec_eval's own tie rule has nothing to break."""
    return {f"d{column:03d}": float(len(columns) - place) for place, column in enumerate(columns)}


def as_qrels(judged):
    return {f"d{column:03d}": int(grade) for column, grade in enumerate(judged) if not np.isnan(grade)}


def test_rank_breaks_ties_by_candidate_id_or_by_input_position():
    scores = np.array([[1.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
    assert rank(scores).tolist() == [[2, 0, 1], [0, 1, 2]]
    orders = np.array([[2, 1, 0], [1, 2, 0]])
    assert ranking(scores, "input_position", orders).tolist() == [[2, 1, 0], [1, 2, 0]]
    assert rank(scores, "input_position", orders).tolist() == [[2, 1, 0], [2, 0, 1]]


@pytest.mark.parametrize("bad", [NAN, np.inf, -np.inf])
def test_scores_that_are_not_finite_are_refused(bad):
    with pytest.raises(InputError, match="1 of 4 scores are NaN or infinite"):
        rank([[1.0, bad], [0.0, 1.0]])


def test_tie_rule_without_orders_or_with_an_unknown_name_is_refused():
    with pytest.raises(InputError, match="Pass orders"):
        rank([[1.0, 1.0]], "input_position")
    with pytest.raises(InputError, match='"coin" is unknown'):
        rank([[1.0, 1.0]], "coin")


def test_an_unknown_gain_is_refused():
    with pytest.raises(InputError, match="Use one of: linear, exponential"):
        ndcg([[1.0, 2.0]], [1.0, 0.0], gain="cubic")


def test_ndcg_by_hand():
    scores, relevance = np.array([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]]), np.array([0.0, 1.0, 3.0])
    ideal = 3 + 1 / np.log2(3)
    assert ndcg(scores, relevance, 3) == pytest.approx([(1 / np.log2(3) + 3 / 2) / ideal, 1.0])
    ideal = 7 + 1 / np.log2(3)
    assert ndcg(scores, relevance, 3, gain="exponential") == pytest.approx([(1 / np.log2(3) + 7 / 2) / ideal, 1.0])
    assert ndcg(scores, relevance, 1, judged_gains=[0, 1, 3, 4]).tolist() == [0.0, 0.75]


def test_a_judged_query_without_a_relevant_document_is_0_and_an_unjudged_one_is_nan():
    scores = np.ones((2, 3))
    for measure in (ndcg, average_precision, reciprocal_rank, recall):
        assert measure(scores, [0.0, NAN, 0.0]).tolist() == [0.0, 0.0]
        assert np.isnan(measure(scores, [NAN, NAN, NAN])).all()
    assert ndcg(scores, [NAN, NAN, NAN], judged_gains=[2.0]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("from_pool", [True, False])
def test_agrees_with_pytrec_eval(from_pool):
    scores, relevance, judged = random_queries(np.random.default_rng(1))
    gains = None if from_pool else judged
    truth = relevance if from_pool else judged
    qrels = {f"{q}-{m}": as_qrels(truth[q]) for q in range(40) for m in range(3)}
    runs = {f"{q}-{m}": strict_run(ranking(scores[q])[m]) for q in range(40) for m in range(3)}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.1,5,10", "map", "recip_rank", "recall.5,10"})
    theirs = evaluator.evaluate(runs)
    ours = {
        "map": average_precision(scores, relevance, judged_gains=gains),
        "recip_rank": reciprocal_rank(scores, relevance),
        **{f"ndcg_cut_{k}": ndcg(scores, relevance, k, judged_gains=gains) for k in (1, 5, 10)},
        **{f"recall_{k}": recall(scores, relevance, k, judged_gains=gains) for k in (5, 10)},
    }
    for name, value in ours.items():
        expected = [[theirs[f"{q}-{m}"][name] for m in range(3)] for q in range(40)]
        assert value == pytest.approx(np.array(expected), abs=1e-12), name


def test_agrees_with_ir_measures_on_both_gains():
    scores, relevance, judged = random_queries(np.random.default_rng(2), permutations=1)
    judged = np.where(judged < 0, 0, judged)  # ir_measures' exponential gain has no rule for negative judgements
    relevance = judged[:, : relevance.shape[1]]
    qrels = {str(q): as_qrels(judged[q]) for q in range(40)}
    runs = {str(q): strict_run(ranking(scores[q])[0]) for q in range(40)}
    measures = {
        "linear": ir_measures.nDCG @ 10,
        "exponential": ir_measures.nDCG(gains={0: 0, 1: 1, 2: 3, 3: 7}) @ 10,
    }
    for gain, measure in measures.items():
        theirs = {row.query_id: row.value for row in ir_measures.iter_calc([measure], qrels, runs)}
        ours = ndcg(scores, relevance, 10, gain=gain, judged_gains=judged)[:, 0]
        assert ours == pytest.approx([theirs[str(q)] for q in range(40)], abs=1e-12), gain


def test_mean_worst_best_and_spread_are_reductions_of_ndcg():
    scores, relevance, _ = random_queries(np.random.default_rng(3))
    quality = ndcg(scores, relevance, 5)
    assert mean_ndcg(scores, relevance, 5) == pytest.approx(quality.mean(-1), nan_ok=True)
    assert worst_ndcg(scores, relevance, 5) == pytest.approx(quality.min(-1), nan_ok=True)
    assert best_ndcg(scores, relevance, 5) == pytest.approx(quality.max(-1), nan_ok=True)
    assert order_spread(scores, relevance, 5) == pytest.approx((quality.mean(-1) - quality.min(-1)), nan_ok=True)
    same = np.repeat(scores[:, :1], 7, axis=1)
    assert (order_spread(same, np.nan_to_num(relevance)) == 0).all()
    assert np.isnan(order_spread(scores[:, :1], relevance)).all()


def test_delta_ndcg_pool_is_signed_or_absolute():
    original, perturbed, relevance = np.array([3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.0, 0.0])
    assert delta_ndcg_pool(original, perturbed, relevance, k=3) == pytest.approx(0.5 - 1)
    assert delta_ndcg_pool(original, perturbed, relevance, k=3, absolute=True) == pytest.approx(0.5)


def test_a_batch_equals_its_queries_one_by_one():
    scores, relevance, judged = random_queries(np.random.default_rng(4))
    for measure in (
        lambda s, r, j: ndcg(s, r, 5, judged_gains=j),
        lambda s, r, j: average_precision(s, r, j),
        lambda s, r, j: recall(s, r, 5, j),
    ):
        one_by_one = np.stack([measure(*query) for query in zip(scores, relevance, judged, strict=True)])
        assert np.array_equal(measure(scores, relevance, judged), one_by_one, equal_nan=True)
        deeper = measure(scores.reshape(4, 10, 3, -1), relevance.reshape(4, 10, -1), judged.reshape(4, 10, -1))
        assert np.array_equal(deeper.reshape(40, 3), one_by_one, equal_nan=True)


@st.composite
def untied_queries(draw):
    permutations, n = draw(st.integers(1, 5)), draw(st.integers(1, 12))
    rows = [draw(st.permutations(range(n))) for _ in range(permutations)]
    relevance = draw(arrays(float, n, elements=st.sampled_from([NAN, 0.0, 1.0, 2.0, 3.0])))
    return np.array(rows, float), relevance, np.array(draw(st.permutations(range(n))))


@settings(max_examples=100, deadline=None)
@given(untied_queries())
def test_quality_ignores_candidate_names_and_stays_in_range(query):
    scores, relevance, names = query
    for measure in (ndcg, average_precision, reciprocal_rank, recall):
        value = measure(scores, relevance)
        assert value == pytest.approx(measure(scores[:, names], relevance[names]), nan_ok=True)
        assert ((value >= 0) & (value <= 1 + 1e-12)).all() or np.isnan(relevance).all()


@pytest.mark.shared
@pytest.mark.parametrize(("name", "queries", "expected"), [("trec-dl19", 43, 0.5058), ("trec-dl21", 53, 0.4458)])
def test_first_stage_order_of_the_real_pools(name, queries, expected):
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not on this machine")
    judged: dict[str, dict[str, float]] = {}
    for line in (folder / "qrels.jsonl").read_text().splitlines():
        row = json.loads(line)
        judged.setdefault(row["qid"], {})[row["docid"]] = row["grade"]
    quality = []
    for line in (folder / "pools_bm25_top100.jsonl").read_text().splitlines():
        pool = json.loads(line)
        grades = judged[pool["qid"]]
        shown = [candidate["docid"] for candidate in pool["candidates"]]
        relevance = [grades.get(document, NAN) for document in shown]
        scores = -np.arange(len(shown), dtype=float)[None]
        quality.append(ndcg(scores, relevance, 10, judged_gains=list(grades.values()))[0])
    assert len(quality) == queries
    assert np.mean(quality) == pytest.approx(expected, abs=5e-5)


@given(arrays(float, st.integers(1, 5), elements=st.integers(0, 3)), st.integers(1, 6))
@settings(deadline=None)
def test_chance_is_the_mean_over_every_order_of_the_pool(relevance, k):
    n = len(relevance)
    scores = np.array(list(itertools.permutations(range(n))), float)
    assert chance_ndcg(relevance, k) == pytest.approx(ndcg(scores, relevance, k).mean())


def test_chance_counts_judged_documents_outside_the_pool_and_is_unknown_without_a_judgement():
    assert chance_ndcg([1, 0], 1, judged_gains=[1, 0, 2]) == pytest.approx(0.25)
    assert np.isnan(chance_ndcg([np.nan, np.nan]))
