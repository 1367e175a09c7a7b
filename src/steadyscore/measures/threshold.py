"""The threshold consumer: which candidates a frozen cutoff, or a budget, retains (§5 and §F.1 of the paper).

The cutoff is fitted once, on half of a collection's queries in one presentation (first-stage order), and then frozen:
reshuffling changes what the filter admits and not how it was tuned. Retained sets are bool arrays (..., M, n) beside
the scores they come from.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array
from .ranking import check_choice, finite_scores, is_relevant, rank, ratio, spread, unless_single, unless_unjudged

Protocol = Literal["midpoints", "reference"]

REFERENCE_SEED = 20260610
REFERENCE_POINTS = 41
"""The split seed and the grid of the authors' code (docs/protocol.md#thresholds)."""


# ---- fitting: one presentation, queries of any pool size ----


def split_queries(
    query_ids: Sequence[str],
    seed: int | None = None,
    fraction: float = 0.5,
    protocol: Literal["hashed", "reference"] = "hashed",
) -> tuple[list[str], list[str]]:
    """(queries to fit the cutoff on, queries to measure on); at least one to fit on.

    `hashed` orders the ids by a hash of seed (default 0) and id, so the input's order plays no part. `reference`
    shuffles the sorted ids with numpy's generator, seed 20260610 unless another is given.
    """
    check_choice(protocol, ("hashed", "reference"), "protocol")
    ids = sorted(query_ids)
    if protocol == "reference":
        np.random.default_rng(REFERENCE_SEED if seed is None else seed).shuffle(ids)
    else:
        ids.sort(key=lambda query_id: hashlib.sha256(f"{seed or 0}:{query_id}".encode()).digest())
    cut = max(1, round(fraction * len(ids)))
    return ids[:cut], ids[cut:]


def cutoff_grid(scores: Sequence[ArrayLike], protocol: Protocol = "midpoints") -> Array:
    """Candidate cutoffs, ascending.

    `midpoints`: the lowest score (retain all), then the midpoint of every two neighbouring distinct scores, so every
    different decision is tried once. `reference`: 41 equally spaced values from the lowest to the highest score.
    """
    check_choice(protocol, get_args(Protocol), "protocol")
    if not len(scores):
        raise InputError("no query to fit a cutoff on. Give at least one query with scores.")
    distinct = np.unique(finite_scores(_end_to_end(scores)))
    if protocol == "reference":
        return np.unique(np.linspace(distinct[0], distinct[-1], REFERENCE_POINTS))
    return np.concatenate([distinct[:1], distinct[:-1] + np.diff(distinct) / 2])


def _end_to_end(rows: Sequence[ArrayLike]) -> Array:
    """Rows as one, without a list of arrays: there may be a million of them."""
    return np.fromiter((value for row in rows for value in np.ravel(row).tolist()), float)


def _mean_at(scores: Sequence[ArrayLike], f1_against: Sequence[ArrayLike] | None, grid: Array) -> Array:
    """Mean over queries of the retained share, or of the set F1 against relevance, at every cutoff of the grid.

    A query's figure is a step function of the cutoff that moves only at its own scores. All steps of all queries,
    sorted by score and summed from above, give the mean at any cutoff: one sort instead of queries x cutoffs
    evaluations.
    """
    levels, steps = array("d"), array("d")
    for index, row in enumerate(scores):
        row = np.asarray(row, float)
        best_first = np.argsort(-row)
        kept = np.arange(1, len(row) + 1)
        if f1_against is None:
            figure = kept / len(row)
        else:
            gold = is_relevant(f1_against[index])[best_first]
            figure = 2 * np.cumsum(gold) / (kept + gold.sum())
        levels.frombytes(row[best_first].tobytes())
        steps.frombytes(np.diff(figure, prepend=0.0).tobytes())
    level, step = np.array(levels), np.array(steps)
    ascending = np.argsort(level)
    from_above = np.append(np.cumsum(step[ascending][::-1])[::-1], 0.0)
    return from_above[np.searchsorted(level[ascending], grid, side="left")] / len(scores)


def _highest(grid: Array, objective: Array) -> float:
    """The highest cutoff with the greatest objective; differences below 1e-12 are rounding of the sums."""
    return float(grid[np.flatnonzero(objective >= objective.max() - 1e-12)[-1]])


def fit_cutoff(
    scores: Sequence[ArrayLike],
    relevance: Sequence[ArrayLike],
    protocol: Protocol = "midpoints",
    grid_scores: Sequence[ArrayLike] | None = None,
) -> float:
    """The cutoff with the greatest mean per-query F1 of the retained set on the fitting half; ties go to the higher one.

    `scores` and `relevance` hold one (n,) array per query, scored in one presentation (first-stage order).
    The grid is made from these scores, so no test query leaks in. The authors' `reference` protocol takes the range of
    all queries' scores, and permutation 0 to fit on: pass those as `grid_scores` and `scores`.
    """
    if len(scores) != len(relevance):
        raise InputError(
            f"{len(scores)} queries have scores and {len(relevance)} have relevance. Give both for the same queries."
        )
    grid = cutoff_grid(scores if grid_scores is None else grid_scores, protocol)
    return _highest(grid, _mean_at(scores, relevance, grid))


def match_retention(
    scores: Sequence[ArrayLike],
    target: float,
    protocol: Protocol = "midpoints",
    grid_scores: Sequence[ArrayLike] | None = None,
) -> float:
    """The cutoff whose mean retention on the fitting half is closest to `target` (§F.1); ties go to the higher one.

    Overlap rises with set size, so two scorers are compared at cutoffs that retain equally much.
    """
    grid = cutoff_grid(scores if grid_scores is None else grid_scores, protocol)
    return _highest(grid, -np.abs(_mean_at(scores, None, grid) - target))


# ---- measuring: M permutations ----


def retained(scores: ArrayLike, cutoff: float | Array) -> Array:
    """What a frozen or fixed cutoff keeps: score >= cutoff, (..., M, n) bool; of several cutoffs (C, 1, 1) what each keeps."""
    return finite_scores(scores) >= cutoff


def retained_top_k(scores: ArrayLike, k: int) -> Array:
    """What a budget of k keeps: the first k, ties by candidate id, (..., M, n) bool."""
    return rank(scores) < k


def retained_share(scores: ArrayLike, share: float) -> Array:
    """What a share of every pool keeps: the first `share` n candidates, rounded, at least one; ties by candidate id."""
    n = np.asarray(scores).shape[-1]
    size = int(np.floor(share * n + 0.5 + 1e-9))  # 0.29 of 50 is 14.5, but not in binary
    return retained_top_k(scores, max(1, size))


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
