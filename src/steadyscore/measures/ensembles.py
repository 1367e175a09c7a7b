"""Batched self-consistency from stored scores: any measure at any serving budget K, without a model (§D.4, §D.6).

The unit a self-consistent system serves is the mean of K permutations. Its instability is therefore measured between
ensembles that share no permutation, as in the BSC row of Table 1: four ensembles of ten from forty orders.
"""

from __future__ import annotations

from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array
from .ranking import TieRule, finite_scores, rank


def ensembles(scores: ArrayLike, serving_permutations: int) -> Array:
    """Mean scores of disjoint groups of K permutations, (..., M // K, n), in the order of the rows.

    Row 0 averages the first K permutations, the ensemble whose quality the paper prints at K. Rows beyond a multiple
    of K are not used: a group shorter than K would be another system.
    """
    scores = finite_scores(scores)
    permutations, n = scores.shape[-2:]
    if not 1 <= serving_permutations <= permutations:
        raise InputError(
            f"an ensemble of {serving_permutations} permutations cannot be made from {permutations}. "
            f"Ask for 1 to {permutations}, or score more permutations."
        )
    groups = permutations // serving_permutations
    used = scores[..., : groups * serving_permutations, :]
    means: Array = used.reshape(*scores.shape[:-2], groups, serving_permutations, n).mean(axis=-2)
    return means


def borda(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """Borda points n - 1 - rank, (..., M, n): what `ensembles` averages for a ranker without comparable scores."""
    ranks = rank(scores, tie_rule, orders)
    points: Array = (ranks.shape[-1] - 1 - ranks).astype(float)
    return points
