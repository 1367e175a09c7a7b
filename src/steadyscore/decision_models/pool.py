"""The list in a state whose order may change: found by a path such as `$.candidates`, and put back in another order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..errors import InputError

Steps = tuple[str | int, ...]
"""The keys and places that lead from the whole state to a value in it."""
STEP = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\['([^']*)'\]")


def parse_path(path: str) -> Steps:
    """A path as steps; `$` is the state itself."""
    steps = list(STEP.finditer(path[1:]))
    if not path.startswith("$") or "".join(step[0] for step in steps) != path[1:]:
        raise InputError(f"{path[:80]!r} is not a path into the state. Write it as $.candidates or $.search.results[0].passages.")
    return tuple(int(step[2]) if step[2] else step[1] if step[1] is not None else step[3] for step in steps)


def value_behind(content: Any, steps: Steps) -> Any:
    """What a state holds behind these steps; None where they lead nowhere."""
    for step in steps:
        if isinstance(step, str):
            content = content.get(step) if isinstance(content, dict) else None
        else:
            content = content[step] if isinstance(content, list) and step < len(content) else None
    return content


def with_value(content: Any, steps: Steps, value: Any) -> Any:
    """A copy of a state with another value at a path; the state given is not changed."""
    if not steps:
        return value
    copy: Any = dict(content) if isinstance(content, dict) else list(content)
    copy[steps[0]] = with_value(content[steps[0]], steps[1:], value)
    return copy


def value_at(content: Any, path: str) -> Any:
    """The value at a path of the state."""
    value = value_behind(content, parse_path(path))
    if value is None:
        raise InputError(f"the state has nothing at {path[:80]}. Name the path of the list in it.")
    return value


def list_at(content: Any, path: str) -> list[Any]:
    value = value_at(content, path)
    if not isinstance(value, list) or not value:
        raise InputError(f"the state has no list at {path[:80]}. Name the path of the list in it.")
    return value


def with_list(content: Any, path: str, members: Sequence[Any]) -> Any:
    """The state with other members in its list."""
    return with_value(content, parse_path(path), list(members))


def member_keys(members: Sequence[Any]) -> list[str]:
    """What a question calls each member: its `id`; one without an id, or with null, its place, counted from 1."""
    ids = (member.get("id") if isinstance(member, dict) else None for member in members)
    return [str(place if id is None else id) for place, id in enumerate(ids, 1)]


def member_text(member: Any) -> tuple[str, str | None]:
    """Text and title of a member that is a text or an object with one."""
    if isinstance(member, str):
        return member, None
    text, title = (member.get("text"), member.get("title")) if isinstance(member, dict) else (None, None)
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise InputError("a member of the pool is neither a text nor an object with a text. Send texts, or objects with text.")
    return text, title
