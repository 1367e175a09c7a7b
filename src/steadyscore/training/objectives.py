"""Training objectives as plain arithmetic: the same text for numpy arrays and torch tensors (§4; docs/objectives.md).

One window: `view` (B,) and `views` (N, B) are expected grades from 0 to 3, columns aligned to candidate identity, and
`target` (B,) is the teacher's. Nothing here knows of models, prompts or optimizers; what must not carry a gradient (the
teacher of `mean_teacher`, the base of `kl_to_base`) is detached by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

Convention = Literal["variance", "pairwise", "relative"]

FLOOR = 0.01
"""Least spread a relative penalty divides by: a standard deviation of a tenth of a grade, below which a window is all ties."""


def relevance_anchor(view: Any, target: Any) -> Any:
    """mean_d (s(d) - y(d))² (§4). The whole loss of single-order and order-averaged distillation."""
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


def oc_sft(views: Any, target: Any, weight: float, convention: Convention = "variance", anchor: float = 1.0) -> Any:
    """relevance_anchor(s_1, y) + λ · consistency(s_1..s_N) (§4). Weight 0 is single-order distillation.

    `anchor`, here and below, is the relevance anchor's own weight; at 0 the scores collapse (§4).
    """
    return anchor * relevance_anchor(views[0], target) + weight * consistency(views, convention)


def permutation_augmentation(views: Any, target: Any) -> Any:
    """(1/N) Σ_i mean_d (s_i(d) - y(d))²: every view is an example of its own, and nothing ties them (§D.2)."""
    return ((views - target) ** 2).mean()


def debias_first(views: Any, target: Any, slot_weights: Any) -> Any:
    """Σ_d w(d) (s(d) - y(d))² / Σ_d w(d), over all views: w belongs to the candidate's first-stage slot (§5).

    Equal weights give permutation augmentation.
    """
    return (slot_weights * (views - target) ** 2).mean() / slot_weights.mean()


def inverse_propensity(counts: Sequence[float] | np.ndarray, smoothing: float = 1e-3) -> np.ndarray:
    """Slot weights 1 / p with p(slot) = (count + smoothing) / Σ, scaled to mean 1, (B,)."""
    smooth = np.asarray(counts, float) + smoothing
    weights = smooth.sum() / smooth
    scaled: np.ndarray = weights / weights.mean()
    return scaled


def mean_teacher(view: Any, teacher: Any, target: Any, weight: float, anchor: float = 1.0) -> Any:
    """relevance_anchor(s_1, y) + α · mean_d (s_1(d) - s_2^EMA(d))²: the second view is the averaged weights' (§D.2)."""
    return anchor * relevance_anchor(view, target) + weight * relevance_anchor(view, teacher)


def kl_divergence(log_p: Any, log_q: Any) -> Any:
    """mean_d Σ_g P(g) (log P(g) - log Q(g)) over the four grades, (B, 4) log-probabilities each."""
    return (math.e**log_p * (log_p - log_q)).sum(-1).mean()


def kl_to_base(view: Any, target: Any, log_student: Any, log_base: Any, weight: float, anchor: float = 1.0) -> Any:
    """relevance_anchor(s, y) + β · KL(student ‖ base) over the grades; the base is the model without adapter (§D.2)."""
    return anchor * relevance_anchor(view, target) + weight * kl_divergence(log_student, log_base)


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


def ramp(step: int, weight: float, steps: int) -> float:
    """λ · min(step / steps, 1), step counted from 0 (§B.3); without a ramp the weight at once."""
    return weight * min(step / steps, 1.0) if steps else weight


def learning_rate(step: int, peak: float, steps: int, warmup: float = 0.1) -> float:
    """Linear over the first int(warmup · steps) steps, from peak / warm-up steps on; then a cosine to 0 (§B.3)."""
    warm = int(warmup * steps)
    if step < warm:
        return peak * (step + 1) / warm
    return peak * (1 + math.cos(math.pi * (step - warm) / max(steps - warm, 1))) / 2
