"""The report: audits as one self-contained page and its Markdown twin. No model is needed.

The page states first what reordering does to decisions, then shows one query where it can be seen, a table per collection,
the figures, and how the runs were made. It holds no script and loads nothing, which its own content policy enforces.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

from ..errors import InputError
from ..machine.extras import PAGE, check_installed
from ..machine.places import Place
from ..measures.registry import MEASURES, Measure
from ..readers.outputs import SameEvidence, compare_on_same_evidence, label_parts
from ..results.audit import Audit, differences, in_words, with_distinct_names
from ..results.figure import Figure, mean_figure
from ..results.measured_run import FIRST_STAGE_ORDER
from ..results.notes import FLATTERS, fitting_words, notes
from ..results.screen import CHANCE, baselines, by_collection, cause_tables, screen_measures
from ..results.table import Cell, Column, Note, Row, Table
from ..scoring.starts import start_remarks, starts_of
from . import sentences
from .drawings import Drawing, draw_figures
from .example import ShownQuery, choose_examples
from .figures import Style, choose_styles
from .sentences import LABELS, OF_READERS
from .templating import write_page

GRAVE, MOST_OPEN = 1, 2
"""Cautions up to this weight are not folded, if they are as few as this."""
LISTED = 100
"""Queries or windows that one sentence names."""


def write_report(audits: Sequence[Audit], folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no run was given to report. Name at least one run folder.")
    check_installed("The report page", *PAGE)
    named = with_distinct_names(audits)
    styles = choose_styles(list(dict.fromkeys(audit.name for audit in named)))
    sections = [Section(members, styles) for members in by_collection(named)]
    runs = [(audit, describe_settings(audit), shlex.join(audit.record.command)) for audit in named]
    return write_page("report", folder, styles=styles, collections=sections, runs=runs)


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


class Section:
    """What the page shows of one collection: the templates read it, each part made once."""

    baselines = (FIRST_STAGE_ORDER, CHANCE)
    """The names of the rows that scorers are read against."""

    def __init__(self, audits: list[Audit], styles: dict[str, Style]):
        self._audits, self._styles = audits, styles
        self._decision = decision = sentences.decision_measure(audits)
        self.name, self.names = audits[0].collection, [audit.name for audit in audits]
        compared = [audit for audit in audits if not (decision == "overlap" and sentences.has_idle_cutoff(audit))]
        self._ranked = sorted(compared, key=lambda audit: sentences.share_changed(audit, decision)) if decision else audits
        """The steadiest first; without a decision measure in the order given."""

    @property
    def about(self) -> list[str]:
        """Task, size and date, in words."""
        first, audits = self._audits[0], self._audits
        dates = sorted({date.fromisoformat(audit.record.created[:10]) for audit in audits if audit.record.created})
        scored = " to ".join(f"{day.day} {day:%B %Y}" for day in dict.fromkeys((*dates[:1], *dates[-1:])))
        return [
            first.task.label,
            f"{first.measured.coverage.queries} queries",
            f"{_from_to(first.pool_sizes)} {first.task.noun} each",
            f"{first.measured.coverage.permutations[-1]} orders",
            *([f"scored {scored}"] if dates else []),
        ]

    @cached_property
    def verdict(self) -> str:
        return sentences.verdict(self._ranked, self._decision)

    @cached_property
    def changes(self) -> list[Change]:
        """Under the steadiest scorer, the next and the least steady."""
        if self._decision is None:
            return []
        places = ["steadiest", "next", *["least steady"] * (len(self._ranked) - 2)] if len(self._ranked) > 1 else [""]
        if not sentences.is_comparable(self._decision, self._ranked):
            places = [""] * len(self._ranked)
        shown = list(zip(self._ranked, places, strict=True))
        return [_change(audit, place, self._decision) for audit, place in (shown if len(shown) < 4 else [*shown[:2], shown[-1]])]

    @property
    def is_ranked(self) -> bool:
        """Whether there are several scorers whose decisions may be compared."""
        return any(change.place for change in self.changes)

    @property
    def meaning(self) -> str:
        """What the changing share is a share of."""
        return sentences.MEANINGS[self._decision] if self._decision else ""

    @cached_property
    def cautions(self) -> list[Note]:
        """What could not be scored, what is not compared, and where a figure misleads: what matters most first."""
        audits, about = self._audits, self.name
        told = [note for note in notes(audits) if note.weight <= FLATTERS]
        idle = [audit for audit in audits if self._decision and sentences.has_idle_cutoff(audit)]
        told += [Note(sentences.idle_note(audit), GRAVE, about) for audit in idle]
        told += [Note(f"{text[0].upper()}{text[1:]}", FLATTERS, about) for text in differences(audits)]
        told += [Note(f"{audit.name}: {text}", FLATTERS, about) for audit in audits for text in start_remarks(audit.record)]
        return sorted(told, key=lambda note: note.weight)

    @property
    def grave(self) -> list[Note]:
        """The cautions that are not folded."""
        return [note for note in self.cautions if note.weight <= GRAVE][:MOST_OPEN]

    @cached_property
    def folded(self) -> list[tuple[str, list[str]]]:
        """What is folded, under how many it is: further cautions, who is best in quality, how the figures were measured."""
        rest = [note.text for note in self.cautions if note not in self.grave]
        count = f"{len(rest)} {'more ' if self.grave else ''}caution{'s' if len(rest) > 1 else ''}"
        return [(summary, texts) for summary, texts in ((count, rest), ("How to read this", self._notes())) if texts]

    def _notes(self) -> list[str]:
        audits, quality, reader = self._audits, self._audits[0].task.quality, self._audits[0].reader
        has_leader = len(audits) > 1 and sentences.is_comparable(quality, audits)
        best = [sentences.leader(audits, quality)] if has_leader else []
        told: dict[str, list[str]] = {}
        for audit in audits:
            for note in audit.notes():
                if note.weight > FLATTERS:
                    told.setdefault(note.text, []).append(audit.name)
        measured = [text if len(of) == len(audits) else f"{', '.join(of)}: {text}" for text, of in told.items()]
        return [*best, *([f"The reader is {reader}."] if self._decision in OF_READERS and reader else []), *measured]

    @cached_property
    def columns(self) -> list[Column]:
        """A first look, with the decision that the verdict is about."""
        names, decision = screen_measures(self._audits), self._decision
        if decision is not None and decision not in names:
            names = [*names[:2], decision, *names[2:4]]
        return [_column(name) for name in names]

    @cached_property
    def rows(self) -> list[Row]:
        """What the scorers are read against, of several of a kind the first audit's; then the scorers."""
        before = dict(reversed(baselines(self._audits)))
        known = [Row(n, tuple(Cell(before[n].get(c.key)) for c in self.columns)) for n in self.baselines if n in before]
        return known + [Row(a.name, tuple(_cell(a, c.key, self._audits) for c in self.columns)) for a in self._audits]

    @property
    def has_floor(self) -> bool:
        return any(isinstance(cell.value, Figure) and cell.value.floor is not None for row in self.rows for cell in row.cells)

    @property
    def has_lead(self) -> bool:
        return any(cell.leads for row in self.rows for cell in row.cells)

    @cached_property
    def examples(self) -> list[ShownQuery]:
        return choose_examples(self._ranked, self._decision)

    @cached_property
    def causes(self) -> list[Table]:
        """Why decisions flip, where any does."""
        return cause_tables(self._audits)

    @cached_property
    def readers(self) -> ReaderTable | None:
        """Against the first audit, with the same-evidence control."""
        audits = self._audits
        labels = dict.fromkeys(label for audit in audits for label in audit.readers)
        rows = [_reader_row(label, audit, audits[0]) for label in labels for audit in audits if label in audit.readers]
        kind = audits[0].task.reader
        if not rows or kind is None:  # only a task with something to read for has readers
            return None
        against = audits[0].name if any(row.control for row in rows) else None
        return ReaderTable([_column(name) for name in (*kind.quality, kind.flip)], rows, kind.writes, against)

    @cached_property
    def figures(self) -> list[Drawing]:
        return draw_figures(self._audits, self._decision, self._styles)

    @property
    def measures(self) -> list[tuple[Measure, list[Figure | None]]]:
        """Every measure that was measured, with the figures of all audits."""
        every = [(measure, [audit.figures.get(name) for audit in self._audits]) for name, measure in MEASURES.items()]
        return [(measure, figures) for measure, figures in every if any(figures)]

    @property
    def absent(self) -> list[Measure]:
        """Measures that no audit has."""
        return [measure for name, measure in MEASURES.items() if all(name not in audit.figures for audit in self._audits)]


def _change(audit: Audit, place: str, decision: str) -> Change:
    share, interval = sentences.share_changed(audit, decision), sentences.share_interval(audit, decision)
    return Change(
        name=audit.name,
        place=place,
        share=sentences.percent(share).replace("less than ", "< "),
        interval=sentences.percents(*interval) if interval else "",
        movement=sentences.movement(audit, decision),
    )


def _column(name: str) -> Column:
    return Column(name, LABELS.get(name, name.replace("_", " ")), MEASURES[name].better if name in MEASURES else "neither")


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


def _reader_row(label: str, audit: Audit, first: Audit) -> ReaderRow:
    read, name = audit.readers[label], label_parts(label)
    kind = audit.task.reader
    assert kind is not None
    known = audit.figures if label == audit.reader else {name: mean_figure(values) for name, values in read.values.items()}
    unread, queries = len(read.unread), len(read.unread) + len(read.outputs)
    is_compared = audit is not first and label in first.readers and name.serving_permutations == 1
    sides = [(side.queries, side.readers[label].outputs) for side in (first, audit)] if is_compared else []
    return ReaderRow(
        variant=audit.name,
        reader=name.address + (", likeliest verdict" if name.is_likeliest else ""),
        shown=f"first {name.k}" + (f", {name.serving_permutations} orders averaged" if name.serving_permutations > 1 else ""),
        figures=[known[name] if name in read.values else None for name in (*kind.quality, kind.flip)],
        unread=f"{unread} of {queries} queries not read" if unread else "",
        control=compare_on_same_evidence(audit.task, sides[0], sides[1], name.k) if sides else None,
    )


# -- how the runs were made


def describe_settings(audit: Audit) -> list[tuple[str, str]]:
    """The settings of a run and what its means are without, as (term, text)."""
    record, made = audit.record, audit.record.fingerprint
    cutoff, scoring = audit.measured.cutoff, record.coverage
    used = cutoff.how if cutoff.value is None else f"{cutoff.value:.4g}, {cutoff.how}"
    if cutoff.fitted_on is not None:
        used += f"; {fitting_words(cutoff)} (split seed {cutoff.seed})"
    parts = ((made.queries, "queries"), (made.pool, "candidates of each pool"))
    cut = [f"only the first {count} {what}" for count, what in parts if count]
    cut += [f"{len(made.query_ids)} queries by id"] if made.query_ids else []
    starts = starts_of(record)
    terms = {
        "scorer": in_words(made.keys.get("scorer", record.name)),
        "capabilities": in_words(record.capabilities and record.capabilities.to_json()),
        "collection": f"{record.collection} ({audit.task.label}), from {record.source or 'a score file'}",
        "data checksum": made.data and made.data.sha256,
        "part scored": "; ".join(cut) or "the whole collection",
        "queries": f"{audit.measured.coverage.queries} scored",
        "candidates": f"{_from_to(audit.pool_sizes)} per query",
        "permutations": ", ".join(map(str, audit.measured.coverage.permutations))
        + (" per query, beside the first-stage order" if audit.queries[0].first_stage is not None else " per query"),
        "served as": f"the mean of {served} permutations" if (served := audit.view.serving_permutations) > 1 else None,
        "permutation seed": None if made.seed is None else f"{made.seed} ({made.scheme})",
        "width": "the whole pool" if "width" in made.keys and made.width is None else made.width,
        "characters kept": "all" if "chars" in made.keys and made.chars is None else made.chars,
        "partition": made.partition,
        "markers": made.markers,
        "placeholder": made.placeholder,
        "instruction": made.instruction,
        "prompt hash": made.prompt_hash,
        "cutoff": used,
        "scoring": f"{scoring.windows:,} windows in {scoring.seconds:,} s" if scoring and scoring.seconds is not None else None,
        "versions": in_words(record.versions),
        "endpoint": " then ".join(dict.fromkeys(start.endpoint for start in starts if start.endpoint)),
        "watched files": "; ".join(dict.fromkeys(f"{f} {d}" for start in starts for f, d in start.files.items())),
        "scored": " ".join(start_remarks(record)),
        "created": record.created,
    }
    left_out = describe_left_out(audit) or ["nothing left out: every query was scored and has a relevant candidate"]
    return [
        *((term, str(text)) for term, text in terms.items() if text not in (None, "")),
        *(("coverage", text) for text in left_out),
    ]


def _from_to(sizes: Sequence[int]) -> str:
    return f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"


def describe_left_out(audit: Audit) -> list[str]:
    """Everything that is in no mean, counts as 0 or was cut, by name; of many the first ones."""
    scoring, measured = audit.record.coverage, audit.measured.coverage
    asked = measured.queries if scoring is None else scoring.queries
    by_reason = {
        f"of {asked} queries could not be scored and are in no mean": [
            f"{query} ({why})" for query, why in measured.failed.items()
        ],
        f"of {asked} queries have no judgement and are in no quality mean": measured.unjudged,
        f"of {asked} queries have no relevant candidate in the pool; their quality counts as 0": measured.without_relevant,
        f"of {asked} queries have one candidate and are in no measure of movement": measured.left_out.get("moves", []),
        "windows were cut to fit the model": [
            f"{cut.query_id}, window {cut.window}, {cut.chars} characters kept" for cut in (scoring and scoring.shrunk) or []
        ],
    }
    return [f"{len(names)} {what}: {_listed(names)}." for what, names in by_reason.items() if names]


def _listed(names: Sequence[str]) -> str:
    more = f"; and {len(names) - LISTED:,} more, which status.json and summary.json name" if len(names) > LISTED else ""
    return "; ".join(names[:LISTED]) + more
