"""Endpoints over HTTP: one request until its answer can be used, or a failure with a name.

Overload (429), server errors, timeouts and answers that do not parse are tried again, later each time and never in
step with other clients; `Retry-After` is obeyed. What the user can mend (a wrong key, a wrong address) stops the run at
once. What stays unusable is an `Unusable` query: named in the run's coverage, never scored by a guess. An endpoint that
fails query after query is down, which stops the run; the same command goes on from there.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar

from ..disk import cache_folder, write_json
from ..errors import InputError, SteadyscoreError
from ..extras import check_installed
from . import EngineOptions

T = TypeVar("T")
S = TypeVar("S")

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
REFUSED = {401, 402, 403, 404, 405}
"""Nothing about a query: the key, the account or the address is wrong."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
"""Seconds; the most that backoff waits by itself. An endpoint may ask for more through Retry-After."""
DOWN_AFTER = 3
"""Queries in a row that an endpoint left without an answer: it is down, not the query odd."""
TOO_LONG = re.compile(r"context.?(length|size|window)|prompt is too long|too many tokens", re.IGNORECASE)
"""How endpoints say that a prompt does not fit."""
KEY = "STEADYSCORE_API_KEY"
"""The environment variable that holds the key of an endpoint."""


class Malformed(Exception):
    """An answer that arrived and cannot be used. Raised by the function that reads it; the request is tried again."""


class Unusable(Exception):
    """No usable answer after every retry. Not the user's mistake: the query is named in the coverage and left out."""


class Unreachable(Unusable):
    """No answer at all: overload, server errors or silence until the last retry."""


class TooLong(Unusable):
    """A prompt that is longer than the model takes, by the endpoint's own words."""


class EndpointDown(SteadyscoreError):
    """Query after query failed: what was scored is kept, and the same command goes on when the endpoint is back."""


class Endpoint:
    """A base address with its manners: concurrency, rate, retries, and a cache of answers on disk."""

    def __init__(self, base: str, options: EngineOptions, *, key: str | None = None, cached: bool = False):
        if not base.startswith(("http://", "https://")):
            raise InputError(f"{base!r} is not an address: it begins with http:// or https://.")
        check_installed(f"Speaking to {base}", "httpx")
        import httpx

        self.base, self.options, self.cached = base.rstrip("/"), options, cached and options.cache
        self.counts: Counter[str] = Counter()
        """Requests sent, answers from the cache, and retries by reason: what the run reports."""
        self.on_answer: Callable[[Any], None] = lambda answer: None
        """Called with every answer that arrives, also with those that cannot be used: they are paid for too."""
        key = key or os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=options.timeout)
        weakref.finalize(self, self._client.close)
        self._transport_error = httpx.TransportError
        self._lock = threading.Lock()
        self._next_turn = 0.0
        self._failed_in_a_row = 0
        self._abandoned = threading.Event()
        self._asked: Counter[str] = Counter()

    def map(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        """The function over the requests of one query, `concurrency` at a time, in order. The first failure ends it."""
        self._abandoned.clear()
        with ThreadPoolExecutor(max_workers=max(1, self.options.concurrency)) as pool:
            jobs = [pool.submit(function, item) for item in items]
            try:
                found = [job.result() for job in jobs]
            except BaseException as failure:
                self._abandoned.set()  # what still waits for its next try gives up too
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
        """What a server says about itself, before any query is asked."""
        try:
            return self._ask("GET", path, None, read)
        except Unusable as failure:
            raise InputError(f"{failure}. Is the server running there?") from failure

    def post(self, path: str, body: dict[str, Any], read: Callable[[Any], T]) -> T:
        """Send `body` and return `read(answer)`; `read` raises `Malformed` for an answer that cannot be used."""
        if not self.cached:
            return self._ask("POST", path, body, read)
        file = self._file(path, body)
        if (kept := _read_json(file)) is not None:
            self._count("cached")
            return read(kept)
        found, answer = self._ask("POST", path, body, lambda answer: (read(answer), answer))
        write_json(file, answer)  # only what could be used is kept
        return found

    def _file(self, path: str, body: dict[str, Any]) -> Path:
        """Where the answer to a request is kept. Asking the same again is another question: it measures the noise floor."""
        request = json.dumps([self.base, path, body], sort_keys=True)
        with self._lock:
            turn = self._asked[request]
            self._asked[request] += 1
        digest = hashlib.blake2b(f"{turn}\x1f{request}".encode(), digest_size=16).hexdigest()
        return cache_folder() / "responses" / digest[:2] / f"{digest}.json"

    def _ask(self, method: str, path: str, body: dict[str, Any] | None, read: Callable[[Any], T]) -> T:
        reason, wait = "", 0.0
        failure: type[Unusable] = Unreachable
        for attempt in range(self.options.retries + 1):
            if attempt:
                self._count(f"retried: {reason.split(':')[0]}")
                # Full jitter: clients that failed together do not come back together.
                if self._abandoned.wait(max(wait, random.uniform(0, min(LONGEST_WAIT, FIRST_WAIT * 2**attempt)))):
                    break
            self._wait_for_turn()
            self._count("requests")
            try:
                response = self._client.request(method, self.base + path, json=body)
            except self._transport_error as fault:
                reason, wait, failure = f"{type(fault).__name__}: {fault}", 0.0, Unreachable
                continue
            if response.status_code in RETRIED:
                reason, failure = f"HTTP {response.status_code}: {_say(response.text)}", Unreachable
                wait = retry_after(response.headers)
                continue
            if response.status_code in REFUSED:
                raise InputError(
                    f"{self.base + path} answered HTTP {response.status_code} ({_say(response.text)}). "
                    f"Check the address, the model's name and the key in ${KEY}."
                )
            if response.status_code >= 400:  # about this request: too long, filtered, a field it does not know
                kind = TooLong if TOO_LONG.search(response.text) else Unusable
                raise kind(f"{self.base + path} answered HTTP {response.status_code}: {_say(response.text)}")
            try:
                answer = json.loads(response.content)
                with self._lock:
                    self.on_answer(answer)
                return read(answer)
            except (ValueError, Malformed) as odd:  # ValueError: JSON that was cut, bytes that are no text
                reason, failure = (str(odd) if isinstance(odd, Malformed) else f"not JSON: {odd}"), Unusable
                wait = 0.0
        raise failure(f"{self.base + path} gave no usable answer in {self.options.retries + 1} tries, the last: {reason}")

    def _count(self, what: str) -> None:
        with self._lock:
            self.counts[what] += 1

    def _wait_for_turn(self) -> None:
        if self.options.rate:
            with self._lock:
                now = time.monotonic()
                turn = max(now, self._next_turn)
                self._next_turn = turn + 60 / self.options.rate
            time.sleep(turn - now)


def retry_after(headers: Any) -> float:
    """Seconds that an endpoint asks to be left alone, given as a number or as a date."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0


def number(value: Any, what: str) -> float:
    """A finite number, or `Malformed`: JSON lets NaN and null through, a score does not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise Malformed(f"{what} is {value!r}, not a finite number")
    return float(value)


def field(answer: Any, *path: str | int) -> Any:
    """A value inside an answer, or `Malformed` with where it should have been."""
    found = answer
    for step in path:
        try:
            found = found[step]
        except (KeyError, IndexError, TypeError):
            raise Malformed(f"the answer has no {'.'.join(map(str, path))}") from None
    return found


def model_at(rest: str) -> tuple[str, str]:
    """`<model>@<base url>` as its two parts; a bare address names no model."""
    if rest.startswith(("http://", "https://")):
        return "", rest
    model, _, base = rest.rpartition("@")
    return model, base


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):  # not there, or a damaged file: ask again
        return None


def _say(text: str) -> str:
    return " ".join(text.split())[:200] or "no reason given"
