"""The paper's figures as SVG: lines over a budget or a size, points of two measures, boxes of collection means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..machine.extras import absent_modules
from ..report.figures import Style, choose_styles, draw_svg
from .layout import Filled, Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def drawing(grid: Grid, filled: Filled) -> str:
    """A panel as an SVG element; empty where matplotlib is not installed or nothing is there to draw."""
    if absent_modules(("matplotlib",)) or not any(value.value is not None for row in grid.values for value in row):
        return ""
    title = f"{filled.artifact.number} {grid.block.title}".strip()
    look = choose_styles([line.label for line in grid.block.rows])
    paint = {"lines": _lines, "points": _points, "boxes": _boxes}[grid.block.draw or "lines"]
    return draw_svg(title, lambda ax: paint(ax, grid, look), description=_words(grid))


def _words(grid: Grid) -> str:
    """What the panel shows, for readers that cannot see it: the first and last value of every series."""
    lines = []
    for line, values in zip(grid.block.rows, grid.values, strict=True):
        numbers = [value.value for value in values if value.value is not None]
        if numbers:
            lines.append(f"{line.label}: {numbers[0]:.3f}" + (f" to {numbers[-1]:.3f}" if len(numbers) > 1 else ""))
    return f"{grid.block.axes[1]} against {grid.block.axes[0]}. " + "; ".join(lines) + "."


def _lines(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A series per row over the places of the columns."""
    for r, line in enumerate(grid.block.rows):
        points = [
            (grid.cell(r, c).at, value)
            for c, value in enumerate(grid.values[r])
            if value.value is not None and grid.cell(r, c).at
        ]
        if points:
            x, y = [at for at, _ in points], np.array([value.value for _, value in points], float)
            ax.plot(x, y, color=look[line.label].colour, marker=look[line.label].marker, markersize=4, label=line.label)
    _finish(ax, grid)
    if max((grid.cell(0, c).at for c in range(len(grid.block.columns))), default=0) > 1_000:
        ax.set_xscale("log")


def _points(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A point per row: the first column across, the second up; or, with places on the rows, every column over them.

    Behind a point that averages several bases and collections stand these.
    """
    for r, line in enumerate(grid.block.rows):
        style: dict[str, Any] = {"color": look[line.label].colour, "marker": look[line.label].marker, "linestyle": "none"}
        if grid.cell(r, 0).at:
            for value in grid.values[r]:
                if value.value is not None:
                    ax.plot(grid.cell(r, 0).at, value.value, label=line.label, markersize=5, **style)
            continue
        x, y = grid.values[r][:2]
        if x.value is None or y.value is None:
            continue
        if len(x.parts) == len(y.parts) > 1:
            ax.plot(x.parts, y.parts, markersize=2, alpha=0.3, **style)
        ax.plot(x.value, y.value, label=line.label, markersize=7, **style)
    _finish(ax, grid)


def _boxes(ax: Axes, grid: Grid, look: dict[str, Style]) -> None:
    """A box per row: the means of collections and bases that its first value averages, the mean as a diamond."""
    firsts = [(line.label, values[0]) for line, values in zip(grid.block.rows, grid.values, strict=True)]
    rows = [(name, value.value, value.parts) for name, value in firsts if value.value is not None]
    boxes = [list(parts) or [mean] for _, mean, parts in rows]
    ax.boxplot(boxes, orientation="horizontal", tick_labels=[name for name, _, _ in rows])
    for place, (name, mean, _) in enumerate(rows, start=1):
        ax.plot(mean, place, marker="D", color=look[name].colour, markersize=5)
    ax.set_xlabel(grid.block.axes[0])


def _finish(ax: Axes, grid: Grid) -> None:
    ax.set_xlabel(grid.block.axes[0])
    ax.set_ylabel(grid.block.axes[1])
    handles, labels = ax.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    if unique:
        ax.legend(unique.values(), unique.keys(), fontsize=7, frameon=False)
