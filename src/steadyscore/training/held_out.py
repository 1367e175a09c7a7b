"""Held-out evaluation while training: ranking quality, and a stability proxy from a few permutations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypedDict, cast

import numpy as np

from ..errors import InputError
from ..measures.instability import tau_psi
from ..measures.ranking import ndcg
from ..measures.threshold import fit_cutoff, overlap, retained
from ..models.card import HeldOutPoint
from ..runs.table import FIRST_STAGE
from ..scoring.scorer import Scorer
from ..terms import Instance
from ..window.presentation import permutations

COLLAPSED = 0.02
"""A mean within-query SD of scores below this does not tell candidates apart any more; the released code's bound."""


class Evaluation(TypedDict):
    """How good and how steady the student is on held-out queries."""

    quality: float
    quality_se: float | None
    tau_psi: float
    overlap: float
    dispersion: float
    queries: int
    per_query: list[float]


class HeldOut(Evaluation):
    """A point of the held-out curve."""

    step: int


def evaluate(scorer: Scorer, instances: Sequence[Instance], count: int, seed: int) -> Evaluation:
    """The student now.

    quality: nDCG@k of the first-stage order, mean and standard error over judged queries. tau_psi, overlap: over `count`
    shuffles, the cutoff fitted to F1 on the same queries (a proxy; audits fit on one half and measure on the other).
    dispersion: mean over queries of the SD of scores within the query.
    """
    scored = []
    for instance in instances:
        orders = permutations(len(instance.pool), count, seed=seed, query_id=instance.id)
        scored.append(
            scorer.score_orders(instance, np.vstack([np.arange(len(instance.pool))[None], orders]), [FIRST_STAGE, *range(count)])
        )
    judged = [s for s in scored if s.is_judged]
    if not judged:
        raise InputError(
            "no held-out query has judgements, so its ranking quality is unknown. Give held-out data with relevance."
        )
    k = scorer.task.quality_cutoff
    quality = np.array([ndcg(s.first_stage[None], s.gold, k, judged_gains=s.ideal)[0] for s in judged])  # type: ignore[index]
    cutoff = fit_cutoff([s.first_stage for s in judged], [s.gold for s in judged])  # type: ignore[misc]
    return {
        "quality": float(quality.mean()),
        "quality_se": float(quality.std(ddof=1) / np.sqrt(len(quality))) if len(quality) > 1 else None,
        "tau_psi": float(np.nanmean([tau_psi(s.permuted) for s in scored])),
        "overlap": float(np.mean([overlap(retained(s.permuted, cutoff)) for s in judged])),
        "dispersion": float(np.mean([s.first_stage.std() for s in scored])),  # type: ignore[union-attr]
        "queries": len(scored),
        "per_query": [round(float(q), 6) for q in quality],
    }


def window_count(scorer: Scorer, instances: Sequence[Instance], count: int) -> int:
    """Windows that an evaluation reads; fewer where two orders of a query share one."""
    width = scorer.width
    return sum((1 + count) * (math.ceil(len(instance.pool) / width) if width else 1) for instance in instances)


def has_collapsed(history: Sequence[HeldOut]) -> bool:
    """Whether scores differed between candidates at the start and no longer do."""
    return len(history) > 1 and history[0]["dispersion"] >= COLLAPSED > history[-1]["dispersion"]


def card_curve(history: Sequence[HeldOut]) -> list[HeldOutPoint]:
    """The held-out curve as a card keeps it: without the per-query values."""
    return [cast(HeldOutPoint, {key: value for key, value in point.items() if key != "per_query"}) for point in history]
