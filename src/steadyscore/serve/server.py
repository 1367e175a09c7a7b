"""uvicorn around the app: in-flight requests are finished, new ones refused; SIGHUP opens the models again."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial

import uvicorn
from fastapi import FastAPI

from ..errors import InputError
from .app import create_app
from .connections import Connection, connection_limits
from .logs import JsonLines, RepeatLimit, log
from .metrics import Metrics
from .service import Model, Service
from .settings import Limits, ServerSettings, require_token_on_public_host


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
