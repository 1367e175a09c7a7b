"""The preference consumer: pairs, flips, gold crossing, label accuracy, benchmark scores."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.collection.catalogue import chance_level
from steadyscore.errors import InputError
from steadyscore.measures.preference import (
    benchmark_range,
    benchmark_scores,
    benchmark_sd,
    change,
    first_place_bias,
    gold_crossing,
    label_accuracy,
    label_accuracy_at_k,
    pair,
    pair_flip,
    selected_quality,
    selected_quality_flip,
    selection_flip,
    swap_accuracy,
    swap_flip,
)
from steadyscore.measures.ranking import ndcg, ranking

NAN = np.nan
# Four permutations of four responses: the pairs are (0, 3), (0, 3), (1, 3), (0, 2).
SCORES = np.array([[9.0, 5, 4, 1], [8.0, 5, 4, 1], [5.0, 8, 4, 1], [9.0, 5, 1, 4]])
GOLD = np.array([3.0, 0.0, 0.0, 3.0])


BOTH_ORDERS = np.array([[0, 1], [1, 0]])
STAYS, FIRST, SECOND = [[0.9, 0.1], [0.8, 0.2]], [[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.7, 0.3]]


@pytest.mark.parametrize(
    ("scores", "flip", "bias", "accuracy"),
    [(STAYS, 0, 0, 1), (FIRST, 1, 1, 0), (SECOND, 1, -1, 0)],
    ids=["stays", "first", "second"],
)
def test_a_swap_of_a_pair_by_hand(scores, flip, bias, accuracy):
    assert swap_flip(scores, BOTH_ORDERS) == swap_flip(scores) == pair_flip(scores) == flip
    assert first_place_bias(scores, BOTH_ORDERS) == bias
    assert swap_accuracy(scores, [3, 0], BOTH_ORDERS) == swap_accuracy(scores, [3, 0]) == accuracy
    assert swap_accuracy(STAYS, [0, 3], BOTH_ORDERS) == 0
    assert np.isnan(swap_accuracy(scores, [2, 2], BOTH_ORDERS))


@given(rows=st.lists(st.booleans(), min_size=1, max_size=6))
def test_repeated_orders_of_a_pair_change_no_swap_rate(rows):
    """Rows of one order are compared with those of the other, and never with themselves."""
    drawn = [0, 1, *map(int, rows)]
    orders = BOTH_ORDERS[drawn]
    for scores, flip, bias in ((STAYS, 0, 0), (FIRST, 1, 1), (SECOND, 1, -1)):
        shown = np.array(scores)[drawn]
        assert (swap_flip(shown, orders), first_place_bias(shown, orders)) == (flip, pytest.approx(bias))
    assert np.isnan(swap_flip(np.array(FIRST)[[0, 0]], BOTH_ORDERS[[0, 0]]))


def test_pairs_and_flips_by_hand():
    assert pair(SCORES).tolist() == [[0, 3], [0, 3], [1, 3], [0, 2]]
    assert pair_flip(SCORES) == pytest.approx(5 / 6)
    assert pair_flip(SCORES, "modal") == pytest.approx(1 / 2)
    assert selection_flip(SCORES) == pytest.approx(1 / 2)
    assert selection_flip(SCORES, "modal") == pytest.approx(1 / 4)
    assert selected_quality(SCORES, GOLD).tolist() == [3, 3, 0, 3]
    assert selected_quality_flip(SCORES, GOLD) == pytest.approx(1 / 2)
    assert selected_quality_flip(SCORES, [3.0, 3.0, 0.0, 0.0]) == 0  # the choice moves between equals


def test_ties_go_to_the_smaller_id_at_both_ends():
    assert pair(np.ones((1, 4))).tolist() == [[0, 3]]
    assert pair_flip(np.ones((5, 4))) == 0
    tied = np.random.default_rng(1).integers(0, 3, (20, 5, 6)).astype(float)
    assert np.array_equal(pair(tied), ranking(tied)[..., [0, -1]])


def test_gold_crossing_and_label_accuracy_by_hand():
    assert gold_crossing(SCORES, GOLD) == 1
    assert label_accuracy(SCORES, GOLD) == 0.75
    assert label_accuracy_at_k(SCORES, GOLD) == 1
    assert label_accuracy_at_k(SCORES[2:], GOLD, 1) == 0
    assert gold_crossing(SCORES[:2], GOLD) == 0
    assert gold_crossing(SCORES, [3.0, 3.0, 0.0, 0.0]) == 0
    assert gold_crossing(SCORES, [0.0, 0.0, 3.0, 0.0]) == 0  # gold under none


def test_a_pool_without_gold_has_no_label_and_one_permutation_crosses_nothing():
    batch, relevance = np.stack([SCORES, SCORES]), np.stack([GOLD, [NAN, 0, 0, NAN]])
    assert np.array_equal(gold_crossing(batch, relevance), [1, NAN], equal_nan=True)
    assert np.array_equal(label_accuracy(batch, relevance), [0.75, NAN], equal_nan=True)
    assert np.isnan(gold_crossing(SCORES[:1], GOLD))


def test_a_query_without_any_judgement_is_undefined():
    batch, relevance = np.stack([SCORES, SCORES]), np.stack([GOLD, np.full(4, NAN)])
    assert selected_quality_flip(batch, relevance) == pytest.approx([1 / 2, NAN], nan_ok=True)


def test_chance_level_is_ndcg_at_1_of_a_random_choice():
    assert chance_level([3.0, 3, 3, 3, 0, 0, 0, 0]) == 0.5
    assert chance_level([3.0, 0, 0, 0]) == 0.25
    assert np.isnan(chance_level([0.0, NAN]))
    relevance = np.array([3.0, 2, 2, 1, 1, 0, NAN])
    scores = np.random.default_rng(0).random((20_000, 7))
    assert ndcg(scores, relevance, 1).mean() == pytest.approx(chance_level(relevance), abs=0.01)


def test_benchmark_scores_range_and_sd():
    quality = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [NAN, NAN, NAN]])
    assert benchmark_scores(quality) == pytest.approx([1, 0.5, 0.5])
    assert benchmark_range(quality) == pytest.approx(0.5)
    assert benchmark_sd(quality) == pytest.approx(np.std([1, 0.5, 0.5], ddof=1))
    assert np.isnan(benchmark_range(quality[:, :1]))
    assert np.isnan(benchmark_sd(quality[:, :1]))
    assert np.isnan(benchmark_scores(quality[2:])).all()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_flips_ignore_names_and_the_order_of_permutations(data):
    n = data.draw(st.integers(2, 8))
    scores = np.array(data.draw(st.lists(st.permutations(range(n)), min_size=2, max_size=6)), float)
    relevance = np.array(data.draw(st.lists(st.sampled_from([NAN, 0.0, 3.0]), min_size=n, max_size=n)))
    names, rows = data.draw(st.permutations(range(n))), data.draw(st.permutations(range(len(scores))))
    renamed, judged = scores[rows][:, names], relevance[names]
    for flip in (pair_flip, selection_flip):
        assert flip(renamed) == pytest.approx(flip(scores))
    for measure in (gold_crossing, label_accuracy, selected_quality_flip):
        assert measure(renamed, judged) == pytest.approx(measure(scores, relevance), nan_ok=True)
    if not np.isnan(relevance).all():
        assert selected_quality_flip(scores, relevance) <= selection_flip(scores)
    assert selection_flip(scores) <= pair_flip(scores) <= 1


@pytest.mark.parametrize(
    ("counts", "pairwise", "modal"),
    [((9, 1), 0.200, 0.100), ((8, 2), 16 / 45, 0.200), ((5, 5), 25 / 45, 0.500), ((1,) * 10, 1.0, 0.9), ((10,), 0, 0)],
)
def test_golden_values_of_protocol(counts, pairwise, modal):
    outputs = [f"output {i}" for i, count in enumerate(counts) for _ in range(count)]
    assert change(outputs) == pytest.approx(pairwise)
    assert change(outputs, "modal") == pytest.approx(modal)


def test_arrays_of_codes_keep_their_leading_axes():
    codes = np.array([[[1, 1, 2], [3, 3, 3]]])
    assert change(codes) == pytest.approx(np.array([[2 / 3, 0]]))
    assert change(codes, "modal") == pytest.approx(np.array([[1 / 3, 0]]))


@pytest.mark.parametrize("estimator", ["pairwise", "modal"])
def test_one_permutation_is_nan(estimator):
    assert np.isnan(change(["only"], estimator))
    assert np.isnan(change(np.zeros((2, 1), int), estimator)).all()


def test_an_unknown_estimator_is_refused():
    with pytest.raises(InputError, match='"mode" is unknown'):
        change([1, 2], "mode")


def test_any_hashable_output_will_do():
    assert change([frozenset({1, 2}), frozenset({2, 1}), None, ("a", 1)]) == pytest.approx(5 / 6)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.randoms())
def test_change_is_the_literal_disagreement_and_ignores_order(outputs, random):
    literal = np.mean([a != b for a, b in combinations(outputs, 2)])
    assert change(outputs) == pytest.approx(literal)
    assert change(np.array(outputs)) == pytest.approx(literal)
    shuffled = random.sample(outputs, len(outputs))
    assert change(shuffled) == pytest.approx(change(outputs))
    assert 0 <= change(outputs, "modal") <= change(outputs) <= 1
