"""A filled artifact as the values that the HTML templates show: panels of cells, captions, what each cell is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ..measures.intervals import Scheme
from ..report.figures import Style, choose_styles
from .draw import drawing, series_of
from .layout import Filled, Grid, basis_lines, basis_text, interval

SCHEMES: dict[Scheme, str] = {
    "collections_then_queries": "resample collections, then queries within them",
    "collections": "resample collections",
    "queries": "resample queries within these collections",
}
OWN_INTERVAL = ("interval", "with_interval", "range", "sd")
"""Forms that print their spread themselves."""


@dataclass(frozen=True, slots=True)
class CellView:
    """One cell as it is shown."""

    text: str
    is_bold: bool
    is_measured: bool
    """Whether it is a number or the lack of one, and not a word of the paper."""
    interval: str
    basis: str
    """What it is made from, or why it is empty."""
    details: str
    """Basis and uncertainty in one line."""
    paper: str


@dataclass(frozen=True, slots=True)
class RowView:
    label: str
    cells: list[CellView]
    group: str
    """A heading that neighbouring rows share."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A block: its drawing, where it has one, and its table."""

    title: str
    corner: str
    groups: list[tuple[str, int]]
    """Headings that neighbouring columns share, with their number of columns."""
    columns: list[str]
    rows: list[RowView]
    svg: str = ""
    drawn: list[str] = field(default_factory=list)
    """Series that the legend of the drawing names; boxes and chips have them in the drawing."""
    styles: dict[str, Style] = field(default_factory=dict)
    basis: list[str] = field(default_factory=list)


PLANTED = (
    "Planted graders on parts of the embedded collections, some of which take the place of several of the paper's: this shows "
    "the shape of the table, not a result."
)


@dataclass(frozen=True, slots=True)
class Section:
    """An artifact at a scale, as the templates show it."""

    name: str
    number: str
    heading: str
    panels: list[Panel]
    remarks: list[str]


def section_of(filled: Filled) -> Section:
    panels = [_panel(grid, filled) for grid in filled.grids]
    return Section(filled.artifact.name, filled.artifact.number, heading(filled), panels, remarks(filled))


def heading(filled: Filled) -> str:
    return f"{filled.artifact.number} ({filled.artifact.label}), scale {filled.scale}: {filled.artifact.title}."


def remarks(filled: Filled) -> list[str]:
    """The caption: what the artifact is made from, how certain it is, and why cells are empty."""
    said = [*filter(None, [filled.artifact.basis]), *filled.artifact.notes]
    said += [PLANTED] if filled.is_planted else []
    return [*said, *filter(None, [filled.left_out, uncertainty(filled)]), *empty_reasons(filled)]


def _panel(grid: Grid, filled: Filled) -> Panel:
    block = grid.block
    svg = drawing(grid, filled) if block.draw else ""
    series = choose_styles(series_of(grid))
    return Panel(
        block.title,
        block.corner,
        column_groups(grid),
        [line.label for line in block.columns],
        [
            RowView(line.label + line.mark, [_cell(grid, r, c) for c in range(len(block.columns))], line.group)
            for r, line in enumerate(block.rows)
        ],
        svg,
        list(series) if svg and block.draw not in ("boxes", "chips") else [],
        series,
        basis_lines(grid),
    )


def _cell(grid: Grid, row: int, column: int) -> CellView:
    value, cell = grid.values[row][column], grid.cell(row, column)
    spread = []
    if value.low is not None and cell.form not in OWN_INTERVAL:
        spread.append(interval(value, cell))
    if value.sd is not None and cell.form not in ("sd", "spread"):
        spread.append(f"SD {value.sd:.{cell.digits}f}")
    return CellView(
        grid.printed(row, column),
        (row, column) in grid.bold,
        not value.text,
        " ".join(spread),
        "" if value.text else f"empty: {value.reason}" if value.reason else basis_text(value.basis),
        "" if value.text else details(grid, row, column),
        grid.paper.get((row, column), ""),
    )


def details(grid: Grid, row: int, column: int) -> str:
    """One cell's basis and interval in words; or why it is empty."""
    value = grid.values[row][column]
    if value.reason:
        return f"empty: {value.reason}"
    parts = [basis_text(value.basis)]
    if value.low is not None and grid.cell(row, column).form != "range":
        parts.append(f"95 % interval {value.low:.4f} to {value.high:.4f}")
    if value.sd is not None:
        parts.append(f"seed SD {value.sd:.4f}")
    return ", ".join(parts)


def column_groups(grid: Grid) -> list[tuple[str, int]]:
    """Headings that neighbouring columns share, with their number of columns."""
    return [(name, len(list(members))) for name, members in groupby(line.group for line in grid.block.columns)]


def uncertainty(filled: Filled) -> str:
    """How the intervals and spreads of an artifact were made."""
    schemes: dict[tuple[Scheme, int], None] = {}
    has_seeds = False
    for grid in filled.grids:
        for row, values in enumerate(grid.values):
            for column, value in enumerate(values):
                cell = grid.cell(row, column)
                if value.low is not None and cell.form != "range":
                    schemes[cell.scheme, cell.draws] = None
                has_seeds |= value.sd is not None
    ends = "" if filled.method else ", read as `audit` reads them"
    said = [f"95 % intervals {SCHEMES[scheme]}, {draws:,} bootstrap draws{ends}." for scheme, draws in schemes]
    return " ".join([*said, *(["SD is over training seeds."] if has_seeds else [])])


def empty_reasons(filled: Filled) -> list[str]:
    """Why cells are empty, the eight most frequent first."""
    done, cells = filled.counts()
    if done == cells:
        return []
    reasons: Sequence[tuple[str, int]] = filled.reasons()[:8]
    told = [f"{count} {'cell' if count == 1 else 'cells'}: {reason}" for reason, count in reasons]
    return [f"{cells - done} of {cells} cells are empty.", *told]
