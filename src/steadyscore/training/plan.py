"""A recipe with every default worked out, once: what the steps of a run read instead of the recipe itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InputError
from ..scoring.scorer import Settings
from ..tasks import TASKS, Task
from ..terms import Collection
from .objectives import OBJECTIVES, Convention, Objective, learning_rate, ramp
from .recipe import Shuffle, TrainConfig

CONVENTION_SCALE: dict[Convention, float] = {"pairwise": 1, "variance": 4, "relative": 0.4}
"""The task's pairwise weight in other conventions, at two views (docs/objectives.md). A relative penalty is the variance divided
by the variance of the window's scores; where their SD is 0.3 grades, 0.4 / (0.3² + 0.01) = 4, the scale of `variance`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe on a collection."""

    config: TrainConfig
    objective: Objective
    task: Task
    settings: Settings
    """How training shows a window: the same value a scorer takes."""
    weight: float
    """Of the penalty, in the run's own convention."""
    ramp: float
    """Steps over which it grows from 0; below 1, a fraction of the run."""
    widths: tuple[int, ...]
    shuffle: Shuffle
    views: int
    """N as a card states it: views of a window that an objective compares."""
    pool_views: int
    """Shuffled pools that are cut into windows of their own; 0: only the first stage's order is."""
    window_views: int
    """Presentations of a window that a step reads: N, or 1 where N shuffled pools were cut."""
    teacher_orders: int | None
    """Stored orders averaged into the target; None: all."""
    dropout: float
    """Of the LoRA layers."""
    layers: tuple[int, ...] | None
    """Layers that carry LoRA; None: all."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weight and learning rate of every step."""

    steps: int
    ramp_steps: int
    weight: float
    learning_rate: float
    warmup: float

    def weight_at(self, step: int) -> float:
        return ramp(step, self.weight, self.ramp_steps)

    def rate_at(self, step: int) -> float:
        return learning_rate(step, self.learning_rate, self.steps, self.warmup)


def resolve_plan(config: TrainConfig, collection: Collection) -> Plan:
    objective, task = OBJECTIVES[config.objective], TASKS[collection.task]
    widths = config.widths or (task.width,)
    shuffle: Shuffle = config.shuffle or ("window" if objective.views == "orders" else "none")
    views = 1 if objective.views == "one" else config.views
    return Plan(
        config=config,
        objective=objective,
        task=task,
        settings=_settings(config, collection, None if config.prompt == "set" else max(widths)),  # a set is the whole pool
        weight=_weight(config, objective, task),
        # At its whole strength from the first step on, the consistency weight shrinks the scores before they are relevant.
        ramp=objective.ramp if config.ramp is None else config.ramp,
        widths=widths,
        shuffle=shuffle,
        views=views,
        pool_views=views if shuffle == "pool" else 0,
        window_views=1 if shuffle == "pool" else views,
        teacher_orders=config.teacher_orders or objective.teacher_orders,
        dropout=objective.dropout if config.dropout is None else config.dropout,
        layers=layer_indices(config.layers),
    )


def make_schedule(plan: Plan, windows: int) -> Schedule:
    """The steps that were asked for, or enough to see every window `epochs` times."""
    config = plan.config
    steps = config.steps if config.steps is not None else math.ceil(windows * config.epochs / config.batch)
    ramp_steps = round(plan.ramp * steps) if 0 < plan.ramp < 1 else int(plan.ramp)
    if ramp_steps > steps:
        raise InputError(
            f"ramp {plan.ramp:g} is longer than the run of {steps} steps. Shorten it, or give a fraction of the run."
        )
    return Schedule(steps, ramp_steps, plan.weight, config.learning_rate, config.warmup)


def layer_indices(layers: str | None) -> tuple[int, ...] | None:
    """Every layer of FIRST-LAST."""
    if layers is None:
        return None
    first, _, last = layers.partition("-")
    return tuple(range(int(first), int(last or first) + 1))


def _settings(config: TrainConfig, collection: Collection, width: int | None) -> Settings:
    return Settings(
        width=width,
        chars=config.chars if config.chars is not None else collection.chars,
        markers=config.markers,
        placeholder=config.placeholder,
        instruction=config.instruction or collection.instruction,
        label_mass=False,
        prompt=config.prompt,
    )


def _weight(config: TrainConfig, objective: Objective, task: Task) -> float:
    """The recipes state it pairwise, four times less than the variance's (docs/objectives.md)."""
    if objective.weight is None:
        return 0.0
    if config.weight is not None:
        return config.weight
    return task.weight * CONVENTION_SCALE[config.weight_convention] if objective.weight == "task" else objective.weight
