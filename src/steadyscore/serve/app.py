"""The application: scoring routes, operations, the explorer, and what a refusal looks like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import SteadyscoreError
from ..schemas import mistakes_of, place_of, words_of
from . import explorer, shapes
from .batcher import Busy, Closing, EngineFailed, Gone, TimedOut
from .desk import Desk
from .gate import Gate
from .logs import log_fault
from .metrics import Metrics
from .monitor import Monitor
from .routes import PROBLEMS, scoring
from .service import Model, Service
from .settings import ServerSettings
from .specification import specify

STATUS: dict[type[Exception], tuple[int, str]] = {
    Busy: (429, "busy"),
    Closing: (503, "closing"),
    TimedOut: (504, "time"),
    Gone: (499, "gone"),
    EngineFailed: (500, "engine"),
    SteadyscoreError: (422, "input"),
}
"""Status of each refusal, and its name in the metrics. 499 is read by nobody but the log: the client is gone."""
NOT_JSON = "the body is not JSON in UTF-8."
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries to warm up: twice as long each time, up to the longest."""


def create_app(service: Service, settings: ServerSettings, metrics: Metrics) -> FastAPI:
    monitor = Monitor(service, metrics, settings.monitor_share)
    desk = Desk(service, settings.limits, metrics, monitor)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(warm_up(service, desk.executor))
        yield
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        monitor.close()
        service.close()
        desk.executor.shutdown(wait=True)

    # FastAPI's interactive pages load scripts from elsewhere; /openapi.json stays.
    app = FastAPI(
        title="steadyscore",
        version=__version__,
        description="Scores and decisions that hold still when the documents are reordered.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.include_router(scoring(desk))
    operations(app, service, metrics)
    explorer.add_routes(app)
    refusals(app, settings, metrics)
    app.openapi = specify(app, settings)  # type: ignore[method-assign]
    routes = frozenset(app.openapi()["paths"]) | frozenset(explorer.FILES)
    app.add_middleware(Gate, settings=settings, metrics=metrics, routes=routes)
    return app


async def warm_up(service: Service, executor: Executor) -> None:
    """Until every model has scored: an endpoint may come up after this server does."""
    pause = FIRST_PAUSE
    while failed := await asyncio.get_running_loop().run_in_executor(executor, service.warm_up):
        for name, fault in failed.items():
            log_fault("warm-up failed", fault, model=name, words=str(fault))  # nobody's words: the pool is our own
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def operations(app: FastAPI, service: Service, metrics: Metrics) -> None:
    @app.get("/v1/models", response_model=shapes.ModelsAnswer, responses={401: PROBLEMS[401]})
    async def models() -> Any:
        return shapes.ModelsAnswer(data=[model_answer(model) for model in service.models.values()])

    @app.get("/health", response_model=shapes.State, responses={503: {"model": shapes.State}})
    async def health() -> Any:
        return shapes.State(status="ok") if service.batcher.alive else JSONResponse({"status": "a worker has ended"}, 503)

    @app.get("/ready", response_model=shapes.State, responses={503: {"model": shapes.State}})
    async def ready() -> Any:
        if service.warm and service.batcher.alive:
            return shapes.State(status="ready")
        if service.warm:
            return JSONResponse({"status": "shutting down"}, 503)
        failed = "; ".join(
            f"the scorer of {name} failed ({fault}) and is tried again" for name, fault in list(service.cold.items()) if fault
        )
        return JSONResponse({"status": f"warming up: {failed}" if failed else "warming up"}, 503)

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, 401: PROBLEMS[401]})
    async def page() -> Response:
        metrics.queue.set(service.batcher.reserved)
        metrics.in_flight.set(service.batcher.in_flight)
        return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def refusals(app: FastAPI, settings: ServerSettings, metrics: Metrics) -> None:
    """Every refusal is {"message": one sentence}; nothing of the body is repeated in it."""

    def problem(status: int, sentence: str, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        metrics.refused.labels(reason).inc()
        return JSONResponse({"message": sentence}, status, headers)

    def handler(status: int, reason: str) -> Any:
        async def handle(request: Request, error: Exception) -> JSONResponse:
            if isinstance(error, TimedOut):
                sentence = f"no answer within {settings.limits.seconds:g} s. Send fewer documents or try again later."
                return problem(status, sentence, reason)
            headers = {"Retry-After": str(error.retry_after)} if isinstance(error, Busy) else None
            return problem(status, str(error).replace("\n", " "), reason, headers)

        return handle

    for kind, (status, reason) in STATUS.items():
        app.add_exception_handler(kind, handler(status, reason))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        sentence = NOT_JSON if error.status_code == 400 else str(error.detail)
        return problem(error.status_code, sentence, "input", dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        if any(mistake["type"] == "json_invalid" for mistake in error.errors()):
            return problem(400, NOT_JSON, "input")
        return problem(422, first_mistakes(error), "input")


def first_mistakes(error: RequestValidationError, most: int = 5) -> str:
    """What is wrong with a body, in one sentence; beyond the first few the mistakes are counted."""
    broken = {_field(mistake) for mistake in error.errors() if mistake["type"] == "string_unicode"}

    def words(mistake: Any) -> str:  # that broken text is not an object either is beside the point
        return shapes.SURROGATE if _field(mistake) in broken else words_of(mistake)

    found = mistakes_of(error, "the body", place=_field, words=words)
    rest = f"; and {len(found) - most} more" if len(found) > most else ""
    return "; ".join(found[:most]) + rest + "."


def _field(mistake: Any) -> str:
    """The field of the body, without the kinds that pydantic tried for it."""
    return place_of(mistake, ("body", "str", "Document"))


def model_answer(model: Model) -> shapes.ModelAnswer:
    facts = {
        "task": model.task.prompt_task,
        "width": model.own_width,
        "characters": model.settings.chars,
        "cutoff": model.cutoff,
        "expected_overlap": model.expected_overlap,
        "capabilities": model.scorer(model.backend).capabilities.to_json(),
    }
    return shapes.ModelAnswer(id=model.name, created=model.opened, order=facts)
