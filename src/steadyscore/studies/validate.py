"""The instrument tested on itself: planted order effects against what the measures recover, offline, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..measures.decomposition import Components, collection_shares, collection_slot_residual, slot_residual, variance_shares
from ..measures.instability import tau_psi, tied_pairs
from ..measures.intervals import mean_interval
from ..measures.retained_sets import overlap, retained
from ..measures.stopping import decide
from ..results.render import Printed
from ..results.table import Table, table_of
from ..terms import Array
from ..window.presentation import balanced_orders

POOL, WIDTH, PERMUTATIONS, QUERIES = 100, 20, 10, 80


class PlantedEffect(NamedTuple):
    check: str
    planted: float
    recovered: float
    tolerance: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Validation(Printed):
    """Every planted quantity. Prints as the table of `steadyscore study validate`."""

    rows: tuple[PlantedEffect, ...]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)

    def to_json(self) -> list[dict[str, object]]:
        """As `steadyscore study validate --json` prints it."""
        return [row._asdict() for row in self.rows]

    def tables(self) -> list[Table]:
        rows = [[*row[:4], "yes" if row.ok else "NO"] for row in self.rows]
        note = f"{sum(row.ok for row in self.rows)} of {len(rows)} planted quantities recovered."
        return [table_of(["check", "planted", "recovered", "tolerance", "ok"], rows, notes=[note])]


def validate(seed: int = 0) -> Validation:
    """One row per planted quantity; `ok` where it was recovered within the tolerance."""
    rng = np.random.default_rng(seed)
    checks = (_instability, _variance_shares, _slot_profile, _overlap, _coverage, _stopping, _balance)
    return Validation(
        tuple(PlantedEffect(*row, ok=bool(abs(row[1] - row[2]) <= row[3])) for check in checks for row in check(rng))
    )


def _instability(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """τ-PSI at its three landmarks, and under ties without an order effect."""
    yield "tau_psi, no order effect", 0.0, _mean_tau_psi(no_order_effect, rng), 0.0
    yield "tau_psi, ties only", 0.0, _mean_tau_psi(ties, rng), 0.0
    yield "tau_psi, pure noise", 0.5, _mean_tau_psi(noise, rng), 0.01
    scores = rng.random(POOL)
    yield "tau_psi, reversal", 1.0, float(tau_psi(np.stack([scores, -scores]))), 1e-12
    orders = random_orders(POOL, 100, rng)
    tied = ties(orders, WIDTH, rng).scores
    coin_flips = float(tied_pairs(tied).mean()) / 2  # by input position, every tied pair is a coin flip
    yield "tau_psi, ties broken by input position", coin_flips, float(tau_psi(tied, "input_position", orders)), 0.01


def _variance_shares(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    for scorer in (
        slot_effect,
        window_effect,
        companion_effect,
        shared_companion_effect,
        mixed_effect,
    ):
        queries = _queries(scorer, rng)
        planted = collection_shares([query.planted for query in queries])
        recovered = collection_shares([variance_shares(q.scores, q.slots, q.windows) for q in queries])
        for part in Components._fields[1:]:
            name = f"{part} share, {scorer.__name__.replace('_', ' ')}"
            yield name, getattr(planted, part), getattr(recovered, part), 0.02


def _slot_profile(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    queries = _queries(mixed_effect, rng)
    profile = collection_slot_residual([slot_residual(q.scores, q.slots, WIDTH) for q in queries])
    # A candidate's own mean contains each of its slots once in M: the profile is deflated by (M - 1) / M.
    planted = np.sqrt(queries[0].planted.slot) * (1 - 1 / PERMUTATIONS)
    yield "slot residual RMS, mixed effect", float(planted), profile.rms, 0.05 * float(planted)


def _overlap(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """A core is always retained, beside one of four rivals: the one shown first. Two orders agree on it one time in four."""
    core, rivals, overlaps = 5, 4, []
    for _ in range(200):
        orders = random_orders(POOL, PERMUTATIONS, rng)
        first = np.argsort(orders, axis=1)[:, core : core + rivals].argmin(axis=1)
        scores = np.zeros((PERMUTATIONS, POOL))
        scores[:, :core] = 1.0
        scores[np.arange(PERMUTATIONS), core + first] = 0.9
        overlaps.append(float(overlap(retained(scores, 0.5))))
    planted = 1 / rivals + (1 - 1 / rivals) * core / (core + 2)
    yield "overlap, one rival of four", planted, float(np.mean(overlaps)), 0.01


def _coverage(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """95 % intervals over the queries of four collections, 200 studies."""
    hits = []
    for study in range(200):
        values = [rng.beta(4, 2, size) for size in (50, 60, 80, 120)]
        interval = mean_interval(values, scheme="queries", draws=2000, seed=study)
        hits.append(interval.low <= 4 / 6 <= interval.high)
    yield "coverage of 95 % intervals", 0.95, float(np.mean(hits)), 0.05


def _stopping(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """Is the mean below 0.8? It is 0.7; then it is exactly 0.8, and "below" may be said in at most one study of twenty."""
    answers = [decide(rng.beta(7, 3, 400), 0.8).answer for _ in range(100)]
    yield "stopping: true answers", 1.0, answers.count("below") / len(answers), 0.05
    answers = [decide(rng.beta(8, 2, 400), 0.8).answer for _ in range(200)]
    yield "stopping: false answers", 0.0, answers.count("below") / len(answers), 0.05


def _balance(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """Each of 100 candidates in each of 20 slots exactly twice in 40 permutations."""
    slots, _ = layout(balanced_orders(POOL, 2 * WIDTH, rng, width=WIDTH), WIDTH)
    visits = (slots[..., None] == np.arange(WIDTH)).sum(axis=0)  # (n, width)
    yield "balanced orders: most visits to a slot", 2.0, float(visits.max()), 0.0


def _queries(scorer: Callable[..., Simulated], rng: np.random.Generator) -> list[Simulated]:
    return [scorer(random_orders(POOL, PERMUTATIONS, rng), WIDTH, rng) for _ in range(QUERIES)]


def _mean_tau_psi(scorer: Callable[..., Simulated], rng: np.random.Generator) -> float:
    return float(np.mean([tau_psi(query.scores) for query in _queries(scorer, rng)]))


# -- scorers of known structure: functions (orders, width, rng) -> Simulated, where `orders` (M, n) maps position to candidate and
# windows are contiguous


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
