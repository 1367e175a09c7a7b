"""What a training run will cost, before anything is loaded: steps, tokens, memory, and time from a remembered rate."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from ..models.embedded import base_folder, base_shape
from ..scoring.estimate import speeds
from ..terms import Candidate, Instance
from ..window.prompt import CHARS_PER_TOKEN, prompt_text, shown
from .examples import Data
from .held_out import window_counts
from .recipe import Plan, TrainConfig

RateSource = Literal["remembered", "measured"]
"""From earlier training steps on this machine, or from a few microbatches just now."""


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    queries: int
    windows: int
    steps: int
    tokens: int
    """Of the steps, all views."""
    evaluations: int
    evaluated_windows: int
    """Of all held-out evaluations."""
    evaluated_tokens: int
    memory: float | None
    """GB of weights, optimizer and activations on one process; None where the base is not on this disk."""
    seconds: float | None = None
    """Of the whole run; None where no rate is known."""
    evaluation_seconds: float | None = None
    """Of these, what held-out evaluation takes."""
    rate_from: RateSource | None = None


def estimate(data: Data, processes: int = 1) -> TrainingEstimate:
    """Steps, tokens, memory and time from what a run would see and the remembered rates alone."""
    plan, steps = data.plan, data.schedule.steps
    config, views = plan.config, plan.window_views
    frames = {i.id: _frame(plan, i) for i in {e.instance.id: e.instance for e in data.examples}.values()}
    texts = sum(_shown(plan, (e.instance.pool[c] for c in e.window.candidates)) for e in data.examples)
    windows = len(data.examples)
    per_window = (sum(frames[e.instance.id] for e in data.examples) + texts) / CHARS_PER_TOKEN / windows
    tokens = round(steps * config.batch * views * per_window)
    every = config.evaluate_every
    evaluations = (1 + (math.ceil(steps / every) if every else 1)) if data.held_out else 0
    counts = window_counts(plan, data.held_out)
    orders = 1 + config.held_out_permutations
    evaluated = sum(n * _frame(plan, i) + orders * _shown(plan, i.pool) for n, i in zip(counts, data.held_out, strict=True))
    cost = TrainingEstimate(
        queries=data.queries,
        windows=windows,
        steps=steps,
        tokens=tokens,
        evaluations=evaluations,
        evaluated_windows=evaluations * sum(counts),
        evaluated_tokens=round(evaluations * evaluated / CHARS_PER_TOKEN),
        memory=_memory(config, views * config.microbatch * per_window),
    )
    rate, evaluating = (speeds().get(rate_name(plan, processes, what)) for what in ("train", "evaluate"))
    is_known = rate and (evaluating or not evaluations)
    return with_rates(cost, rate, evaluating or math.nan, "remembered") if rate and is_known else cost


def _frame(plan: Plan, instance: Instance) -> int:
    """Characters of a window besides its candidates."""
    fixed = prompt_text(plan.task, instance.query, [], instruction=plan.settings.instruction, style=plan.config.prompt)
    return sum(len(piece.text) for piece in (*fixed.prefix, *fixed.body)) + len(fixed.system)


def _shown(plan: Plan, candidates: Iterable[Candidate]) -> int:
    """Characters of some candidates in a window, with their markers and slots."""
    return sum(len(shown(candidate, plan.settings.chars)) + 20 for candidate in candidates)


def with_rates(cost: TrainingEstimate, rate: float, evaluating: float, source: RateSource) -> TrainingEstimate:
    """The time at these tokens a second, of training and of held-out evaluation."""
    evaluation = cost.evaluated_tokens / evaluating if cost.evaluations else 0.0
    return replace(cost, seconds=cost.tokens / rate + evaluation, evaluation_seconds=evaluation, rate_from=source)


def rate_name(plan: Plan, processes: int = 1, what: Literal["train", "evaluate"] = "train") -> str:
    """The name under which this machine remembers a rate: everything that the time per token depends on."""
    config = plan.config
    parts = [config.base, config.device or "device not named", config.dtype, config.objective, f"{plan.window_views} views"]
    parts += [f"layers {config.layers or 'all'}", f"microbatch {config.microbatch}", f"{processes} processes"]
    return f"{what}: " + ", ".join([*parts, *(["gradient checkpointing"] if config.gradient_checkpointing else [])])


def _memory(config: TrainConfig, tokens: float) -> float | None:
    """Weights, plus what a backward pass keeps: about 34 hidden-sized values per token and layer, 2 with checkpointing."""
    shape = base_shape(config.base)
    if shape is None:
        return None
    size = 4 if config.dtype == "float32" else 2
    stored = 2 if shape.get("dtype") in ("bfloat16", "float16") else 4
    weights = sum(file.stat().st_size for file in base_folder(config.base).glob("*.safetensors")) * size / stored
    per_layer = 2 if config.gradient_checkpointing else 34
    activations = tokens * int(shape["hidden_size"]) * int(shape["num_hidden_layers"]) * per_layer * size
    return (weights + activations) / 1e9
