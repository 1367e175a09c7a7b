"""Train an adapter: the public function behind `steadyscore train`, and the command that starts it on several processes."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, cast

from ..collection import Data, Names, keep_as_file
from ..errors import InputError
from ..machine.console import job
from ..machine.extras import TRAINING, check_installed
from ..machine.names import short_repr
from ..models.card import Card, adapter_address
from ..terms import Markers, Placeholder, PromptStyle
from .check import checked_data, make_config
from .objectives import Convention, ObjectiveName
from .recipe import FIELDS, Shuffle, TrainConfig, for_objective, read_recipe

log = logging.getLogger("steadyscore")

Recipe = TrainConfig | Mapping[str, Any] | str | Path
"""A training run: the value itself, its fields by name, the name of a shipped recipe, or a YAML file."""

Launch = Literal["ddp", "fsdp"]
"""The whole model in every process, or its weights sharded over them."""
CONFIGURATIONS = Path(__file__).parent / "launch"
PORT = 29500


class TrainSettings(TypedDict, total=False):
    """The fields of `TrainConfig` by name, for type checkers and editors; what each means is said there."""

    base: str
    data: Data
    labels: str
    out: str
    objective: ObjectiveName
    weight: float | None
    weight_convention: Convention
    ramp: float | None
    anchor: float
    grade_share: float
    preference_share: float
    views: int
    widths: Sequence[int]
    shuffle: Shuffle | None
    teacher_orders: int | None
    propensity: Literal["judgements", "rankings"]
    judged_top: int
    steps: int | None
    epochs: float
    batch: int
    microbatch: int
    learning_rate: float
    warmup: float
    clip: float
    rank: int
    alpha: int
    dropout: float | None
    projections: Sequence[str]
    layers: str | None
    initial: str | None
    ema_decay: float
    seed: int
    queries: int | None
    pool: int | None
    chars: int | None
    instruction: str | None
    markers: Markers
    placeholder: Placeholder
    prompt: PromptStyle
    dtype: Literal["float32", "bfloat16"]
    device: str | None
    gradient_checkpointing: bool
    apart_from: Sequence[str]
    held_out: int
    held_out_data: str | None
    held_out_permutations: int
    evaluate_every: int | None
    checkpoint_every: int
    keep: int
    trackers: Sequence[str]


@dataclass(frozen=True, slots=True)
class Trained:
    """An adapter and its card."""

    folder: Path
    card: Card

    @property
    def address(self) -> str:
        """The adapter on its base, as a scorer address that `audit` takes."""
        return adapter_address(self.card, self.folder)

    def __repr__(self) -> str:
        return short_repr(self, f"{self.card.objective} for {self.card.steps} steps: {self.address}")

    def to_json(self) -> dict[str, object]:
        last = self.card.held_out[-1:]
        settings = {"objective": self.card.objective, "weight": self.card.weight, "steps": self.card.steps}
        return {"out": str(self.folder)} | settings | (dict(last[0]) if last else {})


def train(
    config: Recipe | None = None,
    *,
    columns: Names = None,
    command: Sequence[str] = (),
    quiet: bool = False,
    **settings: Unpack[TrainSettings],
) -> Trained:
    """Train an adapter into `out`; the same call resumes what was stopped.

    config    a `TrainConfig`, a dict of its fields, the name of a shipped recipe, or a YAML file
    columns   which column of the data is what, where names are unknown: {"query": "question"}
    settings  fields that replace the config's: base="smollm2-135m", data="passages", labels="judgements", steps=2, ...;
              data may be rows in memory, as `audit` takes them
    quiet     show no progress

    Every mistake is raised at once, before a model is loaded.
    """
    resolved = read_config(config, cast(Mapping[str, Any], settings), columns)
    check_installed("Training", *TRAINING)
    with job(f"loading {resolved.data or 'data'}", unit="", hidden=quiet, at_once=True):
        data = checked_data(resolved, int(os.environ.get("WORLD_SIZE", "1")))
    with job("loading torch", unit="", hidden=quiet, at_once=True):
        from .loop import train_adapter

    return Trained(Path(resolved.out), train_adapter(data, command=command, quiet=quiet))


def read_config(config: Recipe | None, settings: Mapping[str, Any] | None = None, columns: Names = None) -> TrainConfig:
    """The config of a recipe in any of its forms, with some fields replaced; data in memory becomes a file."""
    if isinstance(config, TrainConfig):
        values: dict[str, object] = {name: getattr(config, name) for name in FIELDS}
    elif isinstance(config, str | Path):
        values = read_recipe(str(config))
    else:
        values = dict(config or {})
    asked = dict(settings or {})
    if name := asked.get("objective"):
        start, values = values, for_objective(values, str(name))
        _remark_left_out({key: start[key] for key in start if key not in {**values, **asked}}, str(name))
    values |= asked
    data = values.get("data")
    if isinstance(data, Path) and not columns:
        values["data"] = str(data)
    elif data is not None and (columns or not isinstance(data, str)):
        values["data"] = keep_as_file(data, columns)
    return make_config(values)


def _remark_left_out(values: Mapping[str, Any], objective: str) -> None:
    """Say what a recipe sets for its own objective only, where it is not what would hold anyway."""
    usual = TrainConfig()
    if told := [f"{name} {value}" for name, value in values.items() if value != getattr(usual, name)]:
        log.warning("%s leaves out what was chosen for the recipe's objective: %s.", objective, ", ".join(told))


# -- on several processes


def launch_command(kind: Launch, words: Sequence[str], processes: int, machines: int = 1, host: str | None = None) -> str:
    """One shell command, the same on every machine, that runs `steadyscore train WORDS` on `processes` in all.

    Several machines meet at `host`, the name or address of one of them.
    """
    mistakes = []
    if processes % machines:
        mistakes.append(f"{processes} processes do not divide among {machines} machines; give a multiple of {machines}")
    if machines > 1 and host is None:
        mistakes.append("several machines meet at one of them; name it with --host")
    if mistakes:
        raise InputError(mistakes)
    command = ["accelerate", "launch", "--config_file", str(CONFIGURATIONS / f"{kind}.yaml"), "--num_processes", str(processes)]
    if machines > 1:  # by c10d the machines number themselves, so that none needs a command of its own
        meeting = ["--main_process_ip", str(host), "--main_process_port", str(PORT)]
        command += ["--num_machines", str(machines), "--rdzv_backend", "c10d", *meeting]
    else:
        command += ["--main_process_port", "0"]  # any free one
    return shlex.join([*command, "-m", "steadyscore", "train", *words])
