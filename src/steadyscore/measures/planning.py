"""How much to score: permutations and queries for a margin, when to stop, and orders that waste less (beyond the paper).

Most measures here are means over pairs of permutations (τ-PSI, overlap, flips). A pilot gives, per query, the symmetric
matrix of pair values (M, M); its diagonal is not read. `from_permutations` brings per-permutation values into that form.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array
from ..window.presentation import count_orders

PERMUTATIONS = (2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 40)
SMALLEST_MARGIN = 1e-6


class Pilot(NamedTuple):
    """Variance components of a mean pairwise statistic."""

    value: float
    between: float
    """Variance of the true per-query value."""
    shared: float
    """ζ₁: covariance of two pair values that share one permutation, mean over queries."""
    pair: float
    """ζ₂: variance of one pair value, mean over queries."""
    permutations: int
    queries: int


class Need(NamedTuple):
    permutations: int
    queries: int
    half_width: float
    """Expected half-width of the interval over queries."""
    scorings: int
    """permutations x queries: what it costs."""


def from_permutations(values: ArrayLike) -> Array:
    """Pair values whose mean is the mean of per-permutation `values` (M,), such as nDCG: h(i, j) = (v_i + v_j) / 2."""
    values = np.asarray(values, float)
    pairs: Array = (values[:, None] + values[None, :]) / 2
    return pairs


def pilot(pairs: Sequence[ArrayLike]) -> Pilot:
    """Components from the pair matrices (M, M) of the pilot's queries; M must be equal and at least 4.

    The value of a query is a U-statistic of order two over its permutations, so (Hoeffding 1948)

        Var(mean over pairs | query) = 2 / (M (M - 1)) * (2 (M - 2) ζ₁ + ζ₂)
        Var(mean over Q queries)     = (between + the query-mean of that) / Q.

    ζ₁ = E[h(1,2) h(1,3)] - θ² and ζ₂ = E[h(1,2)²] - θ² are estimated without bias per query from products of pairs that
    share one, two or no permutation. `between` is what the spread over queries exceeds the within part by. Each is floored
    at 0 once, after averaging. Queries with a NaN among their pairs are left out.
    """
    is_even = len({np.shape(one) for one in pairs}) == 1
    h = np.array(pairs if is_even else [], float)  # (Q, M, M)
    if h.ndim != 3 or h.shape[1] != h.shape[2] or h.shape[1] < 4:
        raise InputError("planning needs a pilot with at least 4 permutations, the same number for every query; score more.")
    m = h.shape[1]
    h[:, np.arange(m), np.arange(m)] = 0
    h = h[~np.isnan(h).any(axis=(1, 2))]
    if len(h) < 2:
        raise InputError(f"planning needs a pilot with at least 2 queries that have a value; this one has {len(h)}.")
    # Sums over ordered index tuples; h(i,j) h(k,l) falls into: same pair, one shared index, none.
    total, same = h.sum(axis=(1, 2)), (h**2).sum(axis=(1, 2))
    one_shared = (h.sum(axis=2) ** 2).sum(axis=1) - same
    none_shared = total**2 - 4 * one_shared - 2 * same
    squared = none_shared / (m * (m - 1) * (m - 2) * (m - 3))  # θ² of each query
    shared = max(np.mean(one_shared / (m * (m - 1) * (m - 2)) - squared), 0.0)
    pair = max(np.mean(same / (m * (m - 1)) - squared), 0.0)
    values = total / (m * (m - 1))
    between = max(values.var(ddof=1) - _within(shared, pair, m), 0.0)
    return Pilot(float(values.mean()), float(between), float(shared), float(pair), m, len(h))


def half_width(components: Pilot, permutations: int, queries: int, *, level: float = 0.95) -> float:
    """Expected half-width of the interval over queries, by the normal approximation."""
    return _z(level) * float(np.sqrt(_query_variance(components, permutations) / queries))


def required_queries(
    components: Pilot, margin: float, *, permutations: Sequence[int] = PERMUTATIONS, level: float = 0.95
) -> list[Need]:
    """For each number of permutations, the queries whose expected half-width is at most `margin`; at least 2 of each."""
    if not margin >= SMALLEST_MARGIN:
        raise InputError(f"the margin must be at least {SMALLEST_MARGIN:g}, not {margin:g}: it is a half-width of the measure.")
    rows = []
    for m in permutations:
        queries = max(2, ceil(_query_variance(components, m) * (_z(level) / margin) ** 2 - 1e-9))
        rows.append(Need(m, queries, half_width(components, m, queries, level=level), m * queries))
    return rows


class StoppingAnswer(NamedTuple):
    answer: Literal["below", "at_least", "undecided"]
    queries: int
    """Queries looked at when the answer fell, or all of them."""
    undefined: int
    """Queries without a value, passed over."""


def decide(values: ArrayLike, bound: float, *, error: float = 0.05) -> StoppingAnswer:
    """Is the mean over queries below `bound`? Reads per-query values in [0, 1] one by one and stops when it knows.

    Testing by betting (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting"): capital
    K_t = Π (1 + λ_i (x_i - bound)) is a martingale if the mean is `bound`, whatever the distribution, so by Ville's
    inequality it ever reaches 1 / error with probability at most `error`. One gambler bets on a mean above, one on a mean
    below. A wrong answer has at most that probability however often one looks. The queries must come in random order.
    """
    values = np.asarray(values, float).ravel()
    seen = values[~np.isnan(values)]
    if not 0 < bound < 1:
        raise InputError(f"the bound must lie between 0 and 1, not {bound}.")
    if ((seen < 0) | (seen > 1)).any():
        raise InputError("sequential stopping needs values between 0 and 1; rescale them first.")
    hits: dict[Literal["at_least", "below"], int] = {
        "at_least": _first_true(log_capital(seen, bound) >= -np.log(error)),
        "below": _first_true(log_capital(1 - seen, 1 - bound) >= -np.log(error)),
    }
    answer = min(hits, key=lambda side: hits[side])
    if hits[answer] == len(seen):
        return StoppingAnswer("undecided", len(seen), len(values) - len(seen))
    stop = hits[answer] + 1
    looked = np.flatnonzero(~np.isnan(values))[stop - 1] + 1
    return StoppingAnswer(answer, stop, int(looked - stop))


def log_capital(values: ArrayLike, bound: float) -> Array:
    """log K_t of the gambler who bets that the mean exceeds `bound`, (..., Q) -> (..., Q).

    Stakes are their aGRAPA: λ_t = clip((μ - bound) / (σ² + (μ - bound)²), 0, 1 / (2 bound)) with mean and variance
    of the values before t, started from one pseudo-observation 1/2 with variance 1/4.
    """
    values = np.asarray(values, float)
    seen = np.arange(1, values.shape[-1] + 1)
    means = (0.5 + np.cumsum(values, axis=-1)) / (seen + 1)
    variances = (0.25 + np.cumsum((values - means) ** 2, axis=-1)) / (seen + 1)
    edge = _shift(means, 0.5) - bound
    stakes = np.clip(edge / (_shift(variances, 0.25) + edge**2), 0, 0.5 / bound)
    return np.cumsum(np.log1p(stakes * (values - bound)), axis=-1)


def balanced_orders(n: int, permutations: int, rng: np.random.Generator, *, width: int | None = None) -> Array:
    """Orders (M, n) in which every candidate visits the slots of contiguous windows equally often.

    Positions are laid out slot by slot and the candidates, in one random sequence, move through that layout by n / M places
    per permutation: a cyclic Latin square, thinned evenly when M < n; another one, of another sequence, after every n. Exact
    when M is a multiple of the width and the width divides n, otherwise as even as whole numbers allow. Which window a
    candidate gets is random in every permutation, so companions change (save for the few that hold the same slot, which never
    meet). In one window no order comes twice before all n! did.

    For order-marginals and slot profiles: their slot noise cancels (13-fold less variance at M = 10, width 20 under a pure
    linear slot effect, none left at M = 20). Not for measures over pairs: two such orders move candidates in step, so they
    agree more than two random orders do (τ-PSI 0.11 instead of 0.14 there). Measure τ-PSI, overlap and flips on
    independent orders.
    """
    width = n if width is None else width
    orders, squares = np.empty((permutations, n), int), set[tuple[int, ...]]()
    for m in range(permutations):
        if m % n == 0:  # another square, of a sequence that is not one before it turned round
            rows = min(n, permutations - m)
            sequence = rng.permutation(n)
            while (turned := tuple(np.roll(sequence, -int(sequence.argmin())))) in squares and len(squares) < count_orders(n - 1):
                sequence = rng.permutation(n)
            squares.add(turned)
        layout = np.lexsort((rng.random(n), np.arange(n) % width))  # positions by slot, windows in random sequence
        orders[m, layout] = np.roll(sequence, m % n * n // rows)
    return orders


def _within(shared: float, pair: float, m: int) -> float:
    return 2 / (m * (m - 1)) * (2 * (m - 2) * shared + pair)


def _query_variance(components: Pilot, permutations: int) -> float:
    return components.between + _within(components.shared, components.pair, permutations)


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


def _shift(series: Array, start: float) -> Array:
    """Each entry replaced by the one before it, so that a stake never sees the value it is laid on."""
    return np.concatenate([np.full((*series.shape[:-1], 1), start), series[..., :-1]], axis=-1)


def _first_true(hit: Array) -> int:
    """Index of the first True, or the length where there is none."""
    return int(hit.argmax()) if hit.any() else len(hit)
