"""Studies that are arithmetic on stored runs: the first stage, widths, decisions.

Every function takes queries as a run stores them (`Scored`), or arrays, and returns numbers. Nothing here scores.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..measures.instability import tau_psi
from ..measures.intervals import mean_interval
from ..measures.measurement import rank_by_pool
from ..measures.preference import gold_crossing, pair_flip
from ..measures.views import quality_by_permutation, quality_of
from ..runs.table import FIRST_STAGE, Scored, take_rows
from ..terms import Array

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
