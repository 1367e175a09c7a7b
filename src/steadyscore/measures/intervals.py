"""Uncertainty: bootstrap intervals over collections and queries, seed spread, wins, discordance, false discoveries (§5).

`values` is a list with one array of per-query values per collection. NaN marks a query without a value: it is not in the
mean and is counted. Every collection weighs the same, whatever its number of queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array

Scheme = Literal["collections_then_queries", "collections", "queries"]
Method = Literal["expanded", "percentile"]

DRAWS, SEED, LEVEL = 20_000, 4401, 0.95  # the released code's draws and seed, the paper's level (docs/protocol.md#intervals)
FEWEST = 5
"""Queries below which no lead is called. An interval that is drawn from 2, 3 or 4 values excludes the true mean of normal ones
in some 48, 29 and 13 % of samples, since its ends cannot leave them."""


class Interval(NamedTuple):
    value: float
    low: float
    high: float
    queries: int
    """Queries in the mean."""
    undefined: int
    """Queries without a value."""
    p_value: float
    """Two-sided bootstrap p-value of "the mean is zero"; meant for paired differences."""


def collection_mean(values: Sequence[ArrayLike]) -> float:
    """Equal-weight mean of collection means; NaN where no collection has a value."""
    defined = _defined_values(values)
    return float(np.mean([v.mean() for v in defined])) if defined else float("nan")


def bootstrap_means(
    values: Sequence[ArrayLike], *, scheme: Scheme = "collections_then_queries", draws: int = DRAWS, seed: int = SEED
) -> Array:
    """Bootstrap draws of the equal-weight collection mean, (draws,).

    collections_then_queries: draw C collections with replacement, then queries inside each drawn one; a collection drawn
    twice gets two independent sets of queries. collections: draw collections, keep their means. queries: keep the
    collections, draw queries inside each; the interval then speaks of these collections only.

    No query is drawn one by one in a large collection (`resample_means`).
    """
    rng, defined = np.random.default_rng(seed), _defined_values(values)
    if not defined:
        return np.full(draws, np.nan)
    count = len(defined)
    means: Array
    if scheme == "queries":
        means = np.mean([resample_means(v, draws, rng) for v in defined], axis=0)
        return means
    drawn = rng.integers(0, count, (draws, count), dtype=np.int16)
    if scheme == "collections":
        means = np.array([v.mean() for v in defined])[drawn].mean(axis=1)
        return means
    if scheme != "collections_then_queries":
        raise InputError(f"unknown scheme {scheme!r}: choose collections_then_queries, collections or queries.")
    means = np.empty(draws * count)
    places = np.argsort(drawn, axis=None, kind="stable")  # the draws of collection 0, then of collection 1, ...
    ends = np.cumsum(np.bincount(drawn.ravel(), minlength=count))
    for v, mine in zip(defined, np.split(places, ends[:-1]), strict=True):
        means[mine] = resample_means(v, len(mine), rng)
    means = means.reshape(draws, count).mean(axis=1)
    return means


def mean_interval(
    values: Sequence[ArrayLike],
    *,
    scheme: Scheme = "collections_then_queries",
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = SEED,
    method: Method | None = None,
) -> Interval:
    """Bootstrap interval of the equal-weight collection mean.

    `percentile` reads the ends off the draws at the level asked for. It is too narrow where few units are drawn: the draws
    spread less than the mean by sqrt((n - 1) / n), and they know nothing of Student's t. `expanded` reads them further out to
    make up for both (Hesterberg 2015, "expanded percentile interval"); the units are collections, or for `queries` the
    queries of the smallest collection. Without a method, `expanded`, except for collections then queries: that counts the
    spread of queries twice, which makes up for the narrowness by an amount that depends on the data. docs/intervals.md has
    the study behind this. The p-value belongs to the same interval.
    """
    defined = _defined_values(values)
    queries = sum(map(len, defined))
    undefined = sum(np.size(v) for v in values) - queries
    if scheme == "queries" and max(map(len, defined), default=0) == 1:
        return Interval(collection_mean(values), np.nan, np.nan, queries, undefined, np.nan)  # no spread to draw from
    sample = bootstrap_means(values, scheme=scheme, draws=draws, seed=seed)
    units = _units(defined, scheme, method)
    tail = _expanded_tail((1 - level) / 2, units)
    low, high = np.quantile(sample, [tail, 1 - tail])
    return Interval(collection_mean(values), float(low), float(high), queries, undefined, _p_value(sample, units))


def median_interval(values: ArrayLike, *, draws: int = DRAWS, seed: int = SEED) -> Interval:
    """The median of (n,) values and the percentile interval of the medians of bootstrap samples."""
    known = np.asarray(values, float)
    known = known[~np.isnan(known)]
    if not len(known):
        return Interval(np.nan, np.nan, np.nan, 0, np.size(values), np.nan)
    sample = np.median(np.random.default_rng(seed).choice(known, (draws, len(known))), axis=1)
    low, high = np.quantile(sample, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(np.median(known)), float(low), float(high), len(known), np.size(values) - len(known), np.nan)


def paired_interval(a: Sequence[ArrayLike], b: Sequence[ArrayLike], **options: Any) -> Interval:
    """Interval of the mean of a - b, query by query; a query counts where both have a value. Options of `mean_interval`."""
    return mean_interval(paired_differences(a, b), **options)


def paired_differences(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> list[Array]:
    """a - b per collection and query; NaN where either has no value."""
    left, right = ([np.asarray(v, float) for v in side] for side in (a, b))
    if len(left) != len(right):
        raise InputError(f"{len(left)} collections cannot be paired with {len(right)}: compare runs of the same collections.")
    mistakes = [
        f"collection {i}: {len(x)} queries cannot be paired with {len(y)}; align both runs on their common queries."
        for i, (x, y) in enumerate(zip(left, right, strict=True))
        if x.shape != y.shape
    ]
    if mistakes:
        raise InputError(mistakes)
    return [x - y for x, y in zip(left, right, strict=True)]


def benjamini_hochberg(p_values: ArrayLike) -> Array:
    """Adjusted p-values (Benjamini and Hochberg 1995): reject those at or below q to keep the false-discovery rate at q.

    NaN stays NaN and is not counted among the comparisons.
    """
    p = np.asarray(p_values, float)
    adjusted = np.full(p.shape, np.nan)
    tested = ~np.isnan(p)
    order = np.argsort(p[tested])[::-1]  # from the largest: an adjusted value never exceeds that of a larger p
    count = len(order)
    ranked = np.minimum.accumulate(np.minimum(p[tested][order] * count / np.arange(count, 0, -1), 1.0))
    unsorted = np.empty(count)
    unsorted[order] = ranked
    adjusted[tested] = unsorted
    return adjusted


class SeedMean(NamedTuple):
    mean: float
    sd: float
    """Sample SD; NaN for one seed."""
    seeds: int


def seed_mean(values: ArrayLike) -> SeedMean:
    """Mean over training seeds with the sample SD (§D.2)."""
    values = np.asarray(values, float)
    return SeedMean(float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else float("nan"), len(values))


class Wins(NamedTuple):
    wins: int
    ties: int
    losses: int


def wins(a: Sequence[ArrayLike], b: Sequence[ArrayLike]) -> Wins:
    """Collections whose mean paired difference a - b is positive, zero, negative; those without a value are in none."""
    means = np.array([d.mean() for d in _defined_values(paired_differences(a, b))])
    return Wins(int((means > 0).sum()), int((means == 0).sum()), int((means < 0).sum()))


def percent_closed(single: float, x: float, oc: float) -> float:
    """100 (single - x) / (single - oc): the part of the gap from single-order distillation to OC-SFT that x closes (§D.2)."""
    return 100 * (single - x) / (single - oc) if single != oc else float("nan")


class Discordance(NamedTuple):
    discordant: int
    """Collections whose quality winner is not their decision winner."""
    collections: int
    disagreement: Array
    """Per collection, the share of system pairs that the two measures order differently, (C,)."""
    median: float


def discordance(quality: ArrayLike, decision: ArrayLike) -> Discordance:
    """Do quality and decisions choose the same system (§F.2)? Two (S, C) tables of S systems, higher is better in both.

    A shared lead is discordant only if the two sets of leaders are disjoint. A pair that ties in one measure alone counts
    one half. A system with a NaN is left out of that collection; fewer than two systems leave the collection out.
    """
    quality, decision = (np.array(table, float) for table in (quality, decision))
    missing = np.isnan(quality) | np.isnan(decision)
    quality[missing] = decision[missing] = np.nan
    compared = (~missing).sum(axis=0) >= 2
    quality, decision = quality[:, compared], decision[:, compared]
    agree = ((quality == _best(quality)) & (decision == _best(decision))).any(axis=0)
    first, second = np.triu_indices(len(quality), 1)
    signs = [np.sign(table[first] - table[second]) for table in (quality, decision)]  # (pairs, C)
    disagreement = np.full(compared.shape, np.nan)
    disagreement[compared] = np.nanmean(np.abs(signs[0] - signs[1]) / 2, axis=0) if compared.any() else []
    median = float(np.nanmedian(disagreement)) if compared.any() else float("nan")
    return Discordance(int((~agree).sum()), int(compared.sum()), disagreement, median)


def _defined_values(values: Sequence[ArrayLike]) -> list[Array]:
    """The values without NaN, of the collections that have any."""
    kept = [v[~np.isnan(v)] for v in (np.asarray(collection, float).ravel() for collection in values)]
    return [v for v in kept if len(v)]


def _units(defined: list[Array], scheme: Scheme, method: Method | None) -> int | None:
    """How many independent units an expanded interval counts; None for an interval that is not expanded."""
    if method not in (None, "expanded", "percentile"):
        raise InputError(f"unknown method {method!r}: choose expanded or percentile.")
    if method == "percentile" or (method is None and scheme == "collections_then_queries"):
        return None
    drawn = [len(v) for v in defined if len(v) > 1]
    units = min(drawn, default=0) if scheme == "queries" else len(defined)
    return units if units > 1 else None  # one unit has no spread to expand


def _p_value(sample: Array, units: int | None) -> float:
    """2 min(P(draw <= 0), P(draw >= 0)), each with one draw added so that it is never zero, as the interval's tails are read."""
    if np.isnan(sample).any():
        return float("nan")
    rarer = min((sample <= 0).sum(), (sample >= 0).sum())
    return min(1.0, 2 * _nominal_tail(float(min((rarer + 1) / (len(sample) + 1), 0.5)), units))


def _expanded_tail(tail: float, units: int | None) -> float:
    """Φ(-sqrt(n / (n - 1)) t), t the upper quantile of Student's t with n - 1 degrees of freedom (Wallace 1959)."""
    if units is None:
        return tail
    v = units - 1
    z = NormalDist().inv_cdf(tail) * (8 * v + 3) / (8 * v + 1)
    return NormalDist().cdf(-math.sqrt(units * math.expm1(z**2 / v)))


def _nominal_tail(tail: float, units: int | None) -> float:
    """The tail that `_expanded_tail` turns into this one."""
    if units is None:
        return tail
    v = units - 1
    z = math.sqrt(v * math.log1p(NormalDist().inv_cdf(tail) ** 2 / units))
    return NormalDist().cdf(-z * (8 * v + 1) / (8 * v + 3))


def _best(levels: Array) -> Array:
    best: Array = np.fmax.reduce(levels, axis=0)
    return best


# ---- bootstrap means, without drawing the queries one by one ----

LITERAL = 64
"""Up to this many values are drawn one by one: their few possible means form a lattice that must stay exact."""
LEVELS = 32
"""Up to this many distinct values: with more of them, no exact number is likely to come up twice."""
BINS, REACH = 1 << 15, 16.0
"""The grid of the sum's distribution: 32,768 bins over ±16 of its SDs, wide enough that nothing wraps around."""


def resample_means(values: Array, count: int, rng: np.random.Generator) -> Array:
    """`count` independent means of len(values) draws with replacement, (count,), mostly without drawing value by value.

    A bootstrap mean of n values is the mean of n draws with replacement: the sum of n independent draws from the empirical
    distribution, divided by n. The distribution of a sum of independent draws is the convolution of theirs, so that of n draws is
    the n-fold convolution of the values' histogram, and one Fourier transform gives all n folds:

        values ──► histogram ──► FFT ──► n-th power ──► inverse FFT ──► cumulative sum ──► quantiles of uniform numbers
         (n,)      mass / n      n-fold convolution     histogram of the sum               = `count` sums, / n = means

    The cost does not depend on n, where literal resampling draws n numbers for every mean. Two corrections keep mean and
    variance exact: each value is split between its two neighbouring bins, so that the mean stays what it was, and the sums are
    scaled by what this adds to their variance. What the bins smooth over is how often a mean is one exact number, and that
    matters where it is often 0: of a difference that most queries do not have. Values with few levels are therefore drawn by
    how often each level comes up.
    tests/measures/test_intervals.py holds all three ways against literal resampling and against scipy.
    """
    n, mean, sd = len(values), values.mean(), values.std()
    if sd <= 1e-15 * np.abs(values).max():  # rounding of the mean, not variation
        return np.full(count, mean)
    levels, counts = np.unique(values, return_counts=True)
    means: Array
    if n <= LITERAL:
        means = values[rng.integers(0, n, (count, n))].mean(axis=1)
    elif len(levels) <= LEVELS:
        means = rng.multinomial(n, counts / n, count) @ levels / n
    else:
        means = np.clip(mean + _draw_sums(values - mean, sd, count, rng) / n, values.min(), values.max())
    return means


def _draw_sums(centred: Array, sd: float, count: int, rng: np.random.Generator) -> Array:
    """`count` sums of len(centred) draws with replacement from values of mean 0 and this SD."""
    n = len(centred)
    step = 2 * REACH * sd * np.sqrt(n) / BINS
    place = centred / step
    floor = np.floor(place)
    part = place - floor
    bins = floor.astype(np.int64) % BINS
    mass = np.bincount(bins, 1 - part, BINS) + np.bincount((bins + 1) % BINS, part, BINS)
    total = np.fft.irfft(np.fft.rfft(mass / n) ** n, BINS)
    cumulative = np.cumsum(np.maximum(np.fft.fftshift(total), 0))
    edges = np.arange(BINS) - BINS // 2 + 0.5
    sums = np.interp(rng.random(count) * cumulative[-1], cumulative, edges)
    scaled: Array = sums * (step * sd / np.sqrt(sd**2 + step**2 * np.mean(part * (1 - part))))
    return scaled
