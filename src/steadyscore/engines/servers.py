"""Several servers of one model behind one address: which of them is asked next, which is left alone for a while, and how many
requests may be under way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..errors import InputError
from ..machine.credentials import NEXT, check_credentials, redact
from .options import Address

log = logging.getLogger("steadyscore.engines")

FIRST_REST, LONGEST_REST = 1.0, 60.0
"""Seconds that a server is left alone after it gave no answer: doubled each time, until it answers again."""


@dataclass(eq=False, slots=True)
class Server:
    """One of the servers, and how it is doing."""

    base: str
    asked: int = 0
    """Requests that wait for its answer."""
    failed: int = 0
    """Times in a row that it gave none."""
    rests_until: float = 0.0


class Servers:
    """The servers of one address: a request goes to the one that has the fewest to answer.

    One that gives no answer is left out for a while, and what it was asked goes to the others.
    """

    def __init__(self, bases: Sequence[str], clock: Callable[[], float] = time.monotonic):
        self.all = tuple(Server(base) for base in bases)
        self._clock, self._turn = clock, 0

    def __len__(self) -> int:
        return len(self.all)

    def choose(self, tried: Collection[Server] = ()) -> Server | None:
        """The server to ask now, of those that were not tried; None where every other one rests. One is asked in any case."""
        self._turn += 1
        others = [server for server in self.all if server not in tried]
        awake = [server for server in others if server.rests_until <= self._clock()]
        if not awake:
            return None if tried else min(others, key=lambda server: server.rests_until)
        first = self._turn % len(awake)  # equals take turns
        return min(awake[first:] + awake[:first], key=lambda server: server.asked)

    @contextmanager
    def asking(self, server: Server) -> Iterator[None]:
        """Count a request while it waits for its answer."""
        server.asked += 1
        try:
            yield
        finally:
            server.asked -= 1

    def note_answer(self, server: Server) -> None:
        was_left_out, server.failed, server.rests_until = server.failed > 0, 0, 0.0
        if was_left_out and len(self) > 1:
            log.warning("%s answers again.", server.base)

    def note_silence(self, server: Server, reason: str, asked: float = 0.0) -> None:
        """Leave a server out: for as long as it asked to be left alone, or longer each time."""
        now = self._clock()
        if server.rests_until > now:  # requests that were under way when it fell silent
            return
        server.failed += 1
        server.rests_until = now + max(asked, min(LONGEST_REST, FIRST_REST * 2 ** min(server.failed - 1, 16)))
        if server.failed == 1 and len(self) > 1:
            log.warning("%s gives no answer (%s) and is left out; the other servers are asked.", server.base, reason)


class Limit:
    """How many requests may be under way: as many as the user allows, half after an answer that says "too many", and one more
    after each round that went well. A place is held from the first try of a request to its last, so those that wait count too.
    """

    def __init__(self, most: int, servers: int = 1, clock: Callable[[], float] = time.monotonic):
        self.most, self._share, self._clock = most, 1 / servers, clock
        self.now = float(most)
        self.under_way = 0
        self._places, self._given = asyncio.Semaphore(most), most
        self._lowered = 0.0

    async def __aenter__(self) -> None:
        await self._places.acquire()
        self.under_way += 1

    async def __aexit__(self, *_: object) -> None:
        self.under_way -= 1
        if self._given > self.now:  # the place goes
            self._given -= 1
        else:
            self._places.release()

    def lower(self, sent: float) -> None:
        """Halve the share of one server; once for all requests that were under way together."""
        if sent >= self._lowered:
            self._lowered = self._clock()
            self.now = max(1.0, self.now * (1 - self._share / 2))

    def grow(self) -> None:
        """A request went well."""
        self.now = min(float(self.most), self.now + 1 / self.now)
        if self._given < int(self.now):
            self._given += 1
            self._places.release()


def model_and_base(address: Address, path: str = "") -> tuple[str, str]:
    """`<model>@<base url>` of an address as its two parts, or a refusal of one that is not complete; `path` is what a base mostly
    ends in."""
    model, base = split_model_and_base(address.rest)
    if not model or not base:
        kind = address.kind
        raise InputError(
            f"{kind}:{address.rest} is not complete. Write {kind}:<model>@<base url>, such as {kind}:m@http://localhost:8000{path}."
        )
    return model, base


def split_model_and_base(rest: str) -> tuple[str, str]:
    """`<model>@<base url>` as its two parts; a bare address names no model."""
    if rest.startswith(("http://", "https://")):
        return "", rest
    if "://" not in rest:
        model, _, base = rest.rpartition("@")
        return model, base
    before, scheme, behind = rest.partition("://")  # a path may hold the sign too
    model, _, protocol = before.rpartition("@")
    return model, protocol + scheme + behind


def split_bases(base: str) -> tuple[str, ...]:
    """The addresses of one or several servers, `http://a:8000/v1,http://b:8000/v1`, checked: they differ in their hosts alone."""
    bases = tuple(one.rstrip("/") for one in NEXT.split(base))
    for one in bases:
        check_base(one)
    if len(set(bases)) < len(bases):
        raise InputError(f"{base} names a server twice. Name each once.")
    if len({(parts.path, parts.query) for parts in map(urlsplit, bases)}) > 1:
        raise InputError(f"{base}: servers of one model differ in host and port alone. Write the same path behind each.")
    return bases


def check_base(base: str) -> None:
    """Refuse what is not the address of an endpoint, or carries a secret."""
    check_credentials(base)
    if not base.startswith(("http://", "https://")):
        raise InputError(f"{base!r} is not an address: it begins with http:// or https://.")
    try:
        port = urlsplit(base).port
    except ValueError:
        port = -1
    if port == -1 or not base.isprintable() or " " in base:
        raise InputError(f"{redact(base)!r} is not an address: write one as http://localhost:8000/v1.")
