"""Slots, windows and companions of stored queries: how much each moves a score, and what a slot adds to it (§C.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import InputError
from ..runs.table import Scored
from ..terms import Array
from .decomposition import Components, SlotResidual, collection_slot_residual, known_components, slot_residual, variance_shares
from .ranking import is_relevant
from .whole import placed_scores

Estimator = Literal["unbiased", "reference"]


def variance_components(queries: Sequence[Scored], protocol: Estimator = "reference") -> Components:
    """Slot, window and remaining variance of a collection in squared score units: means over queries that have all of them."""
    found = (variance_shares(*_placed(query), protocol=protocol) for query in queries)
    table = known_components(np.array(list(found), float).reshape(-1, 4))
    if not len(table):
        return Components(*[float("nan")] * 4)
    return Components(*(float(value) for value in table.mean(axis=0)))


def slot_profile(queries: Sequence[Scored], *, gold: bool = False) -> SlotResidual:
    """What each slot adds to a score; with `gold` only to relevant candidates. Queries without one are left out."""
    width = max(int(_placed(query)[1].max()) + 1 for query in queries)
    found = []
    for query in queries:
        kept = is_relevant(query.gold) if gold else None
        if kept is None or kept.any():
            scores, slots, _ = _placed(query)
            found.append(slot_residual(scores, slots, width, kept))
    return collection_slot_residual(found) if found else SlotResidual(np.full(width, np.nan), float("nan"))


def _placed(query: Scored) -> tuple[Array, Array, Array]:
    if query.slots is None or query.windows is None:
        raise InputError(f"query {query.query_id} has no stored places, which slots and windows need.")
    return placed_scores(query)
