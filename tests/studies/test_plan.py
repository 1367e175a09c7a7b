from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from steadyscore.errors import InputError
from steadyscore.measures.measurement import from_permutations
from steadyscore.studies.plan import half_width, pilot, required_queries


def pair_values(queries, permutations, rng):
    """Per query a level, per permutation a state; a pair value is the distance of two states."""
    level = rng.gamma(4, 0.25, queries)[:, None]
    state = level * rng.normal(size=(queries, permutations))
    return np.abs(state[:, :, None] - state[:, None, :])


def test_components_predict_the_spread_of_other_designs():
    rng = np.random.default_rng(0)
    found = pilot(pair_values(20_000, 6, rng))
    for permutations, queries in ((2, 40), (4, 20), (15, 20)):
        above = np.triu_indices(permutations, 1)
        means = [pair_values(queries, permutations, rng)[:, *above].mean() for _ in range(3000)]
        assert half_width(found, permutations, queries) == pytest.approx(1.96 * np.std(means), rel=0.06)


def test_components_of_a_normal_kernel_are_recovered():
    rng = np.random.default_rng(1)
    state = rng.normal(size=(20_000, 6))
    found = pilot(np.abs(state[:, :, None] - state[:, None, :]))
    # E|X - Y| = 2 / sqrt(pi); Var|X - Y| = 2 - 4 / pi; the shared part is Gini's 1/3 + (2 sqrt 3 - 4) / pi.
    assert found.value == pytest.approx(2 / np.sqrt(np.pi), rel=0.01)
    assert found.pair == pytest.approx(2 - 4 / np.pi, rel=0.03)
    assert found.shared == pytest.approx(1 / 3 + (2 * np.sqrt(3) - 4) / np.pi, rel=0.05)
    assert found.between < 0.003


def test_per_permutation_values_give_the_classical_standard_error():
    rng = np.random.default_rng(2)
    values = rng.normal(rng.normal(0, 0.2, (5000, 1)), 0.5, (5000, 8))
    found = pilot([from_permutations(v) for v in values])
    assert half_width(found, 5, 30) == pytest.approx(1.96 * np.sqrt((0.2**2 + 0.5**2 / 5) / 30), rel=0.03)


def test_required_queries_meet_the_margin_and_one_fewer_does_not():
    found = pilot(pair_values(200, 10, np.random.default_rng(3)))
    rows = required_queries(found, 0.05)
    assert all(row.half_width <= 0.05 < half_width(found, row.permutations, row.queries - 1) for row in rows)
    assert all(a.queries >= b.queries for a, b in pairwise(rows))
    assert all(row.scorings == row.permutations * row.queries for row in rows)


def test_a_pilot_that_says_too_little_is_refused():
    with pytest.raises(InputError, match="4 permutations"):
        pilot(np.ones((5, 3, 3)))
    with pytest.raises(InputError, match="2 queries"):
        pilot([np.full((4, 4), np.nan), np.ones((4, 4))])
    for margin in (0, 1e-200, float("nan")):
        with pytest.raises(InputError, match="margin must be at least 1e-06"):
            required_queries(pilot(np.ones((5, 4, 4))), margin)
