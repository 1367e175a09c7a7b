"""How fast this machine trains a base: a few microbatches of the planned run, forward and backward, before it begins."""

from __future__ import annotations

import time
from dataclasses import replace

from ..scoring.scorer import Scorer
from .examples import step_indices, training_data
from .recipe import TrainConfig
from .step import Loop, Slots
from .student import add_lora, make_accelerator, open_base

MICROBATCHES = 6
SECONDS = 30.0
"""A measurement ends after this many of either; a microbatch that was begun is finished."""


def measure_rate(config: TrainConfig, tokens_per_window: float, seconds: float = SECONDS) -> float:
    """Tokens a second, of the tokens that an estimate counts, from the first windows that the run would see."""
    loop = _loop(replace(config, trackers=()))
    chosen = step_indices(0, config.batch, len(loop.data.examples), config.seed)
    taken: list[float] = []
    for number in range(min(MICROBATCHES, config.batch // config.microbatch)):
        if sum(taken) >= seconds:
            break
        began = time.monotonic()
        loop.learn(0, number, chosen[number * config.microbatch : (number + 1) * config.microbatch], loop.plan.weight)
        taken.append(time.monotonic() - began)
    after_first = taken[1:] or taken  # the first one warms up
    return len(after_first) * config.microbatch * tokens_per_window / sum(after_first)


def _loop(config: TrainConfig) -> Loop:
    accelerator, data = make_accelerator(config), training_data(config)
    plan, engine = data.plan, open_base(config, accelerator)
    scorer = Scorer(engine, plan.task, plan.settings)
    student = add_lora(engine, plan)
    named = {name: p for name, p in student.named_parameters() if p.requires_grad}
    ema = {name: p.detach().clone() for name, p in named.items()} if config.objective == "mean_teacher" else None
    module = accelerator.prepare(Slots(engine))
    engine.model.train()
    return Loop(plan, data, scorer, module, student, named, ema, accelerator)
