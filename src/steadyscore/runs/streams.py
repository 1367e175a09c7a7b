"""Tables of a run that may be larger than memory, read and joined a part at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..terms import Array
from .layout import QueryRow, query_schema
from .table import MAKE_AGAIN, Scored, from_table, row_groups

if TYPE_CHECKING:
    import pyarrow as pa

GROUP_ROWS = 50_000
"""Rows after which the score table begins a new row group: what is held at once while a table is joined or read."""


class Piece(NamedTuple):
    """Where rows of one query stand: a row group of a file, and the rows in it."""

    file: int
    group: int
    start: int
    stop: int


def locate(files: Sequence[Path]) -> dict[str, tuple[Piece, ...]]:
    """Query -> where its rows stand. Of a query that is in two places the first counts."""
    import pyarrow.compute as pc

    places: dict[str, tuple[Piece, ...]] = {}
    for number, file in enumerate(files):
        last = ""
        for group, table in enumerate(row_groups(file, ["query_id"])):
            runs = pc.run_end_encode(table.column("query_id").combine_chunks())
            start = 0
            for query_id, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                piece = Piece(number, group, start, stop)
                if query_id not in places:
                    places[query_id] = (piece,)
                elif query_id == last and start == 0:  # cut in two by the end of a row group
                    places[query_id] += (piece,)
                last, start = query_id, stop
    return places


def query_tables(rows: Iterable[QueryRow], at_once: int = 1000) -> Iterator[pa.Table]:
    """Rows of queries.parquet as tables, a part at a time."""
    import pyarrow as pa

    remaining = iter(rows)
    while part := list(islice(remaining, at_once)):
        yield pa.Table.from_pylist(part, schema=query_schema())


def join(files: Sequence[Path], order: Iterable[str]) -> Iterator[pa.Table]:
    """The rows of the queries in this order, about GROUP_ROWS at a time; equal rows give equal parts, however they came."""
    import pyarrow as pa

    # Each start of a run goes through the collection in order, so few row groups are needed at once.
    read = lru_cache(maxsize=4)(lambda number, group: next(row_groups(files[number], only=group)))
    where = locate(files)
    held, rows = [], 0
    for piece in (piece for query_id in order for piece in where.get(query_id, ())):
        held.append(read(piece.file, piece.group).slice(piece.start, piece.stop - piece.start))
        rows += piece.stop - piece.start
        if rows >= GROUP_ROWS:
            yield pa.concat_tables(held).combine_chunks()
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


def iter_queries(file: Path, remedy: str = MAKE_AGAIN) -> Iterator[Scored]:
    """The queries of a score table, a row group at a time; one that goes on in the next row group is whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    carried: pa.Table | None = None
    for table in row_groups(file, remedy=remedy):
        table = table if carried is None else pa.concat_tables([carried, table])
        last = pc.index(table.column("query_id"), table.column("query_id")[-1]).as_py() if table.num_rows else 0
        yield from from_table(table.slice(0, last))
        carried = table.slice(last)
    if carried is not None:
        yield from from_table(carried)


def first_queries(files: Sequence[Path], count: int) -> list[Scored]:
    """The first queries of some score tables: so many, of as many tables as there are."""
    if not files:
        return []
    of_each = -(-count // len(files))
    return [query for file in files[:count] for query in islice(iter_queries(file), of_each)][:count]


def iter_judged(file: Path, remedy: str = MAKE_AGAIN) -> Iterator[tuple[str, Array | None]]:
    for table in row_groups(file, ["query_id", "judged"], remedy=remedy):
        for query_id, judged in zip(*(column.to_pylist() for column in table.columns), strict=True):
            yield query_id, None if judged is None else np.asarray(judged, dtype=float)


def with_ideals(queries: Iterable[Scored], judged: Iterator[tuple[str, Array | None]]) -> Iterator[Scored]:
    """Every query with the relevance of all its judged documents. Both come in the same order, or what is ahead is kept."""
    ahead: dict[str, Array | None] = {}
    for query in queries:
        while query.query_id not in ahead and (row := next(judged, None)) is not None:
            ahead[row[0]] = row[1]
        yield replace(query, ideal=ahead.pop(query.query_id, None))


class InOrder:
    """Queries of a table that are looked up in nearly the order in which they stand: only those passed over are held."""

    def __init__(self, queries: Iterable[Scored]):
        self._coming = iter(queries)
        self._ahead: dict[str, Scored] = {}

    def take(self, query_id: str) -> Scored | None:
        """The query, which is then forgotten; None where the table does not have it."""
        while query_id not in self._ahead and (query := next(self._coming, None)) is not None:
            self._ahead[query.query_id] = query
        return self._ahead.pop(query_id, None)
