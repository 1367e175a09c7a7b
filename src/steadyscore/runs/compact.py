"""Scored queries held as a few long arrays: a query is built on demand, so a large run takes little more than its numbers.

As objects, a query of eight candidates under five orders takes 3 kB, of which its scores are a tenth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, overload

import numpy as np

from ..terms import Array
from .table import Scored

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1_000
"""Queries whose arrays are laid end to end."""
SMALLER = {"i": (np.int8, np.int16, np.int32), "f": (np.float16, np.float32)}
"""By kind of number, the types that may hold it in less space."""


class CompactQueries(Sequence[Scored]):
    """The queries of a run, in order; equal to the list it was made from."""

    def __init__(self, queries: Iterable[Scored]):
        remaining = iter(queries)
        self._blocks: list[_Block] = []
        while part := list(islice(remaining, BLOCK)):
            self._blocks.append(_Block(part))
        self._ends = list(accumulate(map(len, self._blocks)))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Scored]:
        for block in self._blocks:
            yield from block

    @overload
    def __getitem__(self, index: int) -> Scored: ...
    @overload
    def __getitem__(self, index: slice) -> list[Scored]: ...
    def __getitem__(self, index: int | slice) -> Scored | list[Scored]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]  # negative ones from the end; IndexError beyond it
        block = bisect_right(self._ends, place)
        return self._blocks[block].query(place - (self._ends[block - 1] if block else 0))


class _Block:
    """Some queries, each of their fields in one array."""

    def __init__(self, queries: Sequence[Scored]):
        import pyarrow as pa

        self.query_ids = pa.array([query.query_id for query in queries], pa.string())
        self.candidate_ids = pa.array([id for query in queries for id in query.candidate_ids], pa.string())
        self.sizes = _Ends([len(query.candidate_ids) for query in queries])
        self.partitions, self.ties = ([getattr(query, name) for query in queries] for name in ("partition", "ties"))
        self.permutations = _Column([query.permutations for query in queries])
        self.scores = _Column([query.scores for query in queries])
        self.slots = _Column([query.slots for query in queries])
        self.windows = _Column([query.windows for query in queries])
        self.grades = _Column([query.grades for query in queries])
        self.label_mass = _Column([query.label_mass for query in queries])
        self.relevance = _Column([query.relevance for query in queries])
        self.ideal = _Column([query.ideal for query in queries])

    def __len__(self) -> int:
        return len(self.query_ids)

    def __iter__(self) -> Iterator[Scored]:
        names, candidates = self.query_ids.to_pylist(), self.candidate_ids.to_pylist()
        return (self._query(i, names[i], candidates[slice(*self.sizes.span(i))]) for i in range(len(self)))

    def query(self, place: int) -> Scored:
        start, stop = self.sizes.span(place)
        return self._query(place, self.query_ids[place].as_py(), _texts(self.candidate_ids, start, stop))

    def _query(self, i: int, query_id: str, candidate_ids: list[str]) -> Scored:
        permutations, n = self.permutations.flat(i), len(candidate_ids)
        assert permutations is not None
        shape = (len(permutations), n)
        scores = self.scores.shaped(i, shape)
        assert scores is not None
        return Scored(
            query_id=query_id,
            candidate_ids=tuple(candidate_ids),
            permutations=permutations,
            scores=scores,
            slots=self.slots.shaped(i, shape),
            windows=self.windows.shaped(i, shape),
            grades=self.grades.shaped(i, (*shape, -1)),
            label_mass=self.label_mass.shaped(i, shape),
            relevance=self.relevance.flat(i),
            ideal=self.ideal.flat(i),
            partition=self.partitions[i],
            ties=self.ties[i],
        )


def _texts(column: pa.StringArray, start: int, stop: int) -> list[str]:
    texts: list[str] = column.slice(start, stop - start).to_pylist()
    return texts


class _Ends:
    """Where the values of each query end."""

    def __init__(self, counts: Iterable[int]):
        self._ends = _smallest(np.fromiter(accumulate(counts, initial=0), np.int64))

    def span(self, i: int) -> tuple[int, int]:
        return int(self._ends[i]), int(self._ends[i + 1])


class _Column:
    """One field of some queries end to end, in the smallest type that holds every value exactly."""

    def __init__(self, arrays: Sequence[Array | None]):
        present = [array for array in arrays if array is not None]
        self._is_absent = np.array([array is None for array in arrays])
        self._ends = _Ends(0 if array is None else array.size for array in arrays)
        values = np.concatenate([array.ravel() for array in present]) if present else np.empty(0)
        self._dtype, self._values = values.dtype, _smallest(values)

    def flat(self, i: int) -> Array | None:
        if self._is_absent[i]:
            return None
        return self._values[slice(*self._ends.span(i))].astype(self._dtype, copy=False)

    def shaped(self, i: int, shape: tuple[int, ...]) -> Array | None:
        values = self.flat(i)
        return None if values is None else values.reshape(shape)


def _smallest(values: Array) -> Array:
    for kind in SMALLER.get(values.dtype.kind, ()):
        if np.dtype(kind).itemsize < values.dtype.itemsize:
            with np.errstate(over="ignore"):  # what does not fit is not equal
                smaller = values.astype(kind)
            if np.array_equal(smaller, values, equal_nan=values.dtype.kind == "f"):
                return smaller
    return values
