"""Where score variation comes from: order-marginal and residual, slot, window, companions, width (§3, §C.1, §G).

One query is `scores` (M, n) with the 0-based `slots` (M, n) and `windows` (M, n) of every candidate under every permutation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array
from .ranking import is_relevant, ratio

Estimator = Literal["unbiased", "reference"]


def order_marginal(scores: ArrayLike) -> Array:
    """μ_B: the score a permutation-invariant scorer at this width would emit (§3.2), estimated by the mean. (M, n) -> (n,)"""
    marginal: Array = np.mean(np.asarray(scores, float), axis=-2)
    return marginal


def order_residual(scores: ArrayLike) -> Array:
    """δ_B = scores - μ_B: what moves when only the order changes (§3.2). Marginal and residual add up to the scores."""
    scores = np.asarray(scores, float)
    residual: Array = scores - scores.mean(axis=-2, keepdims=True)
    return residual


SMALLEST = 1e-9
"""Share of a Gram matrix's largest eigenvalue below which an eigenvalue is rounding: its direction is not identified."""


class Components(NamedTuple):
    """Variance of a candidate's score over permutations, in squared score units, or shares of it."""

    total: float
    slot: float
    window: float
    companion: float
    """What slot and window leave over: companions, interactions, noise."""


def variance_shares(scores: ArrayLike, slots: ArrayLike, windows: ArrayLike, *, protocol: Estimator = "unbiased") -> Components:
    """Variance components of one query under score = candidate + slot + window + remainder, by OLS (§C.1).

    `reference` (the released code's): the drops in mean squared residual as slot, then window indicators join the candidate
    effects; ddof 0. Fitted to M = 10 permutations those drops also contain what the indicators pick up by chance. All
    candidates of a window share their companions, so the chance part is not what independent errors would give: a pure
    shared companion effect over 5 windows shows about a tenth as a window effect.

    `unbiased`, the default: the effects are fitted twice, on two disjoint halves of the permutations. Chance parts of the
    halves are independent whatever happens inside a permutation, so the *covariance* of the two fits has no noise floor.
    It is averaged over the cyclic splits; the total has ddof 1 and the remainder is what is left. One query's slot or
    window component may come out below zero: flooring it here would bring the bias back, `collection_shares` floors.
    NaN where no half identifies the effects (fewer than four permutations).
    """
    scores, slots, windows = np.asarray(scores, float), np.asarray(slots), np.asarray(windows)
    if protocol == "unbiased":
        return Components(*unbiased_components(scores[None], slots[None], windows[None])[0].tolist())
    if len(scores) < 2:
        return Components(np.nan, np.nan, np.nan, np.nan)
    residual = order_residual(scores)
    if _is_still(scores, residual):
        return Components(0.0, 0.0, 0.0, 0.0)
    total = float(np.mean(residual**2))
    after_slot = float(np.mean((residual - _within(_fit(scores, slots)[0][slots])) ** 2))
    slot_effect, window_effect = _fit(scores, slots, windows)
    after_all = float(np.mean((residual - _within(slot_effect[slots] + window_effect[windows])) ** 2))
    return Components(total, max(total - after_slot, 0.0), max(after_slot - after_all, 0.0), after_all)


def unbiased_components(scores: Array, slots: Array, windows: Array) -> Array:
    """`variance_shares` of Q queries of one shape at once, (Q, M, n) each: (Q, 4).

    Two effects a and b of one half each, spread over the candidates of all permutations, have the covariance a' G b, G being the
    Gram matrix of the indicators with candidate means taken out. So no fit needs more than Gram matrices, and these are sums
    over permutations: each is made once and added up for every half.
    """
    queries, permutations, n = scores.shape
    if permutations < 2:
        return np.full((queries, 4), np.nan)
    residual = order_residual(scores)
    components = np.full((queries, 4), np.nan)
    components[:, 0] = np.sum(residual**2, axis=(-2, -1)) / (n * (permutations - 1))
    still = _is_still(scores, residual)
    components[still] = 0.0
    if splits := _cyclic_splits(permutations):
        levels = int(slots.max()) + int(windows.max()) + 2
        at_once = max(1, LARGEST // (permutations * n * levels))
        moving = np.flatnonzero(~still)
        for part in (moving[start : start + at_once] for start in range(0, len(moving), at_once)):
            effects = _split_effects(residual[part], slots[part], windows[part], splits) / (n * (permutations - 1))
            components[part, 1:3] = effects
            components[part, 3] = components[part, 0] - effects[:, 0] - effects[:, 1]
    return components


LARGEST = 2_000_000
"""Numbers of an array of indicators: queries are taken as many at a time."""


def _split_effects(residual: Array, slots: Array, windows: Array, splits: Sequence[tuple[Array, Array]]) -> Array:
    """(Q, 2) sums of squares that slot and window add, as the two halves of each split agree on them; NaN where none can."""
    indicators, levels = _indicators((slots, windows))  # (Q, M, n, k)
    permutations, k = residual.shape[1], sum(levels)
    groups = [np.arange(permutations), *(rows for halves in splits for rows in halves)]
    members = np.array([np.isin(np.arange(permutations), rows) for rows in groups], float)  # (1 + 2 splits, M)

    def add_up(values: Array) -> Array:
        """(Q, M, ...) summed over the permutations of every group."""
        sums: Array = np.matmul(members, values.reshape(*values.shape[:2], -1))
        return sums.reshape(len(values), len(groups), *values.shape[2:])

    # Normal equations of every group, candidate means taken out (Frisch-Waugh-Lovell).
    shown, sizes = add_up(indicators), members.sum(axis=1)
    seen = add_up(np.matmul(indicators.swapaxes(-1, -2), indicators))
    gram = seen - np.matmul(shown.swapaxes(-1, -2), shown) / sizes[:, None, None]
    moved = add_up(np.einsum("qmnk,qmn->qmk", indicators, residual))
    moved -= np.einsum("qgnk,qgn->qgk", shown, add_up(residual)) / sizes[:, None]
    effects, rank = _least_squares(gram.reshape(-1, k, k), moved.reshape(-1, k))
    effects, rank = effects.reshape(moved.shape), rank.reshape(moved.shape[:2])

    is_known = (rank[:, 1::2] == rank[:, :1]) & (rank[:, 2::2] == rank[:, :1])  # (Q, splits)
    agreed = []
    for own in (slice(0, levels[0]), slice(levels[0], k)):
        both = np.einsum("qsi,qij,qsj->qs", effects[:, 1::2, own], gram[:, 0, own, own], effects[:, 2::2, own])
        agreed.append(np.where(is_known, both, 0.0).sum(axis=1))
    return ratio(np.stack(agreed, axis=-1), is_known.sum(axis=1, keepdims=True))


def _least_squares(gram: Array, moved: Array) -> tuple[Array, Array]:
    """The shortest solutions (Q, k) of Q systems of normal equations, and their ranks."""
    values, vectors = np.linalg.eigh(gram)
    is_kept = values > SMALLEST * values[:, -1:]
    inverse = np.where(is_kept, 1 / np.where(is_kept, values, 1.0), 0.0)
    along = np.matmul(vectors.swapaxes(-1, -2), moved[:, :, None])[:, :, 0]
    return np.matmul(vectors, (inverse * along)[:, :, None])[:, :, 0], is_kept.sum(axis=-1)


def collection_shares(components: Sequence[Components]) -> Components:
    """Shares of a collection: ratios of query-mean components, not means of ratios; `total` is 1.

    Queries with an undefined component are left out. NaN where no query is left or nothing varies: a scorer without an
    order effect has no shares. Macro figures are means of these over collections.
    """
    return shares_of(mean_components(components))


def mean_components(components: Iterable[Components]) -> Components:
    """Means over the queries that have all components; NaN where none has."""
    table = known_components(np.array(list(components), float).reshape(-1, 4))
    return Components(*(table.mean(axis=0) if len(table) else np.full(4, np.nan)).tolist())


def known_components(table: Array) -> Array:
    """Of (Q, 4) components the rows of queries that have all of them."""
    known: Array = table[~np.isnan(table).any(axis=1)]
    return known


def shares_of(components: Components | Array) -> Components:
    """Query-mean components as shares of their total; NaN where nothing varies."""
    total, slot, window, _ = components
    if not total > 0:
        return Components(np.nan, np.nan, np.nan, np.nan)
    slot, window = max(slot / total, 0.0), max(window / total, 0.0)
    return Components(1.0, slot, window, max(1.0 - slot - window, 0.0))


class SlotResidual(NamedTuple):
    profile: Array
    """ψ(p), (width,); NaN where no candidate ever stood in the slot."""
    rms: float


def slot_residual(scores: ArrayLike, slots: ArrayLike, width: int, gold: ArrayLike | None = None) -> SlotResidual:
    """ψ(p): mean order residual of the candidates in slot p of one query, over all or only the `gold` (n,) ones (§C.1)."""
    keep = slice(None) if gold is None else np.asarray(gold, bool)
    residual, slots = order_residual(scores)[:, keep], np.asarray(slots)[:, keep]
    return with_rms(slot_profiles(residual[None], slots[None], width)[0])


def slot_profiles(residual: Array, slots: Array, width: int) -> Array:
    """(Q, width) mean order residual in every slot of Q queries of one shape, (Q, M, n) each; NaN where none ever stood."""
    places = (slots + width * np.arange(len(slots))[:, None, None]).ravel()
    seen, moved = np.bincount(places, minlength=len(slots) * width), np.bincount(places, residual.ravel(), len(slots) * width)
    return ratio(moved, seen).reshape(len(slots), width)


def collection_slot_residual(queries: Sequence[SlotResidual]) -> SlotResidual:
    """ψ(p) of a collection: the mean over the queries in which slot p was occupied, and the RMS of that mean profile."""
    profiles = np.array([query.profile for query in queries])  # (Q, width)
    seen = (~np.isnan(profiles)).sum(axis=0)
    return with_rms(ratio(np.nansum(profiles, axis=0), seen))


def width_effect(scores_B: ArrayLike, scores_1: ArrayLike) -> float:
    """Score-level width effect, mean |μ_B - μ_1| / pooled SD (§G.3).

    `scores_B` (M, N) and `scores_1` (N,) hold all candidates of a collection side by side. Pooled SD: population SD of the
    2N order-marginals and pointwise scores. NaN where all of them are equal.
    """
    marginal, alone = order_marginal(scores_B), np.asarray(scores_1, float)
    spread = np.concatenate([marginal, alone]).std()
    return float(np.abs(marginal - alone).mean() / spread) if spread > 0 else float("nan")


class WidthDecomposition(NamedTuple):
    width: Array
    content: Array
    length_slot: Array
    skeleton: Array
    closure: Array
    """Width minus its three terms: rounding only."""


def width_decomposition(alone: ArrayLike, comp: ArrayLike, fill: ArrayLike, skel: ArrayLike) -> WidthDecomposition:
    """The four-condition decomposition of the width effect (§G.2), element by element on qualities or scores.

    width = comp - alone; content = comp - fill; length plus slot = fill - skel; skeleton = skel - alone.
    """
    alone, comp, fill, skel = (np.asarray(condition, float) for condition in (alone, comp, fill, skel))
    width, content, length_slot, skeleton = comp - alone, comp - fill, fill - skel, skel - alone
    return WidthDecomposition(width, content, length_slot, skeleton, width - (content + length_slot + skeleton))


class SilverBeta(NamedTuple):
    beta: float
    """Mean SD of a label over teacher orders, on the label's own scale (grades: 0 to 3)."""
    scale_free: float
    """The same, each divided by the SD of the averaged labels of its query."""
    undefined: int
    """Queries whose averaged labels are all equal: not in `scale_free`."""


def silver_beta(score_vectors: Sequence[ArrayLike]) -> SilverBeta:
    """Order-consistency of labels: how far a candidate's label moves over the teacher's T orders (§H.4).

    One (T, n) array per query; mean over all (query, candidate). SDs are sample SDs, so that teachers with different T can
    be compared; a single order gives NaN. Lower is more consistent.
    """
    moves, ratios, undefined = [np.empty(0)], [np.empty(0)], 0
    for vectors in (np.asarray(query, float) for query in score_vectors):
        move = _sample_sd(vectors, axis=0)  # (n,)
        spread = _sample_sd(order_marginal(vectors), axis=0)
        moves.append(move)
        if spread > 0:
            ratios.append(move / spread)
        else:
            undefined += 1
    return SilverBeta(_mean(np.concatenate(moves)), _mean(np.concatenate(ratios)), undefined)


def _fit(scores: Array, *labels: Array) -> list[Array]:
    """OLS effects of each label set beside candidate effects, (k,) per set.

    Candidate effects are projected out first (Frisch-Waugh-Lovell), which leaves a k x k system instead of (n + k) x (n + k).
    """
    indicators, levels = _indicators(labels)
    design = _within(indicators).reshape(-1, sum(levels))
    effects, *_ = np.linalg.lstsq(design.T @ design, design.T @ order_residual(scores).ravel(), rcond=SMALLEST)
    return np.split(effects, np.cumsum(levels)[:-1])


def _indicators(labels: Sequence[Array]) -> tuple[Array, list[int]]:
    """(..., k) 0 or 1 for every level of every label set, side by side; and how many levels each set has."""
    levels = [int(label.max()) + 1 for label in labels]
    shown = [label[..., None] == np.arange(k) for label, k in zip(labels, levels, strict=True)]
    return np.concatenate(shown, axis=-1).astype(float), levels


def _is_still(scores: Array, residual: Array) -> Array:
    """(...) whether (..., M, n) scores do not move: what is left is rounding of the mean."""
    still: Array = np.abs(residual).max(axis=(-2, -1)) <= 1e-12 * np.abs(scores).max(axis=(-2, -1))
    return still


def _within(values: Array) -> Array:
    """Deviations from each candidate's mean over permutations (axis 0)."""
    deviations: Array = values - values.mean(axis=0)
    return deviations


def _cyclic_splits(permutations: int) -> list[tuple[Array, Array]]:
    half = permutations // 2
    if half < 2:  # one permutation alone says nothing within a candidate
        return []
    turns = half if permutations % 2 == 0 else permutations  # further turns of an even number repeat the same splits
    rolled = (np.roll(np.arange(permutations), -turn) for turn in range(turns))
    return [(rows[:half], rows[half:]) for rows in rolled]


def with_rms(profile: Array) -> SlotResidual:
    seen = profile[~np.isnan(profile)]
    return SlotResidual(profile, float(np.sqrt(np.mean(seen**2))) if len(seen) else float("nan"))


def _sample_sd(values: Array, axis: int) -> Array:
    return values.std(axis=axis, ddof=1) if values.shape[axis] > 1 else np.full(values.mean(axis=axis).shape, np.nan)


def _mean(values: Array) -> float:
    return float(values.mean()) if len(values) else float("nan")


# ---- stored queries ----


def placed_scores(query: Scored) -> tuple[Array, Array, Array]:
    """(M, n) scores, slots and windows of the permutations, without the row of the first-stage order."""
    keep = query.permutations != FIRST_STAGE
    return query.permuted, query.slots[keep], query.windows[keep]  # type: ignore[index]


def variance_components(queries: Sequence[Scored], protocol: Estimator = "reference") -> Components:
    """Slot, window and remaining variance of a collection in squared score units: means over queries that have all of them."""
    return mean_components(variance_shares(*_placed(query), protocol=protocol) for query in queries)


def slot_profile(queries: Sequence[Scored], *, gold: bool = False) -> SlotResidual:
    """What each slot adds to a score; with `gold` only to relevant candidates. Queries without one are left out."""
    width = max(int(_placed(query)[1].max()) + 1 for query in queries)
    residuals = []
    for query in queries:
        kept = is_relevant(query.gold) if gold else None
        if kept is None or kept.any():
            scores, slots, _ = _placed(query)
            residuals.append(slot_residual(scores, slots, width, kept))
    return collection_slot_residual(residuals) if residuals else SlotResidual(np.full(width, np.nan), float("nan"))


def _placed(query: Scored) -> tuple[Array, Array, Array]:
    if query.slots is None or query.windows is None:
        raise InputError(f"query {query.query_id} has no stored places, which slots and windows need.")
    return placed_scores(query)
