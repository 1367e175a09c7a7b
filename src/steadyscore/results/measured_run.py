"""A run with its measures: one scorer on one collection beside its input, before anything is said about it in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ..collection import Source, open_collection
from ..errors import InputError, SteadyscoreError
from ..machine.names import no_such
from ..machine.places import Place
from ..measures.intervals import Interval
from ..measures.measurement import EachChanged, Measured, measure, qualities, rank_by_pool
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..measures.views import ScoreView
from ..readers.outputs import Outputs, ReaderResult
from ..runs.records import RunRecord
from ..runs.table import Scored
from ..tasks import TASKS, Task
from ..terms import Array, Failure, Instance, JsonObject
from .figure import Figure, mean_figure, paired_gain

FIRST_STAGE_ORDER = "first-stage order"
"""The row of a scorer's input."""


@dataclass(frozen=True, slots=True)
class ReaderReport:
    """What a reader was asked in this audit, and what it made of the run."""

    k: int
    """Candidates it was shown."""
    figures: dict[str, Figure]
    asked: int
    """Prompts that the model was shown; the others were known from before."""
    failed: list[Failure]
    spent: JsonObject = field(default_factory=dict)
    """Requests, tokens and cost of an endpoint that charges."""
    same_evidence: JsonObject | None = None
    """Against the first scorer: flips where both showed the reader the same candidates (§F.3)."""

    def to_json(self) -> dict[str, object]:
        return {
            "k": self.k,
            "measures": {name: figure.to_json() for name, figure in self.figures.items()},
            "asked": self.asked,
            "failed": [failure.to_json() for failure in self.failed],
            **({"spent": self.spent} if self.spent else {}),
            **({"same_evidence": self.same_evidence} if self.same_evidence else {}),
        }


@dataclass(frozen=True, slots=True)
class FirstStage:
    """The first rows of a table: the input order and chance, measured as the scorer is."""

    ranked_by: str
    """As the collection names it."""
    figures: dict[str, Figure]
    """Of the task's columns."""
    gain: Interval | None
    """The scorer's quality minus the first stage's, paired by query; None where too few are judged to tell."""

    def to_json(self) -> dict[str, object]:
        gain = None if self.gain is None else {"value": self.gain.value, "low": self.gain.low, "high": self.gain.high}
        figures = {name: figure.to_json() for name, figure in self.figures.items()}
        return {"ranked_by": self.ranked_by, "measures": figures, "quality_gain": gain}


@dataclass(frozen=True)
class MeasuredRun:
    """One scorer on one collection: what was scored, and every measure of it."""

    name: str
    """The scorer's."""
    collection: str
    task: Task
    record: RunRecord
    """What the run says: fingerprint, versions, coverage of the scoring."""
    queries: Sequence[Scored]
    """As the view sees them: each row the mean of the presentations that are served together."""
    measured: Measured
    figures: dict[str, Figure]
    """Measure -> its mean and interval."""
    folder: Place | None = None
    """The run folder; None for an audit that was kept nowhere."""
    opened: Source | None = None
    """The collection, where it is open already."""
    threshold: Threshold = field(default_factory=Threshold)
    view: ScoreView = field(default_factory=ScoreView)
    """How stored scores were seen."""
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
    noise: float | None = None
    """Standard deviation of a score when one order is scored again and again; None where that was not measured."""
    ties_reversed: dict[str, float] = field(default_factory=dict)
    """The task's measures where the larger id goes first of two with equal scores; empty where no two are equal."""

    @property
    def query_ids(self) -> tuple[str, ...]:
        return self.measured.query_ids

    @property
    def values(self) -> dict[str, Array]:
        """Measure -> (Q,), NaN where undefined."""
        return self.measured.values

    def __getitem__(self, name: str) -> Figure:
        if name not in self.figures:
            raise no_such("measure", name, self.figures)
        return self.figures[name]

    def outputs(self, reader: str) -> Outputs:
        """What a reader wrote, by query, in the order of the permutations."""
        if reader not in self.readers:
            raise InputError(f"{self.folder or self.name} holds no outputs of {reader}. Audit it with --reader first.")
        return self.readers[reader].outputs

    @cached_property
    def qualities(self) -> list[Array]:
        """Of every query (M,) nDCG at the task's k by permutation, NaN where it has no judgements."""
        return qualities(self.queries, self.task.quality_cutoff)

    @cached_property
    def pool_sizes(self) -> list[int]:
        """Every number of candidates that a query has, ascending."""
        return sorted({len(query.candidate_ids) for query in self.queries})

    @cached_property
    def source(self) -> Source | None:
        """The collection; None where its file is gone or has changed since it was scored."""
        return self.opened or _stored_source(self.record)

    def instance(self, query_id: str) -> Instance | None:
        """The texts of a query; None where the collection is gone or has changed since it was scored."""
        if self.source is None:
            return None
        return next((instance for instance in self.source.instances() if instance.id == query_id), None)


def _stored_source(record: RunRecord) -> Source | None:
    data = record.fingerprint.data
    if record.source is None or data is None:
        return None
    try:
        source = open_collection(record.source, record.columns, quiet=True)
        return source if source.digest == data.sha256 else None
    except (SteadyscoreError, OSError):
        return None


def ranker_of(record: RunRecord) -> str | None:
    """What ranked the pools of a run, or None; a run of an earlier version is taken as its task says."""
    if record.first_stage != "":
        return record.first_stage
    return "the order of the collection" if TASKS[record.task].has_ranked_pools else None


def measure_first_stage(
    queries: Iterable[Scored], record: RunRecord, by: Threshold, task: Task, scorer: Measured
) -> FirstStage | None:
    """The order of the pools under the scorer's threshold; None where it is not a ranking, or where the run does not know it.

    A fixed cutoff is on the scorer's scale, so a ranking decides nothing with it.
    """
    ranked_by = ranker_of(record)
    ranked = EachChanged(queries, rank_by_pool)
    if ranked_by is None or next(iter(ranked), None) is None:
        return None
    is_fixed = by.cutoff not in (None, "f1")
    measured = measure(ranked, by, {*task.compared, task.quality})
    names = [name for name in task.compared if not is_fixed or "cutoff" not in MEASURES[name].needs]
    figures = {name: mean_figure(measured.values[name]) for name in names if name in measured.values}
    gain = paired_gain(task.quality, scorer, measured)
    return FirstStage(ranked_by, figures, gain)
