"""Endpoints over HTTP: one request until its answer can be used, or a failure with a name.

Overload (429), server errors, timeouts and answers that do not parse are tried again, later each time and never in
step with other clients; `Retry-After` is obeyed, up to a minute. What the user can fix (a wrong key, a wrong address) stops
the run at once. What stays unusable is an `Unusable` query: named in the run's coverage, never scored by a guess. An endpoint
that fails query after query is down, which stops the run; the same command continues from there.

Everything happens on the event loop of one thread, whoever asks: any number of callers share an endpoint's connections, its
concurrency and its rate. The deadline of a request is one clock over connecting, sending, headers and body: a server that sends a
byte now and then cannot outlast it, as it could outlast a limit on each read.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import random
import re
import threading
import time
import weakref
from asyncio import sleep
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..errors import InputError, SteadyscoreError, UnusableScorer
from ..machine.bounds import LONGEST_ASKED, retry_after
from ..machine.console import one_line
from ..machine.credentials import KEY, hide, redact
from ..machine.disk import write_json
from ..machine.extras import check_installed
from ..terms import JsonObject
from .answers import Malformed, said_of_itself
from .options import EngineOptions
from .servers import Limit, Server, Servers, split_bases

T = TypeVar("T")
S = TypeVar("S")

log = logging.getLogger("steadyscore.engines")

RETRIED = {408, 409, 425, 429, 500, 502, 503, 504, 529}
TOO_MANY = {429, 529}
"""What asks for fewer requests at a time."""
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
LARGEST = 64 * 2**20
"""Bytes of an answer after decompression; the longest honest ones (20 alternatives at every token of a prompt) are below it."""
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


class NoAnswer(Exception):
    """Silence, a refused connection, or a status that says "later": the request is tried again."""

    def __init__(self, reason: str, asked: float | None = None):
        """`asked`: seconds that the endpoint asks to be left alone; None where it said nothing at all."""
        self.is_silence, self.wait = asked is None, min(asked or 0.0, LONGEST_ASKED)
        self.is_cut = (asked or 0.0) > LONGEST_ASKED
        if self.is_cut:
            reason += f"; it asks to be left alone for {asked:,.0f} s and is asked again after {LONGEST_ASKED:g} s"
        super().__init__(reason)


class Answer(NamedTuple):
    status: int
    headers: Any
    content: bytes


Usage = Callable[[Any], Mapping[str, int]]
"""Tokens of an answer by what they were used for, `prompt` and `completion` among them; all 0 where it says nothing."""


class Endpoint:
    """One base address, or those of several servers of one model, with its manners: concurrency, rate, retries, and answers
    that are kept on disk while a run is scored.
    """

    def __init__(
        self, base: str, options: EngineOptions, *, keys: Sequence[str] = (KEY,), usage: Usage | None = None, cached: bool = False
    ):
        """`keys` are the environment variables that may hold its key, the first one first."""
        self._servers = Servers(split_bases(base))
        self.base = ",".join(server.base for server in self._servers.all)
        check_installed(f"Speaking to {base}", "httpx2")
        self.options, self.cached = options, cached and options.cache
        self.counts: Counter[str] = Counter()
        """Requests sent, answers from the cache, and retries by reason: what the run reports."""
        self._usage = usage
        self._tokens: dict[str, int] = dict(usage(None)) if usage else {}
        self._key = read_key(keys)
        self.limit = Limit(options.concurrency * len(self._servers), len(self._servers))
        self._callers: dict[threading.Thread, Future[Any]] = {}
        """What each caller waits for."""
        self._next_turn = 0.0
        self._failed_in_a_row = 0
        self._answers: Path | None = None
        self._has_warned = False
        self._client, self._loop = _open_client(self._key), _loop_of(os.getpid())
        weakref.finalize(self, _close, self._client, self._loop)

    def spent(self) -> dict[str, float]:
        """What was asked and what it cost: requests, retries, cached answers; tokens where they are told, and money where a price
        is known. Answers that could not be used are paid for too."""
        price, tokens = self.options.price, {f"{what}_tokens": count for what, count in self._tokens.items()}
        cost = {"cost": price.of(self._tokens["prompt"], self._tokens["completion"])} if price and tokens else {}
        return {**self.counts, **tokens, **cost}

    @contextmanager
    def keeping_answers(self, folder: Path) -> Iterator[None]:
        """Inside, what was answered to a question is kept in the folder and not asked again."""
        self._answers = folder if self.cached else None
        try:
            yield
        finally:
            self._answers = None

    def map(self, function: Callable[[S], Awaitable[T]], items: Sequence[S]) -> list[T]:
        """The function over the requests of one query, `concurrency` at a time to each server, in order. The first failure ends
        it: what waits is given up, what was sent is still read, since it is paid for.
        """
        return self._wait(self._map(function, items))

    def ask(self, path: str, body: JsonObject, read: Callable[[Any], T]) -> T:
        """One request, outside of any query."""
        return self._wait(self.post(path, body, read))

    def get(self, path: str, read: Callable[[Any], T]) -> T:
        """What a server says about itself, before any query is asked. Where there are several, they must say the same."""
        said: dict[str, T] = {}
        for server in self._servers.all:
            try:
                said[server.base] = self._wait(self._ask("GET", path, None, read, Servers([server.base])))
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

    async def post(self, path: str, body: JsonObject, read: Callable[[Any], T]) -> T:
        """Send `body` and return `read(answer)`; `read` raises `Malformed` for an answer that cannot be used."""
        if self._answers is None:
            return await self._ask("POST", path, body, read)
        request = json.dumps([self.base, path, body], sort_keys=True)
        file = self._answers / f"{hashlib.blake2b(request.encode(), digest_size=16).hexdigest()}.json"
        if (kept := _read_json(file)) is not None:
            try:
                value = read(kept)
            except Exception:  # whatever is wrong with a file of ours, the endpoint can be asked
                log.debug("%s cannot be used", file)
            else:
                self.counts["cached"] += 1
                return value

        def read_and_keep(answer: Any) -> T:
            value = read(answer)
            write_json(file, answer)  # only what could be used is kept
            return value

        return await self._ask("POST", path, body, read_and_keep)

    # -- on the loop's thread, as are `post` and what asks with it

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Have the loop do some work for the calling thread."""
        done = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._callers[threading.current_thread()] = done
        try:
            return done.result()
        except BaseException:
            done.cancel()
            raise
        finally:
            del self._callers[threading.current_thread()]

    def give_up(self, threads: Iterable[threading.Thread]) -> None:
        """Ask nothing more for these callers; what was sent is still read."""
        for thread in threads:
            if (waiting := self._callers.get(thread)) is not None:
                waiting.cancel()

    async def _map(self, function: Callable[[S], Awaitable[T]], items: Sequence[S]) -> list[T]:
        async def ask(item: S) -> T:
            async with self.limit:
                return await function(item)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ask(item)) for item in items]
        except BaseExceptionGroup as failures:
            failure = failures.exceptions[0]
        else:
            self._failed_in_a_row = 0
            return [task.result() for task in tasks]
        self._failed_in_a_row = self._failed_in_a_row + 1 if isinstance(failure, Unreachable) else 0
        if self._failed_in_a_row < DOWN_AFTER:  # it may be the query
            raise failure
        raise EndpointDown(
            f"{self.base} is down: it failed {self._failed_in_a_row} queries in a row ({failure}). "
            "What was scored is kept; run the same command again when it answers."
        ) from failure

    async def _ask(
        self, method: str, path: str, body: JsonObject | None, read: Callable[[Any], T], servers: Servers | None = None
    ) -> T:
        """What one server answers: each that is not left out is asked, then again later."""
        servers, content = servers or self._servers, None if body is None else _encode_body(body)
        faults: list[NoAnswer | Malformed] = []
        for attempt in range(self.options.retries + 1):
            if attempt:
                # Full jitter: clients that failed together do not come back together.
                longest = min(LONGEST_WAIT, FIRST_WAIT * 2 ** min(attempt, DOUBLINGS))
                await sleep(max(getattr(faults[-1], "wait", 0.0), random.uniform(0, longest)))
            tried: list[Server] = []
            while (server := servers.choose(tried)) is not None:
                if faults:
                    self.counts[f"retried: {redact(str(faults[-1]), self._key).split(':')[0]}"] += 1
                await self._wait_for_turn()
                self.counts["requests"] += 1
                tried.append(server)
                try:
                    with servers.asking(server):
                        sent = asyncio.ensure_future(self._ask_once(method, _url(server.base, path), content, server, read))
                        sent.add_done_callback(lambda one: one.cancelled() or one.exception())  # also where nobody waits for it
                        answer = await asyncio.shield(sent)
                    servers.note_answer(server)
                    return answer
                except NoAnswer as fault:
                    servers.note_silence(server, redact(str(fault), self._key), fault.wait)
                    faults.append(fault)
                except Malformed as fault:
                    servers.note_answer(server)
                    faults.append(fault)
        reason = redact(str(faults[-1]), self._key)
        where = " and ".join(_url(server.base, path) for server in servers.all)
        raise _kind_of_failure(faults)(f"{where} gave no usable answer in {self.options.retries + 1} tries, the last: {reason}")

    async def _ask_once(self, method: str, url: str, content: bytes | None, server: Server, read: Callable[[Any], T]) -> T:
        sent = time.monotonic()
        answer = await _exchange(self._client, method, url, content, self.options.timeout)
        if answer.status in TOO_MANY:
            self.limit.lower(sent)
        if answer.status in RETRIED:
            raise self._overloaded(server, answer)
        self.limit.grow()
        return self._read(answer, url, read)

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
        self.counts.update(said_of_itself(whole))
        for what, count in self._usage(whole).items() if self._usage else ():
            self._tokens[what] += count
        try:
            return read(whole)
        except (Malformed, SteadyscoreError):
            raise
        except Exception as odd:  # an answer of another shape can trip its reader in any way
            raise Malformed(one_line(f"not readable: {type(odd).__name__}: {odd}")) from odd

    def _overloaded(self, server: Server, answer: Answer) -> NoAnswer:
        fault = NoAnswer(f"HTTP {answer.status}: {self._reason(answer)}", retry_after(answer.headers))
        if fault.is_cut and not self._has_warned:
            self._has_warned = True
            log.warning("%s: %s", server.base, fault)
        return fault

    def _text(self, answer: Answer) -> str:
        return redact(answer.content.decode("utf-8", "replace"), self._key)

    def _reason(self, answer: Answer) -> str:
        return one_line(self._text(answer))[:200] or "no reason given"

    async def _wait_for_turn(self) -> None:
        """Wait as the rate asks for."""
        if self.options.rate:
            now = time.monotonic()
            turn = max(now, self._next_turn)
            self._next_turn = turn + 60 / self.options.rate
            await sleep(turn - now)


def _open_client(key: str) -> Any:
    import httpx2

    headers = {"Accept-Encoding": "gzip", **({"Authorization": f"Bearer {key}"} if key else {})}
    unbounded = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(headers=headers, timeout=None, limits=unbounded)


@cache
def _loop_of(process: int) -> asyncio.AbstractEventLoop:
    """The event loop that all endpoints of a process share, on a thread of its own."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="steadyscore-http", daemon=True).start()
    return loop


def _close(client: Any, loop: asyncio.AbstractEventLoop) -> None:
    asyncio.run_coroutine_threadsafe(client.aclose(), loop)


async def _exchange(client: Any, method: str, url: str, content: bytes | None, seconds: float) -> Answer:
    """One request: a whole answer within its time and its size, or a fault with a name."""
    import httpx2

    kind = {} if content is None else {"Content-Type": "application/json"}
    body = bytearray()
    try:
        async with asyncio.timeout(seconds), client.stream(method, url, content=content, headers=kind) as response:
            async for piece in response.aiter_bytes():  # of bounded size, however small it was packed
                body += piece
                if len(body) > LARGEST:
                    raise Unusable(f"{url} gave an answer of more than {LARGEST // 2**20} MB")  # and would the next time
            return Answer(response.status_code, response.headers, bytes(body))
    except TimeoutError:
        raise NoAnswer(f"timeout: no whole answer within {seconds:g} s") from None
    except httpx2.DecodingError as odd:
        raise Malformed(f"not decompressed: {odd}") from odd
    except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, UnicodeError) as fault:
        raise NoAnswer(f"{type(fault).__name__}: {fault}") from fault


def _url(base: str, path: str) -> str:
    """The path goes before a query string of the base."""
    place, mark, query = base.partition("?")
    return place.rstrip("/") + path + mark + query if path else base


def _kind_of_failure(faults: Sequence[NoAnswer | Malformed]) -> type[Unusable]:
    """What a request failed of that had these faults, one a try."""
    if faults and isinstance(faults[-1], Malformed):
        return Unusable
    return Silent if all(isinstance(fault, NoAnswer) and fault.is_silence for fault in faults) else Unreachable


def read_key(variables: Sequence[str]) -> str:
    """The key of an endpoint, from the first of these variables of the environment that holds one; empty where none does."""
    key = next((value for name in variables if (value := os.environ.get(name, "").strip())), "")
    if key and not SENDABLE.fullmatch(key):
        raise InputError(f"the key in ${KEY} holds characters that a header cannot carry. Set it to the key alone.")
    return key


def _encode_body(body: JsonObject) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except UnicodeEncodeError as odd:
        raise Unusable("the question holds half a character (a lone surrogate), which JSON cannot carry") from odd


def _redirect_target(answer: Answer) -> str:
    """Where a redirect leads, as far as it can be repeated: its path and query string may be a ticket."""
    host = urlsplit(redact(answer.headers.get("location", ""))).netloc
    return f" and leads to {host}" if host else ""


def _read_json(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError):  # not there, or a damaged file: ask again
        return None
