"""Settings of an audit by name, whatever part of its configuration they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict

from ..errors import InputError
from ..measures.reading import Reading
from ..scoring.score import AuditConfig, Cut
from ..scoring.scorer import Settings
from ..terms import Markers, Partition, Placeholder, PromptStyle, Readout, Ties


class OrderSettings(TypedDict, total=False):
    """Settings by name of whatever scores one order: fields of `AuditConfig`, `Settings`, `Cut` and `Threshold`."""

    seed: int
    queries: int | None
    pool: int | None
    query_ids: Sequence[str] | None
    chars: int | None
    width: int | None
    partition: Partition
    markers: Markers
    marker_seed: int | None
    placeholder: Placeholder
    prompt: PromptStyle | None
    fit: str
    instruction: str | None
    cutoff: float | None
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


def configure(config: AuditConfig, **settings: Any) -> AuditConfig:
    """A configuration with some settings changed, each by its own name wherever it stands."""
    threshold = {"match_retention": "retention", "threshold_protocol": "protocol"}
    threshold |= {name: name for name in ("cutoff", "keep_first", "keep_share")}
    parts: dict[str, dict[str, Any]] = {"config": {}, "cut": {}, "settings": {}, "threshold": {}, "reading": {}}
    unknown = []
    for name, value in settings.items():
        if name == "match_retention" and isinstance(value, str | Path):
            parts["threshold"]["retention_of"] = str(value)
        elif name in threshold:
            parts["threshold"][threshold[name]] = value
        elif name in Reading.__dataclass_fields__:
            parts["reading"][name] = value
        elif name in Cut.__dataclass_fields__:
            parts["cut"][name] = value
        elif name in AuditConfig.__dataclass_fields__:
            parts["config"][name] = value
        elif name in Settings.__dataclass_fields__:
            parts["settings"][name] = value
        else:
            unknown.append(name)
    if unknown:
        raise InputError(f"audit has no setting {', '.join(unknown)}. It has {', '.join(AuditSettings.__annotations__)}.")
    return replace(
        config,
        cut=replace(config.cut, **parts["cut"]),
        settings=replace(config.settings, **parts["settings"]),
        threshold=replace(config.threshold, **parts["threshold"]),
        reading=replace(config.reading, **parts["reading"]),
        **parts["config"],
    )
