"""Everything wrong with a training run that can be found without loading a model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..collection import open_collection
from ..collection.splits import shared_mistakes
from ..errors import InputError, SteadyscoreError
from ..machine.disk import is_there, read_json
from ..machine.places import is_address
from ..models.embedded import base_address_mistake, base_shape
from ..scoring.config import Cut
from ..scoring.score import cut_instances
from .examples import TRAINING_MARKERS, Data, training_data
from .labels import has_labels
from .objectives import OBJECTIVES
from .plan import layer_indices
from .recipe import TrainConfig, by_field, to_json, value_mistakes

REQUIRED = ("base", "data", "labels", "out")


def checked_data(config: TrainConfig, processes: int = 1) -> Data:
    """What a run trains on; everything wrong with the run that can be seen without a model is raised."""
    if mistakes := config_mistakes(config, processes):
        raise InputError(mistakes)
    return training_data(config)


def make_config(values: Mapping[Any, Any]) -> TrainConfig:
    """A config from a recipe's or the flags' values; unknown keys and wrong values are named all at once."""
    known, unknown = by_field(values)
    mistakes = value_mistakes(known)
    if unknown or mistakes:  # no config comes of it, so what the good values name and is not there is named too
        usable = TrainConfig(**{name: value for name, value in known.items() if name not in mistakes})
        raise InputError([*unknown, *mistakes.values(), *place_mistakes(usable)])
    return TrainConfig(**known)


def config_mistakes(config: TrainConfig, processes: int = 1) -> list[str]:
    """Every mistake of a run, each once."""
    missing = [f"{name} is missing" for name in REQUIRED if not getattr(config, name)]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in to_json(config).items()}
    refused = value_mistakes(values)
    defaults = TrainConfig()
    usable = replace(config, **{name: getattr(defaults, name) for name in refused})
    together = [rule.mistake(usable) for rule in RULES if not refused.keys() & set(rule.fields)]
    batch = None if refused.keys() & {"batch", "microbatch"} else _batch_mistake(config, processes)
    mistakes = [*missing, *refused.values(), *(mistake for mistake in (*together, batch) if mistake), *place_mistakes(usable)]
    return list(dict.fromkeys(mistakes))


# -- fields together


class Rule(NamedTuple):
    """A mistake that some fields make together; it is not looked for where one of them is wrong by itself."""

    fields: tuple[str, ...]
    mistake: Callable[[TrainConfig], str | None]


def _views_mistake(config: TrainConfig) -> str | None:
    objective = OBJECTIVES[config.objective]
    if objective.views != "one" and config.views < 2:
        return f"{config.objective} compares views of a window; views is {config.views}, give at least 2"
    if objective.exact_views not in (None, config.views):
        return f"{config.objective} has {objective.exact_views} views, the student's and the teacher's; views is {config.views}"
    return None


def _width_mistake(config: TrainConfig) -> str | None:
    objective = OBJECTIVES[config.objective]
    is_alone = objective.views == "orders" and objective.weight == "task" and config.widths and max(config.widths) == 1
    return f"{config.objective} at width 1 has one order only; give a width of at least 2" if is_alone else None


def _shuffle_mistake(config: TrainConfig) -> str | None:
    objective = OBJECTIVES[config.objective]
    if config.shuffle == "pool" and objective.weight is not None:
        return f"shuffle pool changes companions between views, which {config.objective} cannot compare; use shuffle window"
    if config.shuffle == "none" and objective.views == "orders":
        return f"{config.objective} compares orders of a window; use shuffle window"
    return None


def _set_mistake(config: TrainConfig) -> str | None:
    compares = config.prompt == "set" and OBJECTIVES[config.objective].views in ("orders", "markers")
    use = "use single_order or order_averaged"
    return f"{config.objective} compares presentations of a window, and a set has one; {use}" if compares else None


def _teacher_mistake(config: TrainConfig) -> str | None:
    name = config.objective
    if OBJECTIVES[name].teacher_orders is not None:
        return None
    if config.labels == "judgements":
        return f"judgements are labels of one order, so {name} is single_order; name it so, or label with a teacher"
    is_single = config.teacher_orders == 1
    return f"{name} with teacher_orders 1 is single_order; name it so, or raise teacher_orders" if is_single else None


def _dropout_mistake(config: TrainConfig) -> str | None:
    needs = "dropout" in OBJECTIVES[config.objective].own and config.dropout == 0
    return f"{config.objective} needs a dropout above 0" if needs else None


def _weight_mistake(config: TrainConfig) -> str | None:
    if OBJECTIVES[config.objective].weight is not None or not config.weight:
        return None
    return f"{config.objective} has no penalty, so weight {config.weight:g} would change nothing; leave it out"


def _markers_mistake(config: TrainConfig) -> str | None:
    is_unseen = OBJECTIVES[config.objective].views == "markers" and config.markers not in TRAINING_MARKERS
    use = f"it trains with {', '.join(TRAINING_MARKERS)}; choose one of them"
    return f"{config.objective} keeps the markers {config.markers} for tests, {use}" if is_unseen else None


def _share_mistake(config: TrainConfig) -> str | None:
    shares = {name: getattr(config, name) for name in ("grade_share", "preference_share") if getattr(config, name) > 0}
    if OBJECTIVES[config.objective].has_slot_weights and shares:
        return f"{config.objective} weighs squared errors by their slot; leave {' and '.join(shares)} at 0"
    if sum(shares.values()) > 1 + 1e-9:
        return f"grade_share and preference_share are shares of one anchor; {config.grade_share:g} and " + (
            f"{config.preference_share:g} are more than 1 together"
        )
    return None


def _ramp_mistake(config: TrainConfig) -> str | None:
    if config.ramp is not None and config.ramp > 1 and config.ramp % 1:
        return f"ramp {config.ramp:g} is neither a number of steps nor a fraction of the run; give a whole number, or less than 1"
    if config.steps is None or config.ramp is None or config.ramp <= config.steps:
        return None
    return f"ramp {config.ramp:g} is longer than the run of {config.steps} steps; shorten it or give a fraction"


def _evaluation_mistake(config: TrainConfig) -> str | None:
    is_idle = config.evaluate_every and not (config.held_out or config.held_out_data)
    return "evaluate_every needs queries to evaluate on; give held_out or held_out_data" if is_idle else None


def _permutations_mistake(config: TrainConfig) -> str | None:
    is_one = (config.held_out or config.held_out_data) and config.held_out_permutations < 2
    return "held_out_permutations is 1, and a change of order needs 2 or more" if is_one else None


def _two_sources_mistake(config: TrainConfig) -> str | None:
    is_double = config.held_out and config.held_out_data
    return "held_out takes queries from training that held_out_data then replaces; give one of them" if is_double else None


def _apart_mistake(config: TrainConfig) -> str | None:
    if not (config.apart_from and config.data):
        return None
    cut = Cut(config.queries, config.pool)
    try:
        source = open_collection(config.data)
        mistakes = shared_mistakes(config.data, lambda: cut_instances(source.instances(), cut), config.apart_from)
    except SteadyscoreError as error:
        return str(error)
    return "\n".join(mistakes) or None


def _layers_mistake(config: TrainConfig) -> str | None:
    if config.layers is None:
        return None
    if not _is_range(config.layers):
        return f"layers is {config.layers!r}; write FIRST-LAST, counted from 0, for example 6-29"
    count = (base_shape(config.base) or {}).get("num_hidden_layers")
    return layer_count_mistake(config, count) if count else None


RULES = (
    Rule(("objective", "views"), _views_mistake),
    Rule(("objective", "widths"), _width_mistake),
    Rule(("objective", "shuffle"), _shuffle_mistake),
    Rule(("objective", "prompt"), _set_mistake),
    Rule(("objective", "labels", "teacher_orders"), _teacher_mistake),
    Rule(("objective", "dropout"), _dropout_mistake),
    Rule(("objective", "weight"), _weight_mistake),
    Rule(("objective", "markers"), _markers_mistake),
    Rule(("objective", "grade_share", "preference_share"), _share_mistake),
    Rule(("base", "layers"), _layers_mistake),
    Rule(("ramp", "steps"), _ramp_mistake),
    Rule(("evaluate_every", "held_out", "held_out_data"), _evaluation_mistake),
    Rule(("held_out", "held_out_data", "held_out_permutations"), _permutations_mistake),
    Rule(("held_out", "held_out_data"), _two_sources_mistake),
    Rule(("data", "apart_from", "queries", "pool"), _apart_mistake),
)


def _batch_mistake(config: TrainConfig, processes: int) -> str | None:
    per_pass = config.microbatch * processes
    if config.batch % per_pass == 0:
        return None
    return (
        f"batch {config.batch} does not divide into {processes} process(es) x microbatch {config.microbatch}; "
        f"choose a batch that is a multiple of {per_pass}"
    )


def layer_count_mistake(config: TrainConfig, count: int) -> str | None:
    """Layers that a base of `count` layers does not have."""
    layers = layer_indices(config.layers)
    if layers and layers[-1] >= count:
        return f"layers {config.layers} go beyond the {count} layers of {config.base}, counted from 0"
    return None


def _is_range(text: str) -> bool:
    parts = re.fullmatch(r"([0-9]{1,6})(?:-([0-9]{1,6}))?", text)
    return parts is not None and int(parts[2] or parts[1]) >= int(parts[1])


# -- what is named must be there


def place_mistakes(config: TrainConfig) -> list[str]:
    """Models, collections and folders that a config names and that are not there."""
    mistakes = [
        base_address_mistake(config.base) if config.base else None,
        *(_data_mistake(name) for name in (config.data, config.held_out_data, *config.apart_from) if name),
        _labels_mistake(config),
        _initial_mistake(config),
        _out_mistake(config),
    ]
    return [mistake for mistake in mistakes if mistake]


def _data_mistake(name: str) -> str | None:
    try:
        open_collection(name)
    except SteadyscoreError as error:
        return str(error)
    return None


def _labels_mistake(config: TrainConfig) -> str | None:
    try:
        if config.labels in ("", "judgements") or has_labels(config.labels):
            return None
    except SteadyscoreError as error:  # a store that cannot be reached
        return str(error)
    return f"{config.labels} holds no labels.parquet; make it with: {_label_command(config)}"


def _label_command(config: TrainConfig) -> str:
    """The command that makes a run's labels: the base teaches itself, as in the paper (§4)."""
    words = ["steadyscore", "label", "--scorer", config.base or "ADDRESS", "--data", config.data or "NAME"]
    for name in ("queries", "pool"):
        words += [f"--{name}", str(getattr(config, name))] if getattr(config, name) else []
    return shlex.join([*words, "--out", config.labels])


def _out_mistake(config: TrainConfig) -> str | None:
    return f"out is {config.out}, and adapters are written here: give a path of this machine" if is_address(config.out) else None


def _initial_mistake(config: TrainConfig) -> str | None:
    if not config.initial:
        return None
    file = Path(config.initial) / "adapter_config.json"
    if not is_there(file):
        return f"{config.initial} is not an adapter folder: it has no adapter_config.json"
    try:
        own = read_json(file)
    except SteadyscoreError as error:
        return str(error)
    layers, modules = own.get("layers_to_transform"), own.get("target_modules")
    has = {
        "rank": own.get("r"), "alpha": own.get("lora_alpha"),
        "projections": sorted(map(str, modules)) if isinstance(modules, list) else modules,
        "layers": [layers] if isinstance(layers, int) else layers or "all",
    }  # fmt: skip
    indices = layer_indices(config.layers) if config.layers and _is_range(config.layers) else None
    asked = {
        "rank": config.rank, "alpha": config.alpha,
        "projections": sorted(config.projections), "layers": list(indices) if indices else "all",
    }  # fmt: skip
    differ = [f"{name} {has[name]} and not {asked[name]}" for name in has if has[name] != asked[name]]
    return f"{config.initial} was trained with {', '.join(differ)}; a run that starts from it keeps its LoRA" if differ else None
