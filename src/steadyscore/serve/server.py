"""uvicorn around the app: in-flight requests are finished, new ones refused; SIGHUP opens the models again."""

from __future__ import annotations

import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import uvicorn

from ..errors import InputError
from .app import create_app
from .connections import Connection, places
from .logs import JsonLines, RepeatLimit, log
from .metrics import Metrics
from .service import Model, Service
from .settings import Limits, ServerSettings, refuse_open_door


def build(open_models: Callable[[], dict[str, Model]], settings: ServerSettings) -> tuple[uvicorn.Server, Service]:
    """A server that is ready to run, with every model open."""
    refuse_open_door(settings)
    metrics = Metrics()
    service = Service(open_models, settings.limits, metrics.on_batch)
    return uvicorn.Server(configured(create_app(service, settings, metrics), settings.limits, metrics)), service


def configured(app: Any, limits: Limits, metrics: Metrics) -> uvicorn.Config:
    """What uvicorn is to do. Protocol and event loop are named, so that what is tested is what runs wherever it is installed."""
    room = places(limits.connections)
    return uvicorn.Config(
        app,
        http=partial(Connection, limits=limits, metrics=metrics, most=room.connections),  # type: ignore[arg-type]
        ws="none",
        loop="asyncio",
        backlog=room.backlog,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.seconds) + 5,
    )


def bound(host: str, port: int) -> socket.socket:
    """A socket that holds the address and does not listen yet: taken before a model is loaded, open when one is."""
    held = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        held.bind((host, port))
    except (OSError, OverflowError) as refusal:
        held.close()
        reason = getattr(refusal, "strerror", None) or refusal
        raise InputError(f"cannot listen on {host}:{port}: {reason}. Choose another --host or --port.") from refusal
    return held


def log_to_stderr(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(RepeatLimit())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    log.setLevel(level)


def reload_on_hangup(service: Service) -> None:
    def reload() -> None:
        try:
            service.reload()
            log.info("reloaded", extra={"facts": {"models": list(service.models)}})
        except Exception as fault:  # the old models go on serving
            log.error("reload failed", extra={"facts": {"fault": f"{type(fault).__name__}: {fault}"}})

    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, lambda *_: threading.Thread(target=reload, name="reload").start())
