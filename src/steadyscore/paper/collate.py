"""What stored runs say together, and measures of one that only the paper has: pure functions; collections weigh the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..measures.instability import tau_psi
from ..measures.intervals import DRAWS, Method, Scheme, collection_mean, mean_interval, percent_closed, seed_mean, wins
from ..measures.measurement import rank_by_pool
from ..measures.pairing import Better, Observation, average_seeds, group_by, leaders, levels_table
from ..measures.preference import gold_crossing, pair_flip
from ..measures.views import quality_by_permutation, quality_of
from ..runs.table import FIRST_STAGE, Scored, take_rows
from ..terms import Array
from .recipe import Bold

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
    count = sum(system in leading for leading in leaders(table, systems, better))
    mine = [o for o in observations if o.system == system]
    return Value(float(count), basis=_basis(mine, mine), of=len(collections))


def closed_value(single: Value, x: Value, oc: Value) -> Value:
    """The part of the gap from single-order distillation to OC-SFT that x closes, in percent."""
    if single.value is None or x.value is None or oc.value is None:
        return Value(basis=x.basis, reason=single.reason or x.reason or oc.reason)
    return Value(percent_closed(single.value, x.value, oc.value), basis=x.basis)


# -- the bold rules


def leading(rows: Sequence[Sequence[float]], better: Better, rule: Bold, margin: float = 0.0) -> int | None:
    """The row that a rule marks; none where a row lacks a seed or there is no direction.

    `every_seed`: ahead of every other on every seed, and in the mean by more than `margin` (Table 1's rule). `seed_spread`: its
    lead over each other row is larger than that row's seed SD. `best`: its mean is the best, and no other equals it.
    """
    if better == "neither" or len(rows) < 2 or len({len(row) for row in rows}) != 1 or not len(rows[0]):
        return None
    table = np.array(rows, float) * (-1 if better == "lower" else 1)
    if np.isnan(table).any():
        return None
    best = int(table.mean(axis=1).argmax())
    mine, others = table[best], np.delete(table, best, axis=0)
    leads_by = mine.mean() - others.mean(axis=1)
    if rule == "best":
        return best if (leads_by != 0).all() else None
    if rule == "seed_spread":
        spread = others.std(axis=1, ddof=1) if table.shape[1] > 1 else np.zeros(len(others))
        return best if (leads_by > spread).all() else None
    return best if (mine > others).all() and (leads_by > margin).all() else None


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


# -- the same run read in another way


def first_permutations(query: Scored, count: int) -> Scored:
    """The first-stage row and the first permutations of a query: a run of M holds every smaller one."""
    keep = query.permutations < count
    if (kept := int((query.permutations[keep] != FIRST_STAGE).sum())) < count and not query.has_every_order:
        raise InputError(f"query {query.query_id} has {kept} permutations where {count} are needed.")
    return take_rows(query, keep)


# -- the first stage


def first_stage_scores(query: Scored) -> Array:
    """(n,) scores that rank the candidates as the first stage does, from the places of the first-stage row."""
    if (ranked := rank_by_pool(query)) is None:
        raise InputError(f"query {query.query_id} has no stored first-stage order.")
    scores: Array = ranked.scores[0]
    return scores


def first_stage_quality(query: Scored) -> float:
    """nDCG@10 of the first stage's own order: the retrieval row of a table."""
    return float(quality_of(query, first_stage_scores(query)[None], 10)[0])


def first_stage_correlation(query: Scored, *, is_permuted: bool) -> float:
    """Kendall's tau with the first stage's order: of the ranking that it gives, or the mean over those of the permutations."""
    first, served = first_stage_scores(query), query.permuted if is_permuted else query.scores[query.permutations == FIRST_STAGE]
    return float(np.mean([1 - 2 * float(tau_psi(np.stack([first, row]))) for row in served]))


# -- forced positions


def is_primacy(top: Array, middle: Array, bottom: Array) -> bool:
    """Whether quality falls from top to middle to bottom, and the paired interval of top minus bottom is above zero.

    One value per query, with the strongest candidate at each place.
    """
    falls = np.nanmean(top) > np.nanmean(middle) > np.nanmean(bottom)
    return bool(falls and _is_above_zero(top - bottom))


def is_u_shape(top: Array, middle: Array, bottom: Array) -> bool:
    """Whether the middle is worse than both ends, and both paired intervals are above zero."""
    return _is_above_zero(top - middle, bottom - middle)


def _is_above_zero(*differences: Array) -> bool:
    return all(mean_interval([values], scheme="queries", method="percentile").low > 0 for values in differences)


# -- decisions


def grade_agreement(query: Scored) -> float:
    """The share of equal scores among the pairs of reads of one presentation, candidate by candidate."""
    first, second = np.triu_indices(len(query.permuted), 1)
    return float((query.permuted[first] == query.permuted[second]).mean())


def flips_on_crossing(queries: Sequence[Scored]) -> float:
    """The share of all pair flips that falls on queries whose first response is gold under some permutations only."""
    judged = [query for query in queries if query.is_judged]
    flips = np.array([float(pair_flip(query.permuted)) for query in judged])
    crosses = np.array([float(gold_crossing(query.permuted, query.gold)) for query in judged])
    return float(np.nansum(flips * crosses) / flips.sum()) if flips.sum() > 0 else float("nan")


class Decision(NamedTuple):
    """What one order of a query leads to."""

    query_id: str
    quality: float
    kept: Array
    """(n,) whether each document is retained, in first-stage order."""
    verdict: str


EQUAL_QUALITY = 0.005
"""Largest difference in nDCG@10 of two orders that count as equally good."""


def equal_quality_example(
    queries: Sequence[Scored], verdicts: Mapping[str, Sequence[str]], cutoff: float
) -> tuple[Decision, Decision] | None:
    """Two orders of a query with nearly equal nDCG@10 that both retain something, and decide as differently as there are.

    Another verdict counts before the overlap of the retained sets. Queries without a verdict of the reader are left out.
    """
    least, example = (True, 1.0), None
    for query in (query for query in queries if query.is_judged and query.query_id in verdicts):
        quality, said = quality_by_permutation(query, 10), verdicts[query.query_id]
        kept = (query.permuted >= cutoff)[:, np.argsort(-first_stage_scores(query))]
        usable = [i for i in range(len(kept)) if quality[i] > 0 and kept[i].any()]
        for i, j in combinations(usable, 2):
            overlap = float((kept[i] & kept[j]).sum() / (kept[i] | kept[j]).sum())
            if overlap < 1 and abs(quality[i] - quality[j]) <= EQUAL_QUALITY and (said[i] == said[j], overlap) < least:
                least = (said[i] == said[j], overlap)
                rows = (Decision(query.query_id, float(quality[o]), kept[o], said[o]) for o in (i, j))
                example = (next(rows), next(rows))
    return example
