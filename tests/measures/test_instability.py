"""Order instability: golden values, agreement with scipy and literal transcriptions, and what must always hold."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from steadyscore.errors import InputError
from steadyscore.measures import instability
from steadyscore.measures.instability import (
    adjacent_ties,
    bucket_means,
    buckets,
    delta_ndcg,
    gold_rank_variance,
    normalized_residual,
    pool_psi,
    rank_variance,
    score_variance,
    tau_b_psi,
    tau_psi,
    tie_sensitivity,
    tied_pairs,
    top_k_changed,
    top_k_instability,
    zeng_psi,
    zeng_psi_corpus,
)
from steadyscore.measures.ranking import rank, ranking

NAN = np.nan


def scores_of(*rankings):
    """Strict scores of rankings written as strings, best first."""
    letters = sorted(rankings[0])
    return np.array([[-float(row.index(letter)) for letter in letters] for row in rankings])


def pairwise(function, rows):
    return np.mean([function(a, b) for a, b in combinations(rows, 2)])


def literal_rbo(one, other, k=10, p=0.9):
    """Extrapolated rank-biased overlap, transcribed term by term from its definition."""
    k = min(k, len(one))
    agreement = [len(set(one[:depth]) & set(other[:depth])) / depth for depth in range(1, k + 1)]
    return (1 - p) * sum(a * p**d for d, a in enumerate(agreement)) + agreement[-1] * p**k


# ---- golden values ----


def test_tau_psi_of_protocol():
    assert tau_psi(scores_of("abcd", "abdc", "dcba")) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("other", "rbo"),
    [("bacdefghijklm", 0.900), ("abcdefghjiklm", 0.99522), ("abcdefghikjlm", 0.96126), ("abcdefghijklm", 1.0)],
)
def test_rbo_of_protocol(other, rbo):
    instability = top_k_instability(scores_of("abcdefghijklm", other))
    assert 1 - instability == pytest.approx(rbo, abs=5e-6)


def test_tied_pairs_and_adjacent_ties_by_hand():
    scores = np.array([[1.0, 1.0, 1.0, 0.0], [4.0, 3.0, 2.0, 1.0]])
    assert tied_pairs(scores) == pytest.approx((3 / 6 + 0) / 2)
    assert adjacent_ties(scores) == pytest.approx(2 / 6)


def test_variances_by_hand():
    scores = np.array([[0.0, 1.0, 5.0], [2.0, 1.0, 5.0]])
    assert score_variance(scores) == pytest.approx(1 / 3)
    assert rank_variance(scores) == pytest.approx((0.25 + 0.25 + 0) / 3)  # ranks (2, 1, 0) and (1, 2, 0)
    assert gold_rank_variance(scores, [1.0, NAN, 2.0]) == pytest.approx(0.125)
    assert np.isnan(gold_rank_variance(scores, [0.0, NAN, 0.0]))


def test_normalized_residual_ignores_an_offset_and_the_scale():
    rng = np.random.default_rng(0)
    scores = rng.random((4, 6))
    offset = scores + rng.random((4, 1))
    assert normalized_residual(offset) == pytest.approx(normalized_residual(scores))
    assert normalized_residual(7 * scores) == pytest.approx(normalized_residual(scores))
    assert normalized_residual(scores[:1] + np.arange(3.0)[:, None]) == pytest.approx(0, abs=1e-12)
    assert np.isnan(normalized_residual(np.ones((3, 4))))


def test_buckets_follow_the_strongest_positive():
    relevance = np.array([1.0, 3.0, NAN, 3.0, 0.0, 0.0])  # the strongest is column 1: highest grade, then smallest id
    orders = np.array([[1, 0, 2, 3, 4, 5], [0, 2, 1, 3, 4, 5], [0, 2, 3, 4, 5, 1], [3, 1, 0, 2, 4, 5]])
    assert buckets(orders, relevance).tolist() == [0, 1, 2, 0]
    assert buckets(orders, np.zeros(6)).tolist() == [1, 1, 1, 1]
    both = buckets(np.stack([orders, orders]), np.stack([relevance, np.zeros(6)]))
    assert both.tolist() == [[0, 1, 2, 0], [1, 1, 1, 1]]


def test_zeng_psi_and_delta_ndcg_by_hand():
    quality, labels = np.array([0.8, 0.6, 0.4, 0.2]), np.array([0, 0, 1, 2])
    assert bucket_means(quality, labels) == pytest.approx([0.7, 0.4, 0.2])
    assert zeng_psi(quality, labels) == pytest.approx(1 - 0.2 / 0.7)
    assert delta_ndcg(quality) == pytest.approx(0.6)
    assert delta_ndcg(quality, labels) == pytest.approx((0.8 + 0.6 + 0.2) / 3 - 0.4)
    assert np.isnan(zeng_psi(quality, [1, 1, 1, 1]))
    assert np.isnan(zeng_psi(np.zeros(4), labels))
    assert np.isnan(delta_ndcg(quality, [0, 0, 2, 2]))
    # The corpus form averages bucket means over queries before the ratio; the missing middle of the second is not a 0.
    two = np.array([quality, [0.5, 0.5, 0.1, 0.1]]), np.array([labels, [0, 0, 2, 2]])
    assert zeng_psi_corpus(*two) == pytest.approx(1 - 0.15 / 0.6)


def test_pool_measures():
    original, perturbed = np.arange(12.0), np.arange(12.0)
    assert pool_psi(original, perturbed) == 0
    assert pool_psi(original, -perturbed) == 1
    assert top_k_changed(original, perturbed) == 0
    perturbed[[1, 2]] = perturbed[[2, 1]]  # ranks 10 and 11 change places
    assert pool_psi(original, perturbed) == pytest.approx(1 / 66)
    assert top_k_changed(original, perturbed) == 1
    assert top_k_changed(np.stack([original] * 2), np.stack([original, perturbed])).tolist() == [0, 1]


def test_tie_sensitivity_counts_decisions_a_tie_break_made():
    orders = np.array([[2, 1, 0], [2, 1, 0]])
    scores = np.array([[1.0, 1.0, 0.0], [3.0, 2.0, 1.0]])  # a tie for the first place, then none
    assert tie_sensitivity(scores, k=1, orders=orders) == 0.5
    assert tie_sensitivity(scores, k=2, orders=orders) == 0
    assert tie_sensitivity(scores, "pair", orders=orders) == 0.5
    assert tie_sensitivity(np.ones((400, 5)), k=1) == pytest.approx(0.8, abs=0.08)  # random against id: 4 of 5 differ


# ---- independent code ----


@pytest.mark.parametrize("tie_rule", ["candidate_id", "input_position"])
def test_tau_psi_agrees_with_scipy_on_ranks(tie_rule):
    rng = np.random.default_rng(5)
    scores = rng.integers(0, 6, (12, 5, 9)).astype(float)
    orders = rng.permuted(np.broadcast_to(np.arange(9), scores.shape), axis=-1)
    ranks = rank(scores, tie_rule, orders)
    expected = [(1 - pairwise(lambda a, b: stats.kendalltau(a, b).statistic, rows)) / 2 for rows in ranks]
    assert tau_psi(scores, tie_rule, orders) == pytest.approx(expected)


def test_tau_psi_by_input_position_counts_ties_as_moving_and_by_id_as_stable():
    orders = np.array([[0, 1, 2], [2, 1, 0]])
    assert tau_psi(np.ones((2, 3))) == 0
    assert tau_psi(np.ones((2, 3)), "input_position", orders) == 1
    assert np.isnan(tau_b_psi(np.ones((2, 3))))


def test_tau_b_psi_agrees_with_scipy_on_tied_scores():
    rng = np.random.default_rng(6)
    scores = rng.integers(0, 4, (12, 5, 9)).astype(float)
    expected = [(1 - pairwise(lambda a, b: stats.kendalltau(a, b).statistic, rows)) / 2 for rows in scores]
    assert tau_b_psi(scores) == pytest.approx(expected)
    constant = scores[0].copy()
    constant[2] = 1.0  # no tau-b with this row: its pairs are left out, the others stay
    assert tau_b_psi(constant) == pytest.approx(tau_b_psi(np.delete(constant, 2, axis=0)))


@pytest.mark.parametrize(("n", "k", "p"), [(25, 10, 0.9), (6, 10, 0.9), (15, 4, 0.7), (2, 1, 0.5)])
def test_top_k_instability_agrees_with_the_literal_rbo(n, k, p):
    scores = np.random.default_rng(7).integers(0, 8, (6, 4, n)).astype(float)
    expected = [1 - pairwise(lambda a, b: literal_rbo(a, b, k, p), ranking(rows).tolist()) for rows in scores]
    assert top_k_instability(scores, k, p) == pytest.approx(expected)


def test_tied_pairs_agrees_with_counting():
    scores = np.random.default_rng(8).integers(0, 3, (5, 3, 7)).astype(float)
    expected = [np.mean([a == b for row in query for a, b in combinations(row, 2)]) for query in scores]
    assert tied_pairs(scores) == pytest.approx(expected)


def test_large_batches_in_chunks_equal_single_queries(monkeypatch):
    scores = np.random.default_rng(9).integers(0, 9, (3, 7, 4, 11)).astype(float)
    singles = [[(tau_psi(query), tau_b_psi(query)) for query in block] for block in scores]
    monkeypatch.setattr(instability, "CHUNK_BYTES", 300)
    assert np.array_equal(np.stack([tau_psi(scores), tau_b_psi(scores)], axis=-1), singles)


def test_many_permutations_do_not_overflow():
    scores = np.random.default_rng(10).random((300, 4))
    ranks = rank(scores)
    above = (ranks[:, :, None] < ranks[:, None, :]).sum(axis=0).astype(float)
    assert tau_psi(scores) == pytest.approx((above * (300 - above)).sum() / (300 * 299 / 2 * 12))


# ---- what must always hold ----

PAIRWISE = [tau_psi, tau_b_psi, top_k_instability]
VARIANCES = [score_variance, rank_variance, normalized_residual]


@pytest.mark.parametrize("measure", [*PAIRWISE, *VARIANCES])
def test_one_permutation_is_nan(measure):
    assert np.isnan(measure(np.array([[1.0, 2.0, 3.0]])))
    assert np.isnan(measure(np.zeros((5, 1, 3)) + np.arange(3))).all()


@pytest.mark.parametrize("measure", [*PAIRWISE, tied_pairs, adjacent_ties])
def test_one_candidate_is_nan(measure):
    assert np.isnan(measure(np.array([[1.0], [2.0]])))


@st.composite
def permutations_of_scores(draw):
    n = draw(st.integers(2, 14))
    rows = draw(st.lists(st.permutations(range(n)), min_size=2, max_size=6))
    return np.array(rows, float), draw(st.permutations(range(len(rows)))), draw(st.permutations(range(n)))


@settings(max_examples=150, deadline=None)
@given(permutations_of_scores())
def test_instability_ignores_candidate_names_and_the_order_of_permutations(drawn):
    scores, rows, names = drawn
    for measure in (*PAIRWISE, *VARIANCES, tied_pairs, adjacent_ties):
        value = measure(scores)
        assert value == pytest.approx(measure(scores[rows]))
        assert value == pytest.approx(measure(scores[:, names]))
    for measure in PAIRWISE:
        assert 0 <= measure(scores) <= 1
        assert measure(np.repeat(scores[:1], 4, axis=0)) == pytest.approx(0, abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(permutations_of_scores())
def test_tau_psi_is_1_for_reversal_and_tau_b_agrees_without_ties(drawn):
    scores, _, _ = drawn
    assert tau_psi(np.stack([scores[0], -scores[0]])) == 1
    assert tau_b_psi(scores) == pytest.approx(tau_psi(scores))


def test_tau_psi_of_unrelated_rankings_is_a_half():
    assert tau_psi(np.random.default_rng(11).random((300, 10, 40))).mean() == pytest.approx(0.5, abs=0.005)


def test_how_ties_of_a_query_are_broken_at_random_depends_on_no_other_query():
    scores = np.random.default_rng(0).integers(0, 3, size=(6, 4, 5)).astype(float)
    together = tie_sensitivity(scores, k=2)
    assert 0 < together.mean() < 1
    np.testing.assert_array_equal(together[3:], tie_sensitivity(scores[3:], k=2))


@pytest.mark.parametrize("measure", [tau_psi, tau_b_psi, top_k_instability])
def test_scores_without_permutations_are_refused(measure):
    with pytest.raises(InputError, match=r"shape \(3,\) have no permutations"):
        measure(np.arange(3.0))
