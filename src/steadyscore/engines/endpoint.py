"""Endpoints over HTTP: one request until its answer can be used, or a failure with a name.

Overload (429), server errors, timeouts and answers that do not parse are tried again, later each time and never in
step with other clients; `Retry-After` is obeyed, up to a minute. What the user can fix (a wrong key, a wrong address) stops
the run at once. What stays unusable is an `Unusable` query: named in the run's coverage, never scored by a guess. An endpoint
that fails query after query is down, which stops the run; the same command continues from there.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from ..errors import InputError, SteadyscoreError, UnusableScorer
from ..machine.console import one_line
from ..machine.credentials import KEY, hide, redact
from ..machine.disk import write_json
from ..machine.extras import check_installed
from ..machine.waiting import LONGEST_ASKED, retry_after
from . import EngineOptions
from .answers import Malformed, said_of_itself
from .servers import Server, Servers, split_bases
from .wire import Answer, NoAnswer, TooLarge, Wire

T = TypeVar("T")
S = TypeVar("S")

log = logging.getLogger("steadyscore.engines")

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
REFUSED = {401, 402, 403, 404, 405}
"""Nothing about a query: the key, the account or the address is wrong."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds; the most that backoff waits by itself. An endpoint may ask for more through Retry-After."""
DOUBLINGS = 16
"""Of the first wait, after which it has long been the longest."""
DOWN_AFTER = 3
"""Queries in a row that an endpoint left without an answer: it is down, not the query odd."""
TOO_LONG = re.compile(r"context.?(length|size|window)|prompt is too long|too many tokens", re.IGNORECASE)
"""How endpoints say that a prompt does not fit."""
SENDABLE = re.compile(r"[!-~]+")
"""What a header may carry of a key."""


class Unusable(Exception):
    """No usable answer after every retry. Not the user's mistake: the query is named in the coverage and left out."""


class Unreachable(Unusable):
    """No answer at all: overload, server errors or silence until the last retry."""


class Silent(Unreachable):
    """Not even a status until the last retry: nothing listens there, or it never ends what it says."""


class Refused(Unusable):
    """A request that the endpoint does not take: filtered, or with a field that it does not know."""


class TooLong(Refused):
    """A prompt that is longer than the model takes, by the endpoint's own words."""


class EndpointRefused(UnusableScorer):
    """An address, a model's name or a key that the endpoint does not accept: no other request will fare better."""


class EndpointDown(SteadyscoreError):
    """Query after query failed: what was scored is kept, and the same command goes on when the endpoint is back."""


class Overloaded(NoAnswer):
    """A status that says: later."""

    def __init__(self, reason: str, asked: float):
        self.wait = min(asked, LONGEST_ASKED)
        beyond = f"; it asks to be left alone for {asked:,.0f} s and is asked again after {LONGEST_ASKED:g} s"
        super().__init__(reason + (beyond if asked > LONGEST_ASKED else ""))
        self.asked = asked


class _Asking(threading.local):
    """Of the thread that asks: the query it asks for. Outside of `Endpoint.map` none is ever abandoned."""

    abandoned = threading.Event()


class Endpoint:
    """One base address, or those of several servers of one model, with its manners: concurrency, rate, retries, and answers
    that are kept on disk while a run is scored.
    """

    def __init__(self, base: str, options: EngineOptions, *, key: str | None = None, cached: bool = False):
        self._servers = Servers(split_bases(base))
        self.base = ",".join(server.base for server in self._servers.all)
        check_installed(f"Speaking to {base}", "httpx")
        self.options, self.cached = options, cached and options.cache
        self.counts: Counter[str] = Counter()
        """Requests sent, answers from the cache, and retries by reason: what the run reports."""
        self.on_answer: Callable[[Any], None] = lambda answer: None
        """Called with every answer that arrives, also with those that cannot be used: they are paid for too."""
        self._key = read_key(key)
        self._wire = Wire({"Authorization": f"Bearer {self._key}"} if self._key else {}, options.timeout)
        self._lock = threading.Lock()
        self._next_turn = 0.0
        self._failed_in_a_row = 0
        self._asking = _Asking()
        self._answers: Path | None = None
        self._has_warned = False

    @contextmanager
    def keeping_answers(self, folder: Path) -> Iterator[None]:
        """Inside, what was answered to a question is kept in the folder and not asked again."""
        self._answers = folder if self.cached else None
        try:
            yield
        finally:
            self._answers = None

    def map(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """The function over the requests of one query, `concurrency` at a time to each server, in order. The first failure ends
        it.
        """
        abandoned = threading.Event()
        begin = partial(setattr, self._asking, "abandoned", abandoned)
        with ThreadPoolExecutor(max_workers=self.options.concurrency * len(self._servers), initializer=begin) as pool:
            jobs = [pool.submit(function, item) for item in items]
            try:
                found = [job.result() for job in jobs]
            except BaseException as failure:
                abandoned.set()  # what still waits for its next try gives up too
                pool.shutdown(wait=False, cancel_futures=True)
                if (down := self._down(failure)) is not None:
                    raise down from failure
                raise
        self._failed_in_a_row = 0
        return found

    def _down(self, failure: BaseException) -> EndpointDown | None:
        """One query too many that the endpoint did not answer; None while it may be the query."""
        self._failed_in_a_row = self._failed_in_a_row + 1 if isinstance(failure, Unreachable) else 0
        if self._failed_in_a_row < DOWN_AFTER:
            return None
        return EndpointDown(
            f"{self.base} is down: it failed {self._failed_in_a_row} queries in a row ({failure}). "
            "What was scored is kept; run the same command again when it answers."
        )

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """What a server says about itself, before any query is asked. Where there are several, they must say the same."""
        said: dict[str, T] = {}
        for server in self._servers.all:
            try:
                said[server.base] = self._ask("GET", path, None, read, Servers([server.base]))
            except Unusable as failure:
                if len(self._servers) == 1:
                    raise InputError(f"{failure}. Is the server running there?") from failure
                self._servers.note_silence(server, str(failure))
        if not said:
            raise InputError(f"none of {self.base} gave a usable answer. Are the servers running there?")
        first = next(iter(said.values()))
        if other := next((base for base, one in said.items() if one != first), None):
            raise InputError(f"{other} serves something else than {next(iter(said))}. Name servers of the same model.")
        return first

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send `body` and return `read(answer)`; `read` raises `Malformed` for an answer that cannot be used."""
        if self._answers is None:
            return self._ask("POST", path, body, read)
        request = json.dumps([self.base, path, body], sort_keys=True)
        file = self._answers / f"{hashlib.blake2b(request.encode(), digest_size=16).hexdigest()}.json"
        if (kept := _read_json(file)) is not None:
            try:
                found = read(kept)
            except Exception:  # whatever is wrong with a file of ours, the endpoint can be asked
                log.debug("%s cannot be used", file)
            else:
                self._count("cached")
                return found
        found, answer = self._ask("POST", path, body, lambda answer: (read(answer), answer))
        write_json(file, answer)  # only what could be used is kept
        return found

    def _ask(
        self, method: str, path: str, body: dict[str, Any] | None, read: Callable[[Any], T], servers: Servers | None = None
    ) -> T:
        asked, content = servers or self._servers, None if body is None else _encode_body(body)
        faults: list[NoAnswer | Malformed] = []
        for server in self._tries(asked, faults):
            url = _url(server.base, path)
            try:
                with asked.asking(server):
                    answer = self._wire.send(method, url, content)
                if answer.status in RETRIED:
                    raise self._overloaded(server, answer)
                asked.note_answer(server)
                return self._read(answer, url, read)
            except NoAnswer as fault:
                asked.note_silence(server, redact(str(fault), self._key), fault.wait)
                faults.append(fault)
            except Malformed as fault:
                faults.append(fault)
            except TooLarge as fault:
                raise Unusable(f"{url} gave {fault}") from fault
        reason = redact(str(faults[-1]), self._key) if faults else ""
        where = " and ".join(_url(server.base, path) for server in asked.all)
        raise _kind_of_failure(faults)(f"{where} gave no usable answer in {self.options.retries + 1} tries, the last: {reason}")

    def _tries(self, servers: Servers, faults: Sequence[NoAnswer | Malformed]) -> Iterator[Server]:
        """The servers to ask until one gives a usable answer: each that is not left out, then again later; `faults` so far."""
        for attempt in range(self.options.retries + 1):
            # Full jitter: clients that failed together do not come back together.
            longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(attempt, DOUBLINGS))
            if attempt and self._asking.abandoned.wait(max(getattr(faults[-1], "wait", 0.0), random.uniform(0, longest))):
                return
            tried: list[Server] = []
            while (server := servers.choose(tried)) is not None:
                if faults:
                    self._count(f"retried: {redact(str(faults[-1]), self._key).split(':')[0]}")
                if self._wait_for_turn():
                    return
                self._count("requests")
                tried.append(server)
                yield server

    def _read(self, answer: Answer, url: str, read: Callable[[Any], T]) -> T:
        """What an answer says, or what is wrong with it."""
        if 300 <= answer.status < 400:
            raise EndpointRefused(
                f"{url} answered HTTP {answer.status}{_redirect_target(answer)}. Write the address that it stands for."
            )
        if answer.status in REFUSED:
            raise EndpointRefused(
                f"{url} answered HTTP {answer.status} ({self._reason(answer)}). "
                f"Check the address, the model's name and the key in ${KEY}."
            )
        if answer.status >= 400:  # about this request: too long, filtered, a field it does not know
            kind = TooLong if TOO_LONG.search(self._text(answer)) else Refused
            raise kind(f"{url} answered HTTP {answer.status}: {self._reason(answer)}")
        try:
            # A key that an answer repeats must not get into the cache.
            whole = json.loads(hide(answer.content.decode(json.detect_encoding(answer.content)), self._key))
        except (ValueError, RecursionError) as odd:  # cut, not text, or nested without end
            raise Malformed(f"not JSON: {odd}") from odd
        with self._lock:
            self.on_answer(whole)
            self.counts.update(said_of_itself(whole))
        try:
            return read(whole)
        except (Malformed, SteadyscoreError):
            raise
        except Exception as odd:  # an answer of another shape can trip its reader in any way
            raise Malformed(one_line(f"not readable: {type(odd).__name__}: {odd}")) from odd

    def _overloaded(self, server: Server, answer: Answer) -> Overloaded:
        fault = Overloaded(f"HTTP {answer.status}: {self._reason(answer)}", retry_after(answer.headers))
        if fault.asked > LONGEST_ASKED and not self._has_warned:
            self._has_warned = True
            log.warning("%s: %s", server.base, fault)
        return fault

    def _text(self, answer: Answer) -> str:
        return redact(answer.content.decode("utf-8", "replace"), self._key)

    def _reason(self, answer: Answer) -> str:
        return one_line(self._text(answer))[:200] or "no reason given"

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _wait_for_turn(self) -> bool:
        """Wait as the rate asks for; True where the query was given up meanwhile."""
        if not self.options.rate:
            return False
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next_turn)
            self._next_turn = turn + 60 / self.options.rate
        return self._asking.abandoned.wait(min(turn - now, threading.TIMEOUT_MAX))


def _url(base: str, path: str) -> str:
    """The path goes before a query string of the base."""
    place, mark, query = base.partition("?")
    return place.rstrip("/") + path + mark + query if path else base


def _kind_of_failure(faults: Sequence[NoAnswer | Malformed]) -> type[Unusable]:
    """What a request failed of that had these faults, one a try."""
    if faults and isinstance(faults[-1], Malformed):
        return Unusable
    return Silent if not any(isinstance(fault, Overloaded | Malformed) for fault in faults) else Unreachable


def read_key(given: str | None = None) -> str:
    """The key of an endpoint, given or from the environment; empty where there is none."""
    key = (given or os.environ.get(KEY) or "").strip()
    if key and not SENDABLE.fullmatch(key):
        raise InputError(f"the key in ${KEY} holds characters that a header cannot carry. Set it to the key alone.")
    return key


def _encode_body(body: dict[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as odd:
        raise Unusable("the question holds half a character (a lone surrogate), which JSON cannot carry") from odd


def _redirect_target(answer: Answer) -> str:
    """Where a redirect leads, as far as it can be repeated: its path and query string may be a ticket."""
    host = urlsplit(redact(answer.headers.get("location", ""))).netloc
    return f" and leads to {host}" if host else ""


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


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):  # not there, or a damaged file: ask again
        return None
