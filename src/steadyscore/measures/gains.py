"""How quality moves query by query, whether the unstable queries are those that gain, and permutations that reverse a lead."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..runs.table import Scored
from ..terms import Array
from .ranking import ndcg
from .reading import ranked_permuted


class Gains(NamedTuple):
    correlation: float
    """|Pearson| of the gain with the starting instability."""
    improving: float
    """Share of queries whose quality does not fall."""
    regressing: float
    """Share of queries whose quality falls."""


def gains(before: ArrayLike, after: ArrayLike, instability: ArrayLike | None = None) -> Gains:
    """How quality moves query by query, and whether the unstable queries are those that gain."""
    change = np.asarray(after, float) - np.asarray(before, float)
    moved = change[~np.isnan(change)]
    found = float("nan") if instability is None else abs(correlation(change, instability))
    if not len(moved):
        return Gains(found, float("nan"), float("nan"))
    return Gains(found, float((moved >= 0).mean()), float((moved < 0).mean()))


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's, over the places where both have a value; NaN where fewer than three do or one does not vary."""
    pairs = np.array([np.asarray(x, float), np.asarray(y, float)])
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    if pairs.shape[1] < 3 or (pairs.std(axis=1) == 0).any():
        return float("nan")
    return float(np.corrcoef(pairs)[0, 1])


def leader_reversals(by_permutation: ArrayLike, rival: float) -> int:
    """Permutations whose mean puts the system on the other side of a rival than the mean over permutations does."""
    means = np.asarray(by_permutation, float)
    if not len(means):
        return 0
    return int((np.sign(means - rival) == -np.sign(means.mean() - rival)).sum()) if means.mean() != rival else 0


def quality_by_permutation(query: Scored, k: int) -> Array:
    """(M,) nDCG@k of every permutation; NaN for a query without judgements."""
    return quality_of(query, ranked_permuted(query), k)


def quality_of(query: Scored, scores: ArrayLike, k: int) -> Array:
    """(P,) nDCG@k that some scores (P, n) of a query's candidates give; NaN for a query without judgements."""
    if not query.is_judged:
        return np.full(len(np.asarray(scores)), np.nan)
    ideal = query.gold if query.ideal is None else query.ideal
    return np.asarray(ndcg(scores, query.gold, k, judged_gains=ideal), float)
