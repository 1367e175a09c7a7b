"""Lists of the queries of a run (table `queries`): each says that a request was gone through to its end, and what came of it.

A list is written when every query was scored or had failed; a run is complete when the rows that its list counts are there.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice
from typing import TYPE_CHECKING, NamedTuple

from ..machine.places import Place
from .layout import QueryRow, index_schema
from .parts import Parts
from .records import PartNote

if TYPE_CHECKING:
    import pyarrow as pa

LISTED = 2_000
"""Queries of a part."""


class QueryList(NamedTuple):
    """One list, and what it says."""

    parts: Parts
    files: list[Place]
    note: PartNote
    """Of its last part."""

    def tables(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        """Its rows, in the order of the collection."""
        files = self.files
        for place in range(len(files)):
            try:
                table, _ = self.parts.read(files[place], columns)
            except FileNotFoundError:  # another command wrote the list anew: the same queries in the same order
                files = whole_lists(self.parts)[self.note["asked"]].files
                table, _ = self.parts.read(files[place], columns)
            yield table

    def scored(self) -> Iterator[tuple[str, int]]:
        """(query, under how many permutations) of those that did not fail."""
        for table in self.tables(["query_id", "orders"]):
            for query_id, orders in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if orders is not None:
                    yield query_id, orders


def whole_lists(parts: Parts) -> dict[str, QueryList]:
    """What is asked for (`requests.asked_digest`) -> the newest list of its queries that was written to its end."""
    groups: dict[tuple[str, int, str], list[tuple[int, Place, PartNote]]] = {}
    for file, note in parts.notes():
        groups.setdefault((note["asked"], note["number"], file.name.partition("-")[0]), []).append((note["first"], file, note))
    whole: dict[str, QueryList] = {}
    for (asked, _, _), group in sorted(groups.items()):
        group.sort(key=lambda part: part[0])
        end = group[-1][2]
        ends = accumulate(note["rows"] for _, _, note in group)
        if "total" in end and all(first + note["rows"] == stop for (first, _, note), stop in zip(group, ends, strict=True)):
            whole[asked] = QueryList(parts, [file for _, file, _ in group], end)
    return whole


def write_list(parts: Parts, asked: str, queries: Iterable[QueryRow], count: Callable[[str], int | None], end: PartNote) -> None:
    """Write a list, and then remove those before it. `count`: permutations of a query that are there, None where it failed."""
    import pyarrow as pa

    before = [(file, note["number"]) for file, note in parts.notes() if note["asked"] == asked]
    number, group = 1 + max((number for _, number in before), default=0), f"q{uuid.uuid4().hex[:15]}"
    coming, first, keys = iter(queries), 0, 0
    rows = list(islice(coming, LISTED))
    while True:
        following = list(islice(coming, LISTED))
        counts = [count(row["query_id"]) for row in rows]
        keys += sum(each or 0 for each in counts)
        table = pa.Table.from_pylist([{**row, "orders": each} for row, each in zip(rows, counts, strict=True)], index_schema())
        note = PartNote(asked=asked, number=number, first=first, rows=len(rows))
        if not following:
            note |= end | PartNote(total=first + len(rows), wanted=keys)
        parts.put(group, table, note)
        if not following:
            break
        rows, first = following, first + len(rows)
    for file, _ in before:
        file.unlink(missing_ok=True)
