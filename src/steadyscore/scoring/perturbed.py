"""Perturbations beyond order, scored: another pool, other markers; the serving order is held fixed (§C.1).

Each kind is one more presentation per query, on up to 100 queries, kept beside the run it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from ..collection import Data, open_collection
from ..measures.instability import pool_psi, tau_psi, top_k_changed
from ..measures.ranking import delta_ndcg_pool
from ..runs.folder import Run
from ..runs.layout import perturbed_file, perturbed_schema
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Failure, Instance, Markers
from .perturb import perturbed_rank, pool_drop, pool_replace, sampled_queries
from .score import AuditConfig, Progress, naming_failures
from .scorer import Scorer

Kind = Literal["replace", "drop", "markers"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SCHEMES: tuple[Markers, ...] = get_args(Markers)
QUERIES = 100


def score_perturbed(
    scorer: Scorer,
    run: Run,
    source: Data,
    config: AuditConfig,
    kinds: Sequence[Kind],
    progress: Progress | None = None,
    *,
    scored: Sequence[Scored] | None = None,
) -> dict[Kind, list[Failure]]:
    """Score what was perturbed into `perturbed-<kind>.parquet`, for `Run.perturbed`; `drop` measures carry the suffix `_drop`.

    Gives the queries that the scorer failed on, with the reason: in no mean, tried again by the same command.
    """
    queries = {query.query_id: query for query in (run.read_queries() if scored is None else scored)}
    return {kind: _score(scorer, run, queries, source, config, kind, progress) for kind in kinds}


def _score(
    scorer: Scorer, run: Run, scored: dict[str, Scored], source: Data, config: AuditConfig, kind: Kind, progress: Progress | None
) -> list[Failure]:
    """Score the queries that the run's table of this kind lacks; gives what failed."""
    import pyarrow as pa

    name = perturbed_file(kind)
    rows: list[dict[str, Any]] = run.read(name).to_pylist() if run.has(name) else []
    failed: list[Failure] = []
    missing = set(sampled_queries(list(scored), QUERIES, seed=config.seed)) - {row["query_id"] for row in rows}
    if not missing:
        return failed
    todo = (instance for instance in open_collection(source).instances(reserve=True) if instance.id in missing)
    for instance in progress(todo, len(missing)) if progress else todo:
        with naming_failures(failed, instance.id):
            values = _values(scorer, scored[instance.id], instance, config, kind)
            rows += [{"query_id": instance.id, "measure": name, "value": float(value)} for name, value in values.items()]
    run.write(name, pa.Table.from_pylist(rows, schema=perturbed_schema()))
    return failed


def _values(scorer: Scorer, scored: Scored, instance: Instance, config: AuditConfig, kind: Kind) -> dict[str, float]:
    n = len(scored.candidate_ids)
    if kind == "markers":
        return {"marker_tau_psi": float(tau_psi(_by_markers(scorer, instance, n)))}
    rank = perturbed_rank(n, seed=config.seed, query_id=instance.id)
    if kind == "replace" and len(instance.pool) <= n:
        return {}  # the first stage stops here: there is no next candidate to join
    order = pool_replace(n, rank) if kind == "replace" else pool_drop(n, rank)
    changed = replace(instance, pool=tuple(instance.pool[i] for i in order))
    after = scorer.score_orders(changed, np.arange(len(order))[None], [FIRST_STAGE])
    shared = [i for i in scored.candidate_ids if i != instance.pool[rank].id]
    before = dict(zip(scored.candidate_ids, scored.first_stage, strict=True))  # type: ignore[arg-type]
    now = dict(zip(after.candidate_ids, after.scores[0], strict=True))
    original, moved = (np.array([side[i] for i in shared]) for side in (before, now))
    gold = None if scored.relevance is None else dict(zip(scored.candidate_ids, scored.relevance, strict=True))
    relevance = np.array([np.nan if gold is None else gold[i] for i in shared])
    suffix = "" if kind == "replace" else "_drop"
    return {
        f"pool_psi{suffix}": float(pool_psi(original, moved)),
        f"top10_changed{suffix}": float(top_k_changed(original, moved)),
        f"pool_delta_ndcg@10{suffix}": float(delta_ndcg_pool(original, moved, relevance)),
        f"pool_absolute_delta_ndcg@10{suffix}": float(delta_ndcg_pool(original, moved, relevance, absolute=True)),
    }


def _by_markers(scorer: Scorer, instance: Instance, n: int) -> np.ndarray:
    """(schemes, n) scores of the first-stage order under every marker scheme."""
    pool = replace(instance, pool=instance.pool[:n])
    shown = scorer.presentation(range(n))
    return np.stack([scorer.score_presentation(pool, replace(shown, markers=scheme)) for scheme in SCHEMES])
