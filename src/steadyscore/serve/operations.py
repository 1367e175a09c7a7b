"""Routes that score nothing: models, health, metrics and the explorer; and where faults are logged.

The explorer's page is static and sends requests to this server only.
"""

from __future__ import annotations

import logging
import traceback
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel

from ..collection import open_collection
from ..terms import JsonObject
from ..window.prompt import collapse
from .batcher import Batcher
from .service import Model, Service
from .shapes import Problem, problems

log = logging.getLogger("steadyscore.serve")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
WEB = Path(__file__).resolve().parent / "web"
FILES = {
    "/": ("explorer.html", "text/html; charset=utf-8"),
    "/explorer.css": ("explorer.css", "text/css; charset=utf-8"),
    "/explorer.js": ("explorer.js", "text/javascript; charset=utf-8"),
    "/explorer.decisions.js": ("explorer.decisions.js", "text/javascript; charset=utf-8"),
}
EXAMPLES = (("passages", 3), ("responses", 2), ("multidoc_qa", 2))
"""Embedded collections and how many of their queries are offered."""
POOL, CHARS = 8, 600
SHARE = (0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


def log_fault(event: str, fault: Exception, **facts: str) -> None:
    """The place in the code, not the words: somebody's exception may quote a document."""
    place = traceback.format_tb(fault.__traceback__)[-1].splitlines()[0].strip()
    log.error(event, extra={"facts": {"fault": type(fault).__name__, "place": place, **facts}})


class Metrics:
    """What Prometheus reads. One registry per server, so that two servers in one process do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="steadyscore", registry=self.registry)
        histogram = partial(Histogram, namespace="steadyscore", registry=self.registry)
        self.requests = counter("requests", "Requests by route and status.", ["route", "status"])
        self.latency = histogram("request_seconds", "From arrival to answer.", ["route"], buckets=SECONDS)
        self.refused = counter("refused", "Requests not scored, by reason.", ["reason"])
        self.windows = counter("windows", "Windows scored.")
        self.presentations = counter("presentations", "Presentations of the pools of requests.", ["model"])
        self.spared = counter("presentations_spared", "Presentations that no decision needed any more.", ["model"])
        self.tokens = counter("prompt_tokens", "Prompt tokens scored.", ["model"])
        self.batch = histogram("batch_windows", "Windows per pass.", buckets=WINDOWS)
        self.sharing = histogram("batch_requests", "Requests per pass.", buckets=WINDOWS)
        self.busy = counter("engine_seconds", "Time the workers spent in the engines.")
        self.ties = counter("tied_neighbours", "Neighbours in a ranking with equal scores.", ["model"])
        self.neighbours = counter("neighbours", "Neighbours in a ranking.", ["model"])
        self.overflow = counter("window_overflow", "Windows too long for the model's context, refused.", ["model"])
        sets = "Jaccard of the sets kept under two orders of sampled requests."
        self.overlap = histogram("stability_overlap", sets, ["model"], buckets=SHARE)
        self.flips = counter("stability_top1_flips", "Sampled requests whose first document changed.", ["model"])
        self.sampled = counter("stability_samples", "Requests scored a second time.", ["model"])
        self.unsampled = counter("stability_failures", "Sampled requests whose second scoring failed.", ["model"])

    def watch(self, batcher: Batcher) -> None:
        """Gauges that read the queue and the workers whenever they are asked for."""
        gauge = partial(Gauge, namespace="steadyscore", registry=self.registry)
        gauge("queue_windows", "Windows waiting or running.").set_function(lambda: batcher.reserved)
        gauge("queue_tokens", "Tokens waiting or running.").set_function(lambda: batcher.tokens)
        gauge("requests_in_flight", "Requests let in and not answered yet.").set_function(lambda: batcher.in_flight)
        gauge("busy_workers", "Workers in a pass.").set_function(lambda: len(batcher.ages))
        oldest = gauge("oldest_pass_seconds", "Age of the oldest pass; 0 without one.")
        oldest.set_function(lambda: max(batcher.ages, default=0.0))

    def on_batch(self, windows: int, requests: int, seconds: float) -> None:
        self.windows.inc(windows)
        self.batch.observe(windows)
        self.sharing.observe(requests)
        self.busy.inc(seconds)

    def page(self) -> bytes:
        return generate_latest(self.registry)


class ModelFacts(BaseModel):
    """Our one extra key of a model."""

    task: str
    width: int | None
    characters: int | None
    cutoff: float | None
    expected_overlap: float | None
    capabilities: JsonObject
    first_stage: dict[Literal["by_place", "by_rank"], int | None]


class ModelAnswer(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "steadyscore"
    order: ModelFacts


class ModelsAnswer(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelAnswer]


class State(BaseModel):
    status: str


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]
router = APIRouter(responses=problems(401))
pages = APIRouter(include_in_schema=False)
probes = APIRouter(responses={503: {"model": State | Problem}})
"""For health checks, which call a server by its address and have no token."""


@router.get("/v1/models", response_model=ModelsAnswer)
async def models(service: Served) -> ModelsAnswer:
    return ModelsAnswer(data=[model_answer(model) for model in service.models.values()])


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def page(request: Request) -> Response:
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


@probes.get("/health", response_model=State)
async def health(service: Served) -> Any:
    return State(status="ok") if service.batcher.alive else JSONResponse({"status": "a worker has ended"}, 503)


@probes.get("/ready", response_model=State)
async def ready(service: Served) -> Any:
    if service.batcher.is_stuck:
        return JSONResponse({"status": f"busy: a pass has taken more than {service.limits.seconds:g} s"}, 503)
    if service.warm and service.batcher.alive:
        return State(status="ready")
    if service.warm:
        return JSONResponse({"status": "shutting down"}, 503)
    failed = "; ".join(
        f"the scorer of {name} failed ({fault}) and is tried again" for name, fault in list(service.cold.items()) if fault
    )
    return JSONResponse({"status": f"warming up: {failed}" if failed else "warming up"}, 503)


def model_answer(model: Model) -> ModelAnswer:
    facts = ModelFacts(
        task=model.task.prompt_task,
        width=model.default_width,
        characters=model.settings.chars,
        cutoff=model.cutoff,
        expected_overlap=model.expected_overlap,
        capabilities=model.scorer().capabilities.to_json() | {"order_free": model.is_order_free()},
        first_stage={"by_place": model.first_stage, "by_rank": (model.ranked or model).first_stage},
    )
    return ModelAnswer(id=model.name, created=model.opened, order=facts)


# -- the explorer: its files and its embedded examples


class Example(BaseModel):
    collection: str
    query: str
    documents: list[str]


@cache
def examples() -> list[Example]:
    """Queries of the embedded collections with their first candidates."""
    offered: list[Example] = []
    for name, count in EXAMPLES:
        for instance in islice(open_collection(name).instances(), count):
            texts = [collapse(f"{c.title}: {c.text}" if c.title else c.text)[:CHARS] for c in instance.pool[:POOL]]
            offered.append(Example(collection=name, query=collapse(instance.query), documents=texts))
    return offered


async def serve_file(request: Request) -> Response:
    name, kind = FILES[request.url.path]
    return Response((WEB / name).read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


for path in FILES:
    pages.add_api_route(path, serve_file)


@pages.get("/v1/examples")
def offer_examples() -> list[Example]:
    return examples()
