"""Work in a process of its own, which ends by itself or is killed."""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable

LONGEST = 600.0
"""Seconds after which work that nobody meant to kill is killed all the same."""


def fork(work: Callable[[], None]) -> int:
    """Begin work in a copy of this process; gives its id. It ends with 1 where the work raises."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(child: int, seconds: float | None = None) -> bool:
    """Wait for a process, which is killed after so many seconds; gives whether it ended by a kill, and raises where it failed."""
    ends = time.monotonic() + (LONGEST if seconds is None else seconds)
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
        time.sleep(0.002)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    if os.WIFSIGNALED(ended[1]):
        if seconds is None and os.WTERMSIG(ended[1]) != signal.SIGKILL:
            raise AssertionError(f"a process ended by signal {os.WTERMSIG(ended[1])}")
        return True
    if ended[1]:
        raise AssertionError("a process failed; what it said stands above")
    return False


def run_forked(work: Callable[[], None], seconds: float | None = None) -> bool:
    """Work in a process of its own until it ends or `seconds` have passed; whether it was killed, by us or by itself."""
    return wait(fork(work), seconds)


def run_until_killed(work: Callable[[Callable[[], None]], None], seconds: float | None = None) -> bool:
    """The same; the seconds begin when the work calls what it is given, or ends."""
    opened, ready = os.pipe()
    child = fork(lambda: work(lambda: os.close(ready)))
    os.close(ready)
    os.read(opened, 1)
    os.close(opened)
    return wait(child, seconds)
