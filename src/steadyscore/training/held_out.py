"""Held-out evaluation while training: ranking quality, and a stability proxy from a few permutations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NotRequired, TypedDict, cast

import numpy as np

from ..measures.measurement import measure
from ..measures.ranking import ndcg
from ..models.card import HeldOutPoint
from ..scoring.config import AuditConfig
from ..scoring.score import score_query
from ..scoring.scorer import Scorer
from ..terms import Instance
from .plan import Plan

COLLAPSED = 0.02
"""A mean within-query SD of scores below this does not tell candidates apart any more; the released code's bound."""


class Evaluation(TypedDict):
    """How good and how steady the student is on held-out queries."""

    quality: float
    quality_se: float | None
    tau_psi: float
    overlap: float | None
    """As an audit measures it; None where too few queries are held out to fit a cutoff."""
    retention: NotRequired[float | None]
    """What the cutoff keeps. Earlier versions do not say it: their cutoff was that of the best F1 on the same queries."""
    dispersion: float
    queries: int
    per_query: list[float]


class HeldOut(Evaluation):
    """A point of the held-out curve."""

    step: int


def evaluate(scorer: Scorer, instances: Sequence[Instance], count: int, seed: int) -> Evaluation:
    """The student now.

    quality: nDCG@k of the first-stage order, mean and standard error over judged queries. tau_psi, overlap, retention: over
    `count` shuffles, as an audit measures them. dispersion: mean over queries of the SD of scores within the query.
    """
    audited = AuditConfig(permutations=count, seed=seed)
    scored = [score_query(scorer, instance, audited) for instance in instances]
    judged = [s for s in scored if s.is_judged]
    k = scorer.task.quality_cutoff
    quality = np.array([ndcg(s.first_stage[None], s.gold, k, judged_gains=s.ideal)[0] for s in judged])  # type: ignore[index]
    measured = measure(scored, only=("tau_psi", "overlap", "retention")).values
    means = {name: float(np.nanmean(values)) for name, values in measured.items()}
    return {
        "quality": float(quality.mean()),
        "quality_se": float(quality.std(ddof=1) / np.sqrt(len(quality))) if len(quality) > 1 else None,
        "tau_psi": means.get("tau_psi", math.nan),
        "overlap": means.get("overlap"),
        "retention": means.get("retention"),
        "dispersion": float(np.mean([s.first_stage.std() for s in scored])),  # type: ignore[union-attr]
        "queries": len(scored),
        "per_query": [round(float(q), 6) for q in quality],
    }


def window_counts(plan: Plan, instances: Sequence[Instance]) -> list[int]:
    """Windows of each query that an evaluation reads; fewer where two orders of a query share one."""
    orders, width = 1 + plan.config.held_out_permutations, plan.settings.width
    return [orders * (math.ceil(len(instance.pool) / width) if width else 1) for instance in instances]


def has_collapsed(history: Sequence[HeldOut]) -> bool:
    """Whether scores differed between candidates at the start and no longer do."""
    return len(history) > 1 and history[0]["dispersion"] >= COLLAPSED > history[-1]["dispersion"]


def card_curve(history: Sequence[HeldOut]) -> list[HeldOutPoint]:
    """The held-out curve as a card keeps it: without the per-query values."""
    return [cast(HeldOutPoint, {key: value for key, value in point.items() if key != "per_query"}) for point in history]
