"""What a training run will cost, before anything is loaded: steps, tokens, memory, and time from a remembered rate."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..collection import open_collection
from ..models.embedded import base_folder, base_shape
from ..scoring.estimate import speeds
from ..scoring.score import Cut, cut_instances
from ..window.prompt import CHARS_PER_TOKEN, prompt_text, shown
from .examples import has_partial_labels
from .labels import read_labels, refuse_unlabelled
from .plan import Plan, make_schedule, resolve_plan
from .recipe import TrainConfig

RateSource = Literal["remembered", "measured"]
"""From earlier training steps on this machine, or from a few microbatches just now."""


@dataclass(frozen=True, slots=True)
class TrainingEstimate:
    queries: int
    windows: int
    steps: int
    tokens: int
    """Over the whole run, all views."""
    memory: float | None
    """GB of weights, optimizer and activations on one process; None where the base is not on this disk."""
    seconds: float | None = None
    """Of the steps, without held-out evaluation; None where no rate is known."""
    rate_from: RateSource | None = None


class _Size(NamedTuple):
    """What one query adds to a run."""

    query_id: str
    has_label: bool
    windows: int
    characters: int


def estimate(config: TrainConfig, processes: int = 1) -> TrainingEstimate:
    """Steps, tokens, memory and time from the files and the remembered rate alone."""
    source = open_collection(config.data)
    plan = resolve_plan(config, source.collection)
    width = sum(plan.widths) / len(plan.widths)
    labelled = None if config.labels == "judgements" else {label.query_id for label in read_labels(config.labels)}
    orders = plan.pool_views or 1
    sizes: list[_Size] = []
    for instance in cut_instances(source.instances(), Cut(config.queries, config.pool)):
        count = orders * math.ceil(len(instance.pool) / width)
        fixed = prompt_text(plan.task, instance.query, [], instruction=plan.settings.instruction, style=config.prompt)
        frame = sum(len(piece.text) for piece in (*fixed.prefix, *fixed.body)) + len(fixed.system)
        pool = sum(len(shown(candidate, plan.settings.chars)) + 20 for candidate in instance.pool)
        has_label = instance.relevance() is not None if labelled is None else instance.id in labelled
        sizes.append(_Size(instance.id, has_label, count, count * frame + orders * pool))
    trained = sizes[: max(len(sizes) - config.held_out, 0)]
    kept = [size for size in trained if size.has_label]
    if kept and not has_partial_labels(config):
        refuse_unlabelled([f"query {size.query_id} has no label" for size in trained if not size.has_label])
    windows = sum(size.windows for size in kept)
    steps = make_schedule(plan, windows).steps
    views = plan.window_views
    per_window = sum(size.characters for size in kept) / CHARS_PER_TOKEN / max(windows, 1)
    tokens = round(steps * config.batch * views * per_window)
    memory = _memory(config, views * config.microbatch * per_window)
    cost = TrainingEstimate(len(kept), windows, steps, tokens, memory)
    rate = speeds().get(rate_name(plan, processes))
    return with_rate(cost, rate, "remembered") if rate else cost


def with_rate(cost: TrainingEstimate, rate: float, source: RateSource) -> TrainingEstimate:
    return replace(cost, seconds=cost.tokens / rate, rate_from=source)


def rate_name(plan: Plan, processes: int = 1) -> str:
    """The name under which this machine remembers a rate of training: everything that a step's time per token depends on."""
    config = plan.config
    parts = [config.base, config.device or "device not named", config.dtype, config.objective, f"{plan.window_views} views"]
    parts += [f"layers {config.layers or 'all'}", f"microbatch {config.microbatch}", f"{processes} processes"]
    return "train: " + ", ".join([*parts, *(["gradient checkpointing"] if config.gradient_checkpointing else [])])


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
