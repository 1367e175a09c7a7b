"""The log: one JSON object a line, never a text, and no fault that repeats itself without end."""

from __future__ import annotations

import json
import logging
import time
import traceback
from collections.abc import Callable

from ..machine.console import harmless

log = logging.getLogger("steadyscore.serve")
MOST_KINDS = 1000
"""Different warnings that are remembered."""


def log_fault(event: str, fault: Exception, **facts: str) -> None:
    """The place in the code, not the words: somebody's exception may quote a document."""
    place = traceback.format_tb(fault.__traceback__)[-1].splitlines()[0].strip()
    log.error(event, extra={"facts": {"fault": type(fault).__name__, "place": place, **facts}})


class RepeatLimit(logging.Filter):
    """Lets a warning pass a few times a minute and then counts it, so that one fault repeated cannot fill a disk."""

    def __init__(self, most: int = 5, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self.most, self.seconds, self.clock = most, seconds, clock
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        facts = getattr(record, "facts", {})
        key, now = (record.name, str(record.msg), str(facts)), self.clock()
        began, count = self._seen.get(key, (now, 0))
        left_out = 0
        if now - began >= self.seconds:
            began, count, left_out = now, 0, max(0, count - self.most)
        if len(self._seen) >= MOST_KINDS and key not in self._seen:
            self._seen.clear()
        self._seen[key] = began, count + 1
        if left_out:
            record.facts = facts | {"left_out": left_out}
        return count < self.most


class JsonLines(logging.Formatter):
    """One JSON object a line. Candidate text never stands in one: routes log counts, faults their place in the code."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return harmless(json.dumps(line | getattr(record, "facts", {}), ensure_ascii=False))
