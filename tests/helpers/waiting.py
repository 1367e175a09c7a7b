"""Waiting for what happens elsewhere: in another thread, another process, a browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def until(look: Callable[[], Found], seconds: float = 120.0) -> Found:
    """What is looked for, as soon as it is there (anything true)."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"it was not there after {seconds:g} s"
        time.sleep(0.02)
    return found
