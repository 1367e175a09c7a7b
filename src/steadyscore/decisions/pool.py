"""The list in a state whose order may change: found by a path such as `$.candidates`, and put back in another order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import InputError

STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def parse_path(path: str) -> tuple[str | int, ...]:
    """The keys and places that lead from the whole state to a value in it; `$` is the state itself."""
    steps = [int(place) if place else key for key, place in STEP.findall(path)]
    if not path.startswith("$") or STEP.sub("", path) != "$":
        raise InputError(f"{path[:80]!r} is not a path into the state. Write it as $.candidates or $.search.results[0].passages.")
    return tuple(steps)


def value_at(content: Any, path: str) -> Any:
    """What stands at a path of the state."""
    found = content
    for step in parse_path(path):
        found = _member(found, step)
        if found is None:
            raise InputError(f"the state has nothing at {path[:80]}. Name the path of the list in it.")
    return found


def _member(content: Any, step: str | int) -> Any:
    if isinstance(step, str):
        return content.get(step) if isinstance(content, dict) else None
    return content[step] if isinstance(content, list) and step < len(content) else None


def list_at(content: Any, path: str) -> list[Any]:
    found = value_at(content, path)
    if not isinstance(found, list) or not found:
        raise InputError(f"the state has no list at {path[:80]}. Name the path of the list in it.")
    return found


def with_list(content: Any, path: str, members: Sequence[Any]) -> Any:
    """The state with other members in its list; nothing of the state given is changed."""
    return _put(content, parse_path(path), list(members))


def _put(content: Any, steps: Sequence[str | int], value: Any) -> Any:
    if not steps:
        return value
    copied = content.copy()
    copied[steps[0]] = _put(content[steps[0]], steps[1:], value)
    return copied


def member_keys(members: Sequence[Any]) -> list[str]:
    """What a question calls each member: its `id`; one without an id its place, counted from 1."""
    return [str(m["id"]) if isinstance(m, dict) and "id" in m else str(place) for place, m in enumerate(members, 1)]


def member_text(member: Any) -> tuple[str, str | None]:
    """Text and title of a member that is a text or an object with one."""
    if isinstance(member, str):
        return member, None
    text, title = (member.get("text"), member.get("title")) if isinstance(member, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise InputError("a member of the pool is neither a text nor an object with a text. Send texts, or objects with text.")
    return text, title
