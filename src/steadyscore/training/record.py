"""What a training run leaves beside its checkpoints: the log, the card, and the settings that a resumed run must have."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import cast

from accelerate import Accelerator

from ..collection import open_collection
from ..engines.local.model import TransformersEngine
from ..machine.disk import atomic, explaining_os_errors, sha256
from ..machine.extras import versions
from ..models.adapter import WEIGHTS, card_for_base
from ..models.card import Card, CardData, TrainedSettings, base_of
from ..scoring.estimate import remember_speed
from ..scoring.scorer import Scorer
from ..terms import JsonObject
from .cost import TrainingEstimate, estimate, rate_name
from .examples import Data
from .labels import label_contents, labels_identity
from .objectives import DROPOUT
from .recipe import Plan, to_json
from .step import StepRow
from .student import stacked_experts

NOT_LEARNED = (
    "out", "device", "keep", "trackers", "checkpoint_every", "data", "apart_from", "held_out_data", "labels", "initial",
)  # fmt: skip
"""Fields that name places or habits: they do not change what is learned; contents are in the fingerprint by hash."""


class Log:
    """log.jsonl, one row per step, and Accelerate's trackers. Rows logged after the checkpoint we resume from are dropped."""

    def __init__(self, out: Path, accelerator: Accelerator, data: Data, step: int):
        config = data.plan.config
        self.file, self.accelerator, self.tracked = out / "log.jsonl", accelerator, bool(config.trackers)
        self.data, self.steps, self.seconds = data, 0, 0.0
        self.evaluations, self.evaluation_seconds = 0, 0.0
        if self.tracked:
            accelerator.init_trackers(
                "steadyscore", config={k: v for k, v in to_json(config).items() if isinstance(v, int | float | str)}
            )
        if accelerator.is_main_process and self.file.exists():
            with open(self.file, "rb") as before, atomic(self.file) as stream:
                stream.writelines(line for line in before if _is_row_before(step, line))

    def write(self, row: StepRow, seconds: float) -> None:
        self.steps, self.seconds = self.steps + 1, self.seconds + seconds
        if self.accelerator.is_main_process:
            with explaining_os_errors(self.file), open(self.file, "a") as stream:
                stream.write(json.dumps(row) + "\n")
        if self.tracked:
            self.accelerator.log({k: v for k, v in row.items() if k != "step"}, step=row["step"])

    def sync(self) -> None:
        """Have a power cut not take the rows back."""
        with explaining_os_errors(self.file), open(self.file, "ab") as stream:
            os.fsync(stream.fileno())

    def evaluated(self, seconds: float) -> None:
        self.evaluations, self.evaluation_seconds = self.evaluations + 1, self.evaluation_seconds + seconds

    def remember_rates(self) -> None:
        """Keep how fast this machine takes steps and evaluates, in the tokens that an estimate counts."""
        cost, plan, processes = self.cost, self.data.plan, self.accelerator.num_processes
        remember_speed(rate_name(plan, processes), round(cost.tokens * self.steps / cost.steps), self.seconds)
        if self.evaluations:
            tokens = round(cost.evaluated_tokens * self.evaluations / cost.evaluations)
            remember_speed(rate_name(plan, processes, "evaluate"), tokens, self.evaluation_seconds)

    @cached_property
    def cost(self) -> TrainingEstimate:
        return estimate(self.data)


def _is_row_before(step: int, line: bytes) -> bool:
    """Whether a line of the log is the row of an earlier step. Behind the last synced row a power cut may leave anything."""
    try:
        return line.endswith(b"\n") and json.loads(line)["step"] < step
    except (ValueError, KeyError, TypeError):
        return False


def new_card(data: Data, scorer: Scorer) -> Card:
    """The card of the adapter that a run will make."""
    plan, schedule, config = data.plan, data.schedule, data.plan.config
    base = scorer.backend.identity()
    assert isinstance(scorer.backend, TransformersEngine)
    experts = stacked_experts(scorer.backend.model)
    first = data.examples[0]
    if config.initial:
        card_for_base(Path(config.initial), base)
    return Card(
        base=base_of(base),
        task=data.collection.task,
        objective=config.objective,
        weight=plan.weight,
        weight_convention=config.weight_convention if plan.objective.weight == "task" else "none",
        ramp=schedule.ramp_steps,
        anchor=config.anchor,
        preference_share=config.preference_share,
        grade_share=config.grade_share,
        shuffle=plan.shuffle,
        views=plan.views,
        widths=list(plan.widths),
        settings=cast(TrainedSettings, {name: getattr(scorer.settings, name) for name in TrainedSettings.__annotations__}),
        prompt_hash=scorer.prompt_hash,
        grade_tokens=list(scorer.prompt(first.instance, first.window).grade_tokens),  # type: ignore[union-attr]
        data=CardData(data.collection.name, data.queries, open_collection(config.data).digest, len(data.examples)),
        labels=labels_identity(config.labels) | {"teacher_orders_used": plan.teacher_orders or "all"},
        seed=config.seed,
        steps=schedule.steps,
        batch=config.batch,
        learning_rate=config.learning_rate,
        lora={
            "rank": config.rank,
            "alpha": config.alpha,
            "dropout": plan.dropout,
            "projections": list(config.projections),
            "layers": config.layers or "all",
            **({"frozen": experts} if experts else {}),
        },
        initial=None if not config.initial else {"adapter": Path(config.initial).name},
        slot_weights=None if data.slot_weights is None else [round(float(w), 6) for w in data.slot_weights],
        held_out=[],
        versions=versions(),
    )


def fingerprint(plan: Plan, card: Card) -> JsonObject:
    """The settings that must match to resume a training folder."""
    config = plan.config
    settings = {key: value for key, value in to_json(config).items() if key not in NOT_LEARNED}
    settings |= {"ramp": plan.ramp, "dropout": DROPOUT if config.dropout is None else config.dropout}
    if plan.dropout < plan.objective.dropout > DROPOUT:  # earlier versions trained with the control's
        settings["lora dropout"] = plan.dropout
    if not config.preference_share:  # newer than the folders of runs without it, which go on
        del settings["preference_share"]
    sources = {
        "base weights": card.base.weights,
        "data": asdict(card.data),
        "labels": label_contents(card.labels),
        "prompt_hash": card.prompt_hash,
    }
    held_out = {"held_out_data": open_collection(config.held_out_data).digest} if config.held_out_data else {}
    initial = {"initial": sha256(Path(config.initial) / WEIGHTS)[:16]} if config.initial else {}
    return settings | sources | held_out | initial
