"""Synthetic scorers of known structure: what the instrument must find is planted here (used by `validate`, tests, teaching).

A scorer is a function (orders, width, rng) -> Simulated. `orders` (M, n) maps position to candidate; windows are contiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..measures.decomposition import Components
from ..terms import Array


class Simulated(NamedTuple):
    scores: Array  # (M, n)
    slots: Array  # (M, n)
    windows: Array  # (M, n)
    planted: Components
    """Expected variance over uniformly random orders, ddof-free."""


def random_orders(n: int, permutations: int, rng: np.random.Generator) -> Array:
    """Independent uniform orders, (M, n)."""
    return rng.permuted(np.tile(np.arange(n), (permutations, 1)), axis=1)


def layout(orders: ArrayLike, width: int) -> tuple[Array, Array]:
    """Slots and windows (M, n) of each candidate when `orders` are cut into contiguous windows."""
    position = np.argsort(orders, axis=1)  # candidate -> position
    return position % width, position // width


def simulate(
    base: ArrayLike,
    orders: ArrayLike,
    width: int,
    *,
    slot: ArrayLike = 0.0,
    window: ArrayLike = 0.0,
    influence: ArrayLike = 0.0,
    noise: float = 0.0,
    step: float = 0.0,
    rng: np.random.Generator | None = None,
) -> Simulated:
    """scores = base + slot[p] + window[w] + mean influence of the companions + noise, rounded to multiples of `step`.

    `influence[d, e]` (n, n) is what companion e adds to the score of d; a row vector (n,) lets e act on all alike. The
    planted companion component is the remainder, as the estimated one is: it contains the noise and, where the last window
    is short, twice the covariance of slot and window. It does not account for rounding.
    """
    base, orders = np.asarray(base, float), np.asarray(orders)
    n = orders.shape[1]
    slots, windows = layout(orders, width)
    slot = np.broadcast_to(np.asarray(slot, float), width)
    window = np.broadcast_to(np.asarray(window, float), _windows(orders, width))
    influence = np.broadcast_to(np.asarray(influence, float), (n, n)) * (1 - np.eye(n))
    scores = base + slot[slots] + window[windows] + _companion_shift(windows, influence)
    if noise:
        scores = scores + noise * (rng or np.random.default_rng(0)).standard_normal(scores.shape)
    if step:
        scores = np.round(scores / step) * step
    by_slot, by_window = slot[np.arange(n) % width], window[np.arange(n) // width]  # (n,) by position
    total = (by_slot + by_window).var() + _companion_variance(influence, width) + noise**2
    parts = by_slot.var(), by_window.var()
    return Simulated(scores, slots, windows, Components(total, *parts, total - sum(parts)))


def no_order_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    return simulate(_base(orders, rng), orders, width)


def slot_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Early slots are over-scored, as off the shelf (§C.1)."""
    return simulate(_base(orders, rng), orders, width, slot=_spread(-np.arange(width)))


def window_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    return simulate(_base(orders, rng), orders, width, window=_spread(-np.arange(_windows(orders, width))))


def companion_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Every pair has its own influence: candidates of a window move independently."""
    n = np.shape(orders)[1]
    return simulate(_base(orders, rng), orders, width, influence=0.4 * rng.standard_normal((n, n)))


def shared_companion_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Strong companions depress the whole window: its candidates move together."""
    base = _base(orders, rng)
    return simulate(base, orders, width, influence=-base)


def mixed_effect(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Three parts slot, two parts window, five parts noise."""
    windows = _windows(orders, width)
    slot, window = _spread(-np.arange(width), 0.3**0.5), _spread(np.arange(windows), 0.2**0.5)
    return simulate(_base(orders, rng), orders, width, slot=slot, window=window, noise=0.1 * 0.5**0.5, rng=rng)


def noise(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Nothing but noise: every ranking is a fresh uniform one, τ-PSI is one half."""
    return simulate(np.zeros(np.shape(orders)[1]), orders, width, noise=0.1, rng=rng)


def ties(orders: ArrayLike, width: int, rng: np.random.Generator) -> Simulated:
    """Four distinct scores and no order effect: only a tie-break by input position can make this scorer unstable."""
    return simulate(_base(orders, rng), orders, width, step=1 / 3)


SCORERS: dict[str, Callable[[ArrayLike, int, np.random.Generator], Simulated]] = {
    scorer.__name__: scorer
    for scorer in (
        no_order_effect,
        slot_effect,
        window_effect,
        companion_effect,
        shared_companion_effect,
        mixed_effect,
        noise,
        ties,
    )
}


def _base(orders: ArrayLike, rng: np.random.Generator) -> Array:
    return rng.random((np.shape(orders)[1],))


def _windows(orders: ArrayLike, width: int) -> int:
    n: int = np.shape(orders)[1]
    return -(-n // width)


def _spread(profile: ArrayLike, sd: float = 1.0) -> Array:
    """The profile centred, with SD 0.1 times `sd`; zero where it is flat."""
    centred = np.asarray(profile, float) - np.mean(np.asarray(profile, float))
    effect: Array = 0.1 * sd * centred / (centred.std() or 1.0)
    return effect


def _companion_shift(windows: Array, influence: Array) -> Array:
    """Mean influence of the other candidates of the window, (M, n); zero for a candidate alone."""
    if not influence.any():
        return np.zeros(windows.shape)
    together = windows[:, :, None] == windows[:, None, :]  # (M, n, n)
    shift: Array = (together * influence).sum(axis=-1) / np.maximum(together.sum(axis=-1) - 1, 1)
    return shift


def _companion_variance(influence: Array, width: int) -> float:
    """Variance of that shift over random orders: a mean of k companions drawn without replacement from n - 1.

    Var = S² / k * (1 - k / (n - 1)) with S² the variance (ddof 1) of a candidate's row; the last window may be shorter.
    """
    n = len(influence)
    if n < 3 or not influence.any():
        return 0.0
    row_mean = influence.sum(axis=1) / (n - 1)
    row_variance = ((influence - row_mean[:, None]) ** 2 * (1 - np.eye(n))).sum(axis=1) / (n - 2)
    companions = np.bincount(np.arange(n) // width)[np.arange(n) // width] - 1  # (n,) by position
    accompanied = companions > 0
    k, share = companions[accompanied], accompanied.mean()
    within = row_variance * (np.sum((1 - k / (n - 1)) / k) / n)
    return float(np.mean(within + share * (1 - share) * row_mean**2))
