"""uvicorn around the app, its connections and its log: requests in flight are finished; SIGHUP opens the models again.

uvicorn has a limit on idle connections and none on half-sent requests. The head of a request has a deadline here and its
body one in `middleware.py`; a client that does not read its answer is disconnected; and where the bound is reached, the
connection that has waited longest for its client is closed for the next one, so that a client that holds hundreds of them
open does not keep others out.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import uvicorn
from fastapi import APIRouter, FastAPI
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import InputError
from ..machine.console import harmless
from .app import create_app
from .operations import Metrics, log
from .service import Model, Service
from .settings import Limits, ServerSettings, require_token_on_public_host

OWN_FILES = 64
"""Files a server needs besides its connections: models, logs, the event loop."""
LAST_LOOK = 0.2
"""Seconds that the server still reads from an idle connection when it ends."""
MOST_WAITING = 128
"""Connections the system completes before they are accepted, where files are not scarce."""


def build_server(
    open_models: Callable[[], dict[str, Model]], settings: ServerSettings, more: Sequence[APIRouter] = ()
) -> tuple[uvicorn.Server, Service]:
    """A server that is ready to run, with every model open and the routes of later packages in `more`."""
    require_token_on_public_host(settings)
    metrics = Metrics()
    service = Service(open_models, settings.limits, metrics.on_batch)
    return uvicorn.Server(uvicorn_config(create_app(service, settings, metrics, more), settings.limits, metrics)), service


def uvicorn_config(app: FastAPI, limits: Limits, metrics: Metrics) -> uvicorn.Config:
    """Protocol and event loop are named, so that tests run on the same ones as every installation."""
    most, backlog = connection_limits(limits.connections)
    return uvicorn.Config(
        app,
        http=partial(Connection, limits=limits, metrics=metrics, most=most),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        backlog=backlog,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + 5,
    )


def bind_socket(host: str, port: int) -> socket.socket:
    """A socket that has the address and does not listen yet: an address in use is refused before a model is loaded."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as refusal:
        listener.close()
        reason = getattr(refusal, "strerror", None) or refusal
        raise InputError(f"cannot listen on {host}:{port}: {reason}. Choose another --host or --port.") from refusal
    return listener


# -- connections: deadlines for what is sent and read, and a bound on how many are open


def connection_limits(wanted: int) -> tuple[int, int]:
    """How many connections are held open, as wanted or as the system's limit on open files leaves, and how many wait for that.

    The event loop accepts a whole backlog at a time and takes some four rounds until a connection that was refused is
    closed, so four backlogs stay free: running out of files would stop the server for everybody.
    """
    files = raise_file_limit(wanted + 4 * MOST_WAITING + OWN_FILES)
    backlog = max(8, min(MOST_WAITING, files // 16))
    connections = max(1, min(wanted, files - 4 * backlog - OWN_FILES))
    if connections < wanted:
        log.warning("fewer connections than asked for", extra={"facts": {"asked": wanted, "connections": connections}})
    return connections, backlog


def raise_file_limit(needed: int) -> int:
    """Raise the limit on open files to what is needed, as far as the system allows; the limit that then holds."""
    try:
        import resource
    except ImportError:  # a system without such a limit
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 20
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def problem_bytes(status: HTTPStatus, sentence: str) -> bytes:
    """A refusal as the routes give it, for a connection whose request no route will see."""
    body = json.dumps({"message": sentence}).encode()
    head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n".encode() + body


class Connection(H11Protocol):
    """uvicorn's connection, with a deadline for whatever it waits for."""

    def __init__(self, *args: Any, limits: Limits, metrics: Metrics, most: int, **more: Any):
        super().__init__(*args, **more)
        self._limits, self._metrics, self._most = limits, metrics, most
        self._deadline: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._refused = self._ending = False
        self.waiting_since = 0.0

    @property
    def is_waiting(self) -> bool:
        """Whether the server waits for the client: no request is being answered."""
        return self.cycle is None or self.cycle.response_complete or (self.cycle.more_body and not self.cycle.response_started)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self.waiting_since = self.loop.time()
        if len(self.connections) >= self._most and not self._close_longest_waiting():
            self._refused = True
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "every connection of this server is at work. Try again later.")
            return
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel(self._deadline)
        self._cancel(self._stalled)
        if not self._refused:
            super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._ending and self.cycle is not None:
            self._close_after_answer()
        self._set_deadline()

    def on_response_complete(self) -> None:
        self.waiting_since = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        self.transport.write(problem_bytes(HTTPStatus.BAD_REQUEST, "this is not an HTTP request."))
        self.transport.close()

    def shutdown(self) -> None:
        """Requests that have arrived are answered; one that is still arriving is refused."""
        if self.transport.is_closing():
            return
        idle = self.cycle is None or self.cycle.response_complete
        if self.is_waiting and not idle:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "the server is shutting down.")
        elif idle and not self._ending:  # a request may have arrived that a busy event loop has not read yet
            self._ending = True
            self.loop.call_later(LAST_LOOK, self.shutdown)
        elif idle:
            super().shutdown()
        else:
            self._close_after_answer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._cancel(self._stalled)
        super().resume_writing()

    def _set_deadline(self) -> None:
        """While no request is being answered the head of the next one has a deadline; single bytes do not extend it."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel(self._deadline)
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self._limits.head_seconds, self._end_head)

    def _end_head(self) -> None:
        self._metrics.refused.labels("head").inc()
        if self.conn.trailing_data[0]:  # a client that sent nothing would take an answer for that of its next request
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"no whole request within {self._limits.head_seconds:g} s.")
        else:
            self.transport.close()

    def _close_longest_waiting(self) -> bool:
        """Close the connection that has waited longest for its client; False where none waits."""
        waiting = [other for other in self.connections if isinstance(other, Connection) and other.is_waiting]
        if not waiting:
            return False
        self._metrics.refused.labels("connections").inc()
        longest = min(waiting, key=lambda other: other.waiting_since)
        self.connections.discard(longest)
        longest.transport.abort()
        return True

    def _close_after_answer(self) -> None:
        """Close after this answer, and say so in its head: uvicorn repeats the header of the request."""
        self.cycle.keep_alive = False
        self.cycle.scope["headers"] = [*self.cycle.scope["headers"], CLOSE_HEADER]

    def _refuse(self, status: HTTPStatus, sentence: str) -> None:
        self.transport.write(problem_bytes(status, sentence))
        self.transport.close()

    @staticmethod
    def _cancel(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


# -- the log: one JSON object a line, never a text


class JsonLines(logging.Formatter):
    """One JSON object a line. Candidate text never stands in one: routes log counts, faults their place in the code."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        return harmless(json.dumps(line | getattr(record, "facts", {}), ensure_ascii=False))


def log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(logging.INFO)


def reload_on_hangup(service: Service) -> None:
    def reload() -> None:
        try:
            service.reload()
            log.info("reloaded", extra={"facts": {"models": list(service.models)}})
        except Exception as fault:  # the old models keep serving
            log.error("reload failed", extra={"facts": {"fault": f"{type(fault).__name__}: {fault}"}})

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload").start())
