"""The preference consumer: the chosen and rejected response a reward signal is built from (§5, §F.4, §D.6).

Ties go to the smaller candidate id. Gold is the highest judgement of the pool, and positive; a pool without one has no
label, so agreement with it is NaN.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array
from .ranking import finite_scores, ratio, unless_single, unless_unjudged

Estimator = Literal["pairwise", "modal"]


def change(outputs: Sequence[Hashable] | Array, estimator: Estimator = "pairwise") -> Array:
    """How often the output of a consumer changes between M permutations: the one definition behind every flip measure.

    `pairwise`: the probability that two permutations disagree, 1 - sum_c n_c (n_c - 1) / (M (M - 1)), as the paper
    defines it. `modal`: 1 - (share of the most frequent output), which the reference code computes; never above (M -
    1) / M. `outputs` holds M hashable values, or is an array (..., M) of codes; the result is (...), NaN when M < 2.
    """
    if estimator not in ("pairwise", "modal"):
        raise InputError(f'estimator "{estimator}" is unknown. Use "pairwise" or "modal".')
    codes = outputs if isinstance(outputs, np.ndarray) else np.array(_codes(outputs))
    permutations = codes.shape[-1]
    if permutations < 2:
        return np.full(codes.shape[:-1], np.nan)[()]
    alike = (codes[..., :, None] == codes[..., None, :]).sum(axis=-1)  # (..., M): how many share each one's output
    modal, pairwise = 1 - alike.max(axis=-1) / permutations, 1 - (alike - 1).mean(axis=-1) / (permutations - 1)
    rate: Array = modal if estimator == "modal" else pairwise
    return rate


def _codes(outputs: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(output, len(seen)) for output in outputs]


def pair(scores: ArrayLike) -> Array:
    """(chosen, rejected): first and last column of every permutation's ranking, (..., M, 2).

    No sort is needed: the first of the highest scores leads the ranking, the last of the lowest ends it.
    """
    scores = finite_scores(scores)
    return np.stack([scores.argmax(axis=-1), scores.shape[-1] - 1 - scores[..., ::-1].argmin(axis=-1)], axis=-1)


def pair_flip(scores: ArrayLike, estimator: Estimator = "pairwise") -> Array:
    """How often two permutations select different (chosen, rejected) pairs, (...)."""
    pairs = pair(scores)
    return change(pairs[..., 0] * np.shape(scores)[-1] + pairs[..., 1], estimator)


def selection_flip(scores: ArrayLike, estimator: Estimator = "pairwise") -> Array:
    """How often two permutations choose different responses, (...)."""
    return change(pair(scores)[..., 0], estimator)


def selected_quality(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """Judgement of the response every permutation chooses, (..., M); 0 if it is unjudged."""
    chosen = pair(scores)[..., :1]
    judgement = np.nan_to_num(np.asarray(relevance, float))[..., None, :]
    return np.take_along_axis(np.broadcast_to(judgement, np.shape(scores)), chosen, axis=-1)[..., 0]


def selected_quality_flip(scores: ArrayLike, relevance: ArrayLike, estimator: Estimator = "pairwise") -> Array:
    """How often two permutations choose responses of different judgement, (...); NaN for a query without any judgement."""
    return unless_unjudged(change(selected_quality(scores, relevance), estimator), relevance)


def _agrees(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """Whether each permutation's first response is gold: 1 or 0, (..., M); NaN where the pool has no gold."""
    best = np.nan_to_num(np.asarray(relevance, float)).max(axis=-1)[..., None]
    return np.where(best > 0, (selected_quality(scores, relevance) == best).astype(float), np.nan)


def gold_crossing(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """1 where the first response is gold under some permutations and not under others, else 0, (...) (§D.6)."""
    agrees = _agrees(scores, relevance)
    crossing = np.where(np.isnan(agrees[..., 0]), np.nan, agrees.min(axis=-1) != agrees.max(axis=-1))
    return unless_single(crossing, agrees.shape[-1])


def label_accuracy(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """Share of permutations whose first response is gold: accuracy of labels made from one permutation, (...)."""
    share: Array = _agrees(scores, relevance).mean(axis=-1)
    return share


def label_accuracy_at_k(scores: ArrayLike, relevance: ArrayLike, k: int | None = None) -> Array:
    """Whether the first response by the mean score of the first k permutations (default all M) is gold, (...)."""
    return label_accuracy(finite_scores(scores)[..., :k, :].mean(axis=-2, keepdims=True), relevance)


def swap_flip(scores: ArrayLike, orders: ArrayLike | None = None) -> Array:
    """Of a pool of two: how often the winner changes when the two change places, (...), over rows (..., M, 2) that show them in
    other orders; where `orders` (..., M, 2) are not told, over all rows.
    """
    winner = pair(scores)[..., 0]
    return _over_swaps(winner[..., :, None] != winner[..., None, :], orders)


def first_place_bias(scores: ArrayLike, orders: ArrayLike) -> Array:
    """Of a pool of two: 1 where whoever stands first wins in both orders, -1 where whoever stands second does, 0 where one
    candidate wins in both, (...).
    """
    ahead = np.where(pair(scores)[..., 0] == np.asarray(orders)[..., 0], 1.0, -1.0)
    return _over_swaps((ahead[..., :, None] + ahead[..., None, :]) / 2, orders)


def swap_accuracy(scores: ArrayLike, relevance: ArrayLike, orders: ArrayLike | None = None) -> Array:
    """Of a pool of two: whether the better judged one wins in both orders, (...); NaN where neither is judged better."""
    right, judged = _agrees(scores, relevance), np.nan_to_num(np.asarray(relevance, float))
    in_both = _over_swaps(right[..., :, None] * right[..., None, :], orders)
    return np.where(judged[..., 0] == judged[..., 1], np.nan, in_both)[()]


def _over_swaps(values: Array, orders: ArrayLike | None) -> Array:
    """The mean of (..., M, M) values over the rows that show another candidate first, (...); NaN where all show the same."""
    first = np.arange(values.shape[-1]) if orders is None else np.asarray(orders)[..., 0]
    swapped = first[..., :, None] != first[..., None, :]
    return ratio(np.where(swapped, values, 0.0).sum(axis=(-2, -1)), swapped.sum(axis=(-2, -1)))


def benchmark_scores(quality: ArrayLike) -> Array:
    """What a benchmark would report under each permutation, (M,): mean over queries of (queries, M) quality (§F.5).

    Queries whose quality is NaN are left out, under every permutation alike.
    """
    quality = np.asarray(quality, float)
    known = ~np.isnan(quality).any(axis=-1)
    return ratio(quality[known].sum(axis=0), known.sum())


def benchmark_range(quality: ArrayLike) -> float:
    """Highest minus lowest benchmark score over the permutations."""
    reported = benchmark_scores(quality)
    return float(np.ptp(reported)) if reported.size > 1 else float("nan")


def benchmark_sd(quality: ArrayLike) -> float:
    """Sample standard deviation of the benchmark score over the permutations."""
    reported = benchmark_scores(quality)
    return float(reported.std(ddof=1)) if reported.size > 1 else float("nan")
