"""Choosing a weight and a checkpoint on held-out data: four rules side by side, three of them free to abstain (§B.3)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from ..errors import InputError
from .checkpoints import copy_adapter, step_folder
from .held_out import COLLAPSED, HeldOut

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


def checkpoint_folder(point: Point) -> Path:
    """Where the chosen adapter is: its checkpoint, which must still be there."""
    checkpoint = step_folder(Path(point.folder), point.step)
    if checkpoint.exists():
        return checkpoint
    raise InputError(f"{point.folder} no longer has the checkpoint of step {point.step}. Train with a higher --keep.")


def evaluated_on(point: Point) -> str:
    """The collection with the queries that the run held out."""
    config = json.loads((Path(point.folder) / "train.json").read_text())["config"]
    return str(config.get("held_out_data") or config["data"])


def copy_selected(point: Point, out: Path) -> None:
    """Copy the files of the chosen adapter into a folder of their own."""
    copy_adapter(checkpoint_folder(point), out)
