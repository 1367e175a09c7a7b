"""Everything wrong with a training run that can be found without loading a model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..collection import open_collection
from ..errors import InputError, SteadyscoreError
from ..machine.disk import is_there, read_json
from ..machine.places import is_address
from ..models.embedded import base_address_mistake, base_shape
from ..scoring.config import Cut
from ..scoring.score import check_apart
from .examples import TRAINING_MARKERS, Data, training_data
from .labels import has_labels
from .objectives import OBJECTIVES
from .recipe import TrainConfig, by_field, layer_indices, to_json, value_mistakes

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
    pairs = [*([] if "objective" in refused else _objective_mistakes(usable)), *_run_mistakes(usable, processes)]
    together = [mistake for fields, mistake in pairs if not refused.keys() & {*fields.split()}]
    return list(dict.fromkeys([*missing, *refused.values(), *together, *place_mistakes(usable)]))


# -- fields together: which they are, and the mistake that they make; none where one of them is wrong by itself


def _objective_mistakes(config: TrainConfig) -> Iterator[tuple[str, str]]:
    """What the objective does not go together with."""
    name, objective = config.objective, OBJECTIVES[config.objective]
    if objective.views != "one" and config.views < 2:
        yield "views", f"{name} compares views of a window; views is {config.views}, give at least 2"
    elif objective.exact_views not in (None, config.views):
        yield "views", f"{name} has {objective.exact_views} views, the student's and the teacher's; views is {config.views}"
    if objective.views == "orders" and objective.weight == "task" and config.widths and max(config.widths) == 1:
        yield "widths", f"{name} at width 1 has one order only; give a width of at least 2"
    if config.shuffle == "pool" and objective.weight is not None:
        yield "shuffle", f"shuffle pool changes companions between views, which {name} cannot compare; use shuffle window"
    if config.shuffle == "none" and objective.views == "orders":
        yield "shuffle", f"{name} compares orders of a window; use shuffle window"
    if config.prompt == "set" and objective.views in ("orders", "markers"):
        use = "use single_order or order_averaged"
        yield "prompt", f"{name} compares presentations of a window, and a set has one; {use}"
    if objective.teacher_orders is None and config.labels == "judgements":
        yield "labels", f"judgements are labels of one order, so {name} is single_order; name it so, or label with a teacher"
    elif objective.teacher_orders is None and config.teacher_orders == 1:
        yield "teacher_orders", f"{name} with teacher_orders 1 is single_order; name it so, or raise teacher_orders"
    if "dropout" in objective.own and config.dropout == 0:
        yield "dropout", f"{name} needs a dropout above 0"
    if objective.weight is None and config.weight:
        yield "weight", f"{name} has no penalty, so weight {config.weight:g} would change nothing; leave it out"
    if objective.views == "markers" and config.markers not in TRAINING_MARKERS:
        use = f"it trains with {', '.join(TRAINING_MARKERS)}; choose one of them"
        yield "markers", f"{name} keeps the markers {config.markers} for tests, {use}"
    shares = {name: share for name in ("grade_share", "preference_share") if (share := getattr(config, name)) > 0}
    if objective.has_slot_weights and shares:
        yield " ".join(shares), f"{name} weighs squared errors by their slot; leave {' and '.join(shares)} at 0"
    elif sum(shares.values()) > 1 + 1e-9:
        several = " and ".join(f"{share:g}" for share in shares.values())
        yield " ".join(shares), f"grade_share and preference_share are shares of one anchor; {several} are more than 1 together"


def _run_mistakes(config: TrainConfig, processes: int) -> Iterator[tuple[str, str]]:
    """What does not go together whatever the objective is."""
    if mistake := _layers_mistake(config):
        yield "base layers", mistake
    ramp, is_evaluated = config.ramp, config.held_out or config.held_out_data
    if ramp is not None and ramp > 1 and ramp % 1:
        yield "ramp", f"ramp {ramp:g} is neither a number of steps nor a fraction of the run; give a whole number, or less than 1"
    elif ramp is not None and config.steps is not None and ramp > config.steps:
        yield "ramp steps", f"ramp {ramp:g} is longer than the run of {config.steps} steps; shorten it or give a fraction"
    if config.evaluate_every and not is_evaluated:
        needs = "evaluate_every needs queries to evaluate on; give held_out or held_out_data"
        yield "evaluate_every held_out held_out_data", needs
    if is_evaluated and config.held_out_permutations < 2:
        yield "held_out held_out_permutations", "held_out_permutations is 1, and a change of order needs 2 or more"
    if config.held_out and config.held_out_data:
        twice = "held_out takes queries from training that held_out_data then replaces; give one of them"
        yield "held_out held_out_data", twice
    if config.apart_from and config.data and (mistake := _refusal(partial(_check_apart, config))):
        yield "data apart_from queries pool", mistake
    if config.batch % (per_pass := config.microbatch * processes):
        of = f"batch {config.batch} does not divide into {processes} process(es) x microbatch {config.microbatch}"
        yield "batch microbatch", f"{of}; choose a batch that is a multiple of {per_pass}"


def _check_apart(config: TrainConfig) -> None:
    check_apart([open_collection(config.data)], Cut(config.queries, config.pool), config.apart_from)


def _layers_mistake(config: TrainConfig) -> str | None:
    if config.layers is None:
        return None
    if not _is_range(config.layers):
        return f"layers is {config.layers!r}; write FIRST-LAST, counted from 0, for example 6-29"
    count = (base_shape(config.base) or {}).get("num_hidden_layers")
    return layer_count_mistake(config, count) if count else None


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
        *(_refusal(partial(open_collection, name)) for name in (config.data, config.held_out_data, *config.apart_from) if name),
        _refusal(partial(_check_labels, config)),
        _refusal(partial(_check_initial, config)),
        f"out is {config.out}, and adapters are written here: give a path of this machine" if is_address(config.out) else None,
    ]
    return [mistake for mistake in mistakes if mistake]


def _refusal(check: Callable[[], object]) -> str | None:
    """What is said against something; None where nothing is."""
    try:
        check()
    except SteadyscoreError as error:
        return str(error)
    return None


def _check_labels(config: TrainConfig) -> None:
    """Refuse labels that are not there, with the command that makes them: the base teaches itself, as in the paper (§4)."""
    if config.labels in ("", "judgements") or has_labels(config.labels):
        return
    words = ["steadyscore", "label", "--scorer", config.base or "ADDRESS", "--data", config.data or "NAME"]
    for name in ("queries", "pool"):
        words += [f"--{name}", str(getattr(config, name))] if getattr(config, name) else []
    raise InputError(f"{config.labels} holds no labels.parquet; make it with: {shlex.join([*words, '--out', config.labels])}")


def _check_initial(config: TrainConfig) -> None:
    """Refuse a start that is not an adapter, or whose LoRA differs from the run's."""
    if not config.initial:
        return
    file = Path(config.initial) / "adapter_config.json"
    if not is_there(file):
        raise InputError(f"{config.initial} is not an adapter folder: it has no adapter_config.json")
    own = read_json(file)
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
    if differ := [f"{name} {has[name]} and not {asked[name]}" for name in has if has[name] != asked[name]]:
        raise InputError(f"{config.initial} was trained with {', '.join(differ)}; a run that starts from it keeps its LoRA")
