"""Queries of a run that are in no mean: what a gate refuses by default, and a comparison says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..readers.outputs import readings_of
from ..runs.folder import Run
from ..runs.table import read_table
from ..scoring.perturbation import MAX_QUERIES, sampled_queries

READ = ("answer_", "verdict_")
PERTURBED = {"marker_tau_psi": "markers", "pool_psi_drop": "drop", "top10_changed_drop": "drop"}
"""Measures of perturbations that every sampled query has; for `replace`, a pool without a next candidate has none."""


def missing_queries(run: Run, query_ids: Sequence[str], measures: Iterable[str] = (), serving_permutations: int = 1) -> list[str]:
    """Ids of the queries that could not be scored, and of those that a reader or a perturbation behind `measures` lacks."""
    found = [failure["query_id"] for failure in run.record.get("coverage", {}).get("failed", [])]
    names = list(measures)
    if any(name.startswith(READ) for name in names):
        for readings in list(readings_of(run, query_ids, serving_permutations).values())[:1]:
            found += [query_id for query_id in query_ids if query_id not in readings.outputs]
    for kind in {PERTURBED[name] for name in names if name in PERTURBED}:
        file = run.folder / f"perturbed-{kind}.parquet"
        if file.exists():
            sampled = sampled_queries(list(query_ids), MAX_QUERIES, seed=run.record["fingerprint"].get("seed", 0))
            found += sorted(set(sampled) - set(read_table(file, ["query_id"]).column("query_id").to_pylist()))
    return list(dict.fromkeys(found))


def missing_remark(run: Run, missing: Sequence[str]) -> str:
    """One sentence about them."""
    asked = run.record.get("coverage", {}).get("queries", len(missing))
    named = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
    where = f"{run.record['name']} on {run.record['collection']}"
    return f"{where} misses {len(missing)} of {asked} queries, which are in no mean: {named}."
