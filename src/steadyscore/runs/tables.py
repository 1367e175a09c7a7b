"""Tables of a run but its scores: lists of its queries, and what was asked for beside the scores.

A list (table `queries`) says that a request was gone through to its end, and what came of it: it is written when every query was
scored or had failed, and a run is complete when the rows that its list counts are there. The tables beside the scores (noise
floor, perturbations, timings, what readers wrote) are one part each, which is written anew with more rows and takes the place of
the one before. Of several that a kill or another process left, rows of a later one count.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from ..machine.disk import write_parquet
from ..machine.places import Place
from ..terms import JsonObject
from .layout import NOISE_FILE, OUTPUTS_FILE, TIMINGS_FILE, QueryRow, index_schema
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
        if sum(note["rows"] for _, _, note in group) == end.get("total"):
            whole[asked] = QueryList(parts, [file for _, file, _ in group], end)
    return whole


def write_list(parts: Parts, asked: str, queries: Iterable[QueryRow], count: Callable[[str], int | None], end: PartNote) -> None:
    """Write a list, and then remove those before it. `count`: permutations of a query that are there, None where it failed."""
    import pyarrow as pa

    before = [(file, note["number"]) for file, note in parts.notes() if note["asked"] == asked]
    number, group = 1 + max((number for _, number in before), default=0), f"q{uuid.uuid4().hex[:15]}"
    coming, first = iter(queries), 0
    rows = list(islice(coming, LISTED))
    while True:
        following = list(islice(coming, LISTED))
        counts = [count(row["query_id"]) for row in rows]
        table = pa.Table.from_pylist([{**row, "orders": each} for row, each in zip(rows, counts, strict=True)], index_schema())
        note = PartNote(asked=asked, number=number, first=first, rows=len(rows))
        if not following:
            note |= end | PartNote(total=first + len(rows))
        parts.put(group, table, note)
        if not following:
            break
        rows, first = following, first + len(rows)
    for file, _ in before:
        file.unlink(missing_ok=True)


# -- beside the scores

KEYS = {
    NOISE_FILE: ("query_id", "permutation"),
    OUTPUTS_FILE: ("reader",),
    TIMINGS_FILE: ("way", "query_id", "round"),
}
"""By table, the columns by which rows belong together; those of perturbations by query and measure."""


def table_of(name: str, permutations: int | None) -> str:
    """The folder of a table's parts. What readers wrote speaks of all permutations of a run, so each number has its own."""
    stem = name.removesuffix(".parquet")
    return f"{stem}-{permutations}" if name == OUTPUTS_FILE else stem


def read_beside(parts: Parts, name: str) -> tuple[pa.Table | None, list[Place], int]:
    """(rows, the parts they are in, number of the last one)."""
    each = sorted(parts.each(), key=lambda part: part[2]["order"])
    rows = merge_rows(name, [rows for _, rows, _ in each]) if each else None
    return rows, [file for file, _, _ in each], max((note["order"] for _, _, note in each), default=0)


def write_beside(parts: Parts, folder: Place, name: str, table: pa.Table) -> None:
    """Add rows, in place of those of equal keys, and write the view of the table for people."""
    known, before, order = read_beside(parts, name)
    rows = table if known is None else merge_rows(name, [known, table])
    file = parts.put("s", rows, PartNote(order=order + 1, rows=rows.num_rows))
    write_parquet(folder / name, rows)
    for old in before:
        if old != file:
            old.unlink(missing_ok=True)


def merge_rows(name: str, tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of some tables, those of equal keys of the last one; the rows of a query together, by permutation. Queries of the
    last table are in its order, behind those that it does not have."""
    import pyarrow as pa

    if len(tables) == 1:
        return tables[0]
    keys = KEYS.get(name, ("query_id", "measure"))
    kept: dict[tuple[Any, ...], list[JsonObject]] = {}
    for table in tables:
        own: dict[tuple[Any, ...], list[JsonObject]] = {}
        for row in table.to_pylist():
            own.setdefault(tuple(row[key] for key in keys), []).append(row)
        kept |= own
    rows = [row for group in kept.values() for row in group]
    last = dict.fromkeys(tables[-1].column("query_id").to_pylist())
    known = (row["query_id"] for row in rows if row["query_id"] not in last)
    place = {query_id: number for number, query_id in enumerate([*dict.fromkeys(known), *last])}
    ordered = sorted(rows, key=lambda row: (place[row["query_id"]], row.get("permutation", 0)))
    return pa.Table.from_pylist(ordered, tables[0].schema)
