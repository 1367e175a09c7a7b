"""This process: a stop that waits a while for the work at hand, the cores that it may run on, and how its threads wait."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .console import say

STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that stop a command; Windows has no SIGHUP."""
PATIENCE = 10.0
"""Seconds that a stop waits for the work at hand, which may never end; schedulers kill after some thirty."""
CGROUP = Path("/sys/fs/cgroup")


@contextmanager
def finishing(what: str) -> Iterator[Sequence[int]]:
    """Finish the block, `what` in words, before a stop, which takes effect at its end, and a second one at once; gives the stops
    so far. A signal that is ignored stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():  # no other thread may set a handler, or is stopped
        yield ()
        return
    before: dict[int, Any] = {number: signal.getsignal(number) for number in STOPS}
    before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    stops: list[int] = []
    timers: list[threading.Timer] = []

    def wait(number: int, frame: Any) -> None:
        if stops and callable(before[number]):
            before[number](number, frame)
            return  # a host program's handler need not end it
        if stops:  # the system's own answer, which is an end
            signal.signal(number, before[number])
            os.kill(os.getpid(), number)
            return
        stops.append(number)
        timers.append(threading.Timer(PATIENCE, os.kill, (os.getpid(), number)))
        timers[0].daemon = True
        timers[0].start()
        say(f"stopping after {what}, or in {PATIENCE:g} s; a second signal stops at once")

    for number in before:
        signal.signal(number, wait)
    try:
        yield stops
    finally:
        for timer in timers:
            timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)
        if stops:
            os.kill(os.getpid(), stops[0])  # again, now that what answers to it is back


# -- cores and threads


def wait_passively() -> None:
    """Have OpenMP's threads leave the core to others while they wait, unless the environment says otherwise.

    It is read when torch is loaded, and says nothing to a torch that was loaded before.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def cores() -> int:
    """Cores that this process may use at a time: those it may run on, and no more than its container's share of time."""
    if hasattr(os, "process_cpu_count"):  # from Python 3.13 on
        count = os.process_cpu_count() or 1
    else:
        count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = container_share()
    return count if share is None else max(1, min(count, math.ceil(share)))


def container_share(root: Path = CGROUP) -> float | None:
    """Cores' worth of time that a container may use; None where it has no bound, or there is none."""
    for names in (("cpu.max",), ("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")):
        try:
            quota, period, *_ = " ".join((root / name).read_text() for name in names).split()
            return None if quota in ("max", "-1") else int(quota) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None
