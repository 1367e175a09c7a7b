"""The cutoff of the threshold consumer: fitting against exhaustive search, halves of the queries, rows of scores."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures.threshold import FittingScores, Steps, Threshold, cutoff_grid, deal_queries, fit_cutoff

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
    grid = cutoff_grid(np.concatenate(scores), protocol)
    literal = np.array([literal_mean_f1(scores, relevance, cutoff) for cutoff in grid])
    highest = grid[np.flatnonzero(literal >= literal.max() - 1e-12)[-1]]
    assert fit_cutoff(scores, relevance, protocol) == highest


def test_the_midpoint_grid_holds_every_decision_once():
    grid = cutoff_grid(np.array([0.1, 0.5, 0.5, 0.9]))
    assert grid == pytest.approx([0.1, 0.3, 0.7])
    assert cutoff_grid(np.array([0.5, 0.5])) == pytest.approx([0.5])


def test_the_reference_grid_is_41_points_over_all_queries():
    everyone = [np.array([0.0, 1.0]), np.array([0.2, 3.0])]
    assert cutoff_grid(np.concatenate(everyone), "reference") == pytest.approx(np.linspace(0, 3, 41))
    assert cutoff_grid(np.array([0.5, 0.5]), "reference") == pytest.approx([0.5])
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
    grid = cutoff_grid(np.concatenate(scores))
    distance = np.array([abs(np.mean([(row >= cutoff).mean() for row in scores]) - target) for cutoff in grid])
    highest = grid[np.flatnonzero(distance <= distance.min() + 1e-12)[-1]]
    assert Steps(scores).fit([np.ones(len(scores), bool)], target) == [highest]


def half(ids, **by):
    """The ids on which a cutoff is fitted."""
    on = FittingScores(ids)
    return {ids[i] for i in np.flatnonzero(on.half(Threshold(cutoff="f1", **by)))}


def test_the_half_is_seeded_and_ignores_the_input_order():
    ids = [f"q{i}" for i in range(43)]
    for by in ({}, {"protocol": "reference"}):
        fitting = half(ids, **by)
        assert len(fitting) == 22
        assert half(ids[::-1], **by) == fitting
    assert half(ids, seed=1) != half(ids)
    assert half(["only"]) == {"only"}


def test_the_reference_half_is_from_numpys_shuffle_of_the_sorted_ids():
    ids = np.array(sorted(str(i) for i in range(10)))
    expected = ids.copy()
    np.random.default_rng(20260610).shuffle(expected)
    assert half([str(i) for i in range(10)], protocol="reference") == set(expected[:5].tolist())
    assert deal_queries([str(i) for i in range(10)], protocol="reference") == expected.tolist()


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=8), st.floats(0, 1))
def test_the_share_that_a_cutoff_keeps_is_that_of_every_pool(pools, cutoff):
    kept = [np.mean([score >= cutoff for score in pool]) for pool in pools]
    assert Steps([np.array(pool) for pool in pools]).shares(cutoff).tolist() == kept


def test_parts_of_the_queries_are_fitted_as_if_there_were_no_others():
    scores, relevance = ragged(np.random.default_rng(5))
    parts = [np.arange(len(scores)) % 3 != place for place in range(3)]
    alone = [[np.flatnonzero(part), np.ones(part.sum(), bool)] for part in parts]
    for gold, target in ((relevance, None), (None, 0.4)):
        expected = [
            Steps([scores[i] for i in own], gold and [gold[i] for i in own]).fit([every], target)[0] for own, every in alone
        ]
        assert Steps(scores, gold).fit(parts, target) == expected
