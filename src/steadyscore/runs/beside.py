"""Tables beside the scores of a run: noise floor, perturbations, timings, what readers wrote.

Each is one part, which is written anew with more rows and takes the place of the one before. Of several that a kill or another
process left, rows of a later one count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..machine.disk import write_parquet
from ..machine.places import Place
from ..terms import JsonObject
from .layout import NOISE_FILE, OUTPUTS_FILE, TIMINGS_FILE
from .parts import Parts
from .records import PartNote

if TYPE_CHECKING:
    import pyarrow as pa

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
