"""What a cutoff or a budget retains, and how that moves with the order (§5).

Retained sets are bool arrays (..., M, n) beside the scores that they come from.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from ..terms import Array
from .ranking import finite_scores, is_relevant, rank, ratio, spread, unless_single, unless_unjudged


def retained(scores: ArrayLike, cutoff: float | Array) -> Array:
    """What a frozen or fixed cutoff keeps: score >= cutoff, (..., M, n) bool; of several cutoffs (C, 1, 1) what each keeps."""
    return finite_scores(scores) >= cutoff


def retained_top_k(scores: ArrayLike, k: int) -> Array:
    """What a budget of k keeps: the first k, ties by candidate id, (..., M, n) bool."""
    return rank(scores) < k


def retained_share(scores: ArrayLike, share: float) -> Array:
    """What a share of every pool keeps: the first `share` n candidates, rounded, at least one; ties by candidate id."""
    return retained_top_k(scores, share_size(share, np.asarray(scores).shape[-1]))


def share_size(share: float, n: int) -> int:
    """How many of n documents a share is."""
    return max(1, int(np.floor(share * n + 0.5 + 1e-9)))  # 0.29 of 50 is 14.5, but not in binary


def overlap(retained: ArrayLike) -> Array:
    """Mean pairwise Jaccard of the sets retained under M permutations, (...); empty against empty is 1. NaN when M <
    2.
    """
    jaccard, _ = _pairwise_jaccard(retained)
    permutations = jaccard.shape[-1]
    return ratio(jaccard.sum(axis=(-2, -1)) - permutations, permutations * (permutations - 1))


def overlap_nonempty(retained: ArrayLike) -> Array:
    """`overlap` without the pairs in which both sets are empty, (...): agreement on keeping nothing is not counted as
    agreement on what to keep. NaN where no pair is left.
    """
    jaccard, sizes = _pairwise_jaccard(retained)
    permutations = jaccard.shape[-1]
    counted = ((sizes[..., :, None] + sizes[..., None, :]) > 0) & ~np.eye(permutations, dtype=bool)
    return ratio(np.where(counted, jaccard, 0.0).sum(axis=(-2, -1)), counted.sum(axis=(-2, -1)))


def _pairwise_jaccard(retained: ArrayLike) -> tuple[Array, Array]:
    """The Jaccard index of every two sets, (..., M, M), empty against empty being 1; and the size of each, (..., M)."""
    sets = np.asarray(retained, np.float32)
    both = sets @ sets.swapaxes(-1, -2)  # (..., M, M): every intersection at once; counts are exact in float32
    sizes = sets.sum(axis=-1)
    return ratio(both, sizes[..., :, None] + sizes[..., None, :] - both, undefined=1.0), sizes


def empty_sets(retained: ArrayLike) -> Array:
    """Share of the permutations under which nothing is retained, (...)."""
    share: Array = (~np.asarray(retained, bool).any(axis=-1)).mean(axis=-1)
    return share


def chance_overlap(retained: ArrayLike) -> Array:
    """What `overlap` would be, on average, for sets of the same sizes drawn at random from the pool, (...); NaN when M < 2."""
    sets = np.asarray(retained, bool)
    sizes, (*_, permutations, n) = sets.sum(axis=-1), sets.shape
    first, second = np.triu_indices(permutations, 1)
    if not len(first):
        return np.full(sets.shape[:-2], np.nan)[()]
    pairs = np.stack([sizes[..., first], sizes[..., second]], axis=-1)
    distinct, place = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    expected = np.array([expected_jaccard(n, int(a), int(b)) for a, b in distinct])
    mean: Array = expected[place.reshape(pairs.shape[:-1])].mean(axis=-1)
    return mean


@lru_cache(maxsize=100_000)
def expected_jaccard(n: int, a: int, b: int) -> float:
    """The mean Jaccard index of two sets of a and b members, drawn at random from n; two empty ones have 1.

    How many they share is hypergeometric: both(i) = C(a, i) C(n - a, b - i) / C(n, b).
    """
    if a == b == 0:
        return 1.0
    shared = np.arange(max(0, a + b - n), min(a, b) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])

    def log_choices(size: int, count: Array | int) -> Array:
        chosen: Array = log_factorial[size] - log_factorial[count] - log_factorial[size - np.asarray(count)]
        return chosen

    chances = np.exp(log_choices(a, shared) + log_choices(n - a, b - shared) - log_choices(n, b))
    return float((chances * shared / (a + b - shared)).sum())


def set_f1(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """F1 of every permutation's retained set against the relevant candidates of the pool, (..., M): 2 hits / (kept +
    relevant).

    0 for an empty set and for a pool without a relevant candidate; NaN for a query without any judgement.
    """
    sets, relevance = np.asarray(retained, bool), np.asarray(relevance, float)
    gold = is_relevant(relevance)
    hits = (sets & gold[..., None, :]).sum(axis=-1)
    f1 = ratio(2 * hits, sets.sum(axis=-1) + gold.sum(axis=-1)[..., None], undefined=0.0)
    return unless_unjudged(f1, relevance[..., None, :])


def retained_f1(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """Mean over permutations of `set_f1`, (...)."""
    mean: Array = set_f1(retained, relevance).mean(axis=-1)
    return mean


def f1_spread(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """Mean minus worst permutation's `set_f1` per query, (...) (§F.2)."""
    return spread(set_f1(retained, relevance))


def retention(retained: ArrayLike) -> Array:
    """Share of the pool that is retained, mean over permutations, (...)."""
    share: Array = np.asarray(retained, bool).mean(axis=(-2, -1))
    return share


def set_flip_rate(retained: ArrayLike) -> Array:
    """Of the candidates retained under some permutation, the share not retained under all, (...); NaN where none ever
    is.
    """
    sets = np.asarray(retained, bool)
    ever, always = sets.any(axis=-2).sum(axis=-1), sets.all(axis=-2).sum(axis=-1)
    return unless_single(ratio(ever - always, ever), sets.shape[-2])


def churned_relevance(retained: ArrayLike, relevance: ArrayLike) -> tuple[Array, Array]:
    """(relevance density of churned documents, of kept ones), each (...) (§F.2).

    Over all pairs of permutations: churned documents are in exactly one of the two sets, kept ones in both. A document
    retained by c of M permutations churns in c (M - c) pairs and is kept in c (c - 1) / 2. NaN where nothing churned,
    or was kept, and for a query without any judgement.
    """
    sets, gold = np.asarray(retained, bool), is_relevant(relevance)
    count = sets.sum(axis=-2)
    churned, kept = count * (sets.shape[-2] - count), count * (count - 1) // 2
    return (
        unless_unjudged(ratio((churned * gold).sum(axis=-1), churned.sum(axis=-1)), relevance),
        unless_unjudged(ratio((kept * gold).sum(axis=-1), kept.sum(axis=-1)), relevance),
    )
