from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.measures import decomposition
from steadyscore.measures.decomposition import (
    Components,
    collection_shares,
    collection_slot_residual,
    order_marginal,
    order_residual,
    silver_beta,
    slot_residual,
    unbiased_components,
    variance_shares,
    width_decomposition,
    width_effect,
)
from steadyscore.studies import validate as simulate

POOL, WIDTH, PERMUTATIONS, QUERIES = 100, 20, 10, 100


def study(scorer, *, pool=POOL, width=WIDTH, permutations=PERMUTATIONS, queries=QUERIES, seed=0):
    rng = np.random.default_rng(seed)
    return [scorer(simulate.random_orders(pool, permutations, rng), width, rng) for _ in range(queries)]


def shares(queries, protocol="unbiased"):
    return collection_shares([variance_shares(q.scores, q.slots, q.windows, protocol=protocol) for q in queries])


@given(st.integers(1, 6), st.integers(1, 8), st.integers(0, 99))
def test_marginal_and_residual_add_up(permutations, n, seed):
    scores = np.random.default_rng(seed).normal(size=(permutations, n))
    assert np.allclose(order_marginal(scores) + order_residual(scores), scores)
    assert np.allclose(order_residual(scores).sum(axis=0), 0)


@pytest.mark.parametrize(
    "scorer", ["slot_effect", "window_effect", "companion_effect", "shared_companion_effect", "mixed_effect", "noise"]
)
def test_planted_shares_are_recovered_within_two_points(scorer):
    queries = study(getattr(simulate, scorer))
    planted = collection_shares([q.planted for q in queries])
    assert shares(queries) == pytest.approx(planted, abs=0.02)


def test_planted_shares_are_recovered_with_a_short_last_window():
    queries = study(simulate.mixed_effect, pool=105)
    assert shares(queries) == pytest.approx(collection_shares([q.planted for q in queries]), abs=0.02)


@pytest.mark.parametrize("permutations", [4, 5])
def test_few_permutations_are_enough_for_unbiased_shares(permutations):
    queries = study(simulate.mixed_effect, permutations=permutations, queries=200)
    assert shares(queries) == pytest.approx(Components(1, 0.3, 0.2, 0.5), abs=0.02)


def test_the_reference_protocol_takes_shared_companions_for_a_window_effect():
    found = shares(study(simulate.shared_companion_effect), "reference")
    assert 0.05 < found.window < 0.15  # 4 of the 40 degrees of freedom that windows have in 10 permutations


def test_no_order_effect_has_no_shares():
    queries = study(simulate.no_order_effect, queries=3)
    assert variance_shares(*queries[0][:3]) == Components(0, 0, 0, 0)
    assert np.isnan(shares(queries)).all()
    assert np.isnan(collection_shares([])).all()


def test_reference_components_equal_a_literal_least_squares_fit():
    (query,) = study(simulate.mixed_effect, pool=12, width=5, queries=1)
    scores, slots, windows, _ = query
    y = scores.ravel()
    one_hot = {
        "candidate": np.tile(np.eye(12), (PERMUTATIONS, 1)),
        "slot": np.eye(5)[slots.ravel()],
        "window": np.eye(3)[windows.ravel()],
    }

    def unexplained(*names):
        design = np.hstack([one_hot[name] for name in names])
        return np.mean((y - design @ np.linalg.lstsq(design, y, rcond=None)[0]) ** 2)

    total, after_slot = unexplained("candidate"), unexplained("candidate", "slot")
    after_all = unexplained("candidate", "slot", "window")
    expected = (total, total - after_slot, after_slot - after_all, after_all)
    assert variance_shares(scores, slots, windows, protocol="reference") == pytest.approx(expected)


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(0.1, 10), st.floats(-5, 5))
def test_components_ignore_candidate_names_and_level_and_follow_the_scale(seed, scale, level):
    rng = np.random.default_rng(seed)
    scores, slots, windows, _ = simulate.mixed_effect(simulate.random_orders(12, 6, rng), 4, rng)
    before = np.array(variance_shares(scores, slots, windows))
    relabel = rng.permutation(12)
    after = variance_shares(scale * scores[:, relabel] + level, slots[:, relabel], windows[:, relabel])
    assert np.allclose(after, scale**2 * before, atol=1e-9)
    assert before[0] == pytest.approx(before[1:].sum())
    for protocol in ("unbiased", "reference"):
        found = collection_shares([variance_shares(scores, slots, windows, protocol=protocol)])
        assert min(found) >= 0


def fitted_alone(scores, slots, windows):
    """One query's unbiased components by a least-squares fit of its own for every half."""
    permutations, n = scores.shape

    def within(values):
        return values - values.mean(axis=0)

    def fit(rows):
        shown = [labels[rows][..., None] == np.arange(labels.max() + 1) for labels in (slots, windows)]
        design = within(np.concatenate(shown, axis=-1).astype(float)).reshape(scores[rows].size, -1)
        effects, _, rank, _ = np.linalg.lstsq(design.T @ design, design.T @ within(scores[rows]).ravel(), rcond=1e-9)
        return np.split(effects, [slots.max() + 1]), rank

    half, parts, rank = permutations // 2, [], fit(np.arange(permutations))[1]
    for turn in range(half if permutations % 2 == 0 else permutations):
        rows = np.roll(np.arange(permutations), -turn)
        (first, a), (second, b) = fit(rows[:half]), fit(rows[half:])
        if a == b == rank:
            both = zip(first, second, (slots, windows), strict=True)
            parts.append([np.sum(within(x[labels]) * within(y[labels])) for x, y, labels in both])
    freedom = n * (permutations - 1)
    total = np.sum(within(scores) ** 2) / freedom
    slot, window = np.mean(parts, axis=0) / freedom if parts else (np.nan, np.nan)
    return [total, slot, window, total - slot - window]


@pytest.mark.parametrize(
    ("pool", "width", "permutations"), [(5, 5, 4), (7, 3, 5), (20, 10, 10), (13, 5, 6), (6, 1, 4), (9, 2, 7)]
)
def test_queries_that_are_fitted_together_get_what_each_gets_alone(pool, width, permutations, monkeypatch):
    monkeypatch.setattr(decomposition, "LARGEST", 2 * pool * permutations * (width + pool))  # several parts, one not full
    queries = study(simulate.mixed_effect, pool=pool, width=width, permutations=permutations, queries=5)
    scores, slots, windows = (np.stack([getattr(query, name) for query in queries]) for name in ("scores", "slots", "windows"))
    scores[1] = scores[1][0]  # nothing moves
    found = unbiased_components(scores, slots, windows)
    assert (found[1] == 0).all()
    for place in (0, 2, 3, 4):
        expected = fitted_alone(scores[place], slots[place], windows[place])
        np.testing.assert_allclose(found[place], expected, rtol=0, atol=1e-10)


def test_too_few_permutations_leave_the_parts_undefined():
    scores, slots, windows, _ = study(simulate.mixed_effect, permutations=3, queries=1)[0]
    found = variance_shares(scores, slots, windows)
    assert found.total > 0
    assert np.isnan(found[1:]).all()
    assert np.isnan(variance_shares(scores[:1], slots[:1], windows[:1])).all()


def test_slot_profile_finds_the_planted_slope_over_all_and_over_gold_candidates():
    queries = study(simulate.slot_effect, queries=40)
    gold = np.arange(POOL) < 10
    everyone = collection_slot_residual([slot_residual(q.scores, q.slots, WIDTH) for q in queries])
    golden = collection_slot_residual([slot_residual(q.scores, q.slots, WIDTH, gold) for q in queries])
    slope = -np.arange(WIDTH)
    planted = 0.1 * (slope - slope.mean()) / slope.std() * (1 - 1 / PERMUTATIONS)
    assert np.allclose(everyone.profile, planted, atol=0.01)
    assert np.allclose(golden.profile, planted, atol=0.02)
    assert everyone.rms == pytest.approx(0.09, rel=0.03)


def test_slot_profile_is_undefined_where_nothing_stood():
    found = slot_residual([[1.0, 2.0], [3.0, 2.0]], [[0, 1], [1, 0]], width=3, gold=[True, False])
    assert np.array_equal(found.profile, [-1, 1, np.nan], equal_nan=True)
    assert found.rms == 1
    nothing = slot_residual([[1.0, 2.0], [3.0, 2.0]], [[0, 1], [1, 0]], width=2, gold=[False, False])
    assert np.isnan(nothing.rms)


def test_width_effect_is_the_mean_shift_in_pooled_standard_deviations():
    alone = np.array([0.0, 1.0])
    assert width_effect([[1.0, 0.0], [1.0, 2.0]], alone) == pytest.approx(0.5 / np.std([1, 1, 0, 1]))
    assert width_effect(np.tile(alone, (3, 1)), alone) == 0
    assert np.isnan(width_effect([[1.0, 1.0]], [1.0, 1.0]))


@given(st.lists(st.floats(-1, 1), min_size=4, max_size=4))
def test_content_length_and_skeleton_add_up_to_width(qualities):
    found = width_decomposition(*qualities)
    assert found.width == qualities[1] - qualities[0]
    assert found.content + found.length_slot + found.skeleton == pytest.approx(found.width)
    assert abs(found.closure) < 1e-12


def test_silver_beta():
    still, moving = np.array([[1.0, 2.0], [1.0, 2.0]]), np.array([[0.0, 2.0], [2.0, 4.0]])
    assert silver_beta([still]) == (0, 0, 0)
    sd = np.std([0, 2], ddof=1)
    assert silver_beta([still, moving]) == pytest.approx((sd / 2, sd / np.std([1, 3], ddof=1) / 2, 0))
    flat = silver_beta([np.ones((2, 3))])
    assert (flat.beta, flat.undefined) == (0, 1)
    assert np.isnan(flat.scale_free)
    assert np.isnan(silver_beta([np.ones((1, 3))]).beta)
