"""A stop that waits a while for the work at hand: SIGINT, SIGTERM and SIGHUP take effect at its end, a second one at once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .console import say

STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that stop a command; Windows has no SIGHUP."""
PATIENCE = 10.0
"""Seconds that a stop waits for the work at hand, which may never end; schedulers kill after some thirty."""


@contextmanager
def finishing(what: str) -> Iterator[Sequence[int]]:
    """Finish the block, `what` in words, before a stop; gives the stops so far. A signal that is ignored stays ignored."""
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
