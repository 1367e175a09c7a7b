"""A filled artifact in every form: text, HTML, LaTeX, Markdown, JSON, CSV with a row for every cell, and drawings as SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..machine.extras import absent_modules, check_installed
from ..report import templating
from ..report.figures import FAINT, INK, Style, choose_styles, draw_svg
from ..results import render as tables
from ..results.figure import Figure
from ..results.table import Cell, Column, Note, Row, Table, with_notes
from ..results.table import table_of as plain_table
from .collate import Value
from .layout import Entry, Filled, Grid
from .recipe import Drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Shown(NamedTuple):
    """What is printed with our values."""

    paper: bool = False
    intervals: bool = False
    basis: bool = False


def table_of(grid: Grid, shown: Shown, notes: Sequence[str] = ()) -> Table:
    """A block as a table: every cell as the paper would print it; what a row is made from is its comment."""
    block = grid.block
    columns = tuple(Column(line.key, line.label, group=line.group) for line in block.columns)
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
    return tables.to_latex(blocks, f"{filled.artifact.title}.", filled.artifact.label, filled.remarks)


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
    rows = []
    for grid in filled.grids:
        for line, entries in grid.rows:
            for column, entry in zip(grid.block.columns, entries, strict=True):
                value, printed = entry.value, "" if entry.value.reason else entry.printed()
                names = (filled.artifact.name, grid.block.title, line.label, column.key)
                numbers = (value.value, value.low, value.high, value.sd, value.of, *value.basis, entry.is_bold)
                rows.append([*names, *numbers, printed, value.reason, entry.paper if shown.paper else ""])
    return tables.to_csv([plain_table(COLUMNS, rows)])


FORMATS: dict[str, Callable[[Filled, Shown], str]] = {
    "text": to_text, "html": to_html, "latex": to_latex, "csv": to_csv,
    "markdown": partial(_with_remarks, tables.to_markdown), "json": partial(_with_remarks, tables.to_json),
}  # fmt: skip


# -- drawings

PLANTED = "planted graders: the shape, not a result"
"""What a figure says that no model made."""
CHANGE = "#d55e00"
"""Of what two orders decide differently."""
FEW = 8
"""The most points that leave room for the cells under them."""


class Panel(NamedTuple):
    """A block, its drawing where it has one, and what the legend of the drawing names; boxes and chips name it themselves."""

    grid: Grid
    svg: str
    drawn: list[str]
    styles: dict[str, Style]


def panels_of(filled: Filled) -> list[Panel]:
    panels = []
    for grid in filled.grids:
        kind, svg = grid.block.draw and grid.block.draw.kind, drawing(grid, filled)
        drawn = series_of(grid) if svg and kind not in ("boxes", "chips") else []
        panels.append(Panel(grid, svg, drawn, choose_styles(drawn)))
    return panels


def drawing(grid: Grid, filled: Filled) -> str:
    """A panel as an SVG element; empty where matplotlib is not installed or nothing is there to draw."""
    is_empty = not any(value.value is not None for row in grid.values for value in row)
    if grid.block.draw is None or is_empty or absent_modules(("matplotlib",)):
        return ""
    title = f"{filled.artifact.number} {grid.block.title}".strip()
    look = choose_styles(series_of(grid))
    kind, x, y = grid.block.draw
    paint = {"lines": _lines, "points": _points, "boxes": _boxes, "chips": _chips}[kind]

    def paint_and_say(ax: Axes) -> None:
        paint(ax, grid, look)
        if kind != "chips":
            ax.set_xlabel(x)
        if kind in ("lines", "points"):
            ax.set_ylabel(y)
        if filled.is_planted:
            ax.set_title(PLANTED, loc="right", fontsize=7.5, color=FAINT)

    height = {"boxes": 0.9 + 0.34 * len(grid.block.rows), "chips": 0.9 + 0.5 * len(grid.block.rows)}.get(kind, 3.0)
    return draw_svg(title, paint_and_say, description=describe_panel(grid, filled, grid.block.draw), height=height)


def series_of(grid: Grid) -> list[str]:
    """What a panel tells apart by colour and shape: its rows; its columns, where the rows are places on the x axis."""
    draw = grid.block.draw
    has_places = draw is not None and draw.kind == "points" and bool(grid.block.cell(0, 0).at)
    return [line.label for line in (grid.block.columns if has_places else grid.block.rows)]


def describe_panel(grid: Grid, filled: Filled, draw: Drawing) -> str:
    """What the panel shows, for readers that cannot see it: the first and last value of every series."""
    lines = []
    for r, (line, entries) in enumerate(grid.rows):
        numbers = [entry.value.value for entry in entries if entry.value.value is not None]
        if draw.kind == "chips":
            lines.append(f"{line.label}: {', '.join(_facts(grid, r))}")
        elif numbers:
            lines.append(f"{line.label}: {numbers[0]:.3f}" + (f" to {numbers[-1]:.3f}" if len(numbers) > 1 else ""))
    said = f" {PLANTED[0].upper()}{PLANTED[1:]}." if filled.is_planted else ""
    return f"{draw.y} against {draw.x}. " + "; ".join(lines) + f".{said}"


def _bar(values: list[Value]) -> np.ndarray | None:
    """Intervals as the lengths of error bars, nothing where a value has none; None where no value has one."""
    if all(value.low is None for value in values):
        return None
    numbers = [value.value or 0.0 for value in values]
    below = [0.0 if v.low is None else x - v.low for x, v in zip(numbers, values, strict=True)]
    above = [0.0 if v.high is None else v.high - x for x, v in zip(numbers, values, strict=True)]
    return np.maximum([below, above], 0)


def _lines(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A series per row over the places of the columns, with 95 % intervals."""
    places: dict[float, str] = {}
    for line, entries in grid.rows:
        points = [(e.cell.at, e.value) for e in entries if e.value.value is not None and e.cell.at]
        if points:
            x, values = [at for at, _ in points], [value for _, value in points]
            ax.errorbar(
                x, [float(v.value or 0.0) for v in values], _bar(values),
                color=look[line.label].colour, marker=look[line.label].marker, markersize=4.5, linewidth=1.5, elinewidth=0.8,
            )  # fmt: skip
            places |= {at: f"{at:g}" if at < 1_000 else f"{at:,.0f}" for at in x}
    if max(places, default=0) > 1_000:
        ax.set_xscale("log")
        ax.minorticks_off()
    ax.set_xticks(list(places), list(places.values()))


def _points(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A point per row: the first column across, the second up; or, with places on the rows, every column over them.

    Under a point that averages several bases and collections are these; bars are 95 % intervals.
    """
    styles: list[dict[str, Any]] = [
        {"color": style.colour, "marker": style.marker, "linestyle": "none", "elinewidth": 0.8} for style in look.values()
    ]
    for r, values in enumerate(grid.values):
        if at := grid.block.cell(r, 0).at:
            for style, value in zip(styles, values, strict=True):
                if value.value is not None:
                    ax.errorbar(at, value.value, _bar([value]), markersize=6, **style)
            continue
        x, y = values[:2]
        if x.value is None or y.value is None:
            continue
        if len(x.parts) == len(y.parts) > 1 and len(grid.values) <= FEW:
            ax.plot(x.parts, y.parts, styles[r]["marker"], color=styles[r]["color"], markersize=2, alpha=0.3)
        ax.errorbar(x.value, y.value, _bar([y]), _bar([x]), markersize=7, **styles[r])
    ax.margins(0.08)


def _chips(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A chip per document, at one place in all rows: filled where retained, dotted where not, coloured where the rows differ."""
    kept = np.array([next(value.parts for value in values if value.parts) for values in grid.values])
    differs, places = (kept != kept[0]).any(axis=0), max(kept.shape[1], 24)
    for r, line in enumerate(grid.block.rows):
        for is_kept in (True, False):
            for colour, chosen in ((INK, ~differs), (CHANGE, differs)):
                x = np.flatnonzero((kept[r] == is_kept) & chosen)
                fill, edge = (colour, "solid") if is_kept else ("none", "dotted")
                side = 190 / places  # points
                ax.scatter(x, np.full(len(x), r), side**2, marker="s", facecolors=fill, edgecolors=colour, linestyles=edge)
        ax.text(-0.5, r - 0.3, f"{line.label}: {', '.join(_facts(grid, r)[:3])}", fontsize=7.5)
    ax.set_xlim(-1, places)
    ax.set_ylim(len(kept) - 0.6, -0.7)
    ax.set_axis_off()


def _facts(grid: Grid, row: int) -> list[str]:
    """The cells of a row that are not drawn as chips, each with its column's name."""
    _, entries = grid.rows[row]
    return [f"{line.label} {e.printed()}" for line, e in zip(grid.block.columns, entries, strict=True) if not e.value.parts]


def _boxes(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A box per row: the means of collections and bases that its first value averages, the mean as a diamond."""
    firsts = [(line.label, values[0]) for line, values in zip(grid.block.rows, grid.values, strict=True)]
    rows = [(name, value.value, value.parts) for name, value in firsts if value.value is not None]
    boxes = [list(parts) or [mean] for _, mean, parts in rows]
    ink: dict[str, Any] = {part: {"color": INK} for part in ("boxprops", "whiskerprops", "capprops", "medianprops")}
    dots: dict[str, Any] = {"marker": "o", "markersize": 3, "markeredgecolor": FAINT}
    names = [name for name, _, _ in rows]
    ax.boxplot(boxes, orientation="horizontal", tick_labels=names, widths=0.55, flierprops=dots, **ink)
    for place, (name, mean, _) in enumerate(rows, start=1):
        ax.plot(mean, place, marker="D", color=look[name].colour, markersize=5)
    ax.invert_yaxis()
