"""Why decisions flip: of every candidate that some orders keep and others drop, a cause that was measured.

A flip has the first cause without which it would not have happened. It is looked at again with equal scores ranked the other way,
with scores within the noise floor on the other side of the boundary, among orders that showed as much of the texts, and without
the mean effect of every slot. What is left is due to companions: nothing else differs between two orders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from ..measures import preference, retained_sets
from ..measures.decomposition import order_residual
from ..measures.measurement import Measured
from ..measures.threshold import Cutoff
from ..measures.views import ranked_permuted
from ..runs.records import ShrunkWindow
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array

Cause = Literal["tie", "noise", "text cut", "slot", "companion", "unknown"]
CAUSES: dict[Cause, str] = {
    "tie": "equal scores, or one at the cutoff: the rule for ties decides",
    "noise": "nearer to the boundary than a score moves when the same order is scored again",
    "text cut": "its window was cut to fit the model under some orders only",
    "slot": "without the mean effect of its slot all orders would decide alike",
    "companion": "its slot does not explain it: who shares its prompt, and in what order",
    "unknown": "places are not stored, so slot and companions cannot be told apart",
}
"""Each with what it says, the first that holds being the cause."""
BUDGET = 10
"""What a budget keeps where no cutoff was fitted (`overlap@10`)."""
UNMEASURED = "Noise was not measured and is among the others: --noise-floor measures it."
FLIPPING = ("overlap", "pair_flip", f"overlap@{BUDGET}")
"""The measures of decisions about candidates, of which the first that a run has is explained."""
ROUNDING = 1e-9
"""Differences of scores up to here are rounding."""
NOISE_WIDTH = 2.0
"""Standard deviations of repeated scores that a score may lie from a fixed cutoff and still be on either side of it."""
FITTED_ON = 2_000
"""Queries that the mean effects of slots are fitted on, at most."""


def states(query: Scored, measure: str, cutoff: Cutoff) -> tuple[str, Array]:
    """(consumer, what it decides about each candidate under each permutation, (M, n)): 1 kept or chosen, -1 rejected, else 0."""
    consumer, decided, _ = _decide(query, measure, cutoff, query.permuted, ranked_permuted(query))
    return consumer, decided


def _decide(query: Scored, measure: str, cutoff: Cutoff, scores: Array, ranked: Array) -> tuple[str, Array, Array]:
    """`states`, and (S, M, n) how far each score is from each state that a candidate may be in."""
    if measure == "overlap" and (kept := cutoff.retained(scores, ranked)) is not None:
        if not cutoff.is_per_query:
            assert cutoff.value is not None
            above = scores - cutoff.value
            return "threshold", kept.astype(int), np.maximum([above, -above], 0)
        return "threshold", kept.astype(int), _rank_distances(kept, scores)
    if measure == f"overlap@{BUDGET}":
        kept = retained_sets.retained_top_k(ranked, BUDGET)
        return "threshold", kept.astype(int), _rank_distances(kept, scores)
    chosen, rejected = np.zeros((2, *scores.shape), bool)
    first, last = preference.pair(ranked).T
    rows = np.arange(len(scores))
    chosen[rows, first], rejected[rows, last] = True, True
    (from_rest, to_chosen), (from_rejected, to_rejected) = _rank_distances(chosen, scores), _rank_distances(rejected, -scores)
    decided = chosen.astype(int) - rejected
    return "preference", decided, np.stack([np.maximum(from_rest, from_rejected), to_chosen, to_rejected])


def _rank_distances(kept: Array, scores: Array) -> Array:
    """(2, M, n) how far scores are from being dropped and from being kept, where the highest are kept."""
    best_dropped = np.where(kept, -np.inf, scores).max(axis=-1, keepdims=True)
    worst_kept = np.where(kept, scores, np.inf).min(axis=-1, keepdims=True)
    return np.stack([np.where(kept, scores - best_dropped, 0.0), np.where(kept, 0.0, worst_kept - scores)])


def _reach(distances: Array) -> Array:
    """(n,) by how much scores may be wrong at least for one decision to be possible under every order."""
    return np.asarray(distances.max(axis=-2).min(axis=0))


@dataclass(frozen=True)
class Explainer:
    """What tells the causes of a run's flips."""

    measure: str
    """The decision."""
    noise: float | None
    """Standard deviation of a score when one order is scored again and again; None where that was not measured."""
    slots: Array
    """(B,) mean effect of every slot on a score."""
    shrunk: Mapping[str, Mapping[frozenset[str], int]]
    """Query -> the candidates of a window that was cut to fit the model -> characters that each kept."""

    def causes(self, query: Scored, cutoff: Cutoff) -> list[Cause | None]:
        """The cause of each candidate's flip, None where all orders decide alike about it."""
        scores, ranked = query.permuted, ranked_permuted(query)
        _, decided, distances = _decide(query, self.measure, cutoff, scores, ranked)
        flipped = (decided != decided[0]).any(axis=0)
        if not flipped.any():
            return [None] * len(flipped)
        by_rank = len(distances) > 2 or cutoff.is_per_query or self.measure != "overlap"
        width = NOISE_WIDTH * (self.noise or 0.0) * (np.sqrt(2) if by_rank else 1.0)  # both sides of a comparison move
        holds: dict[Cause, Array] = {
            "tie": _reach(distances) <= ROUNDING,
            "noise": (_reach(distances) <= width) & (self.noise is not None),
            "text cut": self._follows_cuts(query, decided),
        }
        if query.is_placed:
            slots = query.slots[query.permutations != FIRST_STAGE]  # type: ignore[index]
            without = (
                scores - np.append(self.slots, 0.0)[np.minimum(slots, len(self.slots))]
            )  # a slot that no fitted query had: 0
            reach = _reach(_decide(query, self.measure, cutoff, without, without)[2])
            holds |= {"slot": reach <= max(width, ROUNDING), "companion": np.ones(len(flipped), bool)}
        return [
            next((cause for cause, held in holds.items() if held[column]), "unknown") if flipped[column] else None
            for column in range(len(flipped))
        ]

    def _follows_cuts(self, query: Scored, decided: Array) -> Array:
        """(n,) whether all orders that showed as much of the texts decide alike, and not all showed as much."""
        cuts = self.shrunk.get(query.query_id)
        if not cuts or not query.is_placed:
            return np.zeros(decided.shape[1], bool)
        windows = query.windows[query.permutations != FIRST_STAGE]  # type: ignore[index]
        kept = np.zeros(decided.shape, int)
        for row, places in enumerate(windows):
            for window in np.unique(places):
                members = frozenset(np.array(query.candidate_ids)[places == window].tolist())
                kept[row, places == window] = cuts.get(members, -1)
        alike = (kept[:, None] == kept[None]) <= (decided[:, None] == decided[None])
        return np.asarray(alike.all(axis=(0, 1)) & (kept != kept[0]).any(axis=0))


@dataclass(frozen=True, slots=True)
class Causes:
    """How many decisions flipped, and why."""

    measure: str
    """The decision: `overlap` of the threshold, `pair_flip` of the preference consumer, `overlap@10`."""
    decided: int
    """Candidates that were decided on, over all queries."""
    counts: dict[Cause, int]
    """Of those that some orders decide otherwise than others."""
    noise: float | None
    """Standard deviation of a score when one order is scored again; None: not measured, so noise is among the other causes."""

    @property
    def flipped(self) -> int:
        return sum(self.counts.values())

    def count(self, cause: Cause) -> int:
        return self.counts.get(cause, 0)

    def to_json(self) -> dict[str, object]:
        counts = {cause: self.count(cause) for cause in CAUSES}
        return {"decision": self.measure, "decided": self.decided, "flipped": self.flipped, "counts": counts, "noise": self.noise}

    def __str__(self) -> str:
        told = ", ".join(f"{cause} {count}" for cause in CAUSES if (count := self.count(cause)))
        return f"{self.flipped} of {self.decided} decisions about candidates flip between orders{': ' if told else ''}{told}."


def make_explainer(
    queries: Iterable[Scored], measure: str, noise: float | None, shrunk: Sequence[ShrunkWindow] = ()
) -> Explainer:
    cuts: dict[str, dict[frozenset[str], int]] = {}
    for window in shrunk:
        cuts.setdefault(window.query_id, {})[frozenset(window.candidates)] = window.chars
    return Explainer(measure, noise, slot_effects(islice(queries, FITTED_ON)), cuts)


def count_causes(explainer: Explainer, queries: Iterable[Scored], measured: Measured) -> Causes:
    """The causes of every flip of the queries on which decisions are measured."""
    counts: Counter[Cause] = Counter()
    decided = 0
    for place, (query, value) in enumerate(zip(queries, measured.values[explainer.measure].tolist(), strict=True)):
        if not np.isnan(value):
            decided += len(query.candidate_ids)
            counts.update(filter(None, explainer.causes(query, measured.cutoff.of(place))))
    return Causes(explainer.measure, decided, dict(counts), explainer.noise)


def slot_effects(queries: Iterable[Scored]) -> Array:
    """(B,) the mean effect of a slot on a score, by least squares beside an effect of every candidate; empty without places."""

    def widen(values: Array) -> Array:
        return np.pad(values, [(0, width - len(values))] * values.ndim)

    gram, moved, width = np.zeros((0, 0)), np.zeros(0), 0
    for query in queries:
        if query.is_placed and len(query.permuted) > 1:
            slots = query.slots[query.permutations != FIRST_STAGE]  # type: ignore[index]
            width = max(width, int(slots.max()) + 1)
            shown = (slots[..., None] == np.arange(width)).sum(axis=0).astype(float)  # (n, B) how often a candidate had a slot
            gram = widen(gram) + np.diag(shown.sum(axis=0)) - shown.T @ shown / len(slots)
            moved = widen(moved) + np.bincount(slots.ravel(), order_residual(query.permuted).ravel(), width)
    return np.linalg.lstsq(gram, moved, rcond=ROUNDING)[0] if width else np.zeros(0)


def noise_of(reads: Sequence[Scored]) -> float | None:
    """The standard deviation of a score when one order is scored again and again; None where nothing was."""
    degrees = sum(query.scores.size - query.scores.shape[1] for query in reads)
    squares = sum(float(((query.scores - query.scores.mean(axis=0)) ** 2).sum()) for query in reads)
    return float(np.sqrt(squares / degrees)) if degrees else None
