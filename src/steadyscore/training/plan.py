"""A recipe with every default worked out, once: what the steps of a run read instead of the recipe itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..scoring.scorer import Settings
from ..tasks import TASKS, Task
from ..terms import Collection
from .objectives import Convention, learning_rate, ramp
from .recipe import Shuffle, TrainConfig

SEVERAL_VIEWS = ("oc_sft", "permutation_augmentation", "debias_first", "mean_teacher", "dropout_views", "marker_consistency")
"""Objectives that read a window more than once per step."""
SHUFFLED = ("oc_sft", "permutation_augmentation", "debias_first", "mean_teacher")
"""Objectives whose views are orders."""
WEIGHTED = ("oc_sft", "mean_teacher", "kl_to_base", "dropout_views", "marker_consistency")
"""Objectives with a term beside the anchor."""
DEFAULT_WEIGHTS = {"mean_teacher": 0.5, "kl_to_base": 0.05}
"""The paper's (§D.2); the consistency objectives take the task's weight."""
CONVENTIONAL = tuple(objective for objective in WEIGHTED if objective not in DEFAULT_WEIGHTS)
"""Objectives whose term is a variance over views, in one of the conventions."""
CONVENTION_SCALE: dict[Convention, float] = {"pairwise": 1, "variance": 4, "relative": 0.4}
"""The task's pairwise weight in other conventions, at two views (docs/objectives.md). A relative penalty is the variance divided
by the variance of the window's scores; where their SD is 0.3 grades, 0.4 / (0.3² + 0.01) = 4, the scale of `variance`."""
PAPER_RAMP = 500 / 2305
"""Share of a run over which the consistency weight grows: the paper's 500 steps of its passage run (§B.3)."""
DROPOUT = 0.05
"""LoRA dropout where none is given (§B.3)."""
DROPOUT_CONTROL = 0.20
"""LoRA dropout of the `dropout` control (§D.2), where none is given."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe on a collection."""

    config: TrainConfig
    task: Task
    settings: Settings
    """How training shows a window: the same value a scorer takes."""
    weight: float
    """Of the term beside the anchor, in the run's own convention."""
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
    task = TASKS[collection.task]
    widths = config.widths or (task.width,)
    shuffle: Shuffle = config.shuffle or ("window" if config.objective in SHUFFLED else "none")
    views = config.views if config.objective in SEVERAL_VIEWS else 1
    return Plan(
        config=config,
        task=task,
        settings=_settings(config, collection, None if config.prompt == "set" else max(widths)),  # a set is the whole pool
        weight=_weight(config, task),
        ramp=_ramp(config),
        widths=widths,
        shuffle=shuffle,
        views=views,
        pool_views=views if shuffle == "pool" else 0,
        window_views=1 if shuffle == "pool" else views,
        teacher_orders=config.teacher_orders or (None if config.objective == "order_averaged" else 1),
        dropout=_dropout(config),
        layers=layer_indices(config.layers),
    )


def make_schedule(plan: Plan, windows: int) -> Schedule:
    """The steps that were asked for, or enough to see every window `epochs` times."""
    config = plan.config
    steps = config.steps if config.steps is not None else math.ceil(windows * config.epochs / config.batch)
    ramp_steps = round(plan.ramp * steps) if 0 < plan.ramp < 1 else int(plan.ramp)
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


def _weight(config: TrainConfig, task: Task) -> float:
    """The recipes state it pairwise, four times less than the variance's (docs/objectives.md)."""
    if config.objective not in WEIGHTED:
        return 0.0
    if config.weight is not None:
        return config.weight
    return DEFAULT_WEIGHTS.get(config.objective, task.weight * CONVENTION_SCALE[config.weight_convention])


def _dropout(config: TrainConfig) -> float:
    if config.dropout is not None:
        return config.dropout
    return DROPOUT_CONTROL if config.objective == "dropout" else DROPOUT


def _ramp(config: TrainConfig) -> float:
    """At its whole strength from the first step on, the consistency weight shrinks the scores before they are relevant."""
    if config.ramp is not None:
        return config.ramp
    return PAPER_RAMP if config.objective in CONVENTIONAL else 0
