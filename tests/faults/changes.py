"""Changes on disk, counted, and an end before or after one of them: of the process, or of the power.

A power cut takes what was written to a file and not synced; the names that were given stay, in the order in which they were
given, as journalling file systems keep them.
"""

from __future__ import annotations

import builtins
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

RENAMES = ("replace", "rename", "link")
CHANGES = (*RENAMES, "unlink", "mkdir", "rmdir", "fsync")


class Ending:
    """This process ends by SIGKILL at its n-th change on disk, counted from 1."""

    def __init__(self, at: int, *, after: bool = False, names: tuple[str, ...] = RENAMES, loses_power: Path | None = None):
        self.at, self.after, self.names, self.loses_power = at, after, names, loses_power
        self._done = 0
        self._synced: dict[int, int] = {}

    def work(self, function: Callable[..., Any], *args: Any, **options: Any) -> None:
        """Run a function under this threat. For a process that nobody else needs: what is replaced here stays so."""
        self._fsync = os.fsync
        os.fsync = self._sync
        for name in self.names:
            setattr(os, name, self._counted(getattr(os, name)))
        if self.loses_power is not None:
            self._known = {file: file.stat().st_mtime_ns for file in self.loses_power.rglob("*") if file.is_file()}
            builtins.open = self._open(builtins.open)  # type: ignore[assignment]
        function(*args, **options)

    def _counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self._done += 1
            if self._done == self.at and not self.after:
                self._end()
            result = change(*args, **options)
            if self._done == self.at and self.after:
                self._end()
            return result

        return counted

    def _open(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """Opening a file to write is a change too: it empties the file."""
        counted = self._counted(change)
        return lambda *args, **options: (
            counted if "w" in str(args[1:2] or options.get("mode")) or "a" in str(args[1:2]) else change
        )(*args, **options)

    def _sync(self, handle: int) -> None:
        self._fsync(handle)
        state = os.fstat(handle)
        self._synced[state.st_ino] = state.st_mtime_ns

    def _end(self) -> None:
        if self.loses_power is not None:
            for file in filter(Path.is_file, self.loses_power.rglob("*")):
                state = file.stat()
                is_new = self._known.get(file) != state.st_mtime_ns
                if is_new and self._synced.get(state.st_ino) != state.st_mtime_ns:
                    os.truncate(file, 0)
        os.kill(os.getpid(), signal.SIGKILL)
