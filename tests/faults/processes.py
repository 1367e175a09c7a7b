"""Work in a process of its own, which ends by itself or is killed."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable
from typing import Any

LONGEST = 600.0
"""Seconds after which work that nobody meant to kill is killed all the same."""


def fork(work: Callable[..., Any], *args: Any, **options: Any) -> int:
    """Begin work in a copy of this process; gives its id. It ends with 1 where the work raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work(*args, **options)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int, seconds: float = LONGEST) -> bool:
    """Wait for a process, which is killed after so many seconds; whether it was, by us or by itself. Raises where it failed."""
    ends = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
        time.sleep(0.002)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    if seconds == LONGEST and time.monotonic() > ends:
        raise AssertionError(f"a process did not end within {LONGEST:g} s")
    code = os.waitstatus_to_exitcode(ended[1])
    if code not in (0, -signal.SIGKILL):
        raise AssertionError(f"a process ended with {code}; what it said stands above")
    return code != 0


def run_forked(work: Callable[..., Any], *args: Any, **options: Any) -> bool:
    """Work in a process of its own; whether it killed itself."""
    return wait(fork(work, *args, **options))


def run_until_killed(work: Callable[[Callable[[], None]], None], seconds: float | None) -> bool:
    """Work that is killed so many seconds after it called what it is given; None: never."""
    opened, ready = os.pipe()
    child = fork(work, lambda: os.close(ready))
    os.close(ready)
    os.read(opened, 1)
    os.close(opened)
    return wait(child, LONGEST if seconds is None else seconds)
