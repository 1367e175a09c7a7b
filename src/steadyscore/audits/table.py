"""Tables of figures: the paper-shaped one as text or HTML, and per-query rows for whoever computes on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ..machine.console import harmless
from ..machine.names import without_common
from ..measures.registry import MEASURES
from ..runs.layout import measure_schema
from .figure import Figure
from .first_stage import NAME

if TYPE_CHECKING:
    import pyarrow as pa

    from .result import Audit

AT_ONCE = 50_000
"""Per-query rows that are made and written at once."""
CHANCE = "chance"
"""The row of a random order."""
ON_REQUEST = tuple(name for name, measure in MEASURES.items() if {"reader", "perturbed"} & set(measure.needs))
"""Measures that only a reader or a perturbation brings: columns of the table where they were measured."""
PAIRS = tuple(name for name, measure in MEASURES.items() if "pair" in measure.needs)
"""Measures of two candidates: columns where every pool has two."""

CHANCE_TAU_PSI = 0.5
"""Two random rankings disagree on every other pair."""
LONG_SCORER = 24
"""Characters of a scorer's name on a terminal: of longer ones, what they have in common and then their middle is left out."""
WIDE_NAME = 9
"""A column of plain numbers is not wider than this: a longer name is broken behind its underscore."""


def figures_table(audits: Iterable[Audit], *, html: bool = False) -> str:
    """One table per collection: the first-stage order and chance, then a row per scorer; the task's columns, and whatever was
    asked for beside them.

    On a terminal only quality and the first decision have their interval, so that a row fits 120 columns.
    """
    by_collection: dict[tuple[str, str], list[Audit]] = {}
    for audit in audits:
        by_collection.setdefault((audit.record["task"], audit.collection), []).append(audit)
    return "\n".join(_html_figures(members) if html else _text_figures(members) for members in by_collection.values())


def _html_figures(audits: list[Audit]) -> str:
    columns = _columns(audits)
    rows = [[label, *(figures.get(name) for name in columns)] for label, figures in _labelled(audits)]
    return html_table([audits[0].collection, *columns], rows)


def _text_figures(audits: list[Audit]) -> str:
    columns, task = _columns(audits), audits[0].task
    decision = next((name for name in task.decisions if name in task.columns), None)
    plain = [name in task.columns and name not in (task.quality, decision) for name in columns]
    header = [_broken(name) if is_plain else name for name, is_plain in zip(columns, plain, strict=True)]
    labels, figures = zip(*_labelled(audits), strict=True)
    rows = [
        [label, *(_shown(row.get(name), is_plain) for name, is_plain in zip(columns, plain, strict=True))]
        for label, row in zip(_short_names(labels), figures, strict=True)
    ]
    return text_table([audits[0].collection, *header], rows)


def _columns(audits: list[Audit]) -> list[str]:
    measured = dict.fromkeys(name for audit in audits for name in audit.figures)
    library = [name for name in measured if name not in MEASURES]
    pairs = PAIRS if all(audit.measured.coverage.few_orders.get(2) == len(audit.queries) for audit in audits) else ()
    return [*audits[0].task.columns, *(name for name in (*pairs, *ON_REQUEST) if name in measured), *library]


def _labelled(audits: list[Audit]) -> list[tuple[str, dict[str, Figure]]]:
    """The rows of a collection, each under its name."""
    return [*baselines(audits), *((audit.name, audit.figures) for audit in audits)]


def baselines(audits: Sequence[Audit]) -> list[tuple[str, dict[str, Figure]]]:
    """What the scorers of a collection are read against: the first-stage order, where it is known, and chance.

    Audits of other queries or another threshold have rows of their own.
    """
    first: list[tuple[str, dict[str, Figure]]] = []
    chance: list[tuple[str, dict[str, Figure]]] = []
    for audit in audits:
        if audit.first_stage is not None:
            first.append((NAME, audit.first_stage.figures))
        if (level := audit.figures.get(f"chance@{audit.task.quality_cutoff}")) is not None:
            tau_psi = Figure(CHANCE_TAU_PSI, None, None, level.queries)
            chance.append((CHANCE, {audit.task.quality: replace(level, low=None, high=None), "tau_psi": tau_psi}))
    return [row for rows in (first, chance) for place, row in enumerate(rows) if row not in rows[:place]]


def _shown(figure: Figure | None, is_plain: bool) -> str:
    """A figure in a cell; a plain one without its interval."""
    if figure is None or not is_plain:
        return "-" if figure is None else str(figure)
    floor = "" if figure.floor is None else f" floor {figure.floor:.3f}"
    return f"{figure.value:.3f}{floor}"


def _short_names(names: Sequence[str]) -> Sequence[str]:
    """Long names without the words that all have at their ends, then without their middle; whole, where two would be alike."""
    long = [name for name in dict.fromkeys(names) if len(name) > LONG_SCORER]
    words = [re.findall(r"\w+|\W", name) for name in long]
    apart = without_common(words) if len(long) > 1 else words
    own = [["...", *some] for some in apart] if all(apart) and apart != words else words
    short = {name: name for name in names} | dict(zip(long, map(_both_ends, own), strict=True))
    return [short[name] for name in names] if len({*short.values()}) == len({*names}) else names


def _both_ends(words: Sequence[str]) -> str:
    """A name in words, or as many of its first and last ones as fit."""
    ends = (("".join(words[:i]), "".join(words[j:])) for i in range(1, len(words)) for j in range(i + 1, len(words)))
    fitting = [both for both in ends if len("".join(both)) <= LONG_SCORER - 3]
    if len("".join(words)) <= LONG_SCORER or not fitting:
        return "".join(words)
    return "...".join(max(fitting, key=lambda both: (min(map(len, both)), len("".join(both)))))


def _broken(name: str) -> str:
    return "_\n".join(name.rsplit("_", 1)) if len(name) > WIDE_NAME else name


def text_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns padded to their widest cell; numbers on the right. A header may have several lines."""
    cells = [[_cell(value) for value in row] for row in rows]
    numeric = [all(_is_number(row[c]) for row in cells) and bool(cells) for c in range(len(header))]
    heads = list(zip_longest(*(name.split("\n") for name in header), fillvalue=""))
    widths = [max(len(row[c]) for row in [*heads, *cells]) for c in range(len(header))]
    return "".join(
        "  ".join(cell.rjust(w) if right else cell.ljust(w) for cell, w, right in zip(row, widths, numeric, strict=True)).rstrip()
        + "\n"
        for row in [*heads, *cells]
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
    return f"{value:.3f}" if isinstance(value, float) else harmless(str(value)).replace("\n", " ")


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).replace("-", "", 1).replace(",", "").isdigit()


def measure_tables(audits: Iterable[Audit]) -> Iterator[pa.Table]:
    """Per-query rows, a table or more per scorer, collection and measure: variant, collection, query_id, measure, value."""
    import pyarrow as pa

    for audit in audits:
        ids = pa.array(audit.measured.query_ids, pa.string())
        for measure, values in audit.measured.values.items():
            for start in range(0, len(ids), AT_ONCE):
                some = ids.slice(start, AT_ONCE)
                name, collection, kind = (pa.repeat(text, len(some)) for text in (audit.name, audit.collection, measure))
                column = pa.array(values[start : start + AT_ONCE], pa.float64())
                yield pa.table([name, collection, some, kind, column], schema=measure_schema())
