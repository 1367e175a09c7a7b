"""Routes for whoever runs the server: its models, whether it lives and is ready, its metrics."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from . import schemas
from .metrics import Metrics
from .routes import PROBLEMS
from .service import Model, Service

router = APIRouter()


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def metrics_of(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


Served = Annotated[Service, Depends(service_of)]


@router.get("/v1/models", response_model=schemas.ModelsAnswer, responses={401: PROBLEMS[401]})
async def models(service: Served) -> schemas.ModelsAnswer:
    return schemas.ModelsAnswer(data=[model_answer(model) for model in service.models.values()])


@router.get("/health", response_model=schemas.State, responses={503: {"model": schemas.State}})
async def health(service: Served) -> Any:
    return schemas.State(status="ok") if service.batcher.alive else JSONResponse({"status": "a worker has ended"}, 503)


@router.get("/ready", response_model=schemas.State, responses={503: {"model": schemas.State}})
async def ready(service: Served) -> Any:
    if service.warm and service.batcher.alive:
        return schemas.State(status="ready")
    if service.warm:
        return JSONResponse({"status": "shutting down"}, 503)
    failed = "; ".join(
        f"the scorer of {name} failed ({fault}) and is tried again" for name, fault in list(service.cold.items()) if fault
    )
    return JSONResponse({"status": f"warming up: {failed}" if failed else "warming up"}, 503)


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, 401: PROBLEMS[401]})
async def page(service: Served, metrics: Annotated[Metrics, Depends(metrics_of)]) -> Response:
    metrics.queue.set(service.batcher.reserved)
    metrics.in_flight.set(service.batcher.in_flight)
    return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def model_answer(model: Model) -> schemas.ModelAnswer:
    facts = {
        "task": model.task.prompt_task,
        "width": model.default_width,
        "characters": model.settings.chars,
        "cutoff": model.cutoff,
        "expected_overlap": model.expected_overlap,
        "capabilities": model.scorer().capabilities.to_json(),
    }
    return schemas.ModelAnswer(id=model.name, created=model.opened, order=facts)
