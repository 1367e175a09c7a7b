"""A filled artifact as tables, and these as text, HTML, LaTeX, Markdown, JSON, or CSV with a row for every cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ..machine.extras import check_installed
from ..report.templating import render
from ..results import render as tables
from ..results.figure import Figure
from ..results.table import Cell, Column, Note, Row, Table
from .layout import Filled, Grid, basis_lines, column_key
from .sections import details, heading, remarks, section_of


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
            tuple(_cell(grid, r, c, shown) for c in range(len(columns))),
            "; ".join(details(grid, r, c) for c in range(len(columns)) if not grid.values[r][c].text),
            line.group,
        )
        for r, line in enumerate(block.rows)
    )
    return Table(columns, rows, block.title, block.corner, "row", tuple(map(Note, notes)))


def _cell(grid: Grid, row: int, column: int, shown: Shown) -> Cell:
    value = grid.values[row][column]
    return Cell(
        None if value.value is None else Figure(float(value.value), value.low, value.high, value.basis.queries),
        grid.printed(row, column, intervals=shown.intervals),
        leads=(row, column) in grid.bold,
        reason=value.reason,
        beside=grid.paper.get((row, column), "") if shown.paper else "",
    )


def to_text(filled: Filled, shown: Shown) -> str:
    blocks = [tables.to_text([table_of(grid, shown, basis_lines(grid))]).rstrip("\n") for grid in filled.grids]
    return "\n\n".join([heading(filled), *blocks, "\n".join(remarks(filled))]).rstrip() + "\n"


def to_html(filled: Filled, shown: Shown) -> str:
    """One self-contained section: a figure where the artifact is one, tables with the basis of every cell, remarks."""
    check_installed("HTML", "jinja2")
    return render("section.html.jinja", s=section_of(filled), shown=shown)


def to_latex(filled: Filled, shown: Shown) -> str:
    """A `table` of booktabs tabulars, one per block, for `\\input`; what each cell is made from is in a comment after its row."""
    blocks = [table_of(grid, shown) for grid in filled.grids]
    return tables.to_latex(blocks, f"{filled.artifact.title}.", filled.artifact.label, remarks(filled))


def _with_remarks(write: Callable[[Sequence[Table]], str], filled: Filled, shown: Shown) -> str:
    """The blocks in a form of `results.render`, the remarks as notes of the last one."""
    notes = [remarks(filled) if grid is filled.grids[-1] else () for grid in filled.grids]
    return write([table_of(grid, shown, said) for grid, said in zip(filled.grids, notes, strict=True)])


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
        for r, values in enumerate(grid.values):
            for c, value in enumerate(values):
                names = (filled.artifact.name, grid.block.title, grid.block.rows[r].label, column_key(grid.block, c))
                numbers = ("" if x is None else repr(float(x)) for x in (value.value, value.low, value.high, value.sd))
                printed = "" if value.reason else grid.printed(r, c)
                theirs = grid.paper.get((r, c), "") if shown.paper else ""
                said = map(tables.csv_text, (printed, value.reason, theirs))
                count = "" if value.of is None else value.of
                writer.writerow([*map(tables.csv_text, names), *numbers, count, *value.basis, (r, c) in grid.bold, *said])
    return stream.getvalue()


FORMATS: dict[str, Callable[[Filled, Shown], str]] = {
    "text": to_text, "html": to_html, "latex": to_latex, "csv": to_csv,
    "markdown": partial(_with_remarks, tables.to_markdown), "json": partial(_with_remarks, tables.to_json),
}  # fmt: skip
