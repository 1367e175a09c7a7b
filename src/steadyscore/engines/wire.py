"""One request over HTTP: a whole answer within its time and its size, or a fault with a name.

The deadline is one clock over connecting, sending, headers and body: a server that sends a byte now and then cannot outlast
it, as it could outlast a limit on each read. An event loop in a thread of its own can stop a request wherever it waits.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
import zlib
from concurrent.futures import Future
from typing import Any, NamedTuple

from .answers import Malformed

LARGEST = 64 * 2**20
"""Bytes of an answer after decompression; the longest honest ones (20 alternatives at every token of a prompt) are below it."""


class NoAnswer(Exception):
    """Silence, a refused connection, an overload: the request is tried again."""

    wait = 0.0
    """Seconds that the endpoint asks to be left alone."""


class TooLarge(Exception):
    """An answer of more than `LARGEST` bytes. It would be as large the next time."""


class Answer(NamedTuple):
    status: int
    headers: Any
    content: bytes


class Wire:
    """Connections to one endpoint, kept open between requests; used by several threads at the same time."""

    def __init__(self, headers: dict[str, str], timeout: float):
        self._timeout = timeout
        opened: Future[tuple[Any, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        worker = threading.Thread(target=lambda: asyncio.run(_hold(headers, opened)), name="steadyscore-http", daemon=True)
        worker.start()
        self._client, self._loop, stop = opened.result()
        weakref.finalize(self, _close, self._loop, stop, worker)

    def send(self, method: str, url: str, content: bytes | None) -> Answer:
        asked = _exchange(self._client, method, url, content, self._timeout)
        return asyncio.run_coroutine_threadsafe(asked, self._loop).result()


async def _hold(headers: dict[str, str], opened: Future[Any]) -> None:
    """Keep a client open until nothing uses the wire any longer."""
    import httpx

    stop = asyncio.Event()
    try:
        client = httpx.AsyncClient(
            headers={**headers, "Accept-Encoding": "gzip"}, timeout=None, limits=httpx.Limits(max_connections=None)
        )
    except BaseException as fault:
        opened.set_exception(fault)
        return
    async with client:
        opened.set_result((client, asyncio.get_running_loop(), stop))
        await stop.wait()


def _close(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, worker: threading.Thread) -> None:
    loop.call_soon_threadsafe(stop.set)
    if worker is not threading.current_thread():  # the garbage collector may call from any thread
        worker.join()


async def _exchange(client: Any, method: str, url: str, content: bytes | None, seconds: float) -> Answer:
    import httpx

    kind = {} if content is None else {"Content-Type": "application/json"}
    try:
        async with asyncio.timeout(seconds), client.stream(method, url, content=content, headers=kind) as response:
            return Answer(response.status_code, response.headers, await _body(response))
    except TimeoutError:
        raise NoAnswer(f"timeout: no whole answer within {seconds:g} s") from None
    except zlib.error as odd:
        raise Malformed(f"not decompressed: {odd}") from odd
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, UnicodeError) as fault:
        raise NoAnswer(f"{type(fault).__name__}: {fault}") from fault


async def _body(response: Any) -> bytes:
    """The whole body. Unpacked here and not by httpx, which unpacks what arrives at once, whatever size that takes."""
    packing = response.headers.get("Content-Encoding", "identity").strip().lower()
    if packing not in ("gzip", "identity", ""):
        raise Malformed(f"not decompressed: packed with {packing[:80]!r}, which was not asked for")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if packing == "gzip" else None
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk if unpacker is None else unpacker.decompress(chunk, LARGEST + 1 - len(body))
        if len(body) > LARGEST:
            raise TooLarge(f"an answer of more than {LARGEST // 2**20} MB")
    if unpacker is not None and not unpacker.eof:
        raise Malformed("not decompressed: the gzip stream is cut short")
    return bytes(body)
