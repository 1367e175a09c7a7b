"""The result of an audit as a value: one scorer on one collection, measured once, with its intervals.

The terminal, `--json`, the page, a gate, a comparison and a notebook all show an `Audit`; none of them measures anything again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ..machine.names import short_repr
from ..runs.records import to_json
from ..scoring.starts import start_remarks
from .causes import FLIPPING, Causes, Explainer, count_causes, make_explainer
from .measured_run import MeasuredRun
from .notes import FLATTERS, notes
from .table import Note


@dataclass(frozen=True, repr=False)
class Audit(MeasuredRun):
    """One scorer on one collection: what was scored, what it means, and how sure that is."""

    def __repr__(self) -> str:
        shown = [f"{name} {self.figures[name].value:.3f}" for name in self.task.screen[:3] if name in self.figures]
        return short_repr(self, f"{self.name} on {self.collection}, {self.measured.coverage.queries} queries: {', '.join(shown)}")

    def to_json(self) -> dict[str, object]:
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
            **({} if self.causes is None else {"causes": self.causes.to_json()}),
            **({} if (served := self.view.serving_permutations) == 1 else {"serving_permutations": served}),
            **({"reading": self.view.reading} if self.view.words() else {}),
            **({"failed": {k: [f.to_json() for f in failed] for k, failed in self.failed.items()}} if self.failed else {}),
            **({"readers": {k: r.to_json() for k, r in self.reader_reports.items()}} if self.reader_reports else {}),
            **({"curve": self.curve} if self.curve is not None else {}),
            "scoring": to_json(self.record.coverage or {}),
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

    @cached_property
    def explainer(self) -> Explainer | None:
        """What tells why decisions about candidates flip; None where none is made."""
        names = (*self.task.decisions, *FLIPPING)
        measure = next((name for name in names if name in FLIPPING and name in self.measured.values), None)
        shrunk = self.record.coverage.shrunk if self.record.coverage else None
        return None if measure is None else make_explainer(self.queries, measure, self.noise, shrunk or [])

    @cached_property
    def causes(self) -> Causes | None:
        """How many decisions about candidates flip between orders, and why."""
        return None if self.explainer is None else count_causes(self.explainer, self.queries, self.measured)
