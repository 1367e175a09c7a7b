"""Queries of an audit that are in no mean: a gate refuses them by default, a comparison names them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..runs.folder import Run
from ..scoring.perturbation import perturbed_sample
from ..terms import Failure
from .audit import Audit

OF_READERS = ("answer_", "verdict_")
"""How the names of measures begin that a reader brings."""
OF_PERTURBATIONS = (
    "marker_tau_psi", "held_out_marker_tau_psi", "pool_psi_drop", "top10_changed_drop", "reverse_psi", "swap_psi",
    "first_stage_noise_psi",
)  # fmt: skip
"""Measures that every sampled query has; for `replace`, a pool without a next candidate has none."""


def missing_queries(audit: Audit, measures: Iterable[str] = ()) -> list[str]:
    """Ids of the queries that could not be scored, and of those that a reader or a perturbation behind `measures` lacks."""
    missing = [failure.query_id for failure in audit.record.failed]
    names = list(measures)
    if audit.reader is not None and any(name.startswith(OF_READERS) for name in names):
        missing += audit.readers[audit.reader].unread
    for name in OF_PERTURBATIONS:
        if name in names and name in audit.measured.values:
            missing += _not_perturbed(audit, name)
    return list(dict.fromkeys(missing))


def _not_perturbed(audit: Audit, name: str) -> list[str]:
    """Sampled queries without a value, though their candidates can be ranked."""
    ids, values = audit.measured.query_ids, audit.measured.values
    sampled = set(perturbed_sample(list(ids), audit.record.fingerprint.seed or 0))
    can_be_ranked = ~np.isnan(values["tau_psi"]) if "tau_psi" in values else np.ones(len(ids), bool)
    lacking = np.isnan(values[name]) & can_be_ranked
    return sorted(query_id for query_id, is_lacking in zip(ids, lacking, strict=True) if is_lacking and query_id in sampled)


def failures(runs: Iterable[Run]) -> tuple[Failure, ...]:
    """What could not be scored in some runs, each query once."""
    failed = [failure for run in runs for failure in run.record.failed]
    return tuple({failure.query_id: failure for failure in failed}.values())
