"""A stop that waits for the piece of work at hand: SIGINT, SIGTERM and SIGHUP take effect at its end, a second one at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

STOPS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Windows has no SIGHUP."""


@contextmanager
def finishing(what: str) -> Iterator[None]:
    """Finish the block, `what` in words, before a stop. A signal that is ignored stays ignored."""
    if threading.current_thread() is not threading.main_thread():  # no other thread may set a handler, or is stopped
        yield
        return
    before = {number: handler for number in STOPS if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)}
    stops: list[int] = []

    def wait(number: int, frame: Any) -> None:
        stops.append(number)
        restore()
        print(f"stopping after {what}; the same signal again stops at once", file=sys.stderr, flush=True)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    for number in before:
        signal.signal(number, wait)
    try:
        yield
    finally:
        restore()
        if stops:
            os.kill(os.getpid(), stops[0])  # as it came, now that what answers to it is back
