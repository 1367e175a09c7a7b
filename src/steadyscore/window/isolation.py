"""Candidates that do not see each other: which token sees which, and where each stands.

In a causal window a candidate is read after the ones before it, and that is most of what reordering changes
(lab/LOG.md, third round). Here every candidate sees the query and itself, begins at the same position, and is seen
by the answer skeleton: its own states do not depend on the order or on its companions. What is left of the order is the
marker, and what the skeleton makes of the others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Bounds = Sequence[tuple[int, int, int]]
"""First token, closing marker and end of each candidate: `Prompt.candidates`."""


def visible(candidates: Bounds, tokens: int, *, from_outside: bool = True) -> np.ndarray:
    """(tokens, tokens) True where a row's token sees a column's: earlier ones, unless both belong to different candidates.

    What is of no candidate sees all of them, unless `from_outside` is False.
    """
    owner = np.zeros(tokens, int)
    for number, (first, _, end) in enumerate(candidates, start=1):
        owner[first:end] = number
    row, column = owner[:, None], owner[None, :]
    seen: np.ndarray = np.tri(tokens, dtype=bool) & ((from_outside & (row == 0)) | (column == 0) | (row == column))
    return seen


def positions(candidates: Bounds, tokens: int) -> np.ndarray:
    """(tokens,) every candidate begins where the first one does; what stands before and behind them keeps its place."""
    places = np.arange(tokens)
    for first, _, end in candidates:
        places[first:end] = candidates[0][0] + np.arange(end - first)
    return places
