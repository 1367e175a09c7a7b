"""What the page shows of one collection: the verdict, cautions, an example, the table, readers, figures, every measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from ..measures import ranking
from ..measures.registry import MEASURES, Measure
from ..readers.outputs import SameEvidence, compare_on_same_evidence, label_parts
from ..results.audit import Audit
from ..results.figure import Figure, mean_figure
from ..results.first_stage import NAME as FIRST_STAGE
from ..results.names import differences
from ..results.notes import FLATTERS, notes
from ..results.screen import CHANCE, baselines, cause_tables, screen_measures
from ..results.table import Cell, Column, Note, Row, Table
from ..scoring.starts import start_remarks
from . import sentences
from .drawings import Drawn, draw_figures
from .example import ShownQuery, make_example, most_affected
from .figures import Style
from .sentences import LABELS, OF_READERS
from .settings import pool_sizes

GRAVE, MOST_OPEN = 1, 2
"""Cautions up to this weight are not folded, if they are as few as this."""


@dataclass(frozen=True, slots=True)
class Change:
    """How much another order changes under one scorer, in words."""

    name: str
    place: str
    """Its place among the scorers, where there are several."""
    share: str
    interval: str
    movement: str
    """How far quality moves meanwhile."""


@dataclass(frozen=True, slots=True)
class ShownExample:
    """An example under one audit."""

    variant: str
    example: ShownQuery
    measure: str
    mean: float
    """The measure over all pairs of orders of this query."""
    k: int
    answers: tuple[str, str] | None
    """What the reader made of both orders, where its decision is the one shown."""


@dataclass(frozen=True, slots=True)
class ReaderRow:
    variant: str
    reader: str
    shown: str
    figures: list[Figure | None]
    unread: str
    control: SameEvidence | None


@dataclass(frozen=True, slots=True)
class ReaderTable:
    """Every reader under every audit that it read."""

    columns: list[Column]
    rows: list[ReaderRow]
    writes: str
    against: str | None
    """The first audit, where others are compared with it."""


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    about: list[str]
    """Task, size and date, in words."""
    verdict: str
    changes: list[Change]
    """Under the steadiest scorer, the next and the least steady."""
    meaning: str
    """What the changing share is a share of."""
    cautions: list[Note]
    """What could not be scored, and where a figure flatters: the gravest first."""
    notes: list[str]
    """Who is best in quality, and how the figures were measured."""
    columns: list[Column]
    rows: list[Row]
    examples: list[ShownExample]
    causes: list[Table]
    """Why decisions flip, where any does."""
    readers: ReaderTable | None
    figures: list[Drawn]
    measures: list[tuple[Measure, list[Figure | None]]]
    """Every measure that was measured, with the figures of all audits."""
    absent: list[Measure]
    """Measures that no audit has."""
    names: list[str]
    baselines: tuple[str, ...] = (FIRST_STAGE, CHANCE)
    """The names of the rows that scorers are read against."""

    @property
    def is_ranked(self) -> bool:
        """Whether there are several scorers whose decisions may be compared."""
        return any(change.place for change in self.changes)

    @property
    def grave(self) -> list[Note]:
        """The cautions that are not folded."""
        return [note for note in self.cautions if note.weight <= GRAVE][:MOST_OPEN]

    @property
    def folded(self) -> list[tuple[str, list[str]]]:
        """What is folded, under how many it is."""
        rest = [note.text for note in self.cautions if note not in self.grave]
        count = f"{len(rest)} {'more ' if self.grave else ''}caution{'s' if len(rest) > 1 else ''}"
        return [(summary, texts) for summary, texts in ((count, rest), ("How to read this", self.notes)) if texts]

    @property
    def has_floor(self) -> bool:
        return any(isinstance(cell.value, Figure) and cell.value.floor is not None for row in self.rows for cell in row.cells)

    @property
    def has_lead(self) -> bool:
        return any(cell.leads for row in self.rows for cell in row.cells)


def make_section(audits: list[Audit], styles: dict[str, Style]) -> Section:
    k = audits[0].task.quality_cutoff
    decision = sentences.decision_measure(audits)
    names = _column_names(audits, decision)
    compared = [audit for audit in audits if not (decision == "overlap" and sentences.has_idle_cutoff(audit))]
    # The steadiest first; without a decision measure in the order given.
    ranked = sorted(compared, key=lambda audit: sentences.share_changed(audit, decision)) if decision else audits
    return Section(
        name=audits[0].collection,
        about=_about(audits),
        verdict=sentences.verdict(ranked, decision, k),
        changes=_changes(ranked, decision, k) if decision else [],
        meaning=sentences.MEANINGS[decision] if decision else "",
        cautions=_cautions(audits, decision),
        notes=_notes(audits, decision),
        columns=[_column(name) for name in names],
        rows=[*_baselines(audits, names), *(_row(audit, names, audits) for audit in audits)],
        examples=_examples(ranked, decision, k),
        causes=cause_tables(audits),
        readers=_readers(audits),
        figures=draw_figures(audits, decision, styles),
        measures=_measures(audits),
        absent=[m for m in MEASURES.values() if all(m.name not in audit.figures for audit in audits)],
        names=[audit.name for audit in audits],
    )


def _about(audits: Sequence[Audit]) -> list[str]:
    first = audits[0]
    dates = sorted({date.fromisoformat(audit.record.created[:10]) for audit in audits if audit.record.created})
    scored = " to ".join(f"{day.day} {day:%B %Y}" for day in dict.fromkeys((*dates[:1], *dates[-1:])))
    return [
        first.task.label,
        f"{first.measured.coverage.queries} queries",
        f"{pool_sizes(first)} {first.task.noun} each",
        f"{first.measured.coverage.permutations[-1]} orders",
        *([f"scored {scored}"] if dates else []),
    ]


def _changes(ranked: Sequence[Audit], decision: str, k: int) -> list[Change]:
    places = ["steadiest", "next", *["least steady"] * (len(ranked) - 2)] if len(ranked) > 1 else [""]
    if not sentences.is_comparable(decision, ranked):
        places = [""] * len(ranked)
    shown = list(zip(ranked, places, strict=True))
    return [_change(audit, place, decision, k) for audit, place in (shown if len(shown) < 4 else [*shown[:2], shown[-1]])]


def _change(audit: Audit, place: str, decision: str, k: int) -> Change:
    share, interval = sentences.share_changed(audit, decision), sentences.share_interval(audit, decision)
    return Change(
        name=audit.name,
        place=place,
        share=sentences.percent(share).replace("less than ", "< "),
        interval=sentences.percents(*interval) if interval else "",
        movement=sentences.movement(audit, decision, k),
    )


def _column_names(audits: list[Audit], decision: str | None) -> list[str]:
    """A first look, with the decision that the verdict is about."""
    names = screen_measures(audits)
    return names if decision is None or decision in names else [*names[:2], decision, *names[2:4]]


def _baselines(audits: Sequence[Audit], columns: Sequence[str]) -> list[Row]:
    """What the scorers are read against; of several of a kind the first audit's."""
    rows = dict(reversed(baselines(audits)))
    return [Row(name, tuple(Cell(rows[name].get(c)) for c in columns)) for name in (FIRST_STAGE, CHANCE) if name in rows]


def _column(name: str) -> Column:
    return Column(name, LABELS.get(name, name.replace("_", " ")), MEASURES[name].better if name in MEASURES else "neither")


def _cautions(audits: Sequence[Audit], decision: str | None) -> list[Note]:
    """What could not be scored, what is not compared, and where a figure misleads: what matters most first."""
    about, idle = audits[0].collection, [audit for audit in audits if sentences.has_idle_cutoff(audit)]
    told = [note for note in notes(audits) if note.weight <= FLATTERS]
    told += [Note(sentences.idle_note(audit), GRAVE, about) for audit in idle if decision]
    told += [Note(f"{text[0].upper()}{text[1:]}", FLATTERS, about) for text in differences(audits)]
    told += [Note(f"{audit.name}: {text}", FLATTERS, about) for audit in audits for text in start_remarks(audit.record)]
    return sorted(told, key=lambda note: note.weight)


def _notes(audits: Sequence[Audit], decision: str | None) -> list[str]:
    """The best in quality, and how it was all measured."""
    quality, reader = audits[0].task.quality, audits[0].reader
    has_leader = len(audits) > 1 and sentences.is_comparable(quality, audits)
    best = [sentences.leader(audits, quality)] if has_leader else []
    told: dict[str, list[str]] = {}
    for audit in audits:
        for note in audit.notes():
            if note.weight > FLATTERS:
                told.setdefault(note.text, []).append(audit.name)
    measured = [text if len(of) == len(audits) else f"{', '.join(of)}: {text}" for text, of in told.items()]
    return [*best, *([f"The reader is {reader}."] if decision in OF_READERS and reader else []), *measured]


def _row(audit: Audit, names: Sequence[str], audits: Sequence[Audit]) -> Row:
    return Row(audit.name, tuple(_cell(audit, name, audits) for name in names))


def _cell(audit: Audit, name: str, audits: Sequence[Audit]) -> Cell:
    """A table cell. A cutoff that keeps nearly everything leads in no overlap: it decides nothing."""
    figure = audit.figures.get(name)
    if figure is None or name not in MEASURES or MEASURES[name].better == "neither":
        return Cell(figure)
    rivals = [other for other in audits if other is not audit]
    is_idle = name in ("overlap", "overlap_nonempty") and sentences.has_idle_cutoff(audit)
    is_contest = not is_idle and sentences.is_comparable(name, audits)
    is_ahead = is_contest and all(sentences.merit(audit, name) > sentences.merit(rival, name) for rival in rivals)
    advantages = [sentences.advantage(audit, rival, name) for rival in rivals] if is_ahead else []
    return Cell(figure, leads=bool(advantages) and all(each is not None and each.low > 0 for each in advantages))


def _examples(ranked: list[Audit], decision: str | None, k: int) -> list[ShownExample]:
    """A query under the least steady audit, of equals the one given first, and the same query under the steadiest."""
    if decision is None:
        return []
    measure = decision if decision in ("overlap", "overlap@10", "pair_flip") else "overlap"  # a reader decides on what is kept
    able = [audit for audit in ranked if measure in audit.measured.values]
    if not able:
        return []
    able.sort(key=lambda audit: -sentences.share_changed(audit, decision))
    worst = able[0]
    index = most_affected(worst.queries, _steadiness(worst, measure), measure, worst.measured.cutoff)
    if index is None:
        return []
    query_id = worst.queries[index].query_id
    shown = (_example(audit, query_id, measure, decision, k) for audit in [worst, able[-1]][: len(able)])
    return [example for example in shown if example is not None]


def _steadiness(audit: Audit, measure: str) -> np.ndarray:
    """(Q,) how steady the decisions of each query are; NaN where nothing is relevant, as nDCG is 0 whatever happens."""
    steadiness = audit.measured.values[measure] * (1 if MEASURES[measure].better == "higher" else -1)
    has_relevant = np.array([q.relevance is not None and ranking.is_relevant(q.relevance).any() for q in audit.queries])
    if (has_relevant & ~np.isnan(steadiness)).any():
        return np.where(has_relevant, steadiness, np.nan)
    return steadiness


def _example(audit: Audit, query_id: str, measure: str, decision: str, k: int) -> ShownExample | None:
    place = next((i for i, query in enumerate(audit.queries) if query.query_id == query_id), None)
    if place is None or np.isnan(mean := audit.measured.values[measure][place]):
        return None
    assert audit.explainer is not None  # there is a measure of decisions
    explainer, cutoff = replace(audit.explainer, measure=measure), audit.measured.cutoff.of(place)
    example = make_example(audit.queries[place], audit.instance(query_id), explainer, cutoff, k)
    answers = _answers(audit, decision, query_id, example.permutations)
    return ShownExample(audit.name, example, LABELS[measure], float(mean), k, answers)


def _answers(audit: Audit, decision: str, query_id: str, permutations: tuple[int, int]) -> tuple[str, str] | None:
    if decision not in OF_READERS or audit.reader is None:
        return None
    outputs = audit.outputs(audit.reader)
    first, second = permutations
    return (outputs[query_id][first], outputs[query_id][second]) if query_id in outputs else None


def _readers(audits: list[Audit]) -> ReaderTable | None:
    """Against the first audit, with the same-evidence control."""
    labels = dict.fromkeys(label for audit in audits for label in audit.readers)
    rows = [_reader_row(label, audit, audits[0]) for label in labels for audit in audits if label in audit.readers]
    if not rows:
        return None
    kind = audits[0].task.reader
    assert kind is not None  # only a task with something to read for has readers
    against = audits[0].name if any(row.control for row in rows) else None
    return ReaderTable([_column(name) for name in (*kind.quality, kind.flip)], rows, kind.writes, against)


def _reader_row(label: str, audit: Audit, first: Audit) -> ReaderRow:
    read, (address, shown, budget, _) = audit.readers[label], label_parts(label)
    kind = audit.task.reader
    assert kind is not None
    known = audit.figures if label == audit.reader else {name: mean_figure(values) for name, values in read.values.items()}
    unread, queries = len(read.unread), len(read.unread) + len(read.outputs)
    is_compared = audit is not first and label in first.readers and budget == 1
    return ReaderRow(
        variant=audit.name,
        reader=address,
        shown=f"first {shown}" + (f", {budget} orders averaged" if budget > 1 else ""),
        figures=[known[name] if name in read.values else None for name in (*kind.quality, kind.flip)],
        unread=f"{unread} of {queries} queries not read" if unread else "",
        control=_same_evidence(label, audit, first, shown) if is_compared else None,
    )


def _same_evidence(label: str, audit: Audit, first: Audit, k: int) -> SameEvidence:
    sides = [(side.queries, side.readers[label].outputs) for side in (first, audit)]
    return compare_on_same_evidence(audit.task, sides[0], sides[1], k)


def _measures(audits: Sequence[Audit]) -> list[tuple[Measure, list[Figure | None]]]:
    """Every measure that any audit has, with its meaning."""
    return [
        (measure, [audit.figures.get(measure.name) for audit in audits])
        for measure in MEASURES.values()
        if any(measure.name in audit.figures for audit in audits)
    ]
