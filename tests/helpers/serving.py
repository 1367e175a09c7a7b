"""What the serving tests share: models made of doubles, an app, and a real server on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from steadyscore.decision_models.routes import router
from steadyscore.engines import Capabilities, Reranker
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.scoring.scorer import Settings
from steadyscore.serve.app import create_app
from steadyscore.serve.operations import Metrics
from steadyscore.serve.server import bind_socket, uvicorn_config
from steadyscore.serve.service import Model, Service
from steadyscore.serve.settings import Limits, ServerSettings
from steadyscore.tasks import TASKS

QUERY = "what is the capital of portugal"
DOCUMENTS = ["Bread rises because yeast makes gas.", "the capital of portugal is lisbon", "Porto is a town.", "what a river"]

FORGETFUL_CLIENTS = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"),
    pytest.mark.usefixtures("collect_garbage"),
]
"""For tests of other people's clients, which leave their sockets to the garbage collector."""

LAUNCH = """
import argparse, os, resource, sys
if files := int(os.environ.get("FILES", "0")):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
from steadyscore.commands import serve
from steadyscore.serve import server
server.LAST_LOOK = float(os.environ.get("LAST_LOOK", server.LAST_LOOK))
parser = argparse.ArgumentParser()
serve.arguments(parser)
sys.exit(serve.run(parser.parse_args(sys.argv[1:])))
"""
"""`steadyscore serve`, without the other verbs; FILES: so many open files; LAST_LOOK: seconds for clients about to ask."""


class Double(Reranker):
    """A reranker whose score is any function."""

    name, capabilities = "double", Capabilities(gives="score")

    def __init__(self, function: Callable[[str, Sequence[str]], Sequence[float]]):
        self.function = function

    def identity(self) -> dict[str, Any]:
        return {"kind": "double"}

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.function(query, texts)


def model(backend: Any, name: str = "planted", **changes: Any) -> Model:
    settings = Settings(label_mass=False, **{k: changes.pop(k) for k in ("width", "fit", "chars", "prompt") if k in changes})
    return Model(name, backend, TASKS["passage_reranking"], settings, **changes)


def planted(effect: str = "slot", size: float = 0.3, **changes: Any) -> Model:
    return model(SyntheticReranker(effect, size), **changes)


def service_of(*models: Model, limits: Limits | None = None, metrics: Metrics | None = None) -> Service:
    metrics = metrics or Metrics()
    return Service(lambda: {m.name: m for m in models}, limits or Limits(), metrics.on_batch)


def app_of(*models: Model, **settings: Any) -> Any:
    """An app that also answers to the name that test clients call it by."""
    metrics, made = Metrics(), ServerSettings(**{"allowed_hosts": ("testserver",)} | settings)
    service = service_of(*models, limits=made.limits, metrics=metrics)
    app = create_app(service, made, metrics, [router])
    app.state.config = uvicorn_config(app, made.limits, metrics)
    return app


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """A real server on loopback."""
    listener = bind_socket("127.0.0.1", 0)
    server = uvicorn.Server(app.state.config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not (server.started and app.state.service.warm):
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)


@contextmanager
def serving(
    folder: Path, *flags: str, ready: float = 240.0, files: int = 0, last_look: float = 0.2
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a process of its own, ready, at a port that it chose itself: one that is free now may not be so later."""
    command = [sys.executable, "-c", LAUNCH, *flags, "--port", "0"]
    with open(folder / "log", "w+") as log:
        settings = {"OMP_NUM_THREADS": "1", "FILES": str(files), "LAST_LOOK": str(last_look)}
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, text=True, env=os.environ | settings)
        deadline = time.monotonic() + ready
        try:
            while not (url := ready_url((folder / "log").read_text())):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, f"not ready within {ready:g} s"
                time.sleep(0.1)
            yield url, process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(120)


def ready_url(log: str) -> str:
    """Where a server says that it is, once it answers there."""
    said = re.search(r" at (http://[\d.:]+)", log)
    try:
        return said[1] if said and httpx.get(f"{said[1]}/ready", verify=False).status_code == 200 else ""
    except httpx.TransportError:
        return ""


def memory_of(process: subprocess.Popen[str], name: str) -> int:
    """Kilobytes of a process: VmRSS now, VmHWM at most."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith(name)).split()[1])
