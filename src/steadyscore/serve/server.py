"""uvicorn around the app, and its log: in-flight requests are finished, new ones refused; SIGHUP opens the models again."""

from __future__ import annotations

import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

import uvicorn
from fastapi import FastAPI

from ..errors import InputError
from ..machine.console import harmless
from .app import create_app
from .connections import Connection, connection_limits
from .operations import Metrics, log
from .service import Model, Service
from .settings import Limits, ServerSettings, require_token_on_public_host

MOST_KINDS = 1000
"""Different warnings that are remembered."""


def build_server(open_models: Callable[[], dict[str, Model]], settings: ServerSettings) -> tuple[uvicorn.Server, Service]:
    """A server that is ready to run, with every model open."""
    require_token_on_public_host(settings)
    metrics = Metrics()
    service = Service(open_models, settings.limits, metrics.on_batch)
    return uvicorn.Server(uvicorn_config(create_app(service, settings, metrics), settings.limits, metrics)), service


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


# -- the log: one JSON object a line, never a text, and no fault that repeats itself without end


class RepeatLimit(logging.Filter):
    """Lets a warning pass a few times a minute and then counts it, so that one fault repeated cannot fill a disk."""

    def __init__(self, most: int = 5, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic):
        super().__init__()
        self.most, self.seconds, self.clock = most, seconds, clock
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        facts = getattr(record, "facts", {})
        key, now = (record.name, str(record.msg), str(facts)), self.clock()
        began, count = self._seen.get(key, (now, 0))
        left_out = 0
        if now - began >= self.seconds:
            began, count, left_out = now, 0, max(0, count - self.most)
        if len(self._seen) >= MOST_KINDS and key not in self._seen:
            self._seen.clear()
        self._seen[key] = began, count + 1
        if left_out:
            record.facts = facts | {"left_out": left_out}
        return count < self.most


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
    handler.addFilter(RepeatLimit())
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
