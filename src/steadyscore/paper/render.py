"""A filled artifact as tables, and these as text, HTML, LaTeX, Markdown, JSON, or CSV with a row for every cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..machine.extras import check_installed
from ..report import templating
from ..results import latex as booktabs
from ..results import render as tables
from ..results.figure import Figure
from ..results.table import Cell, Column, Note, Row, Table, with_notes
from .draw import panels_of
from .layout import Entry, Filled, Grid, column_key


class Shown(NamedTuple):
    """What is printed with our values."""

    paper: bool = False
    intervals: bool = False
    basis: bool = False


def table_of(grid: Grid, shown: Shown, notes: Sequence[str] = ()) -> Table:
    """A block as a table: every cell as the paper would print it; what a row is made from is its comment."""
    block = grid.block
    columns = tuple(Column(column_key(block, c), line.label, group=line.group) for c, line in enumerate(block.columns))
    rows = tuple(
        Row(
            line.label + line.mark,
            tuple(_cell(entry, shown) for entry in entries),
            "; ".join(entry.details for entry in entries if not entry.value.text),
            line.group,
        )
        for line, entries in grid.rows
    )
    return Table(columns, rows, block.title, block.corner, "row", tuple(map(Note, notes)))


def _cell(entry: Entry, shown: Shown) -> Cell:
    value = entry.value
    figure = None if value.value is None else Figure(float(value.value), value.low, value.high, value.basis.queries)
    printed = entry.printed(intervals=shown.intervals)
    return Cell(figure, printed, entry.is_bold, value.reason, entry.paper if shown.paper else "")


def to_text(filled: Filled, shown: Shown) -> str:
    blocks = [tables.to_text([table_of(grid, shown, grid.basis_lines())]).rstrip("\n") for grid in filled.grids]
    return "\n\n".join([filled.heading, *blocks, "\n".join(filled.remarks)]).rstrip() + "\n"


def to_html(filled: Filled, shown: Shown) -> str:
    """One self-contained section: a figure where the artifact is one, tables with the basis of every cell, remarks."""
    check_installed("HTML", "jinja2")
    return templating.render("section.html.jinja", filled=filled, panels=panels_of(filled), shown=shown)


def to_latex(filled: Filled, shown: Shown) -> str:
    """A `table` of booktabs tabulars, one per block, for `\\input`; what each cell is made from is in a comment after its row."""
    blocks = [table_of(grid, shown) for grid in filled.grids]
    return booktabs.to_latex(blocks, f"{filled.artifact.title}.", filled.artifact.label, filled.remarks)


def _with_remarks(write: Callable[[Sequence[Table]], str], filled: Filled, shown: Shown) -> str:
    """The blocks in a form of `results.render`, the remarks as notes of the last one."""
    blocks = [table_of(grid, shown) for grid in filled.grids]
    return write(with_notes(blocks, list(map(Note, filled.remarks))))


COLUMNS = (
    "artifact", "block", "row", "column", "value", "low", "high", "seed_sd", "of", "queries", "collections", "seeds", "bases",
    "bold", "printed", "empty_because", "paper",
)  # fmt: skip


def to_csv(filled: Filled, shown: Shown) -> str:
    """One row per cell: numbers at full precision, what they are made from, and why there is none."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for grid in filled.grids:
        for line, entries in grid.rows:
            for c, entry in enumerate(entries):
                value = entry.value
                names = (filled.artifact.name, grid.block.title, line.label, column_key(grid.block, c))
                numbers = ("" if x is None else repr(float(x)) for x in (value.value, value.low, value.high, value.sd))
                count = "" if value.of is None else value.of
                said = ("" if value.reason else entry.printed(), value.reason, entry.paper if shown.paper else "")
                texts = map(tables.csv_text, said)
                writer.writerow([*map(tables.csv_text, names), *numbers, count, *value.basis, entry.is_bold, *texts])
    return stream.getvalue()


FORMATS: dict[str, Callable[[Filled, Shown], str]] = {
    "text": to_text, "html": to_html, "latex": to_latex, "csv": to_csv,
    "markdown": partial(_with_remarks, tables.to_markdown), "json": partial(_with_remarks, tables.to_json),
}  # fmt: skip
