"""Rows of numbers of different lengths, end to end: eight bytes a number, where a list of arrays takes a hundred more a row."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from ..terms import Array


class Rows(Sequence[Array]):
    """Rows of floats that are appended once and read often; a row that is read is a copy."""

    def __init__(self, rows: Iterable[Array] = ()):
        self._values, self._ends = array("d"), array("q", [0])
        for row in rows:
            self.append(row)

    def append(self, row: Array) -> None:
        self._values.frombytes(np.ascontiguousarray(row, float).tobytes())
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Array:  # type: ignore[override]
        place = range(len(self))[index]  # negative ones from the end; IndexError beyond it
        return np.array(self._values[self._ends[place] : self._ends[place + 1]])
