"""Numbers within bounds, as types: pydantic checks them in recipes, command line flags as they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Any

from annotated_types import Ge, Gt, Interval, Le, Lt

Positive = Annotated[int, Gt(0)]
NotNegative = Annotated[int, Ge(0)]
AboveZero = Annotated[float, Gt(0)]
ZeroOrMore = Annotated[float, Ge(0)]
Share = Annotated[float, Interval(ge=0, le=1)]
BelowOne = Annotated[float, Interval(ge=0, lt=1)]


def bound_mistake(value: float, bounds: Iterable[Any]) -> str | None:
    """Which bound a number breaks, as the end of a sentence that begins with the number."""
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    for bound in bounds:
        for part in bound if isinstance(bound, Interval) else (bound,):
            if isinstance(part, Gt) and not value > part.gt:  # type: ignore[operator]
                return f"is not above {part.gt}"
            if isinstance(part, Ge) and not value >= part.ge:  # type: ignore[operator]
                return f"is below {part.ge}"
            if isinstance(part, Lt) and not value < part.lt:  # type: ignore[operator]
                return f"is not below {part.lt}"
            if isinstance(part, Le) and not value <= part.le:  # type: ignore[operator]
                return f"is above {part.le}"
    return None
