"""What happens to every request before its route: request id, check of the host, the token, size and deadline of the body;
and after it: the log line.

Plain ASGI: the frameworks' own middleware hides from the routes that a client has disconnected.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .operations import FILES, Metrics, log, log_fault
from .settings import ServerSettings, host_name, known_hosts

OPEN_PATHS = frozenset({"/health", "/ready", "/openapi.json", *FILES})
"""Paths that need no token: they give no data and start no work."""
PROBE_PATHS = frozenset({"/health", "/ready"})
"""Paths for any host: health checks call a server by its address."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
]

COSTS = ("presentations", "windows", "tokens")
"""What a request took, in a header each; windows are what an endpoint behind this server was asked for."""
REQUEST_ID = re.compile(rb"[\w.:/+=@-]{1,128}")
LAST_ANSWER = {"Connection": "close"}
"""Headers of a refusal after which the rest of the request is not read."""

Headers = Sequence[tuple[bytes, bytes]]


class Refusal(HTTPException):
    """A request that no route will see the whole of; `reason` is what the metrics count it as."""

    def __init__(self, status: int, sentence: str, reason: str, headers: Mapping[str, str] | None = None):
        super().__init__(status, sentence, headers)
        self.reason = reason


def request_id_of(headers: Headers) -> str:
    """The client's own, where it is short and plain enough for a log; else a new one."""
    sent = dict(headers).get(b"x-request-id", b"")
    return sent.decode("ascii") if REQUEST_ID.fullmatch(sent) else uuid.uuid4().hex


def token_matches(header: bytes, keys: tuple[str, ...]) -> bool:
    """Whether an Authorization header carries one of the tokens; all are compared, each in constant time."""
    scheme, _, token = header.partition(b" ")
    same = [hmac.compare_digest(token.strip(), key.encode()) for key in keys]
    return scheme.lower() == b"bearer" and any(same)


def open_paths(settings: ServerSettings) -> frozenset[str]:
    return OPEN_PATHS | {"/metrics"} if settings.open_metrics else OPEN_PATHS


class RequestMiddleware:
    """Around the whole application; `routes` are named by the metrics and the log, so that a client cannot add to them."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, routes: Collection[str]):
        self.app, self.settings, self.metrics, self.routes = app, settings, metrics, routes
        self.hosts = known_hosts(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.monotonic()
        request_id = request_id_of(scope["headers"])
        scope.setdefault("state", {}).update(request_id=request_id, facts={})
        status = 0

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                facts, milliseconds = scope["state"]["facts"], 1000 * (time.monotonic() - began)
                told = {"x-request-id": request_id, "server-timing": f"total;dur={milliseconds:.1f}"}
                told |= {f"steadyscore-{name}": str(facts[name]) for name in COSTS if name in facts}
                ours = [(name.encode(), value.encode()) for name, value in told.items()]
                message = {**message, "headers": [*message["headers"], *ours, *SECURITY_HEADERS]}
            await send(message)

        route = scope["path"] if scope["path"] in self.routes else "other"
        try:
            if refusal := self._find_refusal(scope["path"], scope["headers"]):
                self.metrics.refused.labels(refusal.reason).inc()
                problem = JSONResponse({"message": refusal.detail}, refusal.status_code)
                problem.headers.update(refusal.headers or {})
                await problem(scope, receive, answer)
            else:
                await self.app(scope, self._limit_body(receive), answer)
        except Exception as fault:  # a mistake of ours, answered in the shape of every refusal
            log_fault("request failed", fault, route=route)
            if status:
                raise
            sentence = f"the server failed ({type(fault).__name__}). The log names the place."
            await JSONResponse({"message": sentence}, 500)(scope, receive, answer)
        seconds = time.monotonic() - began
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.latency.labels(route).observe(seconds)
        facts = {"id": request_id, "method": scope["method"], "route": route, "status": status, "seconds": round(seconds, 4)}
        log.info("request", extra={"facts": facts | scope["state"]["facts"]})

    def _find_refusal(self, path: str, sent: Headers) -> Refusal | None:
        headers, names = dict(sent), [name for name, _ in sent]
        has_two_ends = {b"content-length", b"transfer-encoding"} <= headers.keys()  # what follows could be another request
        if has_two_ends or names.count(b"authorization") > 1:
            what = "Content-Length and Transfer-Encoding" if has_two_ends else "two Authorization headers"
            return Refusal(400, f"the request has {what}. Send one.", "head", LAST_ANSWER)
        host = host_name(headers.get(b"host", b"").decode("latin-1"))
        if self.hosts is not None and path not in PROBE_PATHS and host not in self.hosts:
            sentence = f"this server does not answer for the host {host[:80]!r}. Start it with --allowed-host to add a name."
            return Refusal(421, sentence, "host")
        keys = self.settings.keys
        if keys and path not in open_paths(self.settings) and not token_matches(headers.get(b"authorization", b""), keys):
            sentence = "this server needs a token. Send the header Authorization: Bearer <token>."
            return Refusal(401, sentence, "token", {"WWW-Authenticate": "Bearer"})
        packing = headers.get(b"content-encoding", b"identity").decode("latin-1").strip().lower()
        if packing not in ("", "identity"):  # a few kilobytes can be packed so that they fill any memory
            sentence = (
                f"this server unpacks no body, and this one is packed with {packing[:80]!r}. Send it without Content-Encoding."
            )
            return Refusal(415, sentence, "packed", {"Accept-Encoding": "identity", **LAST_ANSWER})
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > self.settings.limits.body_bytes:
            return Refusal(413, self._too_large(), "size", LAST_ANSWER)
        return None

    def _too_large(self) -> str:
        return f"the body is larger than {self.settings.limits.body_bytes:,} bytes. Send fewer or shorter documents."

    def _limit_body(self, receive: Receive) -> Receive:
        """Count the bytes that arrive, since a body sent in chunks states no length, and set a deadline for all of them."""
        limits, total, more = self.settings.limits, 0, True
        deadline = asyncio.get_running_loop().time() + limits.body_seconds

        async def receive_limited() -> Message:
            nonlocal total, more
            try:
                async with asyncio.timeout_at(deadline if more else None):
                    message = await receive()
            except TimeoutError:
                sentence = f"the body did not arrive within {limits.body_seconds:g} s."
                raise Refusal(408, sentence, "body", LAST_ANSWER) from None
            more = message.get("more_body", False)
            total += len(message.get("body", b""))
            if total > limits.body_bytes:
                raise Refusal(413, self._too_large(), "size", LAST_ANSWER)
            return message

        return receive_limited
