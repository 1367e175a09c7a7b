"""Train an adapter: the public function behind `steadyscore train`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine.extras import TRAINING, check_installed
from ..machine.progress import job
from ..models.card import Card, scorer_address
from .recipe import FIELDS, TrainConfig, make_config, read_recipe

Recipe = TrainConfig | Mapping[str, Any] | str | Path
"""A training run: the value itself, its fields by name, the name of a shipped recipe, or a YAML file."""


@dataclass(frozen=True, slots=True)
class Trained:
    """An adapter and its card."""

    folder: Path
    card: Card

    @property
    def address(self) -> str:
        """The adapter on its base, as a scorer address that `audit` takes."""
        return f"{scorer_address(self.card['base']['model'])}+{self.folder}"

    def to_json(self) -> dict[str, Any]:
        last = self.card["held_out"][-1:]
        settings = {"objective": self.card["objective"], "weight": self.card["weight"], "steps": self.card["steps"]}
        return {"out": str(self.folder)} | settings | (dict(last[0]) if last else {})


def train(config: Recipe | None = None, *, command: Sequence[str] = (), quiet: bool = False, **settings: Any) -> Trained:
    """Train an adapter into `out`; the same call resumes what was stopped.

    config    a `TrainConfig`, a dict of its fields, the name of a shipped recipe, or a YAML file
    settings  fields that replace the config's: base="smollm2-135m", data="passages", labels="judgements", steps=2, ...
    quiet     show no progress

    Every mistake is raised at once, before a model is loaded.
    """
    resolved = read_config(config, settings)
    check_installed("Training", *TRAINING)
    with job("loading torch", unit="", hidden=quiet, at_once=True):
        from .loop import train_adapter

    return Trained(Path(resolved.out), train_adapter(resolved, command=command, quiet=quiet))


def read_config(config: Recipe | None, settings: Mapping[str, Any] | None = None) -> TrainConfig:
    """The config of a recipe in any of its forms, with some fields replaced."""
    if isinstance(config, TrainConfig):
        values: Mapping[str, Any] = {name: getattr(config, name) for name in FIELDS}
    elif isinstance(config, str | Path):
        values = read_recipe(str(config))
    else:
        values = config or {}
    return make_config({**values, **(settings or {})})
