"""Numbers within bounds, as types: pydantic checks them in recipes, flags as they are read, and settings check themselves; and
numbers that a text or a server says."""

from __future__ import annotations

import math
import operator
import time
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Interval, Le, Lt

from ..errors import InputError

Positive = Annotated[int, Gt(0)]
NotNegative = Annotated[int, Ge(0)]
AboveZero = Annotated[float, Gt(0)]
ZeroOrMore = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
Percentage = Annotated[int, Interval(ge=0, lt=100)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]


LONGEST_ASKED = 60.0
"""Seconds; the most that is waited because a server asks for it."""

BOUNDS: dict[type, tuple[Callable[[Any, Any], bool], str, str]] = {
    Gt: (operator.gt, "is not above {}", "above {}"),
    Ge: (operator.ge, "is below {}", "of {} or more"),
    Lt: (operator.lt, "is not below {}", "below {}"),
    Le: (operator.le, "is above {}", "of {} or less"),
}
"""By kind of bound, what must hold, what is said of a number that breaks it, and what to give."""


def bound_mistake(value: float, bounds: Iterable[Any]) -> str | None:
    """Which bound a number breaks, as the end of a sentence that begins with the number."""
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    each = ((*BOUNDS[kind], limit) for kind, limit in _single(bounds))
    return next((broken.format(limit) for holds, broken, _, limit in each if not holds(value, limit)), None)


def _single(bounds: Iterable[Any]) -> Iterator[tuple[type, float]]:
    """(kind, limit) of every bound; an interval is two."""
    for bound in bounds:
        for one in bound if isinstance(bound, Interval) else (bound,):
            yield type(one), getattr(one, type(one).__name__.lower())


def parse_number(text: str) -> float:
    """The finite number that a text says; NaN where it says none."""
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a server asks to be left alone, as a number or as a date; 0 where it asks for nothing that makes sense."""
    value = headers.get("retry-after") or ""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def changed_fields(settings: Any) -> list[str]:
    """Fields of a dataclass of settings that are not at their defaults."""
    default = type(settings)()
    return [field.name for field in fields(settings) if getattr(settings, field.name) != getattr(default, field.name)]


def check_fields(settings: Any) -> None:
    """Refuse a dataclass of settings in which a number breaks the bounds of its type, or a word is none of those offered."""
    if mistakes := field_mistakes(settings):
        raise InputError(mistakes)


def field_mistakes(settings: Any) -> list[str]:
    """A sentence for every such field. Types without bounds and without a choice of words are not looked at."""
    mistakes = []
    for field in fields(settings):
        name, value = field.name, getattr(settings, field.name)
        alternatives = _alternatives(type(settings))[name]  # type: ignore[arg-type]
        if alternatives and not any(_allows(one, value) for one in alternatives):
            wanted = [_words(one) for one in alternatives if one is not type(None)]
            mistakes.append(f"{name} is {value!r}: give {' or '.join(wanted)}.")
    return mistakes


@cache
def _alternatives(settings: type) -> dict[str, tuple[Any, ...]]:
    """Field -> the types it may have; none where there is one without bounds, which a value is not compared with."""
    alternatives = {}
    for name, hint in get_type_hints(settings, include_extras=True).items():
        parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        is_bounded = all(part is type(None) or get_origin(part) in (Annotated, Literal) for part in parts)
        alternatives[name] = parts if is_bounded else ()
    return alternatives


def _allows(hint: Any, value: Any) -> bool:
    if hint is type(None):
        return value is None
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    kind, *bounds = get_args(hint)
    is_number = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    return is_number and bound_mistake(value, bounds) is None


def _words(hint: Any) -> str:
    """What to give, as the end of a sentence."""
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)[:-1])) + f" or {get_args(hint)[-1]}"
    kind, *bounds = get_args(hint)
    if kind is int:
        (bound,) = bounds  # the two that there are: above 0, and 0 or more
        return "a whole number, 1 or more" if isinstance(bound, Gt) else "a whole number, 0 or more"
    return "a number " + " and ".join(BOUNDS[kind][2].format(limit) for kind, limit in _single(bounds))
