"""What a scorer gives of a query: readings of windows, scores put back to the candidates, and what that took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ..runs.records import Cost
from ..runs.table import Scored
from ..terms import Instance, Window
from ..window.presentation import align


class WindowReading(NamedTuple):
    """What was read of a window."""

    scores: np.ndarray
    """(b,), one per line of the answer, in slot order."""
    grades: np.ndarray | None = None
    """(b, 4), where the backend gives a distribution."""
    label_mass: np.ndarray | None = None
    """(b,)"""


@dataclass(frozen=True, slots=True, repr=False)
class Presented(Scored):
    """A query that was scored now, and what that took."""

    cost: Cost = field(default_factory=Cost)


class Readings(NamedTuple):
    """What was read of some windows, and what that took."""

    windows: list[WindowReading]
    cost: Cost


def align_readings(
    rows: Sequence[Sequence[WindowReading]], cuts: Sequence[Sequence[Window]], n: int
) -> dict[str, np.ndarray | None]:
    """Readings of the windows of each order, back to candidate identity: (P, n) scores and masses, (P, n, 4) grades."""

    def aligned(parts: list[list[np.ndarray | None]]) -> np.ndarray | None:
        if any(part is None for row in parts for part in row):
            return None
        return np.stack([align(row, cut, n) for row, cut in zip(parts, cuts, strict=True)])  # type: ignore[arg-type]

    return {name: aligned([[getattr(reading, name) for reading in row] for row in rows]) for name in WindowReading._fields}


def in_pool_order(scored: Scored, instance: Instance) -> np.ndarray:
    """The first row of scores as the pool stands, (n,)."""
    column = {candidate: c for c, candidate in enumerate(scored.candidate_ids)}
    scores: np.ndarray = scored.scores[0]
    return scores[[column[candidate.id] for candidate in instance.pool]]
