"""A filled artifact: every cell with its value, its printed form, its basis, the bold ones, and the paper's value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..measures.intervals import Method, Scheme
from .artifacts import ARTIFACTS
from .collate import Basis, Value, leading, permutation_range
from .library import Library, better_of
from .names import COLLECTIONS, collections_in
from .recipe import Artifact, Block, Cell, Line
from .scale import Choices
from .statistics import value_of

PAPER_VALUES = Path(__file__).parent / "paper_values.json"
NOTHING = "-"
PLANTED = (
    "Planted graders on parts of the embedded collections, some of which take the place of several of the paper's: this shows "
    "the shape of the table, not a result."
)
SCHEMES: dict[Scheme, str] = {
    "collections_then_queries": "resample collections, then queries within them",
    "collections": "resample collections",
    "queries": "resample queries within these collections",
}


@dataclass(frozen=True)
class Entry:
    """A cell with its value, and what the paper prints there."""

    cell: Cell
    value: Value
    is_bold: bool = False
    paper: str = ""

    def printed(self, *, intervals: bool = False) -> str:
        """The value as the paper would print it; `-` where there is none."""
        value = self.value
        if value.text:
            return value.text
        if value.reason or value.value is None:
            return NOTHING
        has_own = self.cell.form in ("interval", "with_interval", "range", "count", "of", "sd")
        return f"{self._number()} {self.interval}" if intervals and not has_own and value.low is not None else self._number()

    def _number(self) -> str:
        number, value, form, digits = float(self.value.value or 0.0), self.value, self.cell.form, self.cell.digits
        if form == "starred":
            is_clear = value.low is not None and value.high is not None and not value.low <= 0 <= value.high
            return signed(number, digits) + "*" * is_clear
        if form in ("signed", "with_interval"):
            return f"{signed(number, digits)} {self.interval}" if form == "with_interval" else signed(number, digits)
        if form in ("percent", "closed"):
            return f"{100 * number if form == 'percent' else number:.{digits}f}%"
        if form in ("count", "of"):
            return f"{number:,.0f}" if form == "count" else f"{number:.0f}/{value.of}"
        if form == "interval":
            return self.interval
        if form == "range":
            return f"{value.low:.{digits}f}–{value.high:.{digits}f}"
        spread = "" if value.sd is None else f"{value.sd:.{digits}f}"
        if form == "sd":
            return spread or NOTHING
        return f"{number:.{digits}f}" + (f" ± {spread}" if form == "spread" and spread else "")

    @property
    def interval(self) -> str:
        """`[0.401, 0.622]`; of a difference with signs."""
        if self.value.low is None or self.value.high is None:
            return NOTHING
        shown = (f"{end:.{self.cell.digits}f}" for end in (self.value.low, self.value.high))
        if len(self.cell.terms) > 1:
            shown = (signed(end, self.cell.digits) for end in (self.value.low, self.value.high))
        return f"[{', '.join(shown)}]"

    @property
    def spread(self) -> str:
        """Interval and seed SD, where its form does not print them itself."""
        form, said = self.cell.form, []
        if self.value.low is not None and form not in ("interval", "with_interval", "range", "sd"):
            said.append(self.interval)
        if self.value.sd is not None and form not in ("sd", "spread"):
            said.append(f"SD {self.value.sd:.{self.cell.digits}f}")
        return " ".join(said)

    @property
    def basis(self) -> str:
        """What it is made from, or why it is empty; nothing of a word of the paper."""
        reason = f"empty: {self.value.reason}" if self.value.reason else basis_text(self.value.basis)
        return "" if self.value.text else reason

    @property
    def details(self) -> str:
        """Basis and uncertainty in one line."""
        if self.value.reason or self.value.text:
            return self.basis
        parts = [self.basis]
        if self.value.low is not None and self.cell.form != "range":
            parts.append(f"95 % interval {self.value.low:.4f} to {self.value.high:.4f}")
        if self.value.sd is not None:
            parts.append(f"seed SD {self.value.sd:.4f}")
        return ", ".join(parts)


def signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def basis_text(basis: Basis) -> str:
    """`144 queries of 18 collections, 3 seeds`."""
    parts = []
    if basis.queries:
        parts.append(f"{basis.queries:,} {'query' if basis.queries == 1 else 'queries'}")
    if basis.collections:
        parts.append(f"{basis.collections} collection{'s' * (basis.collections > 1)}")
    more = [f"{basis.seeds} seeds"] if basis.seeds > 1 else []
    more += [f"{basis.bases} bases"] if basis.bases > 1 else []
    return ", ".join(filter(None, [" of ".join(parts), *more])) or "nothing measured"


@dataclass(frozen=True)
class Grid:
    """A block with its values."""

    block: Block
    values: tuple[tuple[Value, ...], ...]
    bold: frozenset[tuple[int, int]]
    paper: Mapping[tuple[int, int], str]
    """(row, column) -> what the paper prints there."""

    @cached_property
    def rows(self) -> list[tuple[Line, list[Entry]]]:
        entries = [
            [
                Entry(self.block.cell(r, c), value, (r, c) in self.bold, self.paper.get((r, c), ""))
                for c, value in enumerate(values)
            ]
            for r, values in enumerate(self.values)
        ]
        return list(zip(self.block.rows, entries, strict=True))

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings that neighbouring columns share, with their number of columns."""
        return [(name, len(list(members))) for name, members in groupby(line.group for line in self.block.columns)]

    def basis_lines(self) -> list[str]:
        """What the cells are made from: each basis with its cells, named by column where few, else counted."""
        places: dict[Basis, list[str]] = {}
        for line, entries in self.rows:
            for column, entry in zip(self.block.columns, entries, strict=True):
                if entry.value.value is not None:
                    places.setdefault(entry.value.basis, []).append(f"{line.label} × {column.key}")
        return [
            f"{basis_text(basis)}: {'; '.join(cells) if len(cells) <= 2 else f'{len(cells)} cells'}"
            for basis, cells in places.items()
        ]


@dataclass(frozen=True)
class Filled:
    """An artifact with its values."""

    artifact: Artifact
    grids: tuple[Grid, ...]
    scale: str
    is_planted: bool
    left_out: str = ""
    """Which collections its means leave out, and how many are left."""
    method: Method | None = "percentile"
    """Of the intervals; None: those of an audit."""

    def entries(self) -> Iterator[Entry]:
        return (entry for grid in self.grids for _, entries in grid.rows for entry in entries)

    def reasons(self) -> list[tuple[str, int]]:
        """Why cells are empty, each reason with its number of cells, the most frequent first."""
        return Counter(entry.value.reason for entry in self.entries() if entry.value.reason).most_common()

    def counts(self) -> tuple[int, int]:
        """Cells that have a value, and all cells."""
        filled = [not entry.value.reason for entry in self.entries()]
        return sum(filled), len(filled)

    @property
    def heading(self) -> str:
        return f"{self.artifact.number} ({self.artifact.label}), scale {self.scale}: {self.artifact.title}."

    @property
    def remarks(self) -> list[str]:
        """The caption: what the artifact is made from, how certain it is, and why cells are empty."""
        said = [self.artifact.basis, *self.artifact.notes, PLANTED * self.is_planted, self.left_out, self._uncertainty()]
        return [*filter(None, said), *self._empty()]

    def _uncertainty(self) -> str:
        """How the intervals and spreads were made."""
        entries = [entry for entry in self.entries() if entry.value.low is not None and entry.cell.form != "range"]
        schemes = dict.fromkeys((entry.cell.scheme, entry.cell.draws) for entry in entries)
        ends = "" if self.method else ", read as `audit` reads them"
        said = [f"95 % intervals {SCHEMES[scheme]}, {draws:,} bootstrap draws{ends}." for scheme, draws in schemes]
        has_seeds = any(entry.value.sd is not None for entry in self.entries())
        return " ".join([*said, *(["SD is over training seeds."] if has_seeds else [])])

    def _empty(self) -> list[str]:
        """Why cells are empty, the eight most frequent reasons first."""
        done, cells = self.counts()
        told = [f"{count} {'cell' if count == 1 else 'cells'}: {reason}" for reason, count in self.reasons()[:8]]
        return [f"{cells - done} of {cells} cells are empty.", *told] if done < cells else []


def fill(artifact: Artifact, library: Library) -> Filled:
    """Compute every cell of an artifact from finished runs."""
    grids, choices = [], library.choices
    for block in artifact.blocks:
        columns = range(len(block.columns))
        values = tuple(tuple(value_of(block.cell(r, c), library) for c in columns) for r in range(len(block.rows)))
        paper = _paper_cells(artifact, block)
        for place in paper:
            if _left_out([cell := block.cell(*place)], choices):  # what the paper prints is of other collections
                paper[place] = _printed_elsewhere().get(_content(cell, PUBLIC), "")
        grids.append(Grid(block, values, bold_cells(block, values, library), paper))
    absent = _left_out(artifact.cells(), choices)
    return Filled(artifact, tuple(grids), choices.scale.name, choices.is_planted, absent, library.method)


PUBLIC = "public"
"""The group of the sixteen public collections of passages."""


def _left_out(cells: Iterable[Cell], choices: Choices) -> str:
    """In words, what means over groups leave out because it is private; empty where nothing is left out."""
    sizes = {(len(collections_in(cell.collections)), choices.members(cell.collections)) for cell in cells}
    fewer = sorted({(size, len(members)) for size, members in sizes if size > len(members)})
    if not fewer:
        return ""
    counts = ", ".join(f"{left} of {size}" for size, left in fewer)
    names = " and ".join(COLLECTIONS[name] for name in sorted(choices.absent))
    return (
        f"Means over collections leave out {names}, which are private: {counts} are averaged. What the paper prints for these "
        f"is printed with them where it does. Name files of your own with --collection {min(choices.absent)}=FILE."
    )


def _content(cell: Cell, collections: str) -> str:
    """What a cell measures on some collections, however it is printed."""
    as_printed = {name: getattr(Cell(), name) for name in ("form", "digits", "at", "draws", "scheme")}
    return repr(replace(cell, collections=collections, **as_printed))


@cache
def _printed_elsewhere() -> dict[str, str]:
    """What the paper prints of a cell over the public collections, in the table that gives it the most digits."""
    printed: dict[str, str] = {}
    for artifact in ARTIFACTS.values():
        for block in artifact.blocks:
            for place, text in _paper_cells(artifact, block).items():
                if (cell := block.cell(*place)).collections == PUBLIC:
                    content = _content(cell, PUBLIC)
                    printed[content] = max(printed.get(content, ""), text, key=len)
    return printed


@cache
def paper_values() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Artifact -> block -> row -> column -> what the paper prints. Only shown with ours; nothing is computed from it."""
    values: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(PAPER_VALUES.read_text(encoding="utf-8"))
    return values


def _paper_cells(artifact: Artifact, block: Block) -> dict[tuple[int, int], str]:
    """(row, column) -> what the paper prints there."""
    rows = paper_values().get(artifact.name, {}).get(block.title, {})
    return {
        (r, c): rows[row.label][column.key]
        for r, row in enumerate(block.rows)
        for c, column in enumerate(block.columns)
        if column.key in rows.get(row.label, {})
    }


# -- bold


def bold_cells(block: Block, values: Sequence[Sequence[Value]], library: Library) -> frozenset[tuple[int, int]]:
    """The cells that the block's rule marks, column by column among its rival rows, or row by row among its rival columns."""
    by_rows = any(line.is_rival for line in block.rows)
    rivals = [i for i, line in enumerate(block.rows if by_rows else block.columns) if line.is_rival]
    bold = set()
    for other in range(len(block.columns if by_rows else block.rows) if block.bold else 0):
        places = [(rival, other) if by_rows else (other, rival) for rival in rivals]
        if (lead := _lead(block, places, values, library)) is not None:
            bold.add(places[lead])
    return frozenset(bold)


def _lead(block: Block, places: list[tuple[int, int]], values: Sequence[Sequence[Value]], library: Library) -> int | None:
    first = block.cell(*places[0])
    if first.statistic != "mean" or len(first.terms) > 1 or any(values[r][c].value is None for r, c in places):
        return None
    better = better_of(first.measure)
    rows = [values[r][c].by_seed or (float(values[r][c].value or np.nan),) for r, c in places]
    if block.bold != "every_seed":
        return leading(rows, better, block.bold)
    try:
        return leading(rows, better, block.bold, max(permutation_range_of(block.cell(*place), library) for place in places))
    except InputError:
        return None


def permutation_range_of(cell: Cell, library: Library) -> float:
    """Highest minus lowest mean quality that one permutation gives, over the cell's collections, first seed."""
    return permutation_range([library.quality(at) for at in library.places(cell, cell.side(reader="", seeds=cell.seeds[:1]))])
