"""The result of an audit as a value: one scorer on one collection, measured once, with its intervals.

The terminal, `--json`, the page, a gate, a comparison and a notebook all show an `Audit`; none of them measures anything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Any, overload

from ..collection import Source, open_collection
from ..errors import InputError, SteadyscoreError
from ..machine.extras import check_installed
from ..machine.names import no_such, short_repr
from ..machine.places import Place, parse_place
from ..measures.measurement import Measured
from ..measures.reading import Reading
from ..measures.threshold import Threshold
from ..readers.outputs import Outputs, ReaderResult
from ..runs.layout import RunRecord
from ..runs.table import Scored
from ..scoring.starts import start_remarks
from ..tasks import Task
from ..terms import Failure, Instance
from .figure import Figure
from .first_stage import FirstStage
from .remarks import FLATTERS, Note, most_important, notes
from .table import by_collection, every_measure, figures_table, measure_tables, measured_by, screen_measures

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from ..report.drawings import Drawing


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """What a reader was asked in this audit, and what it made of the run."""

    k: int
    """Candidates it was shown."""
    figures: dict[str, Figure]
    asked: int
    """Prompts that the model was shown; the others were known from before."""
    failed: list[Failure]
    spent: dict[str, Any] = field(default_factory=dict)
    """Requests, tokens and cost of an endpoint that charges."""
    same_evidence: dict[str, Any] | None = None
    """Against the first scorer: flips where both showed the reader the same candidates (§F.3)."""

    def to_json(self) -> dict[str, Any]:
        return {
            "k": self.k,
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "asked": self.asked,
            "failed": [failure.to_json() for failure in self.failed],
            **({"spent": self.spent} if self.spent else {}),
            **({"same_evidence": self.same_evidence} if self.same_evidence else {}),
        }


@dataclass(frozen=True)
class Audit:
    """One scorer on one collection: what was scored, what it means, and how sure that is."""

    name: str
    """The scorer's."""
    collection: str
    task: Task
    record: RunRecord
    """What the run says: fingerprint, versions, coverage of the scoring."""
    queries: Sequence[Scored]
    """As they are served: means of `serving_permutations` presentations each."""
    measured: Measured
    figures: dict[str, Figure]
    """Measure -> its mean and interval."""
    folder: Place | None = None
    """The run folder; None for an audit that was kept nowhere."""
    opened: Source | None = None
    """The collection, where it is open already."""
    threshold: Threshold = field(default_factory=Threshold)
    serving_permutations: int = 1
    reading: Reading = field(default_factory=Reading)
    """What was made of stored grades and of ties."""
    readers: dict[str, ReaderResult] = field(default_factory=dict)
    """What each reader made of the run, by its name in `outputs.parquet`."""
    reader: str | None = None
    """The one whose figures are among the measures."""
    reader_reports: dict[str, ReaderReport] = field(default_factory=dict)
    """Readers that this audit asked, by address."""
    failed: dict[str, list[Failure]] = field(default_factory=dict)
    """Queries that could not be scored for a noise floor or a perturbation, by flag."""
    curve: dict[int, dict[str, float]] | None = None
    """Every measure at each serving budget, where that was asked for."""
    first_stage: FirstStage | None = None
    """The order of the pools, measured alike; None where it is not a ranking or the run does not know it."""
    ties_reversed: dict[str, float] = field(default_factory=dict)
    """The task's measures where the larger id goes first of two with equal scores; empty where no two are equal."""

    def __getitem__(self, measure: str) -> Figure:
        if measure not in self.figures:
            raise no_such("measure", measure, self.figures)
        return self.figures[measure]

    def __repr__(self) -> str:
        shown = [f"{name} {self.figures[name].value:.3f}" for name in self.task.screen[:3] if name in self.figures]
        return short_repr(self, f"{self.name} on {self.collection}, {self.measured.coverage.queries} queries: {', '.join(shown)}")

    def to_json(self) -> dict[str, Any]:
        """As `--json` and `summary.json` have it."""
        return {
            "scorer": self.name,
            "data": self.collection,
            "run": None if self.folder is None else str(self.folder),
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "coverage": self.measured.coverage.to_json(),
            "cutoff": self.measured.cutoff.to_json(),
            "first_stage": None if self.first_stage is None else self.first_stage.to_json(),
            "warnings": self.warnings(),
            "remarks": self.remarks(),
            "slot_profile": self.measured.slot_profile,
            **({} if self.serving_permutations == 1 else {"serving_permutations": self.serving_permutations}),
            **({} if self.reading.is_plain else {"reading": asdict(self.reading)}),
            **({"failed": {k: [f.to_json() for f in failed] for k, failed in self.failed.items()}} if self.failed else {}),
            **({"readers": {k: r.to_json() for k, r in self.reader_reports.items()}} if self.reader_reports else {}),
            **({"curve": self.curve} if self.curve is not None else {}),
            "scoring": self.record.get("coverage", {}),
            "starts": {"remarks": start_remarks(self.record)},
        }

    def notes(self) -> list[Note]:
        """What must be known to read the figures, what matters most first."""
        return notes([self])

    def remarks(self, of: str | None = None) -> list[str]:
        """Every note behind the name of the collection, or behind `of`."""
        return list(map(str, notes([self], of)))

    def warnings(self) -> list[str]:
        """The notes without which a figure is read wrongly, or taken for better than it is."""
        return [note.text for note in self.notes() if note.weight <= FLATTERS]

    def outputs(self, reader: str) -> Outputs:
        """What a reader wrote, by query, in the order of the permutations."""
        if reader not in self.readers:
            raise InputError(f"{self.folder or self.name} holds no outputs of {reader}. Audit it with --reader first.")
        return self.readers[reader].outputs

    @cached_property
    def source(self) -> Source | None:
        """The collection; None where its file is gone or has changed since it was scored."""
        return self.opened or _stored_source(self.record)

    def instance(self, query_id: str) -> Instance | None:
        """The texts of a query; None where the collection is gone or has changed since it was scored."""
        if self.source is None:
            return None
        return next((instance for instance in self.source.instances() if instance.id == query_id), None)


class Audits(Sequence[Audit]):
    """The audits of one call: several scorers on several collections. Prints as a first look."""

    def __init__(self, audits: Iterable[Audit], page: Place | None = None):
        self._audits = list(audits)
        self.page = page
        """The report page, where one was written."""

    @overload
    def __getitem__(self, index: int) -> Audit: ...
    @overload
    def __getitem__(self, index: slice) -> Audits: ...
    def __getitem__(self, index: int | slice) -> Audit | Audits:
        chosen = self._audits[index]
        return Audits(chosen) if isinstance(chosen, list) else chosen

    def __len__(self) -> int:
        return len(self._audits)

    def to_json(self) -> dict[str, Any]:
        rows = [audit.to_json() for audit in self]
        single = {key: rows[0][key] for key in ("measures", "coverage", "cutoff")} if len(rows) == 1 else {}
        return {**single, "remarks": self.remarks(), "runs": rows}

    @property
    def table(self) -> str:
        """A first look at the figures, without what must be known to read them."""
        return figures_table(self).rstrip("\n")

    def remarks(self, of: str | None = None) -> list[str]:
        """What must be known to read the figures, each sentence once; `of` names scores that belong to no collection."""
        return list(map(str, notes(self, of)))

    def to_text(self, *, everything: bool = False, of: str | None = None, more: str = "to_text(everything=True)") -> str:
        """A first look: the table, the notes that matter most, and how much more there is; or every measure and every note.

        of          what scores are called that belong to no collection
        more        where the rest is, as the last line says it
        """
        told = notes(self, of)
        if everything:
            return "\n".join([self.table, "", every_measure(self), *map(str, told)]).rstrip("\n")
        brief, rest = most_important(told), self._beyond(told)
        return "\n".join([self.table, "", *map(str, brief), *([f"{rest}: {more}"] if rest else [])]).rstrip("\n")

    def _beyond(self, told: Sequence[Note]) -> str:
        """How many notes and measures a first look leaves out."""
        measures = {*measured_by(self)} - {name for members in by_collection(self) for name in screen_measures(members)}
        left = {"note": len(told) - len(most_important(told)), "measure": len(measures)}
        return ", ".join(f"{count} more {noun}{'s' * (count > 1)}" for noun, count in left.items() if count)

    def __str__(self) -> str:
        return self.to_text()

    def __repr__(self) -> str:
        return short_repr(self, f"({len(self)}): {'; '.join(f'{audit.name} on {audit.collection}' for audit in self)}")

    def _repr_html_(self) -> str:
        told = notes(self)
        brief = most_important(told)
        rest, first = (
            "".join(f"<p>{escape(str(note))}</p>" for note in told if (note in brief) is is_first) for is_first in (False, True)
        )
        folded = f"<details><summary>{self._beyond(told)}</summary>{rest}{every_measure(self, html=True)}</details>"
        return figures_table(self, html=True) + first + folded

    def to_arrow(self) -> pa.Table:
        """Per-query rows: variant, collection, query_id, measure, value."""
        import pyarrow as pa

        return pa.concat_tables(measure_tables(self))

    def to_pandas(self, *, queries: bool = False) -> pd.DataFrame:
        """One row per scorer, collection and measure; with `queries` one per query too."""
        check_installed("to_pandas()", "pandas")
        if queries:
            return self.to_arrow().to_pandas()
        import pandas as pd

        rows = [
            {"variant": audit.name, "collection": audit.collection, "measure": name, **figure.to_json()}
            for audit in self
            for name, figure in audit.figures.items()
        ]
        return pd.DataFrame(rows)

    def plot(self, kind: str = "decisions", collection: str | None = None) -> Drawing:
        """A figure of the report: `spread`, `slots`, `decisions`, `quality`, `budget` or `cutoffs`. A notebook shows it."""
        from ..report.drawings import plot

        return plot(self, kind, collection)

    def report(self, folder: str | Place) -> Place:
        """Write the page that `steadyscore report` writes; returns its path."""
        from ..report.page import write_report

        return write_report(self, parse_place(folder))


def _stored_source(record: RunRecord) -> Source | None:
    scored_from = (record.get("fingerprint", {}).get("data") or {}).get("sha256")
    if "source" not in record or scored_from is None:
        return None
    try:
        source = open_collection(record["source"], record.get("columns"), quiet=True)
        return source if source.digest == scored_from else None
    except (SteadyscoreError, OSError):
        return None
