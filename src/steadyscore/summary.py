"""A run's figures: measures with intervals and noise floors, serving budgets, per-query rows. Reads tables, needs no model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .intervals import mean_interval
from .measurement import Measured, Threshold, at_budget, measure
from .measures import FLOORED, MEASURES
from .readings import readings_of
from .runs import Run
from .scores import Scored

if TYPE_CHECKING:
    import pyarrow as pa


def summary(measured: Measured, floor: Measured | None = None) -> dict[str, Any]:
    """One run's figures as `--json` prints them: {"measures": {name: {value, low, high, queries}}, "coverage", "cutoff"}.

    An instability is read against its noise floor: above it only where its whole interval is.
    """
    figures: dict[str, dict[str, Any]] = {}
    for name, values in measured.values.items():
        figures[name] = figure([values])
        if floor is not None and name in FLOORED and name in floor.values:
            at = float(np.nanmean(floor.values[name]))
            low, high = (
                figures[name][end] if figures[name][end] is not None else figures[name]["value"] for end in ("low", "high")
            )
            figures[name] |= {"floor": at, "above_floor": bool(high < at if MEASURES[name].better == "higher" else low > at)}
    for name, value in measured.overall.items():
        figures[name] = {"value": value, "low": None, "high": None, "queries": len(measured.query_ids)}
    return {
        "measures": figures,
        "coverage": measured.coverage,
        "cutoff": measured.cutoff,
        "slot_profile": measured.slot_profile,
    }


def figure(values: list[np.ndarray]) -> dict[str, Any]:
    """A mean with its interval, as JSON has it; one query has no spread to resample, so no interval."""
    value, low, high, queries, *_ = mean_interval(values, scheme="queries")
    return {"value": value, "low": low if queries > 1 else None, "high": high if queries > 1 else None, "queries": queries}


def audited(
    run: Run, threshold: Threshold | None = None, serving_permutations: int = 1, readers: Sequence[str] | None = None
) -> tuple[Measured, dict[str, Any]]:
    """The measures of a complete run and their summary, with the noise floor where the run measured one."""
    measured = measured_run(run, threshold, serving_permutations, readers)
    noise = run.noise() if serving_permutations == 1 else []  # of single presentations: an average moves less
    frozen = replace(threshold or own_threshold(run), cutoff=measured.cutoff["value"])
    return measured, summary(measured, measure(noise, frozen) if noise else None)


def own_threshold(run: Run) -> Threshold:
    """What the run was last audited with, so that a gate, a comparison or a page decides as the audit did."""
    return Threshold(**run.record.get("threshold", {}))


def measured_run(
    run: Run, threshold: Threshold | None = None, serving_permutations: int = 1, readers: Sequence[str] | None = None
) -> Measured:
    """The measures of a complete run, as a system that averages `serving_permutations` presentations would be measured.

    Without a threshold, with its own. Where readers read it, those of the first are among them: of the run's first, or of the
    first of `readers`.
    """
    measured = measure(served_queries(run, serving_permutations), threshold or own_threshold(run))
    if serving_permutations == 1:
        measured.values.update(run.perturbed(measured.query_ids))
    read = readings_of(run, measured.query_ids, serving_permutations)
    for label in [label for label in (read if readers is None else readers) if label in read][:1]:
        measured.values.update(read[label].values)
    if run.record.get("capabilities", {}).get("gives") != "ranking":
        return measured
    # A ranking's numbers are n - rank: no cutoff means the same on two queries.
    kept = {name: values for name, values in measured.values.items() if "cutoff" not in MEASURES[name].needs}
    how = {
        "value": None,
        "how": f"none: {run.record['name']} gives a ranking, and a threshold needs scores; overlap@10 is a budget",
    }
    return replace(measured, values=kept, cutoff=how)


def served_queries(run: Run, serving_permutations: int = 1) -> list[Scored]:
    """A run's queries, or the disjoint ensembles of K permutations that batched self-consistency would serve (§D.4)."""
    queries = run.scored()
    return queries if serving_permutations == 1 else [at_budget(query, serving_permutations) for query in queries]


def curve(run: Run, threshold: Threshold | None = None, most: int = 10) -> dict[int, dict[str, float]]:
    """Every measure at each serving budget K, from stored scores: {K: {measure: value}}."""
    budgets = range(1, min(most, *(len(q.permuted) for q in run.scored())) + 1)
    return {
        budget: {name: float(np.nanmean(values)) for name, values in measured_run(run, threshold, budget).values.items()}
        for budget in budgets
    }


def measures_table(named: Iterable[tuple[str, str, Measured]]) -> pa.Table:
    """Per-query rows of several runs: (variant, collection, query_id, measure, value)."""
    import pyarrow as pa

    rows = [
        {"variant": variant, "collection": collection, "query_id": query_id, "measure": name, "value": float(value)}
        for variant, collection, measured in named
        for name, values in measured.values.items()
        for query_id, value in zip(measured.query_ids, values, strict=True)
    ]
    kinds = [
        ("variant", pa.string()),
        ("collection", pa.string()),
        ("query_id", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema(kinds))
