"""How long a server asks to be left alone."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Any

LONGEST_ASKED = 60.0
"""Seconds; the most that is waited because of a Retry-After header."""


def retry_after(headers: Any) -> float:
    """Seconds that a server asks for, given as a number or as a date; 0 where it asks for nothing that makes sense."""
    value = headers.get("retry-after") or ""
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0
