"""Three sizes of a reproduction, and what the user puts in place of the paper's models, collections and adapters."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from ..engines.synthetic import Effects, fixed_number
from ..errors import InputError
from ..machine.disk import is_there
from ..tasks import TASKS
from .names import BASES, COLLECTIONS, PRIVATE, READERS, SYSTEMS, TaskKind, collections_in, task_of
from .recipe import Side

ScaleName = Literal["tiny", "laptop", "paper"]


@dataclass(frozen=True)
class Scale:
    """How much of the paper is run, and with what."""

    name: ScaleName
    summary: str
    is_planted: bool = False
    """Planted graders and readers instead of models."""
    base: str = ""
    """The model that takes the place of every base; empty: the paper's."""
    reader: str = ""
    queries: int | None = None
    pool: Mapping[str, int] = field(default_factory=dict)
    """Candidates that are taken, by collection, else by task."""
    permutations: int | None = None
    """The most that are scored."""
    divide: Mapping[TaskKind, int] = field(default_factory=dict)
    """Widths are divided by this, to keep several windows in a small pool."""
    seeds: int = 3
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of models that score, where the user names none."""
    training: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a training run that differ from the paper's recipe."""


SCALES: dict[str, Scale] = {
    "tiny": Scale(
        "tiny",
        "parts of the embedded collections, graders with planted effects instead of models: seconds to minutes, shapes only",
        is_planted=True,
        pool={"passage_reranking": 16, "claims": 6},
        divide={"passage_reranking": 5},
        permutations=40,
    ),
    "laptop": Scale(
        "laptop",
        "the embedded collections and the embedded model, adapters of a few steps: hours on a CPU, weak scorers",
        base="smollm2-135m",
        reader="smollm2-135m",
        queries=12,
        pool={"passage_reranking": 10, "claims": 6},
        permutations=8,
        divide={"passage_reranking": 4, "multidoc_qa": 2},
        seeds=1,
        training={"queries": 12, "pool": 8, "chars": 300, "steps": 30, "batch": 2, "ramp": 0.3, "weight_convention": "variance"},
    ),
    "paper": Scale("paper", "the paper's models in bfloat16, collections, permutations and seeds: needs GPUs", dtype="bfloat16"),
}


@dataclass(frozen=True)
class Choices:
    """A scale, and what the user names instead of the paper's."""

    scale: Scale
    base: str = ""
    """Takes the place of every base."""
    bases: Mapping[str, str] = field(default_factory=dict)
    collections: Mapping[str, str] = field(default_factory=dict)
    systems: Mapping[str, str] = field(default_factory=dict)
    adapters: Mapping[str, str] = field(default_factory=dict)
    """`system[/task][/base[/seed]]` -> adapter folder."""
    readers: Mapping[str, str] = field(default_factory=dict)
    runs: Mapping[str, str] = field(default_factory=dict)
    """`system/collection` or `system/base/seed/collection` -> a finished run that is used as it is."""
    seeds: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    """Consistency weights that are all trained, of which the best on held-out queries is scored; empty: the recipe's."""
    engine: str = ""
    """What scores local models, such as vllm, while they are trained by transformers; empty: transformers too."""

    @property
    def is_planted(self) -> bool:
        """Whether graders are planted: at the tiny scale, unless the user names a base."""
        return self.scale.is_planted and not self.base

    @cached_property
    def absent(self) -> frozenset[str]:
        """Private collections that the user named nothing for."""
        given = {*self.collections, *(key.rpartition("/")[2] for key in self.runs)}
        return frozenset(PRIVATE) - given if self.scale.name == "paper" else frozenset()

    def members(self, collections: str) -> tuple[str, ...]:
        """The collections that a cell averages over: of a group those that can be had here; one that is named alone stays."""
        named = collections_in(collections)
        return tuple(name for name in named if name not in self.absent) or named

    def base_address(self, base: str) -> str:
        return self.bases.get(base) or self.base or self.scale.base or BASES[base].address

    def scoring_address(self, base: str) -> str:
        """What scores a base, with an adapter or without one."""
        address = self.base_address(base)
        is_local = address.partition(":")[0] in ("hf", address)
        return f"{self.engine}:{address.removeprefix('hf:')}" if self.engine and is_local else address

    def reader_address(self, reader: str) -> str:
        if self.is_planted:
            return f"planted:{reader}"
        return self.readers.get(reader) or self.scale.reader or READERS[reader].address

    def adapter(self, system: str, task: TaskKind, base: str, seed: int) -> str | None:
        """The adapter that is named for this task, else the one that is named for all."""
        keys = (f"{of}{rest}" for of in (f"{system}/{task}", system) for rest in (f"/{base}/{seed}", f"/{base}", ""))
        return next((self.adapters[key] for key in keys if key in self.adapters), None)

    def run(self, system: str, base: str, seed: int, collection: str) -> str | None:
        keys = (f"{system}/{base}/{seed}/{collection}", f"{system}/{collection}")
        return next((self.runs[key] for key in keys if key in self.runs), None)


TABLES: dict[str, Mapping[str, Any]] = {"bases": BASES, "collections": COLLECTIONS, "systems": SYSTEMS, "readers": READERS}
KINDS = {name: kind for name, kind in get_type_hints(Choices).items() if name != "scale"}
"""What a user may name, and what kind of value each is."""


def choices_from(scale: str, file: Path | None = None, **given: Any) -> Choices:
    """Choices from a TOML file, then from what else is given; every mistake at once."""
    merged: dict[str, Any]
    mistakes: list[str]
    merged, mistakes = _read(file) if file else ({}, [])
    for key, value in given.items():
        if value:
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, Mapping) else value
    mistakes += [
        f"{table}: {name!r} is not in the paper's tables. Known: {', '.join(known)}."
        for table, known in TABLES.items()
        for name in merged.get(table, {})
        if name not in known
    ]
    for table in ("adapters", "runs"):
        for key, folder in merged.get(table, {}).items():
            if (name := key.partition("/")[0]) not in SYSTEMS:
                mistakes.append(f"{table}: {name!r} is not a system. Known: {', '.join(SYSTEMS)}.")
            if not is_there(folder):
                mistakes.append(f"{table}: folder {folder} does not exist. Name a folder that is there.")
    tasks = get_args(TaskKind)
    for key in merged.get("adapters", {}):
        rest = key.split("/")[1:]
        rest = rest[1:] if rest[:1] and rest[0] in tasks else rest
        if len(rest) > 2 or (rest and rest[0] not in BASES) or not all(seed.isdigit() for seed in rest[1:]):
            known_names = f"Tasks: {', '.join(tasks)}. Bases: {', '.join(BASES)}."
            mistakes.append(f"adapters: {key!r} is not SYSTEM[/TASK][/BASE[/SEED]]. {known_names}")
    if mistakes:
        raise InputError(list(dict.fromkeys(mistakes)))
    lists = {name: tuple(merged.get(name, ())) for name in ("seeds", "weights")}
    return Choices(SCALES[scale], **{**merged, **lists})


def _read(file: Path) -> tuple[dict[str, Any], list[str]]:
    """What a file names, and its mistakes: keys that are not known, and values of another kind."""
    from ..machine.schemas import kind_mistakes

    try:
        values: dict[str, Any] = json.loads(json.dumps(tomllib.loads(file.read_text(encoding="utf-8")), default=str))
    except OSError as refusal:
        raise InputError(f"{file} cannot be read: {refusal.strerror or refusal}.") from refusal
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as damage:
        raise InputError(f"{file} is not TOML: {damage}.") from damage
    unknown = [f"{file}: unknown key {key!r}. Known: {', '.join(KINDS)}." for key in values if key not in KINDS]
    wrong = {key: said for key, value in values.items() if key in KINDS and (said := kind_mistakes(KINDS[key], value))}
    usable = {key: value for key, value in values.items() if key in KINDS and key not in wrong}
    return usable, [*unknown, *(f"{file}: {key}: {mistake}." for key, said in wrong.items() for mistake in said)]


# -- a side at a scale


def at_scale(side: Side, choices: Choices) -> Side:
    """A side with the seeds and permutations of the scale."""
    scale = choices.scale
    seeds = choices.seeds[: len(side.seeds)] or side.seeds[: scale.seeds]
    if SYSTEMS[side.system].training is None:
        seeds = (0,)  # nothing was trained, so there is one evaluation
    return replace(side, seeds=seeds, permutations=min(side.permutations, scale.permutations or side.permutations))


def width_at(width: int | None, collection: str, scale: Scale) -> int | None:
    """A width at a scale; None: the task's, which the paper's scale leaves to the scorer."""
    if width is None and scale.name == "paper":
        return None
    task = task_of(collection)
    full = width or TASKS[task].width
    return full if full == 1 else max(2, round(full / scale.divide.get(task, 1)))


# -- planted effects


PLANTED: dict[str, Effects] = {
    "off-the-shelf": Effects(0.45, 0.10, 0.45, 0.06, 0.04, -0.06),
    "single_order": Effects(0.62, 0.06, 0.26, 0.05),
    "order_averaged": Effects(0.64, 0.03, 0.17, 0.05),
    "permutation_augmentation": Effects(0.64, 0.03, 0.16, 0.05),
    "debias_first": Effects(0.64, 0.03, 0.16, 0.05),
    "oc_sft": Effects(0.66, 0.01, 0.08, 0.05, width=0.05, length=0.01, skeleton=0.02),
    "mean_teacher": Effects(0.63, 0.02, 0.14, 0.05),
    "kl_to_base": Effects(0.61, 0.07, 0.30, 0.05),
    "dropout": Effects(0.62, 0.06, 0.26, 0.05),
    "marker_consistency": Effects(0.62, 0.06, 0.26, 0.01),
    "pine": Effects(0.35, 0.14, 0.55, 0.06, 0.04, -0.06),
    "jina-b20": Effects(0.66, 0.04, 0.24),
    "jina": Effects(0.70, 0.03, 0.20),
    "rank-zephyr": Effects(0.70, 0.20, 0.60),
    "gpt-5.4": Effects(0.75, 0.02, 0.15, is_written=True),
}
"""By a mitigation inside the model, else by system, else by training objective; what is in none is order-free."""


SIGNAL: dict[TaskKind, float] = {"multidoc_qa": 0.5}
"""What is left of a signal on a task, of which all would rank every pool rightly at any width."""


def planted_effects(system: str, base: str, seed: int, collection: str, mitigation: str = "") -> Effects:
    """Effects of a system at the tiny scale; bases and seeds differ a little, by a hash."""
    known = SYSTEMS[system]
    key = system if system in PLANTED or known.training is None else known.training.objective
    key = mitigation if mitigation in PLANTED else key
    effects = PLANTED.get(key, Effects(0.72))
    if system == "marker-sft":
        effects = PLANTED["single_order"]
    shift = 0.04 * (fixed_number("signal", system, base, str(seed)) - 0.5)
    scale = 0.9 + 0.2 * fixed_number("effect", system, base, str(seed))
    salt = base if known.training is None else f"{base}/{seed}"
    signal = (effects.signal + shift) * SIGNAL.get(task_of(collection), 1.0)
    return replace(effects, signal=signal, slot=effects.slot * scale, companion=effects.companion * scale, salt=salt)
