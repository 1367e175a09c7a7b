"""Objects of JSON that have a key twice: one of the two values would be lost, so they are refused."""

from __future__ import annotations

from typing import Any


class KeyTwice(ValueError):
    """Names the key."""


def keys_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, for the JSON decoder's `object_pairs_hook`."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise KeyTwice(f"an object has the key {twice!r} twice")
    return record
