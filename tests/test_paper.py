"""The paper's own statements about its measures, as tests (§3, §5, §C, §D.6, §F)."""

from __future__ import annotations

import numpy as np
import pytest

from steadyscore.measures.instability import pool_psi, tau_psi, top_k_instability
from steadyscore.measures.preference import change, label_accuracy, pair_flip
from steadyscore.measures.ranking import mean_ndcg, ndcg, order_spread, worst_ndcg
from steadyscore.measures.retained_sets import f1_spread, overlap, retained
from steadyscore.measures.views import ensembles

RNG = np.random.default_rng(20260610)
CONTENT = RNG.random(100)  # what a candidate deserves, whatever stands around it
ORDERS = np.stack([RNG.permutation(100) for _ in range(10)])  # position -> candidate


def slot_biased(strength):
    """A scorer at width 20 that over-scores early slots: scores (10, 100) under ten orders."""
    slots = np.argsort(ORDERS, axis=-1) % 20
    return CONTENT - strength * slots / 20


def test_tau_psi_is_0_for_identical_a_half_for_unrelated_and_1_for_reversed_rankings():
    assert tau_psi(np.stack([CONTENT, CONTENT])) == 0
    assert tau_psi(RNG.random((200, 10, 100))).mean() == pytest.approx(0.5, abs=0.002)
    assert tau_psi(np.stack([CONTENT, -CONTENT])) == 1


def test_tau_psi_at_width_1_is_0_and_so_is_all_other_movement():
    alone = np.stack([CONTENT] * 10)  # at width 1 no order reaches the prompt
    assert tau_psi(alone) == 0
    assert tau_psi(alone.round(1)) == 0  # ties too, under the order-independent tie-break
    assert top_k_instability(alone) == pytest.approx(0, abs=1e-12)
    assert overlap(retained(alone, 0.7)) == 1
    assert pair_flip(alone) == 0
    assert pool_psi(CONTENT, CONTENT) == 0


def test_the_same_ties_count_as_movement_when_broken_by_input_position():
    """GPT-style scorers tie often, so their figures turn on the tie-break (§A)."""
    tied = np.stack([CONTENT.round(1)] * 10)
    assert tau_psi(tied, "input_position", ORDERS) > 0.01


def test_more_order_dependence_means_more_tau_psi_and_less_overlap():
    strengths = [0.0, 0.1, 0.3, 1.0]
    instability = [tau_psi(slot_biased(strength)) for strength in strengths]
    agreement = [overlap(retained(slot_biased(strength), 0.6)) for strength in strengths]
    assert instability == sorted(instability)
    assert agreement == sorted(agreement, reverse=True)


def test_equal_ranking_quality_can_hide_different_decisions():
    """The title: two candidates of equal relevance change places around the cutoff; nDCG does not see it."""
    scores, relevance = np.array([[0.9, 0.6, 0.4], [0.9, 0.4, 0.6]]), [3.0, 1.0, 1.0]
    assert np.ptp(ndcg(scores, relevance, 3)) == 0
    assert overlap(retained(scores, 0.5)) == pytest.approx(1 / 3)


def test_relabelling_candidates_changes_no_metric():
    scores, relevance = slot_biased(0.5), RNG.integers(0, 4, 100).astype(float)
    names = RNG.permutation(100)
    for measure in (tau_psi, top_k_instability, pair_flip, lambda s: overlap(retained(s, 0.5))):
        assert measure(scores[:, names]) == pytest.approx(measure(scores))
    for measure in (ndcg, order_spread, label_accuracy, lambda s, r: f1_spread(retained(s, 0.5), r)):
        assert measure(scores[:, names], relevance[names]) == pytest.approx(measure(scores, relevance))


def test_order_spread_is_mean_minus_worst_so_its_reduction_is_the_difference_of_the_gains():
    relevance = RNG.integers(0, 4, 100).astype(float)
    before, after = slot_biased(1.0), slot_biased(0.2)
    worst_gain = worst_ndcg(after, relevance) - worst_ndcg(before, relevance)
    mean_gain = mean_ndcg(after, relevance) - mean_ndcg(before, relevance)
    assert order_spread(before, relevance) - order_spread(after, relevance) == pytest.approx(worst_gain - mean_gain)


def test_ndcg_at_1_is_the_rate_at_which_the_top_response_is_gold():
    scores, relevance = RNG.random((50, 10, 4)), np.array([3.0, 0, 0, 0])
    assert ndcg(scores, relevance, 1).mean(-1) == pytest.approx(label_accuracy(scores, relevance))


def test_flip_is_pairwise_disagreement_so_ten_permutations_can_flip_above_0_9():
    """Table rr-pairflip prints 0.940, which a modal share over ten permutations cannot reach."""
    assert change(list(range(10))) == 1
    assert change(list(range(10)), "modal") == pytest.approx(0.9)


def test_self_consistency_averages_the_order_effect_away():
    orders = np.stack([RNG.permutation(100) for _ in range(40)])
    scores = CONTENT - (np.argsort(orders, axis=-1) % 20) / 20
    assert ensembles(scores, 10).shape == (4, 100)
    assert tau_psi(ensembles(scores, 10)) < tau_psi(scores) / 2
