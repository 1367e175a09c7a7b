"""What the page shows of one collection: sentences, table cells, an example, readers, figures, every measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..audits.figure import Figure, mean_figure
from ..audits.load import share_threshold
from ..audits.names import differences
from ..audits.remarks import FLATTERS, notes, unranked
from ..audits.result import Audit
from ..audits.table import baselines
from ..measures import ranking
from ..measures.registry import MEASURES, Measure
from ..readers.outputs import SameEvidence, compare_on_same_evidence, label_parts
from ..scoring.starts import start_remarks
from ..tasks import SETS
from . import sentences
from .drawings import Drawn, draw_figures
from .example import Example, make_example, most_affected
from .figures import Style
from .sentences import LABELS, OF_READERS, QUALITY_OF_DECISION


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    label: str
    better: str


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of the first table."""

    figure: Figure
    leads: bool
    """Better than every other audit by an interval that excludes zero."""


@dataclass(frozen=True, slots=True)
class ShownExample:
    """An example under one audit."""

    variant: str
    example: Example
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
class MeasureRow:
    measure: Measure
    figures: list[Figure | None]


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    task: str
    share: str | None
    """What changes under the least steady audit, in percent."""
    sentence: str
    verdicts: list[str]
    warnings: list[str]
    """What could not be scored, and where a figure flatters."""
    notes: list[str]
    columns: list[Column]
    baselines: dict[str, list[Cell | None]]
    """What the scorers are read against: the first-stage order and chance."""
    cells: dict[str, list[Cell | None]]
    examples: list[ShownExample]
    readers: ReaderTable | None
    figures: list[Drawn]
    measures: list[MeasureRow]
    absent: list[Measure]
    """Measures that no audit has."""
    names: list[str]

    def row(self, name: str) -> list[Cell | None]:
        """The cells of a scorer; empty ones where it was not audited on this collection."""
        return self.cells.get(name) or [None] * len(self.columns)

    def baseline(self, name: str) -> list[Cell | None]:
        """The cells of the first-stage order or of chance; empty ones where this collection has none."""
        return self.baselines.get(name) or [None] * len(self.columns)


def make_section(audits: list[Audit], styles: dict[str, Style]) -> Section:
    k = audits[0].task.quality_cutoff
    decision = sentences.decision_measure(audits)
    names = _column_names(audits, decision, k)
    compared = [audit for audit in audits if not (decision == "overlap" and sentences.has_idle_cutoff(audit))]
    # From the least to the most steady; without a decision measure in the order given.
    ranked = sorted(compared, key=lambda audit: -sentences.share_changed(audit, decision)) if decision else audits
    return Section(
        name=audits[0].collection,
        task=audits[0].task.label,
        share=sentences.percent(sentences.share_changed(ranked[0], decision)).replace("less than ", "< ") if decision else None,
        sentence=sentences.sentence(ranked[0], decision, k, named=len(audits) > 1),
        verdicts=[
            sentences.leader(among, name)
            for name, among in ((decision, compared), (f"ndcg@{k}", audits))
            if name and len(among) > 1 and sentences.is_comparable(name, among)
        ],
        warnings=[note.text for note in notes(audits) if note.weight <= FLATTERS],
        notes=_notes(audits, ranked[0], decision, names),
        columns=[_column(name) for name in names],
        baselines=_baselines(audits, names),
        cells={audit.name: [_cell(audit, name, audits) for name in names] for audit in audits},
        examples=_examples(ranked, decision, k),
        readers=_readers(audits),
        figures=draw_figures(audits, decision, styles),
        measures=_measures(audits),
        absent=[m for m in MEASURES.values() if all(m.name not in audit.figures for audit in audits)],
        names=[audit.name for audit in audits],
    )


def _column_names(audits: Sequence[Audit], decision: str | None, k: int) -> list[str]:
    has_overlap = all("overlap" in audit.measured.values for audit in audits)
    also = "overlap" if decision == "overlap@10" and has_overlap else None
    decided = (decision, also, QUALITY_OF_DECISION.get(also or decision or ""))
    beside = [name for name in SETS if any(name in audit.figures for audit in audits)]
    return list(dict.fromkeys(name for name in (f"ndcg@{k}", "tau_psi", *decided, *beside) if name))


def _baselines(audits: Sequence[Audit], columns: Sequence[str]) -> dict[str, list[Cell | None]]:
    """Rows of what the scorers are read against; of several of a kind the first audit's."""
    rows = reversed(baselines(audits))
    return {name: [Cell(figures[c], leads=False) if c in figures else None for c in columns] for name, figures in rows}


def _column(name: str) -> Column:
    return Column(name, LABELS[name], MEASURES[name].better)


def _notes(audits: Sequence[Audit], least_steady: Audit, decision: str | None, columns: Sequence[str]) -> list[str]:
    idle = [audit for audit in audits if "overlap" in columns and sentences.has_idle_cutoff(audit)]
    return [
        *sentences.notes(least_steady, decision, least_steady.task.quality_cutoff),
        *unranked(audits[0]),
        *([f"The reader is {least_steady.reader}."] if decision in OF_READERS and least_steady.reader else []),
        *(sentences.idle_note(audit, decision) for audit in idle),
        *([] if share_threshold(audits) else [sentences.DIFFERENT_THRESHOLDS]),
        *(f"{sentence[0].upper()}{sentence[1:]}" for sentence in differences(audits)),
        *(f"{audit.name}: {remark}" for audit in audits for remark in start_remarks(audit.record)),
    ]


def _cell(audit: Audit, name: str, audits: Sequence[Audit]) -> Cell | None:
    """A table cell. A cutoff that keeps nearly everything leads in no overlap: it decides nothing."""
    if (figure := audit.figures.get(name)) is None:
        return None
    if MEASURES[name].better == "neither":
        return Cell(figure, leads=False)
    rivals = [other for other in audits if other is not audit]
    is_idle = name in ("overlap", "overlap_nonempty") and sentences.has_idle_cutoff(audit)
    is_contest = not is_idle and sentences.is_comparable(name, audits)
    is_ahead = is_contest and all(sentences.merit(audit, name) > sentences.merit(rival, name) for rival in rivals)
    advantages = [sentences.advantage(audit, rival, name) for rival in rivals] if is_ahead else []
    return Cell(figure, bool(advantages) and all(each is not None and each.low > 0 for each in advantages))


def _examples(ranked: list[Audit], decision: str | None, k: int) -> list[ShownExample]:
    """A query under the least steady audit, and the same query under the steadiest."""
    if decision is None:
        return []
    measure = decision if decision in ("overlap", "overlap@10", "pair_flip") else "overlap"  # a reader decides on what is kept
    able = [audit for audit in ranked if measure in audit.measured.values]
    if not able:
        return []
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
    example = make_example(audit.queries[place], audit.instance(query_id), measure, audit.measured.cutoff.of(place), k)
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
    read, (address, shown, budget, decoding, _) = audit.readers[label], label_parts(label)
    kind = audit.task.reader
    assert kind is not None
    known = audit.figures if label == audit.reader else {name: mean_figure(values) for name, values in read.values.items()}
    unread, queries = len(read.unread), len(read.unread) + len(read.outputs)
    is_compared = audit is not first and label in first.readers and budget == 1
    return ReaderRow(
        variant=audit.name,
        reader=address + (", likeliest verdict" if decoding == "likeliest" else ""),
        shown=f"first {shown}" + (f", {budget} orders averaged" if budget > 1 else ""),
        figures=[known[name] if name in read.values else None for name in (*kind.quality, kind.flip)],
        unread=f"{unread} of {queries} queries not read" if unread else "",
        control=_same_evidence(label, audit, first, shown) if is_compared else None,
    )


def _same_evidence(label: str, audit: Audit, first: Audit, k: int) -> SameEvidence:
    sides = [(side.queries, side.readers[label].outputs) for side in (first, audit)]
    return compare_on_same_evidence(audit.task, sides[0], sides[1], k)


def _measures(audits: Sequence[Audit]) -> list[MeasureRow]:
    """Every measure that any audit has, with its meaning."""
    return [
        MeasureRow(measure, [audit.figures.get(measure.name) for audit in audits])
        for measure in MEASURES.values()
        if any(measure.name in audit.figures for audit in audits)
    ]
