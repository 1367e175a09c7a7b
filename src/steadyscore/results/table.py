"""A table as a value: columns, rows of cells with their figures and intervals, and notes. `results.render` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from ..machine.console import harmless
from .figure import Figure

DETECTABLE = "detectable: the smallest true difference that so many queries show in 8 of 10 studies, at a two-sided 5 %."
"""What the column of that name says."""
NOTHING = "-"
"""What an empty cell shows."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence that somebody should know who reads the figures, and how much depends on it."""

    text: str
    weight: int = 4
    """0 what could not be scored, which is always said; 1 a figure is read wrongly without it; 2 a figure flatters; 3 what is
    left out; 4 how it was measured."""
    about: str = ""
    """The name of the collection, or of scores that belong to none; of a table that has its own title, nothing."""

    def __str__(self) -> str:
        return f"{self.about}: {self.text}" if self.about else self.text


@dataclass(frozen=True, slots=True)
class Column:
    """One column behind the names of the rows."""

    key: str
    """Its name in CSV and JSON."""
    label: str = ""
    """Its heading; the key, where there is none."""
    better: str = ""
    """`higher`, `lower` or `neither`; of a column that is not a measure, nothing."""
    group: str = ""
    """A heading that neighbouring columns share."""
    has_intervals: bool = True
    """Whether an interval is printed behind its figures. CSV and JSON have them all."""
    sign: str = ""
    """`+` for differences, which say their sign."""

    @property
    def heading(self) -> str:
        return self.label or self.key

    @property
    def whole_heading(self) -> str:
        """With the heading that it shares, where groups have no row of their own."""
        return f"{self.group}: {self.heading}" if self.group else self.heading


@dataclass(frozen=True, slots=True)
class Cell:
    """One value, or the reason why there is none."""

    value: Figure | float | str | None = None
    text: str | None = None
    """How it is printed, where that is not the usual form."""
    leads: bool = False
    """Whether it is marked as the best of those it is compared with."""
    reason: str = ""
    """Why it is empty."""
    beside: str = ""
    """What is printed small behind it, in parentheses."""

    def shown(self, column: Column) -> str:
        """The cell as text, on one line and without control characters."""
        if self.text is not None:
            return one_line(self.text)
        value = self.value
        if isinstance(value, Figure):
            return value.shown(column.sign, with_interval=column.has_intervals)
        if value is None:
            return NOTHING
        return f"{value:{column.sign}.3f}" if isinstance(value, float) else one_line(str(value))


@dataclass(frozen=True, slots=True)
class Row:
    """A name and its cells, one per column."""

    name: str
    cells: tuple[Cell, ...]
    comment: str = ""
    """What its cells rest on; LaTeX has it as a comment."""
    group: str = ""
    """A heading that neighbouring rows share, in LaTeX."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns, with what must be known to read them."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    corner: str = ""
    """The heading of the rows' names; where there is none, the title is printed there and not above the table."""
    key: str = "name"
    """What CSV and JSON call the rows' names."""
    notes: tuple[Note, ...] = ()

    def headings(self) -> list[str]:
        """The corner and the heading of every column."""
        return [self.corner or self.title, *(column.heading for column in self.columns)]

    def shown_rows(self) -> list[list[str]]:
        """Every row as text: its name and its cells."""
        return [
            [one_line(row.name), *(cell.shown(column) for cell, column in zip(row.cells, self.columns, strict=True))]
            for row in self.rows
        ]

    def groups(self) -> list[tuple[str, int]]:
        """Headings that neighbouring columns share, with their number of columns."""
        return [(name, len(list(members))) for name, members in groupby(self.columns, key=lambda column: column.group)]

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, and so belongs on the right."""
        return any(isinstance(row.cells[column].value, Figure | float | int) for row in self.rows)


def table_of(
    headings: Sequence[str], rows: Sequence[Sequence[Figure | float | str | None]], *, title: str = "", notes: Sequence[str] = ()
) -> Table:
    """A table of plain values: the first heading is that of the rows' names, which come first in each row."""
    columns = tuple(map(Column, headings[1:]))
    made = tuple(Row(Cell(name).shown(Column("")), tuple(map(Cell, values))) for name, *values in rows)
    return Table(columns, made, title, headings[0], headings[0], tuple(map(Note, notes)))


def with_notes(tables: Sequence[Table], told: Sequence[Note]) -> list[Table]:
    """Tables with notes below the last."""
    return [*tables[:-1], *(replace(last, notes=(*last.notes, *told)) for last in tables[-1:])]


def notes_of(tables: Sequence[Table]) -> Iterator[str]:
    """The notes of some tables, each once."""
    return iter(dict.fromkeys(harmless(str(note)) for table in tables for note in table.notes))


def one_line(text: str) -> str:
    """A text as a cell shows it: on one line, without control characters."""
    return harmless(text).replace("\n", " ")
