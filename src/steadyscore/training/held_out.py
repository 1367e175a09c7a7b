"""The held-out curve: what is measured while training, and the weight and checkpoint that four rules choose by it (§B.3)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np

from ..errors import InputError
from ..measures.measurement import measure
from ..measures.ranking import ndcg
from ..models.card import HeldOutPoint
from ..scoring.config import AuditConfig
from ..scoring.score import score_query
from ..scoring.scorer import Scorer
from ..terms import Instance
from .checkpoints import copy_adapter, step_folder
from .recipe import Plan

COLLAPSED = 0.02
"""A mean within-query SD of scores below this does not tell candidates apart any more; the released code's bound."""


class HeldOut(HeldOutPoint):
    """A point of the held-out curve, as evaluations.json has it.

    quality: nDCG@k of the first-stage order, mean and standard error over judged queries. tau_psi, overlap, retention: over some
    shuffles, as an audit measures them; None where too few queries are held out to fit a cutoff. Earlier versions have no
    retention: their cutoff was that of the best F1 on the same queries. dispersion: mean over queries of the SD of scores within
    the query.
    """

    per_query: list[float]


def evaluate(scorer: Scorer, instances: Sequence[Instance], count: int, seed: int, step: int = 0) -> HeldOut:
    """How good and how steady the student is at a step, by the first-stage order and `count` shuffles of held-out queries."""
    audited = AuditConfig(permutations=count, seed=seed)
    scored = [score_query(scorer, instance, audited) for instance in instances]
    judged = [s for s in scored if s.is_judged]
    k = scorer.task.quality_cutoff
    quality = np.array([ndcg(s.first_stage[None], s.gold, k, judged_gains=s.ideal)[0] for s in judged])  # type: ignore[index]
    measured = measure(scored, only=("tau_psi", "overlap", "retention")).values
    means = {name: float(np.nanmean(values)) for name, values in measured.items()}
    return {
        "step": step,
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


# -- choosing by it: three of the four rules are free to abstain


Rule = Literal["highest_quality", "quality", "largest_weight", "decision"]
"""How a point is chosen; see `select`."""
DECISION_MEASURES = {"tau_psi": -1, "overlap": 1, "overlap_f1": 1, "dispersion": 1}
"""Decision measures of the held-out curve: 1 where more is better. `overlap_f1` is what earlier versions called overlap."""
CONVERGED = 0.4
"""Only the later part of a run is compared: the released rule's 1,000 of 2,305 steps."""


@dataclass(frozen=True, slots=True)
class Point:
    """One evaluated checkpoint of one run."""

    folder: str
    weight: float
    step: int
    quality: float
    quality_se: float | None
    measures: dict[str, float | None]
    converged: bool
    collapsed: bool


@dataclass(frozen=True, slots=True)
class Selection:
    """What a rule says: a point, or why it abstains."""

    rule: Rule
    point: Point | None
    reason: str


def read_points(folders: Sequence[Path]) -> list[Point]:
    """The held-out curves of finished, collapsed or running folders; every mistake at once."""
    points, mistakes = [], []
    for folder in folders:
        if not (folder / "train.json").exists():
            mistakes.append(f"{folder} is not a training folder: it has no train.json")
            continue
        if not (folder / "evaluations.json").exists():
            mistakes.append(f"{folder} was trained without held-out evaluation; train it with --held-out")
            continue
        try:
            record, history = (json.loads((folder / name).read_text()) for name in ("train.json", "evaluations.json"))
            points += curve_points(str(folder), record["weight"], history)
        except (ValueError, KeyError, TypeError, AttributeError):
            mistakes.append(f"{folder} holds a train.json or evaluations.json that cannot be read; run its training again")
    if mistakes:
        raise InputError(mistakes)
    return points


def curve_points(folder: str, weight: float, history: Sequence[HeldOut]) -> list[Point]:
    last = history[-1]["step"] if history else 0
    return [
        Point(
            folder=folder,
            weight=weight,
            step=entry["step"],
            quality=entry["quality"],
            quality_se=entry["quality_se"],
            measures={
                "tau_psi": entry["tau_psi"],
                "overlap" if "retention" in entry else "overlap_f1": entry["overlap"],
                "dispersion": entry["dispersion"],
            },
            converged=entry["step"] > 0 and entry["step"] >= CONVERGED * last,
            # One collapsed evaluation condemns the whole run, as in the released rule.
            collapsed=min(e["dispersion"] for e in history) < COLLAPSED <= history[0]["dispersion"],
        )
        for entry in history
    ]


def select(points: Sequence[Point], decision: str = "tau_psi") -> list[Selection]:
    """The four rules on one grid.

    highest_quality: the best held-out quality and nothing else, the paper's words: any evaluation after step 0 of a run that did
    not collapse, also of one run alone.
    quality: the same among converged points; abstains where all of them lie within one standard error.
    largest_weight: the largest weight whose best point is within one standard error of the best, the released rule.
    decision: the best `decision` measure among points within one standard error of the best quality.
    Ties go to the earlier step and the smaller weight.
    """
    if decision not in DECISION_MEASURES:
        raise InputError(f"unknown decision measure {decision!r}. Known: {', '.join(DECISION_MEASURES)}.")
    if lacking := list(dict.fromkeys(point.folder for point in points if point.measures.get(decision) is None)):
        raise InputError([f"{folder} has no held-out {decision}; choose another --decision" for folder in lacking])
    runs = {point.folder for point in points}
    usable = [point for point in points if point.converged and not point.collapsed]
    alive = {point.folder for point in usable}
    if refusal := _cannot_tell(len(runs), len(alive), usable):
        return [_highest_quality(points), *(Selection(rule, None, refusal) for rule in get_args(Rule)[1:])]
    best = min(usable, key=_by_quality)
    error = best.quality_se
    assert error is not None
    near = [point for point in usable if point.quality >= best.quality - error]
    flat = len(near) == len(usable)
    span = f"{len(near)} of {len(usable)} points lie within one standard error ({error:.4f}) of {best.quality:.4f}"
    heaviest = max(point.weight for point in near)
    largest = min((p for p in near if p.weight == heaviest), key=lambda p: (-p.quality, p.step))
    sign = DECISION_MEASURES[decision]
    steadiest = min(near, key=lambda p: (-sign * (p.measures[decision] or 0.0), p.step, p.weight))
    return [
        _highest_quality(points),
        Selection("quality", None, f"abstains: {span}, so quality cannot tell them apart")
        if flat
        else Selection("quality", best, span),
        Selection("largest_weight", largest, f"largest weight within one standard error of {best.quality:.4f}"),
        Selection("decision", steadiest, f"best {decision} within one standard error of {best.quality:.4f}"),
    ]


def _highest_quality(points: Sequence[Point]) -> Selection:
    trained = [point for point in points if point.step > 0 and not point.collapsed]
    if not trained:
        return Selection("highest_quality", None, "abstains: no run has an evaluation after step 0 that did not collapse")
    best = min(trained, key=_by_quality)
    return Selection("highest_quality", best, f"highest of {len(trained)} evaluations, whatever its standard error")


def _by_quality(point: Point) -> tuple[float, int, float]:
    return -point.quality, point.step, point.weight


def _cannot_tell(runs: int, alive: int, usable: Sequence[Point]) -> str | None:
    if not usable:
        return "abstains: no run has a converged evaluation that did not collapse"
    if 2 * alive < runs:
        return f"abstains: only {alive} of {runs} runs are usable, the others collapsed or did not converge"
    if any(point.quality_se is None for point in usable):
        return "abstains: one held-out query has no standard error; hold out more"
    if len(usable) < 2:
        return "abstains: one evaluation is not a grid; evaluate more often or train more weights"
    return None


def evaluated_on(point: Point) -> str:
    """The collection with the queries that the run held out."""
    config = json.loads((Path(point.folder) / "train.json").read_text())["config"]
    return str(config.get("held_out_data") or config["data"])


def copy_selected(point: Point, out: Path) -> None:
    """Copy the files of the chosen adapter into a folder of their own, from its checkpoint, which must still be there."""
    checkpoint = step_folder(Path(point.folder), point.step)
    if not checkpoint.exists():
        raise InputError(f"{point.folder} no longer has the checkpoint of step {point.step}. Train with a higher --keep.")
    copy_adapter(checkpoint, out)
