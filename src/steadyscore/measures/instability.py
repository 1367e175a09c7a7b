"""How far presentations move a ranking: tau-PSI and its kin (§3 and §C of the paper), on the arrays of `ranking`.

Each function reduces (..., M, n) to one figure per query, (...). All figures are means over pairs of permutations, or
variances; with one permutation, or one candidate where pairs of candidates are compared, they are NaN. The rows may be
any presentations of the same pool: random orders give tau-PSI, marker renamings at one order give the paper's marker
tau-PSI, and one order scored repeatedly gives the noise floor. The arithmetic is the same, so is the function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..terms import Array
from .ranking import TieRule, check_choice, finite_scores, is_relevant, rank, ranking, ratio, unless_single

CHUNK_BYTES = 4_000_000
"""Working memory for one chunk of (..., n, n) comparisons: a few megabytes stay in the processor's cache."""


def _by_chunks(reduce: Callable[[Array], Array], rows: Array, bytes_per_query: int) -> Array:
    """`reduce` over (queries, M, n), a few queries at a time; leading axes restored."""
    queries = rows.reshape(-1, *rows.shape[-2:])
    step = max(1, CHUNK_BYTES // max(1, bytes_per_query))
    parts = [reduce(queries[start : start + step]) for start in range(0, len(queries), step)]
    return np.concatenate([*parts, np.empty(0)]).reshape(rows.shape[:-2])[()]


def _shape(rows: Array) -> tuple[int, int]:
    """Permutations and candidates."""
    if rows.ndim < 2:
        raise InputError(f"scores of shape {rows.shape} have no permutations. Give (M, n), a row for each.")
    return rows.shape[-2], rows.shape[-1]


def tau_psi(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """tau-PSI = (1 - mean over i<j of Kendall's tau(r_i, r_j)) / 2 (§3): 0 identical, 0.5 unrelated, 1 reversed.

    On strict rankings tau is tau-a, so tau-PSI is the share of (pair of permutations, pair of candidates) that
    disagree. If c of the M permutations put a above b, c (M - c) of their pairs disagree on a and b: one count
    replaces M^2 comparisons. Ties are broken by `tie_rule`: candidate id counts them as stable, input position as
    moving with the order.
    """
    ranks = rank(scores, tie_rule, orders)
    permutations, n = _shape(ranks)
    if permutations < 2 or n < 2:
        return np.full(ranks.shape[:-2], np.nan)[()]
    ranks = ranks.astype(np.min_scalar_type(n))
    count = np.min_scalar_type(permutations)  # one byte for up to 255 permutations
    square = np.min_scalar_type(permutations**2)

    def disagreements(chunk: Array) -> Array:
        above = np.zeros((len(chunk), n, n), count)  # c, for every ordered pair of candidates
        for row in np.moveaxis(chunk, 1, 0):
            above += row[:, :, None] < row[:, None, :]
        counts: Array = np.multiply(above, permutations - above, dtype=square).sum(axis=(1, 2), dtype=np.int64)
        return counts

    share: Array = _by_chunks(disagreements, ranks, n * n) / (permutations * (permutations - 1) / 2 * n * (n - 1))
    return share


def _first_places(ordered: Array) -> Array:
    """For sorted scores (..., n), the place where each one's run of equal scores begins."""
    begins = np.ones(ordered.shape, bool)
    begins[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    return np.maximum.accumulate(np.where(begins, np.arange(ordered.shape[-1]), 0), axis=-1)


def _shared_rank(scores: Array) -> Array:
    """0-based rank where tied candidates share the best place, (..., M, n)."""
    columns = ranking(scores)
    shared = np.empty_like(columns)
    np.put_along_axis(shared, columns, _first_places(np.take_along_axis(scores, columns, axis=-1)), axis=-1)
    return shared


def _bits(matrix: Array) -> Array:
    """(Q, M, n, n) bool -> (Q, M, words) uint64, so that a machine word compares 64 pairs of candidates."""
    packed = np.packbits(matrix.reshape(*matrix.shape[:2], -1), axis=-1)
    padded = np.zeros((*packed.shape[:2], -(-packed.shape[-1] // 8) * 8), np.uint8)
    padded[..., : packed.shape[-1]] = packed
    return padded.view(np.uint64)


def tau_b_psi(scores: ArrayLike) -> Array:
    """tau-PSI with tau-b on the scores themselves, so that a tie is neither agreement nor disagreement.

    tau-b = (concordant - discordant) / sqrt(untied pairs of i x untied pairs of j). Pairs of permutations in which one
    has all candidates tied have no tau-b and are left out; NaN if none is left.
    """
    scores = finite_scores(scores)
    permutations, n = _shape(scores)
    shared = _shared_rank(scores).astype(np.min_scalar_type(n))

    def reduce(chunk: Array) -> Array:
        above = _bits(chunk[..., :, None] < chunk[..., None, :])
        below = _bits(chunk[..., :, None] > chunk[..., None, :])
        untied = np.bitwise_count(above).sum(axis=-1, dtype=np.int64)  # (Q, M)
        total, pairs = np.zeros(len(chunk)), np.zeros(len(chunk))
        for i in range(permutations - 1):
            concordant = np.bitwise_count(above[:, i : i + 1] & above[:, i + 1 :]).sum(axis=-1, dtype=np.int64)
            discordant = np.bitwise_count(above[:, i : i + 1] & below[:, i + 1 :]).sum(axis=-1, dtype=np.int64)
            possible = np.sqrt(untied[:, i : i + 1] * untied[:, i + 1 :])
            total += ratio(concordant - discordant, possible, undefined=0.0).sum(axis=-1)
            pairs += (possible > 0).sum(axis=-1)
        return (1 - ratio(total, pairs)) / 2

    return _by_chunks(reduce, shared, 3 * permutations * n * n)


def top_k_instability(scores: ArrayLike, k: int = 10, p: float = 0.9) -> Array:
    """1 - mean pairwise extrapolated rank-biased overlap of the first k (§C.2, ranking head).

    RBO = (1 - p) sum_{d<=k} p^(d-1) A_d + p^k A_k, A_d the share the two first d have in common. A candidate is common
    to depth d from the worse of its two ranks on, so RBO is a sum over candidates of w(worse rank), where
    w(r) = (1 - p) sum_{r<d<=k} p^(d-1)/d + p^k/k. Sorting a candidate's M ranks tells how often each is the worse one.
    """
    ranks = rank(scores)
    permutations, n = _shape(ranks)
    if permutations < 2 or n < 2:
        return np.full(ranks.shape[:-2], np.nan)[()]
    k = min(k, n)
    depth = np.arange(1, k + 1)
    weight = np.zeros(n)  # w by 0-based rank; 0 below the head
    weight[:k] = np.cumsum(((1 - p) * p ** (depth - 1) / depth)[::-1])[::-1] + p**k / k
    best_first = np.sort(ranks.astype(np.min_scalar_type(n)), axis=-2)  # place m is the worse one in m pairs
    agreement = np.einsum("...mn,m->...", weight[best_first], np.arange(permutations))
    instability: Array = np.clip(1 - agreement / (permutations * (permutations - 1) / 2), 0, 1)  # rounding may leave [0, 1]
    return instability


def buckets(orders: ArrayLike, relevance: ArrayLike) -> Array:
    """Third of the presentation that holds the strongest positive, (..., M): 0 top, 1 middle, 2 bottom.

    The strongest positive is the candidate with the highest judgement, then the smallest id; without one the
    label is 1.
    """
    orders, relevance = np.asarray(orders), np.asarray(relevance, float)
    n = orders.shape[-1]
    strongest = np.where(relevance > 0, relevance, 0).argmax(axis=-1)[..., None, None]
    position = (orders == strongest).argmax(axis=-1)
    return np.where(np.any(relevance > 0, axis=-1, keepdims=True), np.digitize(position, [n / 3, 2 * n / 3]), 1)


def bucket_means(quality: ArrayLike, labels: ArrayLike) -> Array:
    """Mean quality of the permutations of each bucket, (..., 3); NaN for a bucket no permutation fell into."""
    quality, member = np.asarray(quality, float), np.asarray(labels)[..., None, :] == np.arange(3)[:, None]
    return ratio((quality[..., None, :] * member).sum(axis=-1), member.sum(axis=-1))


def _one_minus_min_over_max(means: Array) -> Array:
    """Over the buckets that are filled, (..., 3) -> (...)."""
    known = ~np.isnan(means)
    least, most = np.where(known, means, np.inf).min(axis=-1), np.where(known, means, -np.inf).max(axis=-1)
    defined = (known.sum(axis=-1) > 1) & (most > 0)
    return 1 - ratio(np.where(defined, least, 0), np.where(defined, most, 0))


def zeng_psi(quality: ArrayLike, labels: ArrayLike) -> Array:
    """Zeng's PSI per query, (...): 1 - min / max of the bucket means of (..., M) quality.

    NaN where fewer than two buckets are filled, or the greatest mean is 0.
    """
    return _one_minus_min_over_max(bucket_means(quality, labels))


def zeng_psi_corpus(quality: ArrayLike, labels: ArrayLike) -> float:
    """Zeng's PSI of a collection: bucket means averaged over its queries first, then 1 - min / max once."""
    means = bucket_means(quality, labels).reshape(-1, 3)
    known = ~np.isnan(means)
    return float(_one_minus_min_over_max(ratio(np.where(known, means, 0).sum(axis=0), known.sum(axis=0))))


def delta_ndcg(quality: ArrayLike, labels: ArrayLike | None = None) -> Array:
    """Delta-nDCG per query, (...), from (..., M) quality.

    Without labels max - min over permutations; with bucket labels the stratified mean(top and bottom) - mean(middle).
    The two are on different scales and are never pooled.
    """
    quality = np.asarray(quality, float)
    if labels is None:
        return unless_single(quality.max(axis=-1) - quality.min(axis=-1), quality.shape[-1])
    middle = np.asarray(labels) == 1
    inner = ratio((quality * middle).sum(axis=-1), middle.sum(axis=-1))
    return ratio((quality * ~middle).sum(axis=-1), (~middle).sum(axis=-1)) - inner


def score_variance(scores: ArrayLike) -> Array:
    """Mean over candidates of the population variance of their score over permutations."""
    scores = finite_scores(scores)
    return unless_single(scores.var(axis=-2).mean(axis=-1), scores.shape[-2])


def rank_variance(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """Mean over candidates of the population variance of their rank over permutations."""
    ranks = rank(scores, tie_rule, orders)
    return unless_single(ranks.var(axis=-2).mean(axis=-1), ranks.shape[-2])


def gold_rank_variance(scores: ArrayLike, relevance: ArrayLike) -> Array:
    """`rank_variance` over the relevant candidates only; NaN where the pool holds none."""
    ranks, gold = rank(scores), is_relevant(relevance)
    return unless_single(ratio((ranks.var(axis=-2) * gold).sum(axis=-1), gold.sum(axis=-1)), ranks.shape[-2])


def normalized_residual(scores: ArrayLike) -> Array:
    """Order residual over score dispersion: sqrt(residual variance / mean variance within a presentation) (§C.2).

    Scores are centred within each presentation first, so an offset that moves every candidate alike, and no rank, is
    no residual. NaN where every presentation scores all candidates alike.
    """
    scores = finite_scores(scores)
    centred = scores - scores.mean(axis=-1, keepdims=True)
    residual = centred.var(axis=-2).mean(axis=-1)
    return unless_single(np.sqrt(ratio(residual, scores.var(axis=-1).mean(axis=-1))), scores.shape[-2])


def tied_pairs(scores: ArrayLike) -> Array:
    """Share of all pairs of candidates with exactly equal scores, within a presentation, mean over presentations."""
    scores = finite_scores(scores)
    n = scores.shape[-1]
    # A place less the first place of its run counts the equal scores before it, so the sum counts each pair once.
    ties = (np.arange(n) - _first_places(np.sort(scores, axis=-1))).sum(axis=-1).mean(axis=-1)
    return ratio(ties, n * (n - 1) / 2)


def adjacent_ties(scores: ArrayLike) -> Array:
    """Share of neighbours in the ranking with exactly equal scores, over all presentations (the reference's tie rate)."""
    gaps = np.diff(np.sort(finite_scores(scores), axis=-1), axis=-1)
    return ratio((gaps == 0).sum(axis=(-2, -1)), gaps.shape[-2] * gaps.shape[-1])


def tie_sensitivity(
    scores: ArrayLike,
    decision: Literal["top_k", "pair"] = "top_k",
    k: int = 10,
    orders: ArrayLike | None = None,
    seed: int = 0,
) -> Array:
    """Share of permutations whose decision a tie-break made: it differs between candidate-id, input and random ties.

    The decision is the set of the first k (a budget, or a reader's evidence) or the (first, last) pair; what a cutoff
    retains needs no tie-break. Without `orders` the input-position rule is left out.
    """
    check_choice(decision, ("top_k", "pair"), "decision")
    scores = finite_scores(scores)
    shape = scores.shape[-2:]  # drawn for one query and taken for all: what a query gets depends on no other
    drawn = np.random.default_rng(seed).permuted(np.broadcast_to(np.arange(shape[1]), shape), axis=-1)
    random = np.broadcast_to(drawn, scores.shape)
    rules = [ranking(scores), ranking(scores, "input_position", random)]
    if orders is not None:
        rules.append(ranking(scores, "input_position", orders))
    decide = (lambda r: np.sort(r[..., :k], axis=-1)) if decision == "top_k" else (lambda r: r[..., [0, -1]])
    first, *others = (decide(columns) for columns in rules)
    share: Array = np.any([(first != other).any(axis=-1) for other in others], axis=0).mean(axis=-1)
    return share


def pool_psi(original: ArrayLike, perturbed: ArrayLike) -> Array:
    """Pool-PSI = (1 - tau) / 2 between two rankings of the candidates both pools share, scores (..., n) each (§C.1)."""
    return tau_psi(np.stack([original, perturbed], axis=-2))


def top_k_changed(original: ArrayLike, perturbed: ArrayLike, k: int = 10) -> Array:
    """1 where the first k of the shared candidates are another set after the change of the pool, else 0, (...)."""
    before, after = (np.sort(ranking(scores)[..., :k], axis=-1) for scores in (original, perturbed))
    changed: Array = (before != after).any(axis=-1).astype(float)[()]
    return changed
