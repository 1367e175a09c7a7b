"""What every request passes before its route: a request id, the host it asks for, the token, size and deadline of the body;
and after it, the log line.

Plain ASGI: the frameworks' own middleware hides a client that goes away from the routes.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from starlette.exceptions import HTTPException

from .logs import log, log_fault
from .metrics import Metrics
from .settings import ServerSettings, host_name, known_hosts

OPEN = frozenset({"/", "/health", "/ready", "/openapi.json", "/explorer.css", "/explorer.js"})
"""Paths without a token: they hold nobody's data and start no work."""
PROBES = frozenset({"/health", "/ready"})
"""Paths for any host: what looks after a server calls it by its address."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]

Message = dict[str, Any]
Headers = Sequence[tuple[bytes, bytes]]
Refusal = tuple[int, str, Headers]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]


def may_enter(header: bytes, keys: tuple[str, ...]) -> bool:
    """Whether an Authorization header carries one of the tokens; all are compared, each in constant time."""
    scheme, _, given = header.partition(b" ")
    same = [hmac.compare_digest(given.strip(), key.encode()) for key in keys]
    return scheme.lower() == b"bearer" and any(same)


class Gate:
    def __init__(self, app: App, settings: ServerSettings, metrics: Metrics, routes: frozenset[str]):
        self.app, self.settings, self.metrics, self.routes = app, settings, metrics, routes
        self.hosts = known_hosts(settings)
        self.span = _tracer()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, headers = time.monotonic(), dict(scope["headers"])
        request_id = uuid.uuid4().hex
        scope.setdefault("state", {}).update(request_id=request_id, facts={})
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = message | {"headers": [*message["headers"], (b"x-request-id", request_id.encode()), *SECURITY]}
            await send(message)

        route = scope["path"] if scope["path"] in self.routes else "other"
        try:
            with self.span(f"{scope['method']} {route}"):
                if refusal := self._refusal(scope["path"], headers):
                    await _problem(answer, *refusal)
                else:
                    await self.app(scope, self._limited(receive), answer)
        except Exception as fault:  # a mistake of ours, and still an answer as promised
            log_fault("request failed", fault, route=route)
            if status:
                raise
            await _problem(answer, 500, f"the server failed ({type(fault).__name__}). The log names the place.")
        seconds = time.monotonic() - began
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.latency.labels(route).observe(seconds)
        facts = {"id": request_id, "method": scope["method"], "route": route, "status": status, "seconds": round(seconds, 4)}
        log.info("request", extra={"facts": facts | scope["state"]["facts"]})

    def _refusal(self, path: str, headers: dict[bytes, bytes]) -> Refusal | None:
        host = host_name(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts is not None and path not in PROBES and host not in self.hosts:
            self.metrics.refused.labels("host").inc()
            return 421, f"this server does not answer for the host {host[:80]!r}. Start it with --allowed-host to add a name.", ()
        if self.settings.keys and path not in OPEN and not may_enter(headers.get(b"authorization", b""), self.settings.keys):
            self.metrics.refused.labels("token").inc()
            return (
                401,
                "this server needs a token. Send the header Authorization: Bearer <token>.",
                [(b"www-authenticate", b"Bearer")],
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.settings.limits.body_bytes:
            self.metrics.refused.labels("size").inc()
            return 413, self._too_large(), [(b"connection", b"close")]
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self.settings.limits.body_bytes:,} bytes. Send fewer or shorter documents."

    def _limited(self, receive: Callable[[], Awaitable[Message]]) -> Callable[[], Awaitable[Message]]:
        """Counts what arrives, since a body sent in chunks states no length, and does not wait for the rest of it for ever."""
        limits, total, more = self.settings.limits, 0, True
        deadline = asyncio.get_running_loop().time() + limits.body_seconds

        async def limited() -> Message:
            nonlocal total, more
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                self.metrics.refused.labels("body").inc()
                raise HTTPException(
                    408, f"the body did not arrive within {limits.body_seconds:g} s.", {"Connection": "close"}
                ) from None
            more = message.get("more_body", False)
            total += len(message.get("body", b""))
            if total > limits.body_bytes:
                self.metrics.refused.labels("size").inc()
                raise HTTPException(413, self._too_large(), {"Connection": "close"})
            return message

        return limited


async def _problem(send: Any, status: int, sentence: str, headers: Headers = ()) -> None:
    body = json.dumps({"message": sentence}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})


def _tracer() -> Callable[[str], AbstractContextManager[Any]]:
    """A span per request where OpenTelemetry is installed; without an exporter its spans go nowhere."""
    try:
        from opentelemetry import trace
    except ImportError:
        return lambda name: nullcontext()
    return trace.get_tracer("steadyscore").start_as_current_span
