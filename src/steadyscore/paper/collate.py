"""Collation: what many runs say together. Pure functions on typed values; every collection weighs the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..measures.intervals import (
    DRAWS,
    Method,
    Scheme,
    collection_mean,
    leads,
    mean_interval,
    percent_closed,
    seed_mean,
    wins,
)
from ..measures.pairing import Better, Observation, average_seeds, group_by, levels_table
from ..terms import Array

WHOLE = ("*",)
"""In place of query ids: one value that only the whole collection has."""


class Basis(NamedTuple):
    """What a number is made from."""

    queries: int = 0
    collections: int = 0
    seeds: int = 0
    bases: int = 0


NO_BASIS = Basis()


@dataclass(frozen=True)
class Value:
    """One number of a table, with its uncertainty and its basis."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    sd: float | None = None
    """Sample standard deviation over training seeds; None for one seed."""
    by_seed: tuple[float, ...] = ()
    parts: tuple[float, ...] = ()
    """The means of the bases and collections that it averages, for a figure that draws them."""
    basis: Basis = NO_BASIS
    of: int | None = None
    """The whole of a count: collections, cells, permutations."""
    text: str = ""
    """What is printed where it is not a number."""
    reason: str = ""
    """Why there is no number."""


def mean_value(
    cells: Sequence[Observation],
    scheme: Scheme = "collections_then_queries",
    draws: int = DRAWS,
    method: Method | None = "percentile",
) -> Value:
    """The equal-weight mean over collections (and bases) of seed means, its seed SD and its bootstrap interval.

    `cells` holds one observation per base, seed and collection. Every seed must have every collection. The interval is the plain
    percentile one, as in the paper, or without a method that of an audit. A single collection resamples its queries, whatever
    the scheme.
    """
    by_seed = group_by(cells, lambda o: o.seed)
    per_seed = tuple(collection_mean([o.values for o in members]) for members in by_seed.values())
    units = _units(cells)
    values = [unit.values for unit in units]
    single = len(units) == 1
    interval = mean_interval(values, scheme="queries" if single else scheme, draws=draws, method=method)
    over = seed_mean(per_seed)
    basis = _basis(units, cells)
    if np.isnan(over.mean):
        return Value(basis=basis, reason="no query has a value")
    low, high = (interval.low, interval.high) if interval.queries > 1 else (None, None)
    parts = tuple(unit.mean for unit in units)
    return Value(over.mean, low, high, over.sd if over.seeds > 1 else None, per_seed, parts, basis)


def wins_value(cells: Sequence[Observation], better: Better) -> Value:
    """Collections (and bases) on which a difference is below zero where lower is better, else above, of all with a value."""
    units = _units(cells)
    values = [unit.values for unit in units]
    counts = wins(values, [np.zeros_like(v) for v in values])
    return Value(float(counts.losses if better == "lower" else counts.wins), basis=_basis(units, cells), of=sum(counts))


def extreme_value(cells: Sequence[Observation], pick: Callable[[Sequence[float]], float]) -> Value:
    """The lowest (min) or highest (max) mean among bases and collections."""
    units = _units(cells)
    return Value(pick([unit.mean for unit in units]), basis=_basis(units, cells))


def lead_value(observations: Sequence[Observation], systems: Sequence[str], system: str, better: Better) -> Value:
    """Collections that a system leads among others; systems that share a lead each count."""
    collections, table = levels_table(observations, systems)
    counts = leads(-table if better == "lower" else table)
    mine = [o for o in observations if o.system == system]
    return Value(float(counts[list(systems).index(system)]), basis=_basis(mine, mine), of=len(collections))


def closed_value(single: Value, x: Value, oc: Value) -> Value:
    """The part of the gap from single-order distillation to OC-SFT that x closes, in percent."""
    if single.value is None or x.value is None or oc.value is None:
        return Value(basis=x.basis, reason=single.reason or x.reason or oc.reason)
    return Value(percent_closed(single.value, x.value, oc.value), basis=x.basis)


# -- the bold rules


def lead_on_every_seed(rows: Sequence[Sequence[float]], better: Better, margin: float) -> int | None:
    """The row that is ahead of every other on every seed, and in the mean by more than `margin` (Table 1's rule)."""
    return _lead(rows, better, lambda best, others: (best > others).all() and (_distances(best, others) > margin).all())


def lead_beyond_seed_spread(rows: Sequence[Sequence[float]], better: Better) -> int | None:
    """The row whose lead over each other row is larger than that row's seed SD."""

    def is_clear(best: Array, others: Array) -> bool:
        spread = others.std(axis=1, ddof=1) if others.shape[1] > 1 else np.zeros(len(others))
        return bool((_distances(best, others) > spread).all())

    return _lead(rows, better, is_clear)


def lead_in_the_mean(rows: Sequence[Sequence[float]], better: Better) -> int | None:
    """The best row, if no other equals it."""
    return _lead(rows, better, lambda best, others: bool((best.mean() != others.mean(axis=1)).all()))


def _distances(best: Array, others: Array) -> Array:
    distances: Array = best.mean() - others.mean(axis=1)
    return distances


def _lead(rows: Sequence[Sequence[float]], better: Better, is_ahead: Callable[[Array, Array], bool]) -> int | None:
    """The row with the best mean, if it is ahead of all others; none where a row lacks a seed or there is no direction."""
    if better == "neither" or len(rows) < 2 or len({len(row) for row in rows}) != 1 or not len(rows[0]):
        return None
    table = np.array(rows, float) * (-1 if better == "lower" else 1)
    if np.isnan(table).any():
        return None
    best = int(table.mean(axis=1).argmax())
    return best if is_ahead(table[best], np.delete(table, best, axis=0)) else None


def permutation_range(quality: Sequence[Array]) -> float:
    """Highest minus lowest mean that one permutation gives; (Q, M) per collection, collections weigh the same.

    Collections may differ in M: the permutations that all of them have are compared.
    """
    shared = min(values.shape[1] for values in quality)
    means = np.mean([np.nanmean(values[:, :shared], axis=0) for values in quality], axis=0)
    return float(means.max() - means.min())


def _units(cells: Sequence[Observation]) -> list[Observation]:
    """The mean over seeds of every base and collection."""
    return [average_seeds(members) for members in group_by(cells, lambda o: (o.base, o.collection)).values()]


def _basis(units: Sequence[Observation], cells: Sequence[Observation]) -> Basis:
    """Of the bases and collections that have a value."""
    counts = [int((~np.isnan(unit.values)).sum()) for unit in units]
    defined = [unit for unit, count in zip(units, counts, strict=True) if count]
    seeds = len({cell.seed for cell in cells})
    queries = sum(count for unit, count in zip(units, counts, strict=True) if unit.query_ids != WHOLE)
    return Basis(queries, len({u.collection for u in defined}), seeds, len({u.base for u in defined}))
