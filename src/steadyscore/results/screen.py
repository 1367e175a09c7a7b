"""What the figures of audits are shown as: a first look and every measure as tables, and per-query rows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..machine.names import without_common
from ..measures.registry import MEASURES
from ..runs.layout import measure_schema
from .causes import CAUSES, UNMEASURED
from .figure import Figure
from .measured_run import FIRST_STAGE_ORDER
from .render import to_text
from .table import DETECTABLE, Cell, Column, Note, Row, Table

if TYPE_CHECKING:
    import pyarrow as pa

    from .audit import Audit

AT_ONCE = 50_000
"""Per-query rows that are made and written at once."""
CHANCE = "chance"
"""The row of a random order."""
FLOOR = "  noise floor"
"""The row below a scorer of what the same order gives again."""
FIRST_LOOK = 5
"""Measures of a first look, beside the scorer's name."""
PAIRS = tuple(name for name, measure in MEASURES.items() if "pair" in measure.needs)
"""Measures of two candidates: a first look where every pool has two."""
YIELDING = ("chance_overlap", "tied_pairs", "retention")
"""What leaves a first look, one after the other, where a reader or a measure that was asked for needs the room."""
ASKED_FOR = 2
"""Measures of a first look, at most, that a library or a perturbation brought."""

CHANCE_TAU_PSI = 0.5
"""Two random rankings disagree on every other pair, and on the winner of every other pool of two."""
LONG_SCORER = 24
"""Characters of a scorer's name on a terminal: of longer ones, what they have in common and then their middle is left out."""
WIDEST, WIDE_NAME = 100, 9
"""Characters of a row on a terminal; where it is longer, names of measures above the other number are broken at underscores."""


def screen_measures(audits: Sequence[Audit]) -> list[str]:
    """At most five measures for a first look at the audits of a collection: those of the task, or of pairs, that were measured,
    and the first that were asked for beside them.
    """
    task, measured = audits[0].task, measured_by(audits)
    are_pairs = all(audit.measured.coverage.few_orders.get(2) == len(audit.queries) for audit in audits)
    usual = (task.quality, *PAIRS, "tied_pairs") if are_pairs else task.screen
    library = [name for name in measured if name not in MEASURES]
    perturbed = [name for name in MEASURES if name in measured and "perturbed" in MEASURES[name].needs]
    names = [*(name for name in usual if name in measured), *[*library, *perturbed][:ASKED_FOR]]
    given_up = [name for name in YIELDING if name in names][: max(0, len(names) - FIRST_LOOK)]
    return [name for name in names if name not in given_up][:FIRST_LOOK]


def first_decision(audits: Sequence[Audit], names: Collection[str]) -> str | None:
    """What the audits of a task are held to first, of some measures: a decision of the task, or of pairs."""
    return next((name for name in (*audits[0].task.decisions, *PAIRS) if name in names), None)


def measured_by(audits: Iterable[Audit]) -> list[str]:
    """Every measure that one of them has."""
    return list(dict.fromkeys(name for audit in audits for name in audit.figures))


def by_collection(audits: Iterable[Audit]) -> list[list[Audit]]:
    """The audits that share a table: of one task on one collection."""
    groups: dict[tuple[str, str], list[Audit]] = {}
    for audit in audits:
        groups.setdefault((audit.record.task, audit.collection), []).append(audit)
    return list(groups.values())


def first_look(audits: Iterable[Audit]) -> list[Table]:
    """A first look, one table per collection: the first-stage order and chance, then a row per scorer.

    Only quality and the first decision have their interval, so that a row fits a terminal.
    """
    return [_first_look(members) for members in by_collection(audits)]


def _first_look(audits: list[Audit]) -> Table:
    names = screen_measures(audits)
    with_interval = (audits[0].task.quality, first_decision(audits, names))
    columns = tuple(
        Column(name, better=MEASURES[name].better if name in MEASURES else "neither", has_intervals=name in with_interval)
        for name in names
    )
    rows = tuple(Row(label, tuple(Cell(figures.get(name)) for name in names)) for label, figures in _labelled(audits))
    return Table(columns, rows, audits[0].collection, key="scorer")


def fit_terminal(table: Table) -> Table:
    """The table with short names; where a row is still too long, with long headings on several lines."""
    short = zip(table.rows, _short_names([row.name for row in table.rows]), strict=True)
    fitted = replace(table, title=_short_names([table.title])[0], rows=tuple(replace(row, name=name) for row, name in short))
    if max(map(len, to_text([fitted]).splitlines())) <= WIDEST:
        return fitted
    return replace(fitted, columns=tuple(replace(column, label=_broken(column.heading)) for column in table.columns))


def every_measure(audits: Iterable[Audit]) -> list[Table]:
    """All that was measured, one table per collection: a row per measure with its intervals, a column per scorer."""
    return [_every_measure(members) for members in by_collection(audits)]


def _every_measure(audits: list[Audit]) -> Table:
    labels, figures = zip(*_labelled(audits), strict=True)
    of = [labels[place - label.startswith(FLOOR)] for place, label in enumerate(labels)]
    keys = [f"{name} noise floor" if label == FLOOR else label for name, label in zip(of, labels, strict=True)]
    rows = []
    for name in measured_by(audits):
        queries = max(audit.figures[name].queries for audit in audits if name in audit.figures)
        shown = [audit.figures[name].detectable for audit in audits if name in audit.figures]
        detectable = max((least for least in shown if least is not None), default=None)
        rows.append(Row(name, (*(Cell(row.get(name)) for row in figures), Cell(queries), Cell(detectable))))
    columns = (*map(Column, keys, labels), Column("queries"), Column("detectable"))
    return Table(columns, tuple(rows), audits[0].collection, key="measure", notes=(Note(DETECTABLE),))


def cause_tables(audits: Iterable[Audit]) -> list[Table]:
    """Why decisions flip, a table per collection where any does: a row per scorer, a column per cause."""
    return [table for members in by_collection(audits) if (table := _cause_table(members)).rows]


def _cause_table(audits: list[Audit]) -> Table:
    told = [(audit.name, audit.causes) for audit in audits if audit.causes and audit.causes.flipped]
    names = [cause for cause in CAUSES if any(causes.counts.get(cause) for _, causes in told)]
    rows = [Row(name, tuple(map(Cell, (causes.decided, causes.flipped, *map(causes.count, names))))) for name, causes in told]
    notes = [f"{name.capitalize()}: {CAUSES[name]}." for name in names] + [UNMEASURED] * any(
        causes.noise is None for _, causes in told
    )
    columns = tuple(map(Column, ("decisions", "flip", *names)))
    title = f"why decisions flip: {audits[0].collection}"
    return Table(columns, tuple(rows), title, "scorer", "scorer", tuple(map(Note, notes)))


def _labelled(audits: list[Audit]) -> list[tuple[str, dict[str, Figure]]]:
    """The rows of a collection, each under its name; below a scorer its noise floor, where that was measured."""
    rows = baselines(audits)
    for audit in audits:
        floors = {name: figure.floor for name, figure in audit.figures.items() if figure.floor is not None}
        rows.append((audit.name, {name: replace(figure, floor=None) for name, figure in audit.figures.items()}))
        rows += [(FLOOR, {name: Figure(value, None, None, 0) for name, value in floors.items()})] if floors else []
    return rows


def baselines(audits: Sequence[Audit]) -> list[tuple[str, dict[str, Figure]]]:
    """What the scorers of a collection are read against: the first-stage order, where it is known, and chance.

    Audits of other queries or another threshold have rows of their own.
    """
    first: list[tuple[str, dict[str, Figure]]] = []
    chance: list[tuple[str, dict[str, Figure]]] = []
    for audit in audits:
        if audit.first_stage is not None:
            first.append((FIRST_STAGE_ORDER, audit.first_stage.figures))
        if (level := audit.figures.get(f"chance@{audit.task.quality_cutoff}")) is not None:
            tau_psi = Figure(CHANCE_TAU_PSI, None, None, level.queries)
            quality = replace(level, low=None, high=None)
            chance.append((CHANCE, {audit.task.quality: quality, "tau_psi": tau_psi, "swap_flip": tau_psi}))
    return [row for rows in (first, chance) for place, row in enumerate(rows) if row not in rows[:place]]


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
    return name.replace("_", "_\n") if len(name) > WIDE_NAME else name


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
