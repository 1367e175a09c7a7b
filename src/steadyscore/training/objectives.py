"""Training objectives: each one a value in `OBJECTIVES`, its loss plain arithmetic for numpy and torch (§4; docs/objectives.md).

One window: `view` (B,) and `views` (N, B) are expected grades from 0 to 3, columns aligned to candidate identity, and
`target` (B,) is the teacher's. Nothing here knows of models, prompts or optimizers; what must not carry a gradient (the
teacher of `mean_teacher`, the base of `kl_to_base`) is detached by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

Convention = Literal["variance", "pairwise", "relative"]

ObjectiveName = Literal[
    "single_order",
    "order_averaged",
    "oc_sft",
    "permutation_augmentation",
    "debias_first",
    "mean_teacher",
    "kl_to_base",
    "dropout",
    "dropout_views",
    "marker_consistency",
]
PAPER_RAMP = 500 / 2305
"""Share of a run over which the consistency weight grows: the paper's 500 steps of its passage run (§B.3)."""
DROPOUT = 0.05
"""LoRA dropout where nothing else is said (§B.3)."""
FLOOR = 0.01
"""Least spread a relative penalty divides by: a standard deviation of a tenth of a grade, below which a window is all ties."""


def relevance_anchor(view: Any, target: Any) -> Any:
    """mean_d (s(d) - y(d))² (§4), of one view or the mean of several."""
    return ((view - target) ** 2).mean()


def order_variance(views: Any) -> Any:
    """(1/N) Σ_i mean_d (s_i(d) - s̄(d))² (§4). For N = 2 it is a quarter of mean_d (s_1(d) - s_2(d))²."""
    return ((views - views.mean(0)) ** 2).mean()


def consistency(views: Any, convention: Convention = "variance") -> Any:
    """What the weight of the consistency term stands before (docs/objectives.md).

    `variance`: `order_variance`, the paper's printed formula. `pairwise`: the mean squared difference of two views, the
    released code's: 2N / (N - 1) times as much, 4 at N = 2. `relative`: the variance over orders divided by the variance
    over the window's candidates. Shrinking the scores hardly lowers it while they spread by much more than 0.1 grades. A
    window of one candidate has no spread, and keeps the variance.
    """
    variance, n = order_variance(views), len(views)
    if convention == "pairwise" and n > 1:
        return variance * (2 * n / (n - 1))
    if convention == "relative" and views.shape[-1] > 1:
        mean = views.mean(0)
        return variance / (((mean - mean.mean()) ** 2).mean() + FLOOR)
    return variance


def weighted_anchor(views: Any, target: Any, slot_weights: Any) -> Any:
    """Σ_d w(d) (s(d) - y(d))² / Σ_d w(d), over all views: w belongs to the candidate's first-stage slot (§5).

    Equal weights give the plain anchor of all views.
    """
    return (slot_weights * (views - target) ** 2).mean() / slot_weights.mean()


def inverse_propensity(counts: Sequence[float] | np.ndarray, smoothing: float = 1e-3) -> np.ndarray:
    """Slot weights 1 / p with p(slot) = (count + smoothing) / Σ, scaled to mean 1, (B,)."""
    smooth = np.asarray(counts, float) + smoothing
    weights = smooth.sum() / smooth
    scaled: np.ndarray = weights / weights.mean()
    return scaled


def kl_divergence(log_p: Any, log_q: Any) -> Any:
    """mean_d Σ_g P(g) (log P(g) - log Q(g)) over the four grades, (B, 4) log-probabilities each."""
    return (math.e**log_p * (log_p - log_q)).sum(-1).mean()


def grade_cross_entropy(log_p: Any, distribution: Any) -> Any:
    """-mean_d Σ_g T(g) log P(g): the teacher's whole grade distribution, (B, 4), instead of its mean; of one view or several."""
    return -(distribution * log_p).sum(-1).mean()


def preference(view: Any, target: Any) -> Any:
    """Mean of log(1 + e^-(s(i) - s(j))) over the pairs with y(i) > y(j): the Bradley-Terry loss of a reward model.

    It asks for the order of the labels, not for their values. Of several views (N, B) the mean; 0 where all labels are equal.
    """
    is_better = target[:, None] > target[None, :]  # (B, B)
    losses = _log1p(math.e ** (view[..., None, :] - view[..., :, None]))
    return (losses * is_better).sum((-2, -1)).mean() / max(int(is_better.sum()), 1)


def _log1p(x: Any) -> Any:
    return np.log1p(x) if isinstance(x, np.ndarray) else x.log1p()


# -- what each objective is made of


@dataclass(frozen=True, slots=True)
class Seen:
    """What a step has seen of one window, for a loss to read."""

    views: Any
    """(N, b) expected grades."""
    target: Any
    """(b,)"""
    log_p: Any = None
    """(N, b, 4) log grade distributions of the views."""
    second: Any = None
    """(b,) expected grades by the averaged student or by the base, where the objective has one read as well."""
    second_log_p: Any = None
    """(b, 4)"""
    slot_weights: Any = None
    """(b,) of the candidates' first-stage slots."""
    convention: Convention = "variance"


class Terms(NamedTuple):
    """The terms of a loss: anchor · its own weight + penalty · the run's weight."""

    anchor: Any
    penalty: Any = None


def _anchor(seen: Seen) -> Terms:
    return Terms(relevance_anchor(seen.views[0], seen.target))


def _anchor_of_all_views(seen: Seen) -> Terms:
    return Terms(relevance_anchor(seen.views, seen.target))


def _anchor_by_slot(seen: Seen) -> Terms:
    return Terms(weighted_anchor(seen.views, seen.target, seen.slot_weights))


def oc_sft(seen: Seen) -> Terms:
    """relevance_anchor(s_1, y) + λ · consistency(s_1..s_N) (§4). Without the anchor the scores collapse."""
    return Terms(relevance_anchor(seen.views[0], seen.target), consistency(seen.views, seen.convention))


def _mean_teacher(seen: Seen) -> Terms:
    """relevance_anchor(s_1, y) + α · mean_d (s_1(d) - s_2^EMA(d))²: the second view is the averaged weights' (§D.2)."""
    view = seen.views[0]
    return Terms(relevance_anchor(view, seen.target), relevance_anchor(view, seen.second))


def _kl_to_base(seen: Seen) -> Terms:
    """relevance_anchor(s, y) + β · KL(student ‖ base) over the grades; the base is the model without adapter (§D.2)."""
    return Terms(relevance_anchor(seen.views[0], seen.target), kl_divergence(seen.log_p[0], seen.second_log_p))


@dataclass(frozen=True, slots=True)
class Objective:
    """What is minimised, and what a run needs for it."""

    name: ObjectiveName
    summary: str
    loss: Callable[[Seen], Terms]
    views: Literal["one", "orders", "markers", "dropout"] = "one"
    """What the views of a window differ in; one: it is read once."""
    exact_views: int | None = None
    """N, where it is not free."""
    anchors_all_views: bool = False
    """Whether the anchor reads every view, or the first one only."""
    teacher_orders: int | None = 1
    """Stored orders averaged into the target where nothing else is said; None: all, and several are needed."""
    weight: float | Literal["task"] | None = None
    """Of the penalty where nothing else is said; task: the task's, in the run's convention; None: there is no penalty."""
    ramp: float = 0
    """Share of the run over which the weight grows where nothing else is said."""
    dropout: float = DROPOUT
    """Of the LoRA layers where nothing else is said."""
    second: Literal["", "average", "base"] = ""
    """What else reads a window: the averaged student, the second view; the base, the only one."""
    has_slot_weights: bool = False
    own: tuple[str, ...] = ()
    """Settings that mean nothing to most other objectives."""


OBJECTIVES: dict[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("single_order", "squared error against labels of one order", _anchor),
        Objective("order_averaged", "the same against labels averaged over several orders", _anchor, teacher_orders=None),
        Objective(
            "oc_sft", "squared error, and the variance of the scores over orders", oc_sft,
            views="orders", weight="task", ramp=PAPER_RAMP,
        ),
        Objective(
            "permutation_augmentation", "squared error in every order", _anchor_of_all_views,
            views="orders", anchors_all_views=True,
        ),
        Objective(
            "debias_first", "the same, each candidate weighted against its first-stage slot", _anchor_by_slot,
            views="orders", anchors_all_views=True, has_slot_weights=True, own=("propensity",),
        ),
        Objective(
            "mean_teacher", "squared error, and the distance to the averaged weights in another order", _mean_teacher,
            views="orders", exact_views=2, weight=0.5, second="average", own=("ema_decay",),
        ),
        Objective(
            "kl_to_base", "squared error, and the divergence from the base", _kl_to_base, weight=0.05, second="base",
        ),
        Objective("dropout", "squared error with more LoRA dropout", _anchor, dropout=0.20, own=("dropout",)),
        Objective(
            "dropout_views", "squared error, and the variance over dropout masks", oc_sft,
            views="dropout", weight="task", ramp=PAPER_RAMP, own=("dropout",),
        ),
        Objective(
            "marker_consistency", "squared error, and the variance over kinds of markers", oc_sft,
            views="markers", weight="task", ramp=PAPER_RAMP,
        ),
    )
}  # fmt: skip
"""Every objective by its name (§4, §D.2)."""
