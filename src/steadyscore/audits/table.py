"""Tables of figures: the paper-shaped one as text or HTML, and per-query rows for whoever computes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from ..measures.registry import MEASURES
from ..runs.layout import measure_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from .result import Audit

ON_REQUEST = tuple(name for name, measure in MEASURES.items() if {"reader", "perturbed"} & set(measure.needs))
"""Measures that only a reader or a perturbation brings: columns of the table where they were measured."""


def figures_table(audits: Iterable[Audit], *, html: bool = False) -> str:
    """One table per task: a row per collection and scorer, the task's columns, and whatever was asked for beside them."""
    by_task: dict[str, list[Audit]] = {}
    for audit in audits:
        by_task.setdefault(audit.record["task"], []).append(audit)
    draw = html_table if html else text_table
    return "\n".join(draw(*_cells(members)) for members in by_task.values())


def _cells(audits: list[Audit]) -> tuple[list[str], list[list[Any]]]:
    measured = dict.fromkeys(name for audit in audits for name in audit.figures)
    library = [name for name in measured if name not in MEASURES]
    columns = [*audits[0].task.columns, *(name for name in ON_REQUEST if name in measured), *library]
    rows = [
        [audit.collection, audit.name, *("-" if (f := audit.figures.get(name)) is None else str(f) for name in columns)]
        for audit in audits
    ]
    return ["collection", "scorer", *columns], rows


def text_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns padded to their widest cell; numbers on the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[c]) for row in cells) and bool(cells) for c in range(len(header))]
    widths = [max([len(header[c]), *(len(row[c]) for row in cells)]) for c in range(len(header))]
    return "".join(
        "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)).rstrip()
        + "\n"
        for row in [list(header), *cells]
    )


def html_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def line(tag: str, cells: Sequence[Any]) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(_cell(cell))}</{tag}>" for cell in cells) + "</tr>"

    return (
        "<table><thead>" + line("th", header) + "</thead><tbody>" + "".join(line("td", row) for row in rows) + "</tbody></table>"
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()


def measure_tables(audits: Iterable[Audit]) -> Iterator[pa.Table]:
    """Per-query rows, a table per scorer, collection and measure: variant, collection, query_id, measure, value."""
    import pyarrow as pa

    for audit in audits:
        ids = pa.array(audit.measured.query_ids, pa.string())
        for measure, values in audit.measured.values.items():
            constants = [pa.repeat(text, len(ids)) for text in (audit.name, audit.collection, measure)]
            yield pa.table(
                [constants[0], constants[1], ids, constants[2], pa.array(values, pa.float64())], schema=measure_schema()
            )
