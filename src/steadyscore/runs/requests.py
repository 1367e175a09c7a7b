"""What was asked of a run, command by command: an identity that never changes, and how much of it, which may grow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import RunMismatch
from ..machine.places import Place

Fingerprint = Mapping[str, Any]


def is_growth(old: Fingerprint, new: Fingerprint) -> bool:
    """Whether a run of the new fingerprint holds everything that one of the old holds, and more."""
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return bool(differing) and all(key in GROWS and GROWS[key](old, new) for key in differing)


def _has_more_permutations(old: Fingerprint, new: Fingerprint) -> bool:
    """Permutations are drawn by their number, but those of a Latin square all depend on how many there are."""
    before, now = old.get("permutations"), new.get("permutations")
    return before is not None and now is not None and now > before and new.get("scheme") != "balanced"


def _has_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    """The first N of a collection are among the first N + 1."""
    before, now = old.get("queries"), new.get("queries")
    return before is not None and (now is None or now > before)


def _names_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    before, now = old.get("query_ids"), new.get("query_ids")
    if before is None or new.get("queries") is not None:
        return False
    return now is None or set(before) <= set(now)


GROWS: dict[str, Callable[[Fingerprint, Fingerprint], bool]] = {
    "permutations": _has_more_permutations,
    "queries": _has_more_queries,
    "query_ids": _names_more_queries,
}
"""By key of the fingerprint, whether the new value only adds to the old one."""


def asked_of(fingerprint: Fingerprint) -> dict[str, Any]:
    """The keys of a fingerprint that may grow."""
    return {key: fingerprint[key] for key in GROWS if key in fingerprint}


def asked_digest(asked: Mapping[str, Any]) -> str:
    """A name for what is asked for, by which the list of its queries is known."""
    kept = {key: value for key, value in asked.items() if value is not None}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]


def check_same_command(folder: Place, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder whose record was made with other settings."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if keys:
        differing = "; ".join(describe_difference(key, old.get(key), new.get(key)) for key in keys)
        raise RunMismatch(f"{folder} was made by another command: {differing}. Choose another --out, or delete the folder.")


def describe_difference(key: str, old: Any, new: Any) -> str:
    """Both values, of long ones the part in which they differ."""
    was, now = (json.dumps(value, ensure_ascii=False) for value in (old, new))
    first = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    keep = {"chars": "whole texts; " if new is None else "", "scheme": ""}.get(key) if old else None
    kept = "" if keep is None else f" ({keep}--{key} {old} goes on as it was)"
    return f"{key} was {_excerpt(was, first)}, now {_excerpt(now, first)}{kept}"


def _excerpt(text: str, place: int) -> str:
    start = max(0, place - 20)
    return text if len(text) <= 80 else "..." * bool(start) + text[start : start + 74] + "..." * (start + 74 < len(text))
