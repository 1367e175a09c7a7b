"""Retained sets against scikit-learn and counting, and what must always hold."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import f1_score, jaccard_score

from steadyscore.measures.retained_sets import (
    chance_overlap,
    churned_relevance,
    empty_sets,
    expected_jaccard,
    f1_spread,
    overlap,
    overlap_nonempty,
    retained,
    retained_f1,
    retained_share,
    retained_top_k,
    retention,
    set_f1,
    set_flip_rate,
)

NAN = np.nan


def test_retained_keeps_ties_at_the_cutoff_and_a_budget_keeps_k():
    scores = np.array([[0.5, 0.4, 0.5], [0.5, 0.5, 0.5]])
    assert retained(scores, 0.5).tolist() == [[True, False, True], [True, True, True]]
    assert retained_top_k(scores, 2).tolist() == [[True, False, True], [True, True, False]]


def test_overlap_by_hand():
    sets = np.array([[1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]], bool)
    assert overlap(sets) == pytest.approx((1 / 3 + 0 + 0) / 3)
    assert overlap(np.zeros((4, 3), bool)) == 1
    assert np.isnan(overlap(sets[:1]))
    assert overlap(np.stack([sets, sets[::-1]])) == pytest.approx([1 / 9, 1 / 9])


def test_overlap_and_f1_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    sets = rng.random((8, 5, 12)) < rng.choice([0.05, 0.3, 0.9], (8, 1, 1))  # some sets are empty
    relevance = rng.choice([NAN, 0.0, 1.0, 3.0], (8, 12))
    jaccard = [np.mean([jaccard_score(a, b, zero_division=1) for a, b in combinations(query, 2)]) for query in sets]
    assert overlap(sets) == pytest.approx(jaccard)
    f1 = [[f1_score(judged >= 1, s, zero_division=0) for s in q] for q, judged in zip(sets, relevance, strict=True)]
    assert set_f1(sets, relevance) == pytest.approx(np.array(f1))
    assert retained_f1(sets, relevance) == pytest.approx(np.mean(f1, axis=-1))
    assert f1_spread(sets, relevance) == pytest.approx(np.mean(f1, axis=-1) - np.min(f1, axis=-1))


def test_set_f1_conventions():
    sets = np.array([[True, False], [False, False]])
    assert set_f1(sets, [1.0, 0.0]).tolist() == [1.0, 0.0]
    assert set_f1(sets, [0.0, NAN]).tolist() == [0.0, 0.0]
    assert np.isnan(set_f1(sets, [NAN, NAN])).all()
    assert np.isnan(f1_spread(sets[:1], [1.0, 0.0]))


def test_retention_and_set_flip_rate_by_hand():
    sets = np.array([[1, 1, 0, 0], [1, 0, 1, 0]], bool)
    assert retention(sets) == 0.5
    assert set_flip_rate(sets) == pytest.approx(2 / 3)
    assert np.isnan(set_flip_rate(np.zeros((2, 4), bool)))
    assert np.isnan(set_flip_rate(sets[:1]))


def test_churned_relevance_agrees_with_counting_pairs():
    rng = np.random.default_rng(2)
    sets, relevance = rng.random((5, 20)) < 0.5, rng.choice([NAN, 0.0, 1.0], 20)
    gold = relevance >= 1
    once = np.concatenate([gold[a ^ b] for a, b in combinations(sets, 2)])
    both = np.concatenate([gold[a & b] for a, b in combinations(sets, 2)])
    assert churned_relevance(sets, relevance) == pytest.approx((once.mean(), both.mean()))
    churned, kept = churned_relevance(np.ones((3, 20), bool), relevance)
    assert np.isnan(churned)
    assert kept == pytest.approx(gold.mean())
    assert np.isnan(churned_relevance(sets, np.full(20, NAN))).all()


@pytest.mark.parametrize(("share", "n", "kept"), [(0.29, 50, 15), (0.57, 50, 29), (0.3, 10, 3), (0.05, 4, 1)])
def test_a_share_is_rounded_half_up_in_decimals(share, n, kept):
    assert retained_share(np.arange(n)[None], share).sum() == kept


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_sets_ignore_names_and_the_order_of_permutations(data):
    permutations, n = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 10))
    sets = data.draw(arrays(bool, (permutations, n)))
    relevance = data.draw(arrays(float, n, elements=st.sampled_from([NAN, 0.0, 1.0])))
    names, rows = data.draw(st.permutations(range(n))), data.draw(st.permutations(range(permutations)))
    renamed, judged = sets[rows][:, names], relevance[names]
    assert overlap(renamed) == pytest.approx(overlap(sets))
    assert retained_f1(renamed, judged) == pytest.approx(retained_f1(sets, relevance), nan_ok=True)
    assert churned_relevance(renamed, judged) == pytest.approx(churned_relevance(sets, relevance), nan_ok=True)
    assert set_flip_rate(renamed) == pytest.approx(set_flip_rate(sets), nan_ok=True)
    assert 0 <= overlap(sets) <= 1
    assert overlap(np.repeat(sets[:1], 3, axis=0)) == 1


# -- what an overlap is to be read against


@given(arrays(bool, st.tuples(st.integers(2, 5), st.integers(1, 6))))
def test_without_pairs_of_empty_sets_the_overlap_is_the_mean_of_the_other_pairs(sets):
    pairs = [
        (a & b).sum() / (a | b).sum()
        for i, a in enumerate(sets)
        for b in sets[i + 1 :]
        if (a | b).any()
    ]  # fmt: skip
    found = overlap_nonempty(sets)
    assert np.isnan(found) if not pairs else found == pytest.approx(np.mean(pairs))
    assert empty_sets(sets) == pytest.approx(np.mean([not row.any() for row in sets]))


@given(st.integers(1, 6), st.data())
def test_random_sets_overlap_as_every_pair_of_subsets_does_on_average(n, data):
    a, b = data.draw(st.integers(0, n)), data.draw(st.integers(0, n))
    members = range(n)
    jaccard = [
        len(set(x) & set(y)) / len(set(x) | set(y)) if x or y else 1.0
        for x in combinations(members, a)
        for y in combinations(members, b)
    ]
    assert expected_jaccard(n, a, b) == pytest.approx(np.mean(jaccard))


def test_chance_is_averaged_over_the_pairs_of_permutations_of_each_query():
    sets = np.array([[[1, 1, 0], [1, 0, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]]], bool)
    two_and_two = expected_jaccard(3, 2, 2)
    assert chance_overlap(sets).tolist() == pytest.approx([two_and_two / 3, 1.0])
    assert np.isnan(chance_overlap(sets[:, :1])).all()


@given(arrays(float, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(0, 1)), st.floats(0.01, 0.99))
def test_a_share_of_every_pool_is_never_empty_and_as_large_as_it_can_be_asked_for(scores, share):
    kept = retained_share(scores, share).sum(axis=-1)
    assert (kept >= 1).all()
    assert (np.abs(kept - np.maximum(share * scores.shape[-1], 1)) <= 0.5 + 1e-9).all()
