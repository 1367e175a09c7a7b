"""What a training run is: one frozen value from flags, a mapping or a YAML file, checked, and with every default worked out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from ..errors import InputError
from ..machine.bounds import AboveZero, BelowOne, NotNegative, Positive, Share, ZeroOrMore
from ..machine.contents import read_whole
from ..machine.extras import check_installed
from ..machine.names import nearest
from ..scoring.scorer import Settings
from ..tasks import TASKS, Task
from ..terms import Collection, JsonObject, Markers, Placeholder, PromptStyle
from .objectives import OBJECTIVES, Convention, Objective, ObjectiveName

if TYPE_CHECKING:
    from pydantic import BaseModel

RECIPES = Path(__file__).parent / "recipes"

Shuffle = Literal["none", "window", "pool"]

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """One training run; its fields are a recipe's keys and the flags of `train`. Defaults are the paper's settings (§B.3)."""

    base: str = ""
    """The model to adapt: an embedded name, or hf:<id or path>."""
    data: str = ""
    """The training collection."""
    labels: str = ""
    """Label folder, or `judgements` for the human ones."""
    out: str = ""
    """Adapter folder; the same command resumes what was stopped."""
    objective: ObjectiveName = "oc_sft"
    """What is minimised."""
    weight: ZeroOrMore | None = None
    """Weight of the objective's penalty (default: the paper's for the task, in this run's convention)."""
    weight_convention: Convention = "variance"
    """The weight's term: `variance`, the paper's formula; `pairwise`, the released code's, four times as strong at N = 2;
    `relative`, the variance as a share of the window's spread, which shrinking the scores hardly lowers."""
    ramp: ZeroOrMore | None = None
    """Steps over which the weight grows from 0; below 1, a fraction of the run; 0: none (default: the paper's 500 of 2,305
    steps as a fraction, for objectives whose weight is the task's)."""
    anchor: ZeroOrMore = 1.0
    """Weight of the relevance anchor; 0 shows the collapse (§4)."""
    grade_share: Share = 0.0
    """Share of the anchor that is cross-entropy to the teacher's grade distribution instead of squared error."""
    preference_share: Share = 0.0
    """Share of the anchor that compares pairs (Bradley-Terry) instead of squared error: for labels that are choices."""
    views: Positive = 2
    """Views of a window per step, N."""
    widths: tuple[Positive, ...] = ()
    """Candidates per window, B; several are mixed (default: the task's)."""
    shuffle: Shuffle | None = None
    """Orders of a window: the first stage's, shuffles inside it, or windows of shuffled pools, which change companions
    (default: the objective's own, §B.3: none for those with one view or other markers, inside windows for the rest)."""
    teacher_orders: Positive | None = None
    """Stored teacher orders averaged into the target, T (default: 1, and all of them for order_averaged)."""
    propensity: Literal["judgements", "rankings"] = "judgements"
    """DebiasFirst: slots of judged relevant candidates, or of those the teacher ranks first."""
    judged_top: Positive = 3
    """Highest judgement of the collection, which becomes grade 3 where labels are judgements."""
    steps: Positive | None = None
    """Optimizer steps (default: by --epochs)."""
    epochs: AboveZero = 1.0
    """Passes over the windows, where steps are not given."""
    batch: Positive = 64
    """Windows per optimizer step, over all processes."""
    microbatch: Positive = 1
    """Windows per forward pass; with all their views."""
    learning_rate: AboveZero = 2e-4
    """Peak of the schedule."""
    warmup: BelowOne = 0.1
    """Share of the run with a rising learning rate."""
    clip: AboveZero = 1.0
    """Largest gradient norm."""
    rank: Positive = 16
    """LoRA rank."""
    alpha: Positive = 32
    """LoRA alpha."""
    dropout: BelowOne | None = None
    """LoRA dropout (default: 0.05, and 0.2 for the objective `dropout`)."""
    projections: tuple[str, ...] = PROJECTIONS
    """Projections that carry LoRA."""
    layers: str | None = None
    """Layers that carry LoRA, FIRST-LAST from 0 (default: all). Fewer lower layers make the backward pass cheaper."""
    initial: str | None = None
    """Adapter folder to start from (re-distillation, a curriculum)."""
    ema_decay: BelowOne = 0.999
    """Decay of the mean teacher."""
    seed: int = 42
    """Seed of data order, views, initial weights and dropout."""
    queries: Positive | None = None
    """Only the first N queries."""
    pool: Positive | None = None
    """Only the first N candidates of each pool."""
    chars: Positive | None = None
    """Characters kept of each candidate (default: the collection's)."""
    instruction: str | None = None
    """Instruction line, instead of the collection's."""
    markers: Markers = "numeric"
    """Labels of the slots."""
    placeholder: Placeholder = "0"
    """Grade that fills the answer skeleton."""
    prompt: PromptStyle = "paper"
    """How a window is worded and read."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the frozen base; the adapter is float32."""
    device: str | None = None
    """cpu, cuda, cuda:1 (default: CUDA where there is one)."""
    gradient_checkpointing: bool = False
    """Trade time for memory."""
    apart_from: tuple[str, ...] = ()
    """Refuse to train on data that shares a query (by id or text) or a candidate (by text) with these collections."""
    held_out: NotNegative = 0
    """The last queries of the collection: evaluated, never trained on."""
    held_out_data: str | None = None
    """Another collection to evaluate on."""
    held_out_permutations: Positive = 3
    """Shuffles of the stability proxy."""
    evaluate_every: NotNegative | None = None
    """Steps between held-out evaluations."""
    checkpoint_every: Positive = 100
    """Steps between checkpoints."""
    keep: Positive = 2
    """Checkpoints kept: the last N, and the N with the best held-out quality."""
    trackers: tuple[str, ...] = ()
    """tensorboard, wandb, mlflow: through Accelerate, besides log.jsonl."""


FIELDS = tuple(field.name for field in fields(TrainConfig))


# -- from values


def by_field(values: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    """Values by the field that they fill, and the keys that name none."""
    known: dict[str, Any] = {}
    unknown: list[str] = []
    for key, value in values.items():
        if key == "width":
            key, value = "widths", value if isinstance(value, list | tuple) else [value]
        if key in FIELDS:
            known[key] = tuple(value) if isinstance(value, list) else value
        else:
            unknown.append(_unknown(key))
    return known, unknown


def _unknown(key: Any) -> str:
    if not isinstance(key, str):
        return f"key {key!r} is not a word. Known: {', '.join(FIELDS)}."
    near = nearest(key, [*FIELDS, "width"])
    return f"unknown key {key!r}" + (f": did you mean {near!r}?" if near else f". Known: {', '.join(FIELDS)}.")


def value_mistakes(values: Mapping[str, Any]) -> dict[str, str]:
    """Field -> what is wrong with its value by itself: its kind, bounds or choice."""
    from pydantic import ValidationError

    try:
        _validator().model_validate(dict(values))
    except ValidationError as error:
        names = [str(mistake["loc"][0]) for mistake in error.errors()]
        return {
            name: f"{name} is {_shown(values[name])}; {_remedy(name, mistake)}"
            for name, mistake in zip(names, error.errors(), strict=True)
        }
    return {}


@cache
def _validator() -> type[BaseModel]:
    """The fields of `TrainConfig` as pydantic checks them: no other key, no conversion of kinds, finite numbers."""
    from pydantic import ConfigDict, create_model

    hints, defaults = get_type_hints(TrainConfig, include_extras=True), TrainConfig()
    kinds: dict[str, Any] = {name: (hints[name], getattr(defaults, name)) for name in FIELDS}
    return create_model("Recipe", __config__=ConfigDict(extra="forbid", strict=True, allow_inf_nan=False), **kinds)


def _shown(value: Any) -> str:
    return repr(list(value) if isinstance(value, tuple) else value)


_KINDS = {"int_type": "int", "float_type": "float", "string_type": "str", "bool_type": "bool"}
_LISTS = {"widths": "int", "projections": "str", "trackers": "str", "apart_from": "str"}


def _remedy(name: str, mistake: Any) -> str:
    """What to give instead, for one of pydantic's mistakes."""
    kind, context = mistake["type"], mistake.get("ctx", {})
    if kind == "literal_error":
        return f"use one of {context['expected'].replace(' or ', ', ')}".replace("'", "")
    if kind == "finite_number":
        return "give a finite number"
    if kind == "greater_than":
        return f"it must be above {context['gt']:g}"
    if kind.startswith(("greater_than", "less_than")):
        if name in ("grade_share", "preference_share"):
            return "it must lie in [0, 1]"
        return "it must lie in [0, 1)" if name in ("dropout", "warmup", "ema_decay") else "it must not be negative"
    return f"give a list of {_LISTS[name]} values" if name in _LISTS else f"give {_KINDS.get(kind, 'another value')}"


OF_ITS_OBJECTIVE = ("weight", "weight_convention", "ramp", "views", "shuffle", "dropout", "teacher_orders")
"""Settings that are chosen for an objective and say nothing to another."""


def for_objective(values: Mapping[str, Any], name: str) -> dict[str, object]:
    """A run's values under an objective, without those that were chosen for another one."""
    before = OBJECTIVES.get(str(values.get("objective", TrainConfig().objective)))
    gone = () if before is None or before.name == name else (*OF_ITS_OBJECTIVE, *before.own)
    return {key: value for key, value in values.items() if key not in gone} | {"objective": name}


# -- recipe files


def recipe_text(name: str) -> tuple[Path, str]:
    """The file of a shipped recipe, or a YAML file, and what is in it."""
    file = RECIPES / f"{name}.yaml" if not name.endswith((".yaml", ".yml")) else Path(name)
    if not file.exists():
        raise InputError(f"recipe {name} does not exist. Shipped: {', '.join(recipe_names())}; a file ends in .yaml.")
    try:
        return file, read_whole(file).decode("utf-8")
    except UnicodeDecodeError as damage:
        raise InputError(f"{file} is not text in UTF-8: {damage}. Save it as UTF-8.") from damage
    except OSError as refusal:
        raise InputError(f"{file} cannot be read: {refusal.strerror or refusal}.") from refusal


def read_recipe(name: str) -> dict[str, object]:
    """The values of a shipped recipe or a YAML file."""
    check_installed("A recipe", "yaml")
    import yaml

    file, text = recipe_text(name)
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as damage:  # ValueError: a date or number that does not exist
        raise InputError(f"{file} is not YAML: {' '.join(str(damage).split())}") from damage
    if not isinstance(values, dict):
        raise InputError(f"{file} holds no keys. A recipe is a list of `key: value` lines.")
    # Lists of aliases of lists are short as YAML and without end as text: refused before anything shows or checks them.
    if nested := [key for key, value in values.items() if isinstance(value, dict) or _holds_lists(value)]:
        names = ", ".join(str(key)[:60] for key in nested[:5])
        raise InputError(
            f"{file} holds lists or keys inside the value of {names}. Give one value, or a plain list, for each key."
        )
    return values


def _holds_lists(value: Any) -> bool:
    return isinstance(value, list | tuple | set) and any(isinstance(one, list | tuple | set | dict) for one in value)


def recipe_names() -> list[str]:
    return sorted(file.stem for file in RECIPES.glob("*.yaml"))


def to_json(config: TrainConfig) -> JsonObject:
    """Every field, as records and trackers keep it."""
    values = {name: getattr(config, name) for name in FIELDS}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


# -- with every default worked out


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
        """λ · min(step / ramp, 1), step counted from 0 (§B.3); without a ramp the weight at once."""
        return self.weight * min(step / self.ramp_steps, 1.0) if self.ramp_steps else self.weight

    def rate_at(self, step: int) -> float:
        """Linear over the first int(warmup · steps) steps, from peak / warm-up steps on; then a cosine to 0 (§B.3)."""
        warm = int(self.warmup * self.steps)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        return self.learning_rate * (1 + math.cos(math.pi * (step - warm) / max(self.steps - warm, 1))) / 2


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
