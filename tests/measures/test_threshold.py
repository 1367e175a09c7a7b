"""The threshold consumer: fitting against exhaustive search, sets against scikit-learn, and what must always hold."""

from __future__ import annotations

import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import f1_score, jaccard_score

from steadyscore.errors import InputError
from steadyscore.measures.threshold import (
    chance_overlap,
    churned_relevance,
    cutoff_grid,
    empty_sets,
    expected_jaccard,
    f1_spread,
    fit_cutoff,
    match_retention,
    overlap,
    overlap_nonempty,
    retained,
    retained_f1,
    retained_share,
    retained_top_k,
    retention,
    set_f1,
    set_flip_rate,
    split_queries,
)

NAN = np.nan


def ragged(rng, queries=30):
    """Canonical scores with ties, and judgements with gaps, for pools of different sizes."""
    sizes = rng.integers(1, 15, queries)
    scores = [rng.integers(0, 20, n) / 20 for n in sizes]
    return scores, [rng.choice([NAN, 0, 0, 1, 2], n) for n in sizes]


def literal_mean_f1(scores, relevance, cutoff):
    values = []
    for row, judged in zip(scores, relevance, strict=True):
        kept, gold = row >= cutoff, judged >= 1
        precision = (kept & gold).sum() / kept.sum() if kept.any() else 0
        recall = (kept & gold).sum() / gold.sum() if gold.any() else 0
        values.append(2 * precision * recall / (precision + recall) if precision + recall else 0)
    return np.mean(values)


# ---- fitting ----


@pytest.mark.parametrize("protocol", ["midpoints", "reference"])
@pytest.mark.parametrize("seed", range(8))
def test_fit_cutoff_agrees_with_exhaustive_search(protocol, seed):
    scores, relevance = ragged(np.random.default_rng(seed))
    grid = cutoff_grid(scores, protocol)
    literal = np.array([literal_mean_f1(scores, relevance, cutoff) for cutoff in grid])
    highest = grid[np.flatnonzero(literal >= literal.max() - 1e-12)[-1]]
    assert fit_cutoff(scores, relevance, protocol) == highest


def test_the_midpoint_grid_holds_every_decision_once():
    grid = cutoff_grid([np.array([0.1, 0.5]), np.array([0.5, 0.9])])
    assert grid == pytest.approx([0.1, 0.3, 0.7])
    assert cutoff_grid([np.array([0.5, 0.5])]) == pytest.approx([0.5])


def test_the_reference_grid_is_41_points_over_all_queries():
    everyone = [np.array([0.0, 1.0]), np.array([0.2, 3.0])]
    assert cutoff_grid(everyone, "reference") == pytest.approx(np.linspace(0, 3, 41))
    assert cutoff_grid([np.array([0.5, 0.5])], "reference") == pytest.approx([0.5])
    fitted = fit_cutoff(everyone[:1], [np.array([0.0, 1.0])], "reference", grid_scores=everyone)
    assert fitted == pytest.approx(0.975)  # the highest of the 41 that keeps the relevant candidate at 1.0


def test_ties_go_to_the_higher_cutoff():
    assert fit_cutoff([np.array([0.2, 0.4, 0.8])], [np.zeros(3)]) == pytest.approx(0.6)


def test_fit_cutoff_refuses_what_does_not_fit_together():
    with pytest.raises(InputError, match="2 queries have scores and 1 have relevance"):
        fit_cutoff([np.ones(2), np.ones(2)], [np.ones(2)])
    with pytest.raises(InputError, match="at least one query"):
        fit_cutoff([], [])
    with pytest.raises(InputError, match='protocol "refrence" is unknown'):
        fit_cutoff([np.ones(2)], [np.ones(2)], "refrence")
    with pytest.raises(InputError, match="NaN or infinite"):
        fit_cutoff([np.array([1.0, NAN])], [np.ones(2)])


def test_a_collection_with_200_000_distinct_scores_fits_in_seconds():
    rng = np.random.default_rng(0)
    scores, relevance = rng.random((2000, 100)), (rng.random((2000, 100)) < 0.1).astype(float)
    started = time.process_time()  # the clock also counts what else the machine does
    cutoff = fit_cutoff(list(scores + 0.5 * relevance), list(relevance))
    assert time.process_time() - started < 20
    assert 0.9 < cutoff < 1.1


@pytest.mark.parametrize("target", [0.0, 0.3, 0.77, 1.0])
def test_match_retention_agrees_with_exhaustive_search(target):
    scores, _ = ragged(np.random.default_rng(3))
    grid = cutoff_grid(scores)
    distance = np.array([abs(np.mean([(row >= cutoff).mean() for row in scores]) - target) for cutoff in grid])
    highest = grid[np.flatnonzero(distance <= distance.min() + 1e-12)[-1]]
    assert match_retention(scores, target) == highest


def test_split_is_seeded_halves_and_ignores_the_input_order():
    ids = [f"q{i}" for i in range(43)]
    for protocol in ("hashed", "reference"):
        fitting, measuring = split_queries(ids, protocol=protocol)
        assert len(fitting) == 22
        assert sorted(fitting + measuring) == sorted(ids)
        assert split_queries(ids[::-1], protocol=protocol) == (fitting, measuring)
        assert split_queries(ids, seed=1, protocol=protocol) != (fitting, measuring)
    assert split_queries(["only"]) == (["only"], [])
    assert len(split_queries(ids, fraction=0.2)[0]) == 9


def test_the_reference_split_is_numpys_shuffle_of_the_sorted_ids():
    ids = np.array(sorted(str(i) for i in range(10)))
    expected = ids.copy()
    np.random.default_rng(20260610).shuffle(expected)
    assert split_queries([str(i) for i in range(10)], protocol="reference")[0] == expected[:5].tolist()


# ---- measuring ----


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
