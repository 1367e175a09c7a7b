from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.studies import validate as simulate


@given(st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_layout_is_a_bijection_onto_window_and_slot(n, width, seed):
    orders = simulate.random_orders(n, 3, np.random.default_rng(seed))
    slots, windows = simulate.layout(orders, width)
    for order, slot, window in zip(orders, slots, windows, strict=True):
        assert sorted(window * width + slot) == list(range(n))
        assert np.array_equal(order[window * width + slot], np.arange(n))


SCORERS = (
    "no_order_effect", "slot_effect", "window_effect", "companion_effect", "shared_companion_effect", "mixed_effect", "noise",
    "ties",
)  # fmt: skip


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(("pool", "width"), [(24, 6), (25, 6), (26, 6)])
def test_planted_variance_is_the_variance_over_random_orders(name, pool, width):
    seed = 7
    orders = simulate.random_orders(pool, 4000, np.random.default_rng(0))
    found = getattr(simulate, name)(orders, width, np.random.default_rng(seed))
    assert found.scores.var(axis=0).mean() == pytest.approx(found.planted.total, rel=0.05, abs=1e-12)
    assert sum(found.planted[1:]) == pytest.approx(found.planted.total)


def test_companion_shift_is_the_mean_influence_of_the_window():
    influence = np.array([[9, 1, 2], [3, 9, 4], [5, 6, 9]], float)
    found = simulate.simulate(np.zeros(3), [[0, 1, 2], [2, 0, 1]], 2, influence=influence)
    assert np.array_equal(found.scores, [[1, 3, 0], [2, 0, 5]])


def test_one_window_leaves_companions_nothing_to_vary():
    rng = np.random.default_rng(0)
    found = simulate.companion_effect(simulate.random_orders(8, 5, rng), 8, rng)
    assert found.planted.companion == 0
    assert np.allclose(found.scores, found.scores[0])


def test_ties_have_four_scores_and_no_order_effect():
    rng = np.random.default_rng(0)
    found = simulate.ties(simulate.random_orders(50, 5, rng), 10, rng)
    assert len(np.unique(found.scores)) == 4
    assert (found.scores == found.scores[0]).all()
