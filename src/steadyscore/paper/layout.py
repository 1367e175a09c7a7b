"""A filled artifact: every cell with its value, its printed form, its basis, the bold ones, and the paper's value."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..measures.intervals import Method
from ..measures.views import quality_by_permutation
from ..tasks import TASKS
from .artifacts import ARTIFACTS
from .collate import (
    Basis,
    Value,
    lead_beyond_seed_spread,
    lead_in_the_mean,
    lead_on_every_seed,
    permutation_range,
)
from .library import Library, better_of
from .names import COLLECTIONS, bases_in, collections_in, task_of
from .recipe import Artifact, Block, Cell
from .scale import Choices
from .statistics import value_of

PAPER_VALUES = Path(__file__).parent / "paper_values.json"
NOTHING = "-"


@dataclass(frozen=True)
class Grid:
    """A block with its values."""

    block: Block
    values: tuple[tuple[Value, ...], ...]
    bold: frozenset[tuple[int, int]]
    paper: Mapping[tuple[int, int], str]
    """(row, column) -> what the paper prints there."""

    def cell(self, row: int, column: int) -> Cell:
        return self.block.cell(row, column)

    def printed(self, row: int, column: int, *, intervals: bool = False) -> str:
        return printed(self.values[row][column], self.cell(row, column), intervals=intervals)


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

    def reasons(self) -> list[tuple[str, int]]:
        """Why cells are empty, each reason with its number of cells, the most frequent first."""
        reasons = Counter(value.reason for grid in self.grids for row in grid.values for value in row if value.reason)
        return reasons.most_common()

    def counts(self) -> tuple[int, int]:
        """Cells that have a value, and all cells."""
        values = [value for grid in self.grids for row in grid.values for value in row]
        return sum(1 for value in values if not value.reason), len(values)


def fill(artifact: Artifact, library: Library) -> Filled:
    """Compute every cell of an artifact from finished runs."""
    printed_there = paper_values().get(artifact.name, {})
    grids = []
    for block in artifact.blocks:
        values = tuple(
            tuple(value_of(block.cell(row, column), library) for column in range(len(block.columns)))
            for row in range(len(block.rows))
        )
        paper = _paper_cells(block, printed_there.get(block.title, {}))
        of_others = {place for place in paper if _left_out([block.cell(*place)], library.choices)}
        elsewhere = _printed_elsewhere() if of_others else {}
        paper = {
            place: text
            for place, printed in paper.items()
            if (text := elsewhere.get(_content(block.cell(*place), PUBLIC), "") if place in of_others else printed)
        }
        grids.append(Grid(block, values, bold_cells(block, values, library), paper))
    choices, absent = library.choices, _left_out(artifact.cells(), library.choices)
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
            for place, text in _paper_cells(block, paper_values().get(artifact.name, {}).get(block.title, {})).items():
                if (cell := block.cell(*place)).collections == PUBLIC:
                    content = _content(cell, PUBLIC)
                    printed[content] = max(printed.get(content, ""), text, key=len)
    return printed


@cache
def paper_values() -> dict[str, dict[str, dict[str, dict[str, str]]]]:
    """Artifact -> block -> row -> column -> what the paper prints. Only shown with ours; nothing is computed from it."""
    values: dict[str, dict[str, dict[str, dict[str, str]]]] = json.loads(PAPER_VALUES.read_text(encoding="utf-8"))
    return values


def column_key(block: Block, column: int) -> str:
    """A column's name, with the heading it shares where it has one."""
    line = block.columns[column]
    return f"{line.group}: {line.label}" if line.group else line.label


def _paper_cells(block: Block, rows: Mapping[str, Mapping[str, str]]) -> dict[tuple[int, int], str]:
    return {
        (r, c): rows[row.label][key]
        for r, row in enumerate(block.rows)
        for c in range(len(block.columns))
        if row.label in rows and (key := column_key(block, c)) in rows[row.label]
    }


# -- bold


def bold_cells(block: Block, values: Sequence[Sequence[Value]], library: Library) -> frozenset[tuple[int, int]]:
    """The cells that the block's rule marks, column by column (or row by row) among the lines it compares."""
    if not block.bold:
        return frozenset()
    by_rows = block.bold_over == "rows"
    rivals = [i for i, line in enumerate(block.rows if by_rows else block.columns) if line.is_rival]
    bold = set()
    for other in range(len(block.columns if by_rows else block.rows)):
        places = [(rival, other) if by_rows else (other, rival) for rival in rivals]
        lead = _lead(block, places, values, library)
        if lead is not None:
            bold.add(places[lead])
    return frozenset(bold)


def _lead(block: Block, places: list[tuple[int, int]], values: Sequence[Sequence[Value]], library: Library) -> int | None:
    first = block.cell(*places[0])
    if first.statistic != "mean" or len(first.terms) > 1 or any(values[r][c].value is None for r, c in places):
        return None
    better = better_of(first.measure)
    rows = [values[r][c].by_seed or (float(values[r][c].value or np.nan),) for r, c in places]
    if block.bold == "best":
        return lead_in_the_mean(rows, better)
    if block.bold == "seed_spread":
        return lead_beyond_seed_spread(rows, better)
    try:
        margin = max(permutation_range_of(block.cell(*place), library) for place in places)
    except InputError:
        return None
    return lead_on_every_seed(rows, better, margin)


def permutation_range_of(cell: Cell, library: Library) -> float:
    """Highest minus lowest mean quality that one permutation gives, over the cell's collections, first seed."""
    side = library.side(cell.sides()[0][1])
    quality = []
    for base in bases_in(cell.base):
        for collection in library.choices.members(cell.collections):
            k = TASKS[task_of(collection)].quality_cutoff
            at = replace(side, collections=collection, seeds=(), reader="")
            queries = library.queries(at, base, side.seeds[0], collection)
            quality.append(np.array([quality_by_permutation(query, k) for query in queries]))
    return permutation_range(quality)


# -- one cell as text


def printed(value: Value, cell: Cell, *, intervals: bool = False) -> str:
    """A value as the paper would print it; `-` where there is none."""
    if value.text:
        return value.text
    if value.reason or value.value is None:
        return NOTHING
    text = _number(value, cell)
    has_own = cell.form in ("interval", "with_interval", "range", "count", "of", "sd")
    return f"{text} {interval(value, cell)}" if intervals and not has_own and value.low is not None else text


def _number(value: Value, cell: Cell) -> str:
    number, digits = float(value.value or 0.0), cell.digits
    if cell.form == "starred":
        is_clear = value.low is not None and value.high is not None and not value.low <= 0 <= value.high
        return signed(number, digits) + "*" * is_clear
    if cell.form in ("signed", "with_interval"):
        text = signed(number, digits)
        return f"{text} {interval(value, cell)}" if cell.form == "with_interval" else text
    if cell.form == "percent":
        return f"{100 * number:.{digits}f}%"
    if cell.form == "closed":
        return f"{number:.{digits}f}%"
    if cell.form == "count":
        return f"{number:,.0f}"
    if cell.form == "of":
        return f"{number:.0f}/{value.of}"
    if cell.form == "interval":
        return interval(value, cell)
    if cell.form == "range":
        return f"{value.low:.{digits}f}–{value.high:.{digits}f}"
    if cell.form == "sd":
        return NOTHING if value.sd is None else f"{value.sd:.{digits}f}"
    if cell.form == "spread":
        return f"{number:.{digits}f}" + ("" if value.sd is None else f" ± {value.sd:.{digits}f}")
    return f"{number:.{digits}f}"


def signed(number: float, digits: int) -> str:
    return f"{number:+.{digits}f}".replace("-", "−")


def interval(value: Value, cell: Cell) -> str:
    if value.low is None or value.high is None:
        return NOTHING
    is_level = len(cell.terms) == 1
    ends = [f"{end:.{cell.digits}f}" if is_level else signed(end, cell.digits) for end in (value.low, value.high)]
    return f"[{ends[0]}, {ends[1]}]"


def basis_text(basis: Basis) -> str:
    """`144 queries of 18 collections, 3 seeds`."""
    parts = []
    if basis.queries:
        parts.append(f"{basis.queries:,} {'query' if basis.queries == 1 else 'queries'}")
    if basis.collections:
        parts.append(f"{basis.collections} collection{'s' * (basis.collections > 1)}")
    text = " of ".join(parts)
    more = [f"{basis.seeds} seeds"] if basis.seeds > 1 else []
    more += [f"{basis.bases} bases"] if basis.bases > 1 else []
    return ", ".join(filter(None, [text, *more])) or "nothing measured"


def basis_lines(grid: Grid) -> list[str]:
    """What the cells of a block are made from: each basis with its cells, named by column where few, else counted."""
    places: dict[Basis, list[str]] = {}
    for row, values in enumerate(grid.values):
        for column, value in enumerate(values):
            if value.value is not None:
                places.setdefault(value.basis, []).append(f"{grid.block.rows[row].label} × {column_key(grid.block, column)}")
    return [
        f"{basis_text(basis)}: {'; '.join(cells) if len(cells) <= 2 else f'{len(cells)} cells'}"
        for basis, cells in places.items()
    ]
