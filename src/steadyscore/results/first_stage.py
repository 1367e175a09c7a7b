"""The first-stage order as a row of its own: the quality and the decisions of a scorer's input, from its run, without scoring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..measures.intervals import Interval
from ..measures.measurement import EachChanged, Measured, measure, rank_by_pool
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..runs.records import RunRecord
from ..runs.table import Scored
from ..tasks import TASKS, Task
from .figure import Figure, mean_figure, paired_gain

NAME = "first-stage order"


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
