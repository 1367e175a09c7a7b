"""Names that tell audits apart, and settings in the words of a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..errors import InputError
from .result import Audit


def with_distinct_names(audits: Sequence[Audit]) -> list[Audit]:
    """The audits under names of their own: two of one scorer on one collection are told apart by the settings that differ."""
    keys = []
    for audit in audits:
        mine = audit.record.get("fingerprint", {})
        twins = [a for a in audits if (a.name, a.collection) == (audit.name, audit.collection)]
        differing = [key for key in mine if any(twin.record.get("fingerprint", {}).get(key) != mine[key] for twin in twins)]
        settings = ", ".join(f"{key.replace('_', ' ')} {in_words(mine[key])}" for key in differing)
        keys.append((f"{audit.name} ({settings})" if settings else audit.name, audit.collection))
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise InputError([f"{name} on {collection} is given more than once. Name each run once." for name, collection in twice])
    return [replace(audit, name=name) for audit, (name, _) in zip(audits, keys, strict=True)]


def in_words(value: Any) -> str:
    """A setting as a person reads it."""
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {in_words(v)}" for key, v in value.items() if v is not None)
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "default"}[value]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
