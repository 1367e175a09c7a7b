from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures import simulate
from steadyscore.measures.decomposition import order_marginal
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.planning import (
    balanced_orders,
    decide,
    from_permutations,
    half_width,
    log_capital,
    pilot,
    required_queries,
)


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


def test_capital_follows_the_bets_literally():
    values, bound = np.random.default_rng(0).random(30), 0.4
    capital, seen, squares, expected = 1.0, [0.5], 0.25, []
    for x in values:
        mean, variance = np.mean(seen), squares / len(seen)
        stake = np.clip((mean - bound) / (variance + (mean - bound) ** 2), 0, 1 / (2 * bound))
        capital *= 1 + stake * (x - bound)
        expected.append(np.log(capital))
        seen.append(x)
        squares += (x - np.mean(seen)) ** 2
    assert np.allclose(log_capital(values, bound), expected)


NULLS = {
    "coins": lambda rng, shape: (rng.random(shape) < 0.8).astype(float),
    "overlaps": lambda rng, shape: rng.beta(4, 1, shape),
    "constant": lambda rng, shape: np.full(shape, 0.8),
}


@pytest.mark.parametrize("name", NULLS)
def test_capital_is_fair_and_wrong_answers_are_rare_however_long_one_looks(name):
    values = NULLS[name](np.random.default_rng(0), (4000, 500))
    for side, bound in ((values, 0.8), (1 - values, 0.2)):
        capital = log_capital(side, bound)
        assert np.exp(capital[:, 5]).mean() == pytest.approx(1, abs=0.05)
        assert (capital >= np.log(20)).any(axis=1).mean() <= 0.05 + 0.007  # two standard errors of 4,000 studies


def test_stopping_is_right_and_early_when_the_answer_is_clear():
    rng = np.random.default_rng(1)
    below = [decide(rng.beta(6, 4, 1000), 0.8) for _ in range(100)]
    above = [decide(rng.beta(9.5, 0.5, 1000), 0.8) for _ in range(100)]
    assert {d.answer for d in below} == {"below"}
    assert {d.answer for d in above} == {"at_least"}
    assert np.median([d.queries for d in below]) < 60
    assert np.median([d.queries for d in above]) < 100


def test_stopping_passes_over_missing_values_and_refuses_unbounded_ones():
    values = np.array([np.nan] + [0.1] * 50)
    found = decide(values, 0.8)
    assert (found.answer, found.undefined) == ("below", 1)
    assert found.queries < 20
    assert decide(values[:3], 0.8) == ("undecided", 2, 1)
    assert decide([], 0.8).answer == "undecided"
    with pytest.raises(InputError, match="between 0 and 1"):
        decide([0.5, 1.5], 0.8)
    with pytest.raises(InputError, match="bound"):
        decide([0.5], 1.0)


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_balanced_orders_are_orders_and_even(n, permutations, width, seed):
    orders = balanced_orders(n, permutations, np.random.default_rng(seed), width=width)
    assert (np.sort(orders, axis=1) == np.arange(n)).all()
    if n % width == 0:
        slots, _ = simulate.layout(orders, width)
        visits = (slots[..., None] == np.arange(width)).sum(axis=0)  # (n, width)
        assert visits.max() - visits.min() <= (1 if permutations <= n else 2)
        if permutations % width == 0:
            assert (visits == permutations // width).all()


def marginal_variance(draw, permutations):
    """Variance over designs of the order-marginal of one scorer with a pure slot effect, 100 candidates at width 20."""
    marginals = [
        order_marginal(simulate.slot_effect(draw(permutations), 20, np.random.default_rng(0)).scores) for _ in range(100)
    ]
    return np.var(marginals, axis=0).mean()


def test_balance_removes_the_slot_noise_of_the_order_marginal():
    rng = np.random.default_rng(0)
    spread = {
        (design, permutations): marginal_variance(draw, permutations)
        for permutations in (10, 20)
        for design, draw in (
            ("random", lambda m: simulate.random_orders(100, m, rng)),
            ("balanced", lambda m: balanced_orders(100, m, rng, width=20)),
        )
    }
    reduction = spread["random", 10] / spread["balanced", 10]
    print(f"variance of the order-marginal falls {reduction:.1f}-fold at 10 permutations")
    assert reduction > 10
    assert spread["random", 20] > 1e-4
    assert spread["balanced", 20] < 1e-20


def test_balanced_orders_move_in_step_so_pairs_of_them_agree_more_than_random_ones():
    rng = np.random.default_rng(0)
    found = [
        np.mean([tau_psi(simulate.slot_effect(draw(), 20, np.random.default_rng(5)).scores) for _ in range(30)])
        for draw in (lambda: simulate.random_orders(100, 10, rng), lambda: balanced_orders(100, 10, rng, width=20))
    ]
    assert found == pytest.approx([0.141, 0.111], abs=0.003)


def test_balance_keeps_companions_changing():
    rng, together = np.random.default_rng(0), np.zeros((100, 100))
    for _ in range(200):
        _, windows = simulate.layout(balanced_orders(100, 2, rng, width=20), 20)
        same = windows[:, :, None] == windows[:, None, :]
        together += same[0] & same[1]
    again = together[~np.eye(100, dtype=bool)].mean() / 200
    assert again == pytest.approx((19 / 99) ** 2, rel=0.15)
