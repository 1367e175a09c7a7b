"""Ranking quality under M permutations: rank, nDCG, average precision, reciprocal rank, recall (§5 of the paper).

Shapes. `scores` is (..., M, n): one row per permutation, one column per candidate, columns sorted by candidate id.
`relevance` is (..., n), NaN where a candidate is unjudged. Leading axes are queries of equal pool size; every function
works on all of them at once and keeps them. This module knows nothing of models, files or candidate ids.

Conventions, those of trec_eval. An unjudged candidate gains nothing; relevant means a judgement of at least 1; a judged
query without a relevant document scores 0; a query without any judgement is NaN, for the caller to count.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import LARGEST_SCORE, Array

TieRule = Literal["candidate_id", "input_position"]
Gain = Literal["linear", "exponential"]

RELEVANT = 1
"""The least judgement that counts as relevant, on graded collections too."""


def check_choice(value: str, choices: tuple[str, ...], name: str) -> None:
    """Refuse a name that is not among the choices, rather than fall back to one of them."""
    if value not in choices:
        raise InputError(f'{name} "{value}" is unknown. Use one of: {", ".join(choices)}.')


def finite_scores(scores: ArrayLike) -> Array:
    """`scores` as float64, refused where a sort would misplace them (NaN, infinity) or a variance overflow."""
    array = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(f"{bad:,} of {array.size:,} scores are NaN or infinite. Score them again, or drop their queries.")
    if (large := np.abs(array) > LARGEST_SCORE).any():
        raise InputError(
            f"{int(large.sum()):,} of {array.size:,} scores are beyond {LARGEST_SCORE:g}, where variances overflow. "
            "Rescale the scores."
        )
    return array


def ratio(numerator: ArrayLike, denominator: ArrayLike, undefined: float = np.nan) -> Array:
    """numerator / denominator, and `undefined` where the denominator is 0."""
    above, below = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    quotient: Array = np.divide(above, below, out=np.full(above.shape, undefined), where=below != 0)[()]
    return quotient


def unless_single(value: ArrayLike, permutations: int) -> Array:
    """`value`, or NaN when there is only one permutation: one presentation shows no movement, not a movement of 0."""
    value = np.asarray(value, float)
    return value if permutations > 1 else np.full(value.shape, np.nan)[()]


def unless_nan(value: float) -> float | None:
    """A figure as JSON and tables have it: None where it is not defined."""
    return None if np.isnan(value) else float(value)


def unless_unjudged(value: ArrayLike, relevance: ArrayLike) -> Array:
    """`value`, or NaN for a query none of whose candidates (last axis of `relevance`) is judged: unknown is not irrelevant."""
    return np.where(np.isnan(np.asarray(relevance, float)).all(axis=-1), np.nan, value)[()]


def spread(values: Array) -> Array:
    """Mean minus worst over the permutations of (..., M), (...); a mean of differences, so equal values give exactly 0."""
    return unless_single((values - values.min(axis=-1, keepdims=True)).mean(axis=-1), values.shape[-1])


def ranking(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """Columns from best to worst, (..., M, n).

    Ties go to the smaller candidate id, the paper's order-independent rule (§B.1), which a stable sort of the columns
    gives. Under `input_position` they go to the candidate shown first; `orders` (..., M, n) maps a position to its
    column.
    """
    check_choice(tie_rule, get_args(TieRule), "tie_rule")
    scores = finite_scores(scores)
    if tie_rule == "candidate_id":
        return np.argsort(-scores, axis=-1, kind="stable")
    if orders is None:
        raise InputError('tie_rule "input_position" needs the orders the candidates were shown in. Pass orders=(..., M, n).')
    orders = np.broadcast_to(np.asarray(orders), scores.shape)
    shown = np.argsort(-np.take_along_axis(scores, orders, axis=-1), axis=-1, kind="stable")
    return np.take_along_axis(orders, shown, axis=-1)


def rank(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """0-based rank of every candidate, (..., M, n); ties as in `ranking`."""
    columns = ranking(scores, tie_rule, orders)
    ranks = np.empty_like(columns)
    np.put_along_axis(ranks, columns, np.broadcast_to(np.arange(columns.shape[-1]), columns.shape), axis=-1)
    return ranks


def is_relevant(relevance: ArrayLike) -> Array:
    """Which candidates are judged relevant, (..., n) bool; the unjudged are not."""
    return np.asarray(relevance, float) >= RELEVANT


def _judgements(relevance: ArrayLike, judged_gains: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Those of the pool (..., n), those of all judged documents (..., J), and whether a query has any at all (..., 1)."""
    pool = np.asarray(relevance, float)
    everything = pool if judged_gains is None else np.asarray(judged_gains, float)
    is_judged = [np.any(~np.isnan(values), axis=-1, keepdims=True) for values in (pool, everything)]
    return pool, everything, is_judged[0] | is_judged[1]


def _gains(relevance: Array, gain: Gain) -> Array:
    """Gain of each judgement; unjudged and negative judgements gain nothing."""
    check_choice(gain, get_args(Gain), "gain")
    graded = np.maximum(np.nan_to_num(relevance), 0)
    gains: Array = np.exp2(graded) - 1 if gain == "exponential" else graded
    return gains


def _in_rank_order(values: Array, scores: ArrayLike, k: int | None) -> Array:
    """(..., n) values of the candidates as each permutation ranks them, (..., M, k)."""
    columns = ranking(scores)
    return np.take_along_axis(np.broadcast_to(values[..., None, :], columns.shape), columns[..., :k], axis=-1)


def _ideal(judgements: Array, gain: Gain, k: int) -> Array:
    """Discounted cumulative gain of the best ranking of judgements (..., J), (...)."""
    return _dcg(np.sort(_gains(judgements, gain), axis=-1)[..., ::-1][..., :k])


def _dcg(gains: Array) -> Array:
    """Discounted cumulative gain: sum of gain / log2(rank + 1), ranks from 1."""
    # A sum and not a matrix product: BLAS may round equal rows differently, and equal rankings must score equally.
    total: Array = (gains / np.log2(np.arange(gains.shape[-1]) + 2)).sum(axis=-1)
    return total


def ndcg(
    scores: ArrayLike, relevance: ArrayLike, k: int = 10, gain: Gain = "linear", judged_gains: ArrayLike | None = None
) -> Array:
    """nDCG@k of every permutation, (..., M): DCG@k / DCG@k of the ideal ranking (§5).

    `gain` is the judgement itself (linear, as in the tables) or 2^judgement - 1 (exponential). The ideal ranking holds
    the judgements of all judged documents of the query, `judged_gains` (..., J) padded with NaN, or else those of the
    pool.
    """
    pool, everything, is_judged = _judgements(relevance, judged_gains)
    dcg = _dcg(_in_rank_order(_gains(pool, gain), scores, k))
    return np.where(is_judged, ratio(dcg, _ideal(everything, gain, k)[..., None], undefined=0.0), np.nan)


def chance_ndcg(relevance: ArrayLike, k: int = 10, gain: Gain = "linear", judged_gains: ArrayLike | None = None) -> Array:
    """nDCG@k that a random order of the pool has on average, (...): every rank gains the pool's mean gain.

    Judgements, gain and ideal ranking as in `ndcg`.
    """
    pool, everything, is_judged = _judgements(relevance, judged_gains)
    mean = _gains(pool, gain).mean(axis=-1, keepdims=True)
    drawn = _dcg(np.broadcast_to(mean, (*mean.shape[:-1], min(k, pool.shape[-1]))))
    return np.where(is_judged[..., 0], ratio(drawn, _ideal(everything, gain, k), undefined=0.0), np.nan)[()]


def _hits(scores: ArrayLike, relevance: ArrayLike, k: int | None, judged_gains: ArrayLike | None) -> tuple[Array, Array, Array]:
    """Relevance of each rank (..., M, k), number of relevant documents (..., 1), and which queries are judged (..., 1)."""
    pool, everything, is_judged = _judgements(relevance, judged_gains)
    return _in_rank_order(is_relevant(pool), scores, k), is_relevant(everything).sum(axis=-1)[..., None], is_judged


def average_precision(scores: ArrayLike, relevance: ArrayLike, judged_gains: ArrayLike | None = None) -> Array:
    """Average precision of every permutation, (..., M): mean over all relevant documents of the precision at their
    rank.
    """
    hits, total, judged = _hits(scores, relevance, None, judged_gains)
    precision = np.cumsum(hits, axis=-1) / np.arange(1, hits.shape[-1] + 1)
    return np.where(judged, ratio((precision * hits).sum(axis=-1), total, undefined=0.0), np.nan)


def reciprocal_rank(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """1 / rank of the first relevant candidate of every permutation, (..., M); 0 where the pool holds none."""
    hits, _, judged = _hits(scores, relevance, None, None)
    return np.where(judged, np.where(hits.any(axis=-1), 1 / (hits.argmax(axis=-1) + 1), 0.0), np.nan)


def recall(scores: ArrayLike, relevance: ArrayLike, k: int = 10, judged_gains: ArrayLike | None = None) -> Array:
    """Share of the relevant documents among the first k of every permutation, (..., M)."""
    hits, total, judged = _hits(scores, relevance, k, judged_gains)
    return np.where(judged, ratio(hits.sum(axis=-1), total, undefined=0.0), np.nan)


def mean_ndcg(scores: ArrayLike, relevance: ArrayLike, k: int = 10, **how: Any) -> Array:
    """Mean over permutations of nDCG@k, (...); `how` is passed to `ndcg`."""
    mean: Array = ndcg(scores, relevance, k, **how).mean(axis=-1)
    return mean


def worst_ndcg(scores: ArrayLike, relevance: ArrayLike, k: int = 10, **how: Any) -> Array:
    """nDCG@k of each query's worst permutation, (...)."""
    worst: Array = ndcg(scores, relevance, k, **how).min(axis=-1)
    return worst


def best_ndcg(scores: ArrayLike, relevance: ArrayLike, k: int = 10, **how: Any) -> Array:
    """nDCG@k of each query's best permutation, (...)."""
    best: Array = ndcg(scores, relevance, k, **how).max(axis=-1)
    return best


def order_spread(scores: ArrayLike, relevance: ArrayLike, k: int = 10, **how: Any) -> Array:
    """Mean minus worst permutation's nDCG@k per query, (...) (§C.3)."""
    return spread(ndcg(scores, relevance, k, **how))


def delta_ndcg_pool(
    original: ArrayLike, perturbed: ArrayLike, relevance: ArrayLike, k: int = 10, absolute: bool = False, **how: Any
) -> Array:
    """nDCG@k after a change of the pool minus before, (...), on the shared candidates' scores (..., n) (§C.1).

    Judgements are those of the shared candidates, also for the ideal. `absolute` gives its size.
    """
    before, after = np.moveaxis(ndcg(np.stack([original, perturbed], axis=-2), relevance, k, **how), -1, 0)
    change: Array = np.abs(after - before) if absolute else after - before
    return change
