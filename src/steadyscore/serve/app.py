"""The application: scoring routes, operations, the explorer, and what a refusal looks like."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from .. import __version__
from ..errors import InputError, SteadyscoreError, WindowTooLong
from ..machine.schemas import SURROGATE, mistakes_of, place_of, words_of
from . import operations, routes
from .batcher import Busy, ClientDisconnected, EngineFailed, ShuttingDown, TimedOut
from .middleware import RequestMiddleware, open_paths
from .operations import Metrics, log_fault
from .service import Service
from .settings import Limits, ServerSettings
from .shapes import Problem

STATUS: dict[type[Exception], tuple[int, str]] = {
    Busy: (429, "busy"),
    ShuttingDown: (503, "closing"),
    TimedOut: (504, "time"),
    ClientDisconnected: (499, "gone"),
    EngineFailed: (500, "engine"),
    InputError: (422, "input"),
    WindowTooLong: (422, "input"),
    SteadyscoreError: (500, "engine"),
}
"""Status of each refusal, and its name in the metrics. 499 is for the log alone: the client has disconnected."""
ANYWHERE: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": words}
    for status, words in {
        400: "a head that can be read in two ways",
        408: "the request did not arrive in time",
        413: "the body is too large",
        415: "the body is packed",
        421: "a host that this server does not answer for",
        500: "the server failed",
        503: "shutting down, or every connection is at work",
    }.items()
}
"""Refusals that come before a route, in the specification; those of the route itself go before them."""
NOT_JSON = "the body is not JSON in UTF-8."
NO_OBJECT = "model_attributes_type"
"""pydantic's name for the mistake of a value that is not a JSON object."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two attempts to warm up: twice as long each time, up to the longest."""


def create_app(service: Service, settings: ServerSettings, metrics: Metrics, more: Sequence[APIRouter] = ()) -> FastAPI:
    """The application, with the routes of later packages in `more`."""
    runner = routes.RequestRunner(service, metrics, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(warm_up(service, runner.executor))
        yield
        warming.cancel()
        await asyncio.gather(warming, return_exceptions=True)
        runner.monitor.close()
        service.close()
        runner.executor.shutdown(wait=True)

    # FastAPI's interactive pages load scripts from elsewhere; /openapi.json stays.
    app = FastAPI(
        title="steadyscore",
        version=__version__,
        description="Scores and decisions that hold still when the documents are reordered.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.service, app.state.metrics, app.state.runner = service, metrics, runner
    for router in (routes.router, *more, operations.router, operations.pages):
        app.include_router(router, responses=ANYWHERE)
    app.include_router(operations.probes, responses={status: ANYWHERE[status] for status in ANYWHERE if status != 421})
    metrics.watch(service.batcher)
    for kind in STATUS:
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(HTTPException, refuse_http)
    app.add_exception_handler(RequestValidationError, refuse_body)
    app.openapi = cache(partial(specification, app, settings))  # type: ignore[method-assign]
    routers = (routes.router, operations.router, operations.probes, *more)
    counted = [route for router in routers for route in router.routes if isinstance(route, APIRoute) and route.include_in_schema]
    paths = {*operations.FILES, *(route.path for route in counted)}
    app.add_middleware(RequestMiddleware, settings=settings, metrics=metrics, routes=paths)
    return app


async def warm_up(service: Service, executor: Executor) -> None:
    """Until every model has scored: an endpoint may come up after this server does."""
    pause = FIRST_PAUSE
    while failed := await asyncio.get_running_loop().run_in_executor(executor, service.warm_up):
        for name, fault in failed.items():
            # The exception's own message is logged too: the pool is ours, so it quotes no document of a request.
            log_fault("warm-up failed", fault, model=name, words=str(fault))
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


# -- refusals: every one is {"message": one sentence}; nothing of the body is repeated in it


async def refuse(request: Request, error: Exception) -> JSONResponse:
    status, reason = next(answer for kind, answer in STATUS.items() if isinstance(error, kind))
    sentence = str(error).replace("\n", " ")
    if isinstance(error, TimedOut):
        seconds = request.app.state.service.limits.seconds
        sentence = f"no answer within {seconds:g} s. Send fewer documents or try again later."
    headers = {"Retry-After": str(error.retry_after)} if isinstance(error, Busy) else None
    return problem(request, status, sentence, reason, headers)


async def refuse_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    sentence = NOT_JSON if error.status_code == 400 else str(error.detail)
    if error.status_code in (404, 405) and sentence in ("Not Found", "Method Not Allowed"):
        sentence = "this server has no such route, or not for this method. GET /openapi.json lists the routes."
    return problem(request, error.status_code, sentence, getattr(error, "reason", "input"), error.headers)


async def refuse_body(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    if any(mistake["type"] == "json_invalid" for mistake in error.errors()):
        return problem(request, 400, NOT_JSON)
    return problem(request, 422, first_mistakes(error))


def problem(
    request: Request, status: int, sentence: str, reason: str = "input", headers: Mapping[str, str] | None = None
) -> JSONResponse:
    request.app.state.metrics.refused.labels(reason).inc()
    return JSONResponse({"message": sentence}, status, headers)


def first_mistakes(error: RequestValidationError, most: int = 5) -> str:
    """What is wrong with a body, in one sentence; beyond the first few the mistakes are counted."""
    kinds: dict[str, set[str]] = {}
    for mistake in error.errors():
        kinds.setdefault(_field(mistake), set()).add(mistake["type"])

    def words(mistake: Any) -> str:
        place = _field(mistake)
        if "string_unicode" in kinds[place]:  # pydantic also says that it is not an object
            return SURROGATE
        if kinds[place] >= {"string_type", NO_OBJECT}:  # neither of the two kinds that pydantic tried
            return "give a text, or an object with one"
        if mistake["type"] == NO_OBJECT and not place:
            return "give a JSON object, with the header Content-Type: application/json"
        return words_of(mistake)

    mistakes = mistakes_of(error, "the body", place=_field, words=words)
    rest = f"; and {len(mistakes) - most} more" if len(mistakes) > most else ""
    return "; ".join(mistakes[:most]) + rest + "."


def _field(mistake: Any) -> str:
    """The field of the body, without the kinds that pydantic tried for it."""
    return place_of(mistake, ("body", "str", "Document", "Threshold", "TopK", "Share", "Pair", "TeiRequest", "UnionRequest"))


# -- the specification: what FastAPI knows of the routes, with the limits and the token of this server


BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LIMITED = ("Request", "Order", "Document")
"""What the names end with of requests, and of the parts of them, that the server's limits bound."""
QUERIES, TEXTS = ("query", "queries"), ("documents", "texts", "text")
"""Fields of requests that hold the one or the other."""


def specification(app: FastAPI, settings: ServerSettings) -> dict[str, Any]:
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            if settings.keys and path not in open_paths(settings):
                operation["security"] = [{"token": []}]
    if settings.keys:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for name, shape in document["components"]["schemas"].items():
        if name.endswith(LIMITED):
            _add_limits(shape, settings.limits)
    for schema in _objects(document):
        _keep_whole_bounds(schema)
    return document


def _add_limits(shape: dict[str, Any], limits: Limits) -> None:
    """The bounds this server was started with; that of all windows together is one of a product, which a schema cannot state."""
    if "permutations" in shape["properties"]:
        shape["properties"]["permutations"]["maximum"] = limits.permutations
    for name in {*QUERIES, *TEXTS} & set(shape.get("required", ())):
        for schema in _objects(shape["properties"][name]):
            if schema.get("type") == "string":
                schema["maxLength"] = limits.query_chars if name in QUERIES else limits.document_chars
            if schema.get("type") == "array":
                schema["maxItems"] = limits.candidates


def _keep_whole_bounds(schema: dict[str, Any]) -> None:
    """FastAPI makes every bound a float, which 2**63 in decimal does not survive."""
    for name in BOUNDS:
        if isinstance(schema.get(name), float) and schema[name].is_integer():
            schema[name] = int(schema[name])


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a JSON value, itself included."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _objects(part)
