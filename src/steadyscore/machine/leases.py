"""One process at a time in a folder of an object store, which knows no locks: leases that are taken by conditional writes.

A lease is an object `.lease-<number>`; the highest number counts. It is taken by writing the next number, which one process
alone can do, and renewed by writing it again. Whether its holder lives is seen by watching it, so no two clocks are compared:
one that does not change for PATIENCE seconds is taken over under the next number. A holder that finds a higher number, or
another's under its own, has lost the folder and writes nothing more.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from ..errors import InputError, StorageError
from .disk import began, is_running, place
from .stores import Store

RENEWAL = 10.0
"""Seconds between two renewals."""
PATIENCE = 40.0
"""Seconds after which a lease that nobody renewed is taken over."""
PREFIX = ".lease-"

log = logging.getLogger("steadyscore")


class Lease:
    """A folder that this process holds."""

    def __init__(self, store: Store, number: int, words: dict[str, Any]):
        self._store, self._number, self._words = store, number, words
        self._renewed = time.monotonic()
        self._lock, self._ends = threading.Lock(), threading.Event()
        self._is_lost = False

    def check(self) -> None:
        """Refuse to write into a folder that another process has taken over, as this one had not been heard of."""
        if time.monotonic() - self._renewed > PATIENCE / 2:
            self.renew()
        if self._is_lost:
            raise StorageError(
                f"another process took over {self._store.address}, as this one was not heard of for {PATIENCE:g} s. "
                "Nothing more was written; run the same command again when the other has ended."
            )

    def renew(self) -> None:
        with self._lock:
            is_last = max(_numbers(self._store), default=0) == self._number
            self._is_lost = not (is_last and _read(self._store, self._number).get("holder") == self._words["holder"])
            if not self._is_lost:
                self._words["renewals"] += 1
                self._store.write(_name(self._number), _encode(self._words))
                self._renewed = time.monotonic()

    def keep(self) -> None:
        """Renew until the end; a renewal that fails is tried again, and `check` notices where none succeeded."""
        while not self._ends.wait(RENEWAL) and not self._is_lost:
            try:
                self.renew()
            except StorageError as refusal:
                log.debug("%s", refusal)

    def end(self) -> None:
        self._ends.set()
        with self._lock:
            if not self._is_lost:
                self._store.remove([_name(number) for number in _numbers(self._store) if number <= self._number])


@contextmanager
def hold(store: Store) -> Iterator[Lease]:
    """Take the lease of a folder and keep it; a process that holds it already, and lives, refuses this one."""
    me = {
        "holder": uuid.uuid4().hex, "host": socket.gethostname(), "process": os.getpid(), "began": began(os.getpid()),
        "place": place(), "renewals": 0,
    }  # fmt: skip
    lease = Lease(store, _take(store, me), me)
    thread = threading.Thread(target=lease.keep, daemon=True, name="lease")
    thread.start()
    try:
        yield lease
    finally:
        lease.end()
        thread.join()


def _take(store: Store, words: dict[str, Any]) -> int:
    """The number under which this process has the lease."""
    while True:
        number = max(_numbers(store), default=0)
        if number:
            holder = _read(store, number)
            state = _state(store, number, holder)
            if state == "alive":
                raise _refusal(store, holder)
            if state == "ended":
                continue
        if store.put_once(_name(number + 1), _encode(words)):
            return number + 1


def _refusal(store: Store, words: dict[str, Any]) -> InputError:
    who = f"process {words['process']} on {words['host']}" if words.keys() >= {"process", "host"} else "another process"
    return InputError(f"{who} works in {store.address}. Wait for it to end, or choose another --out.")


def _state(store: Store, number: int, words: dict[str, Any]) -> Literal["alive", "abandoned", "ended"]:
    """What became of a holder: on this machine its process tells, on another one whether it renews its lease."""
    if words.get("place") == place() and sys.platform != "win32":  # which does not tell
        process = words.get("process")
        is_same = is_running(str(process)) and words.get("began", "") in ("", began(int(str(process))))
        return "alive" if is_same else "abandoned"
    said = "process %s on %s holds %s; within %g s it shows whether it lives."
    log.warning(said, words.get("process"), words.get("host"), store.address, PATIENCE)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        time.sleep(PATIENCE / 20)
        if max(_numbers(store), default=0) != number:
            return "ended"
        if _read(store, number) != words:
            return "alive"
    return "abandoned"


def _numbers(store: Store) -> list[int]:
    return [int(name.removeprefix(PREFIX)) for name in store.names(PREFIX) if name.removeprefix(PREFIX).isdigit()]


def _name(number: int) -> str:
    return f"{PREFIX}{number:06d}"


def _read(store: Store, number: int) -> dict[str, Any]:
    try:
        words = json.loads(store.read(_name(number)) or b"{}")
    except ValueError:
        return {}
    return words if isinstance(words, dict) else {}


def _encode(words: dict[str, Any]) -> bytes:
    return json.dumps(words).encode()
