"""Studies that are arithmetic on stored runs: the first stage, widths, decisions.

Every function takes queries as a run stores them (`Scored`), or arrays, and returns numbers. Nothing here scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from ..measures.gains import quality_by_permutation, quality_of
from ..measures.instability import tau_psi
from ..measures.intervals import mean_interval
from ..measures.preference import gold_crossing, pair_flip
from ..runs.table import FIRST_STAGE, Scored

Array = NDArray[np.float64]


# -- the same run read in another way


def first_permutations(query: Scored, count: int) -> Scored:
    """The first-stage row and the first permutations of a query: a run of M holds every smaller one."""
    keep = query.permutations < count
    if (kept := int((query.permutations[keep] != FIRST_STAGE).sum())) < count and not query.has_every_order:
        raise InputError(f"query {query.query_id} has {kept} permutations where {count} are needed.")

    def rows(values: Array | None) -> Array | None:
        return None if values is None else values[keep]

    return replace(
        query,
        permutations=query.permutations[keep],
        scores=query.scores[keep],
        slots=rows(query.slots),
        windows=rows(query.windows),
        grades=rows(query.grades),
        label_mass=rows(query.label_mass),
    )


# -- the first stage


def first_stage_scores(query: Scored) -> Array:
    """(n,) scores that rank the candidates as the first stage does, from the places of the first-stage row."""
    row = np.flatnonzero(query.permutations == FIRST_STAGE)
    if query.slots is None or query.windows is None or not len(row):
        raise InputError(f"query {query.query_id} has no stored first-stage order.")
    slots, windows = query.slots[row[0]], query.windows[row[0]]
    order = np.lexsort((slots, windows) if query.partition == "contiguous" else (windows, slots))
    scores = np.empty(len(order))
    scores[order] = -np.arange(len(order), dtype=float)
    return scores


def first_stage_quality(query: Scored, k: int = 10) -> float:
    """nDCG@k of the first stage's own order: the retrieval row of a table."""
    return float(quality_of(query, first_stage_scores(query)[None], k)[0])


class FirstStageCorrelation(NamedTuple):
    forward: float
    """Of the ranking that the first-stage order gives."""
    random: float
    """Mean over the rankings that the permutations give."""


def first_stage_correlation(query: Scored) -> FirstStageCorrelation:
    """Kendall's tau of the output ranking with the first stage's order."""
    first = first_stage_scores(query)

    def correlation(row: Array) -> float:
        return 1 - 2 * float(tau_psi(np.stack([first, row])))

    served = query.first_stage
    assert served is not None
    return FirstStageCorrelation(correlation(served), float(np.mean([correlation(row) for row in query.permuted])))


# -- forced positions


class SlotPreference(NamedTuple):
    is_primacy: bool
    """Quality falls from top to middle to bottom, and the interval of top minus bottom is above zero."""
    is_u_shape: bool
    """The middle is worse than both ends, and both intervals are above zero."""


def slot_preference(top: ArrayLike, middle: ArrayLike, bottom: ArrayLike) -> SlotPreference:
    """Does the place of the strongest candidate decide quality? One value per query at each place; paired intervals."""
    top, middle, bottom = (np.asarray(values, float) for values in (top, middle, bottom))
    falls = np.nanmean(top) > np.nanmean(middle) > np.nanmean(bottom)
    return SlotPreference(bool(falls and _is_above_zero(top - bottom)), _is_above_zero(top - middle, bottom - middle))


def _is_above_zero(*differences: Array) -> bool:
    return all(mean_interval([values], scheme="queries", method="percentile").low > 0 for values in differences)


# -- decisions


def flips_on_crossing(queries: Sequence[Scored]) -> float:
    """The share of all pair flips that falls on queries whose first response is gold under some permutations only."""
    judged = [query for query in queries if query.is_judged]
    flips = np.array([float(pair_flip(query.permuted)) for query in judged])
    crosses = np.array([float(gold_crossing(query.permuted, query.gold)) for query in judged])
    return float(np.nansum(flips * crosses) / flips.sum()) if flips.sum() > 0 else float("nan")


class Example(NamedTuple):
    """One query under two orders of equal quality."""

    query_id: str
    first_quality: float
    second_quality: float
    first_kept: int
    second_kept: int
    kept_by_both: int


def equal_quality_example(queries: Sequence[Scored], cutoff: float, k: int = 10, tolerance: float = 0.005) -> Example | None:
    """The query and the two permutations of nearly equal nDCG@k whose retained sets overlap least."""
    found: tuple[float, Example] | None = None
    for query in (query for query in queries if query.is_judged):
        quality, kept = quality_by_permutation(query, k), query.permuted >= cutoff
        for i, j in zip(*np.triu_indices(len(kept), 1), strict=True):
            both, either = int((kept[i] & kept[j]).sum()), int((kept[i] | kept[j]).sum())
            if abs(quality[i] - quality[j]) <= tolerance and both < either and (found is None or both / either < found[0]):
                sizes = int(kept[i].sum()), int(kept[j].sum()), both
                found = both / either, Example(query.query_id, float(quality[i]), float(quality[j]), *sizes)
    return None if found is None else found[1]
