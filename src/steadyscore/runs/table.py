"""The score table: one row per (query, permutation, candidate), and the arrays every measure is a function of.

Columns of an array are candidates sorted by id, so a stable sort on them is the order-independent tie-break (§B.1) and
no measure needs ids. Permutation -1 is the first-stage order, beside the random ones. In memory many queries are held as a few
long arrays: as objects, a query of eight candidates under five orders takes 3 kB, of which its scores are a tenth.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, chain, islice, pairwise
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np

from ..errors import DamagedFile
from ..machine.contents import check_parquet
from ..machine.names import short_repr
from ..machine.places import Place, open_whole
from ..terms import Array, Partition, Ties
from ..window.presentation import count_orders
from .layout import GRADE_COLUMNS, score_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

FIRST_STAGE = -1
"""The permutation index of the first-stage order."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One query's scores under its presentations."""

    query_id: str
    candidate_ids: tuple[str, ...]
    """Sorted; the columns of every array."""
    permutations: Array
    """(P,) permutation index of each row, FIRST_STAGE first where it was scored."""
    scores: Array
    """(P, n)"""
    slots: Array | None = None
    """(P, n) 0-based slot of each candidate in its window."""
    windows: Array | None = None
    """(P, n) 0-based window of each candidate."""
    grades: Array | None = None
    """(P, n, 4) grade distribution, where the scorer gives one."""
    label_mass: Array | None = None
    """(P, n)"""
    relevance: Array | None = None
    """(n,) gold grades, NaN where a candidate is not judged; None where no candidate is."""
    ideal: Array | None = None
    """Relevance of every judged document of the query, also outside the pool; None: the pool's own."""
    partition: Partition = "contiguous"
    """How each order was cut into windows: what places mean."""
    ties: Ties = "id"
    """Who goes first of two candidates with equal scores: the smaller id, or the one that was shown first."""

    def __repr__(self) -> str:
        return short_repr(self, f"{self.query_id}: {len(self.scores)} presentations of {len(self.candidate_ids)} candidates")

    @property
    def permuted(self) -> Array:
        """(M, n) scores under the M permutations, without the row of the first-stage order."""
        rows: Array = self.scores[self.permutations != FIRST_STAGE]
        return rows

    @property
    def first_stage(self) -> Array | None:
        """(n,) scores in first-stage order, where it was scored."""
        rows = self.scores[self.permutations == FIRST_STAGE]
        return rows[0] if len(rows) else None

    @property
    def has_every_order(self) -> bool:
        """Whether the pool has no more orders than were shown, so few are its candidates."""
        return len(self.permuted) >= count_orders(len(self.candidate_ids))

    @property
    def is_judged(self) -> bool:
        """Whether any document of the query is judged, in the pool or outside it: else its quality is unknown, and not 0."""
        return any(values is not None and not np.isnan(values).all() for values in (self.relevance, self.ideal))

    @property
    def gold(self) -> Array:
        """(n,) what measures take as relevance: 0 for the unjudged candidates of a judged query, else NaN for all."""
        if self.relevance is not None and not (unknown := np.isnan(self.relevance)).any():
            return self.relevance
        level = 0.0 if self.is_judged else np.nan
        return np.full(len(self.candidate_ids), level) if self.relevance is None else np.where(unknown, level, self.relevance)

    @property
    def is_placed(self) -> bool:
        """Whether the place of every candidate is known."""
        return self.slots is not None and self.windows is not None

    @property
    def pool_order(self) -> Array | None:
        """(n,) columns in the order of the pool, as the row of the first-stage order was shown it; None where that is unknown."""
        presented = self.presented(self.permutations == FIRST_STAGE)
        return None if presented is None or not len(presented) else presented[0]

    def orders(self) -> Array | None:
        """(M, n) the permutations themselves: position -> column. None where places are unknown."""
        return self.presented(self.permutations != FIRST_STAGE)

    def presented(self, rows: Array | slice = slice(None)) -> Array | None:
        """(P, n) the order of every row, that of the first stage too: position -> column. None where places are unknown."""
        if self.slots is None or self.windows is None:
            return None
        slots, windows = self.slots[rows], self.windows[rows]
        # Contiguous windows follow one another; round-robin ones are dealt, one candidate to each in turn.
        return np.lexsort((slots, windows) if self.partition == "contiguous" else (windows, slots), axis=-1)


ROWS = ("permutations", "scores", "slots", "windows", "grades", "label_mass")
"""Arrays of a scored query with a row for each presentation."""

S = TypeVar("S", bound=Scored)


def take_rows(query: S, rows: Array) -> S:
    """A query with some of its presentations: their numbers, or True for each."""
    arrays = {name: getattr(query, name) for name in ROWS}
    return replace(query, **{name: None if values is None else values[rows] for name, values in arrays.items()})  # type: ignore[arg-type]


def stack_rows(parts: Sequence[S]) -> S:
    """A query with the presentations of all parts, one part after the other; an array that one part lacks is left out."""
    arrays = {name: [getattr(part, name) for part in parts] for name in ROWS}
    stacked = {name: None if any(v is None for v in values) else np.concatenate(values) for name, values in arrays.items()}
    return replace(parts[-1], **stacked)  # type: ignore[arg-type]


def to_table(scored: Scored) -> pa.Table:
    """A query's rows, by permutation and then candidate id."""
    import pyarrow as pa

    rows, n = scored.scores.shape

    def column(values: Array | None, kind: pa.DataType) -> pa.Array:
        return pa.nulls(rows * n, kind) if values is None else pa.array(np.ravel(values), kind, from_pandas=True)

    relevance = None if scored.relevance is None else np.tile(scored.relevance, rows)
    columns = {
        "query_id": pa.array([scored.query_id] * (rows * n), pa.string()),
        "permutation": column(np.repeat(scored.permutations, n), pa.int32()),
        "candidate_id": pa.array(list(scored.candidate_ids) * rows, pa.string()),
        "slot": column(scored.slots, pa.int32()),
        "window": column(scored.windows, pa.int32()),
        "partition": pa.array([scored.partition] * (rows * n), pa.string()),
        "score": column(scored.scores, pa.float64()),
        **{
            name: column(None if scored.grades is None else scored.grades[..., g].astype(np.float32), pa.float32())
            for g, name in enumerate(GRADE_COLUMNS)
        },
        "label_mass": column(None if scored.label_mass is None else scored.label_mass.astype(np.float32), pa.float32()),
        "relevance": column(relevance, pa.int32()),
    }
    return pa.table(columns, schema=score_schema())


MAKE_AGAIN = "Run the command that made it again: it sets the file aside and makes it anew."


def read_table(file: Place, columns: list[str] | None = None, remedy: str = MAKE_AGAIN) -> pa.Table:
    """A table of ours, or DamagedFile with the remedy."""
    with _open_table(file, remedy) as opened:
        return opened.read(columns=columns)


def row_groups(file: Place, columns: list[str] | None = None, remedy: str = MAKE_AGAIN) -> Iterator[pa.Table]:
    """The row groups of a table one after the other."""
    with _open_table(file, remedy) as opened:
        for group in range(opened.num_row_groups):
            yield opened.read_row_group(group, columns=columns)


@contextmanager
def _open_table(file: Place, remedy: str) -> Iterator[pq.ParquetFile]:
    """A table that is what was written; what Arrow cannot read is one sentence."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_parquet(file, remedy)
    try:
        with open_whole(file) as stream, pq.ParquetFile(stream, page_checksum_verification=True) as opened:
            yield opened
    except (pa.ArrowException, OSError, ValueError) as damage:  # ValueError: texts that are not UTF-8, numbers out of range
        raise DamagedFile(file, f"is damaged and cannot be read ({str(damage).splitlines()[0]})", remedy) from damage


def table_mistakes(table: pa.Table) -> list[str]:
    """What is wrong with the rows of a score table: each query stands once, with every candidate under every permutation."""
    import pyarrow.compute as pc

    needed = ("query_id", "permutation", "candidate_id", "score")
    if absent := [name for name in needed if name not in table.column_names]:
        return [f"column {name} is missing" for name in absent]
    keys = ["query_id", "permutation", "candidate_id"]
    if holes := [name for name in needed if table.column(name).null_count]:
        return [f"column {name} has empty cells" for name in holes]
    mistakes = []
    ids = pc.run_end_encode(table.column("query_id").combine_chunks()).values
    if len(ids) != len(ids.unique()):
        mistakes.append(f"the rows of {len(ids) - len(ids.unique())} queries stand in more than one place")
    rows = table.group_by(keys).aggregate([]).num_rows
    if rows != table.num_rows:
        mistakes.append(f"{table.num_rows - rows} rows are there more than once")
    counts = table.group_by("query_id").aggregate(
        [("permutation", "count_distinct"), ("candidate_id", "count_distinct"), ([], "count_all")]
    )
    full = pc.multiply(counts["permutation_count_distinct"], counts["candidate_id_count_distinct"])
    if ragged := counts.filter(pc.not_equal(full, counts["count_all"]))["query_id"].to_pylist():
        mistakes.append(f"{len(ragged)} queries lack candidates under some permutations: {', '.join(sorted(ragged)[:5])}")
    if infinite := table.num_rows - (pc.sum(pc.is_finite(table.column("score"))).as_py() or 0):
        mistakes.append(f"{infinite} scores are not finite")
    return mistakes


def from_table(table: pa.Table, ideals: dict[str, Array] | None = None) -> Iterator[Scored]:
    """The queries of a table, in the order of their first rows. Rows must stand as `to_table` writes them."""
    if not table.num_rows:
        return
    ids = table.column("query_id").combine_chunks().dictionary_encode()
    codes = ids.indices.to_numpy()
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    texts = ("query_id", "candidate_id", "partition")
    arrays = {name: _numpy(table, name) for name in table.column_names if name not in texts}
    candidates = table.column("candidate_id")
    partitions = table.column("partition") if "partition" in table.column_names else None
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(codes)], strict=True):
        permutations = np.unique(arrays["permutation"][start:stop]).astype(np.int64)
        shape = (len(permutations), (stop - start) // len(permutations))

        def block(name: str, start: int = start, stop: int = stop, shape: tuple[int, int] = shape) -> Array | None:
            values = arrays.get(name)
            if values is None or np.isnan(values[start:stop]).all():
                return None
            return values[start:stop].reshape(shape)

        query_id = ids.dictionary[int(codes[start])].as_py()
        grades = [block(name) for name in GRADE_COLUMNS]
        relevance, slots, windows = block("relevance"), block("slot"), block("window")
        scores = block("score")
        yield Scored(
            query_id=query_id,
            candidate_ids=tuple(candidates.slice(start, shape[1]).to_pylist()),
            permutations=permutations,
            scores=np.full(shape, np.nan) if scores is None else scores,
            slots=None if slots is None else slots.astype(np.int64),
            windows=None if windows is None else windows.astype(np.int64),
            grades=None if any(grade is None for grade in grades) else np.stack(grades, axis=-1),  # type: ignore[arg-type]
            label_mass=block("label_mass"),
            relevance=None if relevance is None else relevance[0],
            ideal=(ideals or {}).get(query_id),
            partition=(partitions and partitions[start].as_py()) or "contiguous",
        )


def _numpy(table: pa.Table, name: str) -> Array:
    """A column as float64 with NaN for nulls."""
    import pyarrow.compute as pc

    values: Array = pc.cast(table.column(name), "float64").to_numpy(zero_copy_only=False)
    return values


# -- many queries in little memory

BLOCK = 1_000
"""Queries whose arrays are laid end to end."""
AT_ONCE = 1 << 13
"""Numbers of an array that are given their full size at once: more would take the memory that blocks save."""
SMALLER = {"i": (np.int8, np.int16, np.int32), "f": (np.float16, np.float32)}
"""By kind of number, the types that may hold it in less space."""


class CompactQueries(Sequence[Scored]):
    """The queries of a run, in order, each built on demand; equal to the list it was made from."""

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

        self._query_ids = pa.array([query.query_id for query in queries], pa.string())
        self._candidate_ids = pa.array([query.candidate_ids for query in queries], pa.list_(pa.string()))
        self._words = [(query.partition, query.ties) for query in queries]
        # In the order of the fields of `Scored`, as the texts before and the words behind them are.
        self._arrays = [_Arrays([getattr(query, name) for query in queries]) for name in (*ROWS, "relevance", "ideal")]

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[Scored]:
        texts = self._candidate_ids.flatten().to_numpy(zero_copy_only=False).tolist()
        candidate_ids = (tuple(texts[start:stop]) for start, stop in pairwise(self._candidate_ids.offsets.to_pylist()))
        every = (self._query_ids.to_pylist(), candidate_ids, *self._arrays, *zip(*self._words, strict=True))
        return (Scored(*fields) for fields in zip(*every, strict=True))

    def query(self, place: int) -> Scored:
        ids = (self._query_ids[place].as_py(), tuple(self._candidate_ids[place].as_py()))
        fields: list[Any] = [*ids, *(column.take(place) for column in self._arrays), *self._words[place]]
        return Scored(*fields)


class _Arrays:
    """One field of some queries end to end, in the smallest type that holds every value exactly."""

    def __init__(self, arrays: Sequence[Array | None]):
        present = [array for array in arrays if array is not None]
        shapes = {array.shape: array.shape for array in present}
        self._shapes = [None if array is None else shapes[array.shape] for array in arrays]
        """Each kind once: as objects they would take as much as the numbers."""
        self._ends = _smallest(np.cumsum([0, *(0 if array is None else array.size for array in arrays)]))
        values = np.concatenate([array.ravel() for array in present]) if present else np.empty(0)
        self._dtype, self._values = values.dtype, _smallest(values)

    def __iter__(self) -> Iterator[Array | None]:
        """The array of every query; where all have one shape, as is usual, several at once."""
        count = len(self._shapes)
        if len({*self._shapes}) > 1 or (shape := self._shapes[0]) is None:
            return map(self.take, range(count))
        values = self._values.reshape(count, *shape)
        step = max(AT_ONCE // max(math.prod(shape), 1), 1)
        parts = (values[first : first + step].astype(self._dtype, copy=False) for first in range(0, count, step))
        return chain.from_iterable(parts)

    def take(self, place: int) -> Array | None:
        """The array of one query."""
        shape = self._shapes[place]
        if shape is None:
            return None
        return self._values[self._ends[place] : self._ends[place + 1]].astype(self._dtype, copy=False).reshape(shape)


def _smallest(values: Array) -> Array:
    for kind in SMALLER.get(values.dtype.kind, ()):
        if np.dtype(kind).itemsize < values.dtype.itemsize:
            with np.errstate(over="ignore"):  # what does not fit is not equal
                smaller = values.astype(kind)
            if np.array_equal(smaller, values, equal_nan=values.dtype.kind == "f"):
                return smaller
    return values
