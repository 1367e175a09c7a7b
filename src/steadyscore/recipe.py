"""What a training run is: one frozen value, and one validator for flags and YAML."""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from .collection import open_collection
from .disk import is_there
from .errors import InputError, SteadyscoreError
from .extras import check_installed
from .models import base_shape, no_base
from .objectives import Convention
from .scorer import Settings
from .tasks import TASKS
from .terms import Markers, Placeholder, PromptStyle

RECIPES = Path(__file__).parent / "recipes"

Objective = Literal[
    "single_order",
    "order_averaged",
    "oc_sft",
    "permutation_augmentation",
    "debias_first",
    "mean_teacher",
    "kl_to_base",
    "dropout",
    "dropout_views",
    "marker_consistency",
]

SEVERAL_VIEWS = ("oc_sft", "permutation_augmentation", "debias_first", "mean_teacher", "dropout_views", "marker_consistency")
"""Objectives that read a window more than once per step."""
SHUFFLED = ("oc_sft", "permutation_augmentation", "debias_first", "mean_teacher")
"""Objectives whose views are orders."""
WEIGHTED = ("oc_sft", "mean_teacher", "kl_to_base", "dropout_views", "marker_consistency")
"""Objectives with a term beside the anchor."""
DEFAULT_WEIGHTS = {"mean_teacher": 0.5, "kl_to_base": 0.05}
"""The paper's (§D.2); the consistency objectives take the task's weight."""
CONVENTION_SCALE: dict[Convention, float] = {"pairwise": 1, "variance": 4, "relative": 0.4}
"""The task's pairwise weight in other conventions, at two views; a relative 2 is a variance of 20 where scores spread by 0.3."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One training run. Defaults are the paper's table of settings (§B.3)."""

    base: str = ""
    """Scorer address of the base: an embedded name or hf:<id or path>."""
    data: str = ""
    labels: str = ""
    """A label folder, or `judgements`."""
    out: str = ""
    objective: Objective = "oc_sft"
    weight: float | None = None
    """Weight of the term beside the anchor. None: the task's on the released code's scale, in this run's convention."""
    weight_convention: Convention = "variance"
    """`variance`: the paper's formula. `pairwise`: the released code's, four times as strong at N = 2. `relative`: the variance
    as a share of the window's spread, which shrinking the scores hardly lowers."""
    ramp: float = 0
    """Steps over which the weight grows from 0; below 1, a fraction of the run. The paper: 500 of 2,305 steps."""
    anchor: float = 1.0
    """Weight of the relevance anchor; 0 shows the collapse (§4)."""
    grade_share: float = 0.0
    """Share of the anchor that is cross-entropy to the teacher's grade distribution instead of squared error."""
    views: int = 2
    """N, views of a window per step."""
    widths: tuple[int, ...] = ()
    """Candidates per window, B; several are drawn per window. Empty: the task's."""
    shuffle: Literal["none", "window", "pool"] | None = None
    """Orders of a window: the first stage's, shuffles inside it, or windows of shuffled pools, which change companions.
    None: the objective's own (§B.3): none for those with one view or other markers, inside windows for the rest."""
    teacher_orders: int | None = None
    """T, stored orders averaged into the target. None: 1, and all of them for order_averaged."""
    propensity: Literal["judgements", "rankings"] = "judgements"
    """DebiasFirst: slots of judged relevant candidates, or of those the teacher ranks first."""
    judged_top: int = 3
    """Labels from judgements: the collection's highest judgement, which becomes grade 3."""
    steps: int | None = None
    epochs: float = 1.0
    batch: int = 64
    """Windows per optimizer step, over all processes."""
    microbatch: int = 1
    """Windows per forward pass; their views stand beside them."""
    learning_rate: float = 2e-4
    warmup: float = 0.1
    clip: float = 1.0
    rank: int = 16
    alpha: int = 32
    dropout: float = 0.05
    projections: tuple[str, ...] = PROJECTIONS
    layers: str | None = None
    """Layers that carry LoRA, as FIRST-LAST; None: all. Fewer lower layers make the backward pass cheaper."""
    initial: str | None = None
    """An adapter folder to go on from (re-distillation, a curriculum)."""
    ema_decay: float = 0.999
    seed: int = 42
    queries: int | None = None
    pool: int | None = None
    chars: int | None = None
    instruction: str | None = None
    markers: Markers = "numeric"
    placeholder: Placeholder = "0"
    prompt: PromptStyle = "paper"
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the frozen base; the adapter is float32."""
    device: str | None = None
    gradient_checkpointing: bool = False
    held_out: int = 0
    """The last queries of the collection: evaluated, never trained on."""
    held_out_data: str | None = None
    """Another collection to evaluate on."""
    held_out_permutations: int = 3
    """Shuffles of the stability proxy."""
    evaluate_every: int | None = None
    checkpoint_every: int = 100
    keep: int = 2
    """Checkpoints kept: the last ones, and as many with the best held-out quality."""
    trackers: tuple[str, ...] = ()
    """tensorboard, wandb, mlflow: through Accelerate, besides log.jsonl."""


def settings(config: TrainConfig, collection: Any) -> Settings:
    """How training shows a window: the same value a scorer takes."""
    return Settings(
        width=None if config.prompt == "set" else max(widths(config, collection.task)),  # a set is the whole pool, once trained
        chars=config.chars if config.chars is not None else collection.chars,
        markers=config.markers,
        placeholder=config.placeholder,
        instruction=config.instruction or collection.instruction,
        label_mass=False,
        prompt=config.prompt,
    )


def widths(config: TrainConfig, task: str) -> tuple[int, ...]:
    return config.widths or (TASKS[task].width,)


def weight(config: TrainConfig, task: str) -> float:
    """The weight in the run's own convention; the recipes state it pairwise, four times less (docs/objectives.md)."""
    if config.objective not in WEIGHTED:
        return 0.0
    if config.weight is not None:
        return config.weight
    if config.objective in DEFAULT_WEIGHTS:
        return DEFAULT_WEIGHTS[config.objective]
    return TASKS[task].weight * CONVENTION_SCALE[config.weight_convention]


def shuffle(config: TrainConfig) -> str:
    return config.shuffle or ("window" if config.objective in SHUFFLED else "none")


def pool_views(config: TrainConfig) -> int:
    """Shuffled pools that are cut into windows of their own; 0: only the first stage's order is."""
    return config.views if shuffle(config) == "pool" else 0


def window_views(config: TrainConfig) -> int:
    """Presentations of a window that a step reads: N, or 1 where N shuffled pools were cut."""
    return config.views if config.objective in SEVERAL_VIEWS and not pool_views(config) else 1


def ramp_steps(config: TrainConfig, steps: int) -> int:
    return round(config.ramp * steps) if 0 < config.ramp < 1 else int(config.ramp)


def layer_indices(layers: str | None) -> list[int] | None:
    if layers is None:
        return None
    first, _, last = layers.partition("-")
    return list(range(int(first), int(last or first) + 1))


def training_steps(config: TrainConfig, windows: int) -> int:
    """Optimizer steps: as asked, or enough to see every window `epochs` times."""
    return config.steps if config.steps is not None else math.ceil(windows * config.epochs / config.batch)


# -- building and checking


def from_mapping(values: Mapping[str, Any], start: TrainConfig | None = None) -> TrainConfig:
    """A config from a recipe's or the flags' values; unknown keys and wrong kinds are told all at once."""
    known = {f.name: f for f in fields(TrainConfig)}
    hints = get_type_hints(TrainConfig)
    found: list[str] = []
    kept: dict[str, Any] = {}
    for key, value in values.items():
        if key == "width":
            key, value = "widths", value if isinstance(value, list | tuple) else [value]
        if not isinstance(key, str):
            found.append(f"key {key!r} is not a word. Known: {', '.join(known)}.")
            continue
        if key not in known:
            near = difflib.get_close_matches(key, [*known, "width"], n=1)
            found.append(f"unknown key {key!r}" + (f": did you mean {near[0]!r}?" if near else f". Known: {', '.join(known)}."))
            continue
        value = tuple(value) if isinstance(value, list) else value
        if mistake := _kind_mistake(key, value, hints[key]):
            found.append(mistake)
        else:
            kept[key] = value
    config = replace(start or TrainConfig(), **kept)
    if found:  # no config comes of it, so what is wrong with the other values is told here
        raise InputError([*found, *(mistake for key in kept if (mistake := _field_mistake(config, key)))])
    return config


def _kind_mistake(key: str, value: Any, hint: Any) -> str | None:
    options = get_args(hint) or (hint,)
    if literals := [word for option in (hint, *options) for word in get_args(option) if isinstance(word, str)]:
        return (
            None
            if value in literals or (value is None and type(None) in options)
            else f"{key} is {value!r}; use one of {', '.join(literals)}"
        )
    if hint in (tuple[int, ...], tuple[str, ...]):
        kind = get_args(hint)[0]
        good = isinstance(value, tuple) and all(isinstance(v, kind) and not isinstance(v, bool) for v in value)
        return None if good else f"{key} is {value!r}; give a list of {kind.__name__} values"
    kinds = tuple(o for o in options if isinstance(o, type))
    if bool not in kinds and isinstance(value, bool):
        return f"{key} is {value!r}; give {' or '.join(k.__name__ for k in kinds)}"
    wider = (*kinds, int) if float in kinds else kinds
    return (
        None
        if isinstance(value, wider)
        else f"{key} is {value!r}; give {' or '.join(k.__name__ for k in kinds if k is not type(None))}"
    )


def read_recipe(name: str) -> dict[str, Any]:
    """The values of a shipped recipe or a YAML file."""
    check_installed("A recipe", "yaml")
    import yaml

    file = RECIPES / f"{name}.yaml" if not name.endswith((".yaml", ".yml")) else Path(name)
    if not file.exists():
        raise InputError(f"recipe {name} does not exist. Shipped: {', '.join(shipped())}; a file ends in .yaml.")
    try:
        values = yaml.safe_load(file.read_bytes().decode("utf-8"))
    except UnicodeDecodeError as damage:
        raise InputError(f"{file} is not text in UTF-8: {damage}. Save it as UTF-8.") from damage
    except OSError as refusal:
        raise InputError(f"{file} cannot be read: {refusal.strerror or refusal}.") from refusal
    except (yaml.YAMLError, ValueError, RecursionError) as damage:  # ValueError: a date or number that does not exist
        raise InputError(f"{file} is not YAML: {' '.join(str(damage).split())}") from damage
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no keys. A recipe is a list of `key: value` lines.")
    return values


def shipped() -> list[str]:
    return sorted(file.stem for file in RECIPES.glob("*.yaml"))


POSITIVE = (
    "views", "batch", "microbatch", "rank", "alpha", "learning_rate", "clip", "checkpoint_every", "keep", "epochs", "judged_top",
    "steps", "queries", "pool", "chars", "teacher_orders", "held_out_permutations",
)  # fmt: skip
NOT_NEGATIVE = ("weight", "ramp", "anchor", "held_out", "evaluate_every")


def mistakes(config: TrainConfig, processes: int = 1) -> list[str]:
    """Everything wrong with a run that can be told without loading a model."""
    found = [f"{name} is missing" for name in ("base", "data", "labels", "out") if not getattr(config, name)]
    found += [mistake for f in fields(config) if (mistake := _field_mistake(config, f.name))]
    if config.objective in SEVERAL_VIEWS and config.views < 2:
        found.append(f"{config.objective} compares views of a window; views is {config.views}, give at least 2")
    if config.objective == "mean_teacher" and config.views != 2:
        found.append(f"mean_teacher has two views, the student's and the teacher's; views is {config.views}")
    if config.objective == "oc_sft" and config.widths and max(config.widths) == 1:
        found.append("oc_sft at width 1 has one order only; give a width of at least 2")
    if config.shuffle == "pool" and config.objective in WEIGHTED:
        found.append(
            f"shuffle pool changes companions between views, which {config.objective} cannot compare; use shuffle window"
        )
    if config.shuffle == "none" and config.objective in SHUFFLED:
        found.append(f"{config.objective} compares orders of a window; use shuffle window")
    if config.prompt == "set" and config.objective in (*SHUFFLED, "marker_consistency"):
        found.append(
            f"{config.objective} compares presentations of a window, and a set has one; use single_order or order_averaged"
        )
    if config.objective == "order_averaged" and config.teacher_orders == 1:
        found.append("order_averaged with teacher_orders 1 is single_order; name it so, or raise teacher_orders")
    if config.dropout == 0 and config.objective in ("dropout", "dropout_views"):
        found.append(f"{config.objective} needs a dropout above 0")
    per_pass = config.microbatch * processes
    if config.batch > 0 and per_pass > 0 and config.batch % per_pass:
        found.append(
            f"batch {config.batch} does not divide into {processes} process(es) x microbatch {config.microbatch}; "
            f"choose a batch that is a multiple of {per_pass}"
        )
    count = (base_shape(config.base) or {}).get("num_hidden_layers")
    if count and config.layers and _is_range(config.layers) and (mistake := layers_mistake(config, count)):
        found.append(mistake)
    if config.steps is not None and config.ramp > config.steps:
        found.append(f"ramp {config.ramp:g} is longer than the run of {config.steps} steps; shorten it or give a fraction")
    if config.evaluate_every and not (config.held_out or config.held_out_data):
        found.append("evaluate_every needs queries to evaluate on; give held_out or held_out_data")
    if config.held_out > 0 and config.data:
        try:
            queries = _queries(config)
            if config.held_out >= queries:
                found.append(f"held_out {config.held_out} leaves nothing of {queries} queries to train on; hold out fewer")
        except SteadyscoreError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def layers_mistake(config: TrainConfig, count: int) -> str | None:
    """Layers that a base of `count` layers does not have."""
    layers = layer_indices(config.layers)
    if layers and layers[-1] >= count:
        return f"layers {config.layers} go beyond the {count} layers of {config.base}, counted from 0"
    return None


def _field_mistake(config: TrainConfig, name: str) -> str | None:
    """What is wrong with one field, whatever the others are."""
    value = getattr(config, name)
    if value is None or value == "":
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}; give a finite number"
    if name in POSITIVE and value <= 0:
        return f"{name} is {value}; it must be above 0"
    if name in NOT_NEGATIVE and value < 0:
        return f"{name} is {value}; it must not be negative"
    if name in ("dropout", "warmup", "ema_decay") and not 0 <= value < 1:
        return f"{name} is {value}; it must lie in [0, 1)"
    if name == "grade_share" and not 0 <= value <= 1:
        return f"grade_share is {value}; it must lie in [0, 1]"
    if name == "widths" and any(width < 1 for width in value):
        return f"widths {list(value)} hold a width below 1"
    if name == "layers" and not _is_range(value):
        return f"layers is {value!r}; write FIRST-LAST, counted from 0, for example 6-29"
    if name == "base":
        return no_base(value)
    if name == "labels" and value != "judgements" and not is_there(Path(value) / "labels.parquet"):
        return f"{value} holds no labels.parquet; make it with: {_label_command(config)}"
    if name == "initial" and not is_there(Path(value) / "adapter_config.json"):
        return f"{value} is not an adapter folder: it has no adapter_config.json"
    if name in ("data", "held_out_data"):
        try:
            open_collection(value)
        except SteadyscoreError as error:
            return str(error)
    return None


def _label_command(config: TrainConfig) -> str:
    """The command that makes a run's labels: the base teaches itself, as in the paper (§4)."""
    words = ["steadyscore", "label", "--scorer", config.base or "ADDRESS", "--data", config.data or "NAME"]
    for name in ("queries", "pool"):
        words += [f"--{name}", str(getattr(config, name))] if getattr(config, name) else []
    return shlex.join([*words, "--out", config.labels])


def _queries(config: TrainConfig) -> int:
    """Queries of the training collection, as many as are taken of it."""
    source = open_collection(config.data)
    collection, instances = source.collection, source.instances
    everyone = collection.queries if collection.queries is not None else sum(1 for _ in instances())
    return min(everyone, config.queries or everyone)


def _is_range(text: str) -> bool:
    first, _, last = text.partition("-")
    return first.isdigit() and (not last or (last.isdigit() and int(last) >= int(first)))


# -- as a record keeps it


def to_json(config: TrainConfig) -> dict[str, Any]:
    """Fields that differ from the defaults are what was asked; all of them are what was resolved."""
    return {f.name: _plain(getattr(config, f.name)) for f in fields(TrainConfig)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
