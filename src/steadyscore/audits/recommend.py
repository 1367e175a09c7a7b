"""Which way of serving reaches a target, and at what price: from measured runs, not from advice (§D.4, §D.6).

A pilot's stored scores hold every budget K of batched self-consistency up to half of its permutations. Other runs, with
another model, adapter or mitigation, stand beside it with what they measured. Price is windows per query.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..errors import InputError, UsageError
from ..measures.measurement import Threshold
from ..measures.registry import MEASURES
from ..runs.folder import Run
from ..runs.table import Scored
from ..scoring.mitigations import count_windows
from ..tasks import TASKS
from .figure import Figure
from .load import load_run


@dataclass(frozen=True, slots=True)
class Target:
    """A measure and the value it must reach."""

    measure: str
    bound: float

    def is_reached(self, value: float) -> bool:
        return value >= self.bound if MEASURES[self.measure].better == "higher" else value <= self.bound

    def __str__(self) -> str:
        sign = "at least" if MEASURES[self.measure].better == "higher" else "at most"
        return f"{self.measure} {sign} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Option:
    """One way of serving."""

    scorer: str
    run: str
    serving_permutations: int
    windows: float
    """Windows per query, mean over the run's queries."""
    value: float | None
    low: float | None
    high: float | None
    quality: float | None
    """nDCG at the task's k."""
    is_reached: bool | None
    """None where the run has too few permutations to measure it."""
    is_certain: bool | None
    """The whole 95 % interval is on the right side."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_target(text: str) -> Target:
    """`overlap=0.8`: at least for a measure where higher is better, at most where lower is."""
    name, _, bound = text.partition("=")
    mistakes = []
    if name not in MEASURES or MEASURES[name].better == "neither":
        known = ", ".join(m.name for m in MEASURES.values() if m.value and m.better != "neither")
        mistakes.append(f"target {text!r} names no measure with a better side. Known: {known}.")
    try:
        value = float(bound)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        mistakes.append(f"target {text!r} has no value. Write it as measure=value, for example overlap=0.8.")
    if mistakes:
        raise UsageError("\n".join(mistakes))
    return Target(name, value)


def options(pilot: Run, others: Sequence[Run], target: Target, threshold: Threshold | None = None) -> list[Option]:
    """Every measured way of serving, cheapest first: the pilot at each budget K and the other runs as they are.

    Among equally cheap ones those that reach the target come first, the better quality before the others.
    """
    here = pilot.record["collection"]
    if strangers := [run for run in others if run.record["collection"] != here]:
        named = " and ".join(f"{run.folder} is a run on {run.record['collection']}" for run in strangers)
        raise InputError(f"{named}, the pilot {pilot.folder} one on {here}. Give runs on {here} only.")
    queries = pilot.scored()
    most = max(min(len(query.permuted) for query in queries) // 2, 1)  # a flip needs two disjoint ensembles
    found = [_option(pilot, queries, target, threshold, budget) for budget in range(1, most + 1)]
    found += [_option(run, run.scored(), target, threshold, 1) for run in others]
    if all(option.value is None for option in found):
        raise InputError(
            f"no run measures {target.measure}. It needs {', '.join(MEASURES[target.measure].needs)}; "
            f"{pilot.folder} has {', '.join(load_run(pilot, threshold, queries=queries).figures)}."
        )
    return sorted(found, key=lambda option: (option.windows, not option.is_reached, -(option.quality or 0)))


def cheapest(found: Sequence[Option]) -> Option | None:
    """The cheapest option that reaches the target; None where none does."""
    return next((option for option in found if option.is_reached), None)


def windows_per_query(run: Run, queries: Sequence[Scored], serving_permutations: int = 1) -> float:
    """What one request costs, from the width and the mitigations that the run was made with."""
    made = run.record["fingerprint"]
    pools = [len(query.candidate_ids) for query in queries]
    return serving_permutations * float(
        np.mean([count_windows(n, made.get("width"), made.get("mitigations", ())) for n in pools])
    )


def _option(run: Run, queries: Sequence[Scored], target: Target, threshold: Threshold | None, budget: int) -> Option:
    figures = load_run(run, threshold, budget, queries=queries).figures
    reached, quality = figures.get(target.measure), figures.get(TASKS[run.record["task"]].quality)
    # The unlucky end of the interval decides whether a target is reached beyond doubt.
    worst = None if reached is None else _unlucky(reached, target)
    return Option(
        scorer=run.record["name"],
        run=str(run.folder),
        serving_permutations=budget,
        windows=windows_per_query(run, queries, budget),
        value=None if reached is None else reached.value,
        low=None if reached is None else reached.low,
        high=None if reached is None else reached.high,
        quality=None if quality is None else quality.value,
        is_reached=None if reached is None else target.is_reached(reached.value),
        is_certain=None if worst is None else target.is_reached(worst),
    )


def _unlucky(figure: Figure, target: Target) -> float | None:
    return figure.low if MEASURES[target.measure].better == "higher" else figure.high
