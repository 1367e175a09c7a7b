"""The instrument tested on itself: planted order effects against what the measures recover, offline, in seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..measures.decomposition import Components, collection_shares, collection_slot_residual, slot_residual, variance_shares
from ..measures.instability import tau_psi, tied_pairs
from ..measures.intervals import mean_interval
from ..measures.retained_sets import overlap, retained
from ..measures.stopping import decide
from ..results.render import Printed
from ..results.table import Table, table_of
from ..window.presentation import balanced_orders
from . import simulate

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
    yield "tau_psi, no order effect", 0.0, _mean_tau_psi(simulate.no_order_effect, rng), 0.0
    yield "tau_psi, ties only", 0.0, _mean_tau_psi(simulate.ties, rng), 0.0
    yield "tau_psi, pure noise", 0.5, _mean_tau_psi(simulate.noise, rng), 0.01
    scores = rng.random(POOL)
    yield "tau_psi, reversal", 1.0, float(tau_psi(np.stack([scores, -scores]))), 1e-12
    orders = simulate.random_orders(POOL, 100, rng)
    tied = simulate.ties(orders, WIDTH, rng).scores
    coin_flips = float(tied_pairs(tied).mean()) / 2  # by input position, every tied pair is a coin flip
    yield "tau_psi, ties broken by input position", coin_flips, float(tau_psi(tied, "input_position", orders)), 0.01


def _variance_shares(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    for scorer in (
        simulate.slot_effect,
        simulate.window_effect,
        simulate.companion_effect,
        simulate.shared_companion_effect,
        simulate.mixed_effect,
    ):
        queries = _queries(scorer, rng)
        planted = collection_shares([query.planted for query in queries])
        recovered = collection_shares([variance_shares(q.scores, q.slots, q.windows) for q in queries])
        for part in Components._fields[1:]:
            name = f"{part} share, {scorer.__name__.replace('_', ' ')}"
            yield name, getattr(planted, part), getattr(recovered, part), 0.02


def _slot_profile(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    queries = _queries(simulate.mixed_effect, rng)
    profile = collection_slot_residual([slot_residual(q.scores, q.slots, WIDTH) for q in queries])
    # A candidate's own mean contains each of its slots once in M: the profile is deflated by (M - 1) / M.
    planted = np.sqrt(queries[0].planted.slot) * (1 - 1 / PERMUTATIONS)
    yield "slot residual RMS, mixed effect", float(planted), profile.rms, 0.05 * float(planted)


def _overlap(rng: np.random.Generator) -> Iterator[tuple[str, float, float, float]]:
    """A core is always retained, beside one of four rivals: the one shown first. Two orders agree on it one time in four."""
    core, rivals, overlaps = 5, 4, []
    for _ in range(200):
        orders = simulate.random_orders(POOL, PERMUTATIONS, rng)
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
    slots, _ = simulate.layout(balanced_orders(POOL, 2 * WIDTH, rng, width=WIDTH), WIDTH)
    visits = (slots[..., None] == np.arange(WIDTH)).sum(axis=0)  # (n, width)
    yield "balanced orders: most visits to a slot", 2.0, float(visits.max()), 0.0


def _queries(scorer: Callable[..., simulate.Simulated], rng: np.random.Generator) -> list[simulate.Simulated]:
    return [scorer(simulate.random_orders(POOL, PERMUTATIONS, rng), WIDTH, rng) for _ in range(QUERIES)]


def _mean_tau_psi(scorer: Callable[..., simulate.Simulated], rng: np.random.Generator) -> float:
    return float(np.mean([tau_psi(query.scores) for query in _queries(scorer, rng)]))
