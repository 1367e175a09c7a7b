"""Settings of an audit by name, whatever part of its configuration they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np

from ..errors import InputError
from ..machine.bounds import check_fields
from ..measures.reading import Reading
from ..measures.threshold import Threshold
from ..scoring.score import AuditConfig, Cut
from ..scoring.scorer import Settings
from ..terms import Markers, Partition, Placeholder, PromptStyle, Readout, Ties


class ShownSettings(TypedDict, total=False):
    """Settings by name of whatever shows a language model candidates."""

    queries: int | None
    pool: int | None
    chars: int | None
    width: int | None
    partition: Partition
    markers: Markers
    placeholder: Placeholder
    prompt: PromptStyle | None
    fit: str
    instruction: str | None


class OrderSettings(ShownSettings, total=False):
    """Settings by name of whatever scores one order: fields of `AuditConfig`, `Settings`, `Cut` and `Threshold`."""

    seed: int
    query_ids: Sequence[str] | None
    marker_seed: int | None
    cutoff: float | Literal["f1"] | None
    match_retention: float | str | Path | None
    keep_first: int | None
    keep_share: float | None


class AuditSettings(OrderSettings, total=False):
    """Settings of `audit` by name: those of one order, of several, and of `Reading`."""

    permutations: int
    scheme: str
    noise_floor: bool
    noise_reads: int | None
    threshold_protocol: str
    readout: Readout
    ties: Ties


_THRESHOLD = {"match_retention": "retention", "threshold_protocol": "protocol"}
_PLACES = {
    **dict.fromkeys(Cut.__dataclass_fields__, "cut"),
    **dict.fromkeys(Settings.__dataclass_fields__, "settings"),
    **dict.fromkeys(Reading.__dataclass_fields__, "reading"),
    **dict.fromkeys(("cutoff", "keep_first", "keep_share", *_THRESHOLD), "threshold"),
    **dict.fromkeys(("seed", "chars", "permutations", "scheme", "noise_floor", "noise_reads"), "config"),
}
"""Setting -> the part of a configuration that it stands in."""
_RULES: dict[str, Any] = dict.fromkeys(("cutoff", "retention", "retention_of", "keep_first", "keep_share")) | {"half": False}
"""What says which candidates are kept, each in its own way."""


def configure(config: AuditConfig, **settings: Any) -> AuditConfig:
    """A configuration with some settings changed, each by its own name wherever it stands; every mistake at once."""
    if unknown := [name for name in settings if name not in AuditSettings.__annotations__]:
        raise InputError(f"audit has no setting {', '.join(unknown)}. It has {', '.join(AuditSettings.__annotations__)}.")
    changes: dict[str, dict[str, Any]] = {"config": {}, "cut": {}, "settings": {}, "threshold": {}, "reading": {}}
    for name, value in settings.items():
        if name == "match_retention" and isinstance(value, str | Path):
            changes["threshold"]["retention_of"] = str(value)
        else:
            plain = value.item() if isinstance(value, np.generic) else value  # numbers of numpy are no JSON
            changes[_PLACES[name]][_THRESHOLD.get(name, name)] = plain
    if changes["threshold"].keys() & _RULES.keys() or config.threshold == Threshold():  # what is given takes its place
        changes["threshold"] = _RULES | changes["threshold"]
    mistakes: list[str] = []
    for part, values in changes.items():
        try:
            if part == "config":
                config = replace(config, **values)
                check_fields(config)
            else:
                config = replace(config, **{part: replace(getattr(config, part), **values)})
        except InputError as error:
            mistakes += error.mistakes
    if mistakes:
        raise InputError(mistakes)
    return config
