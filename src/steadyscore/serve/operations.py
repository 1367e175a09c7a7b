"""Routes for whoever runs the server: its models, whether it lives and is ready, its metrics."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from .metrics import Metrics
from .routes import PROBLEMS
from .service import Model, Service

router = APIRouter()


class ModelAnswer(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "steadyscore"
    order: dict[str, Any]


class ModelsAnswer(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelAnswer]


class State(BaseModel):
    status: str


async def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(service_of)]


@router.get("/v1/models", response_model=ModelsAnswer, responses={401: PROBLEMS[401]})
async def models(service: Served) -> ModelsAnswer:
    return ModelsAnswer(data=[model_answer(model) for model in service.models.values()])


@router.get("/health", response_model=State, responses={503: {"model": State}})
async def health(service: Served) -> Any:
    return State(status="ok") if service.batcher.alive else JSONResponse({"status": "a worker has ended"}, 503)


@router.get("/ready", response_model=State, responses={503: {"model": State}})
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


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}, 401: PROBLEMS[401]})
async def page(request: Request, service: Served) -> Response:
    metrics: Metrics = request.app.state.metrics
    batcher, ages = service.batcher, [age for age, _ in service.batcher.ages]
    metrics.queue.set(batcher.reserved)
    metrics.queue_tokens.set(batcher.tokens)
    metrics.in_flight.set(batcher.in_flight)
    metrics.busy_workers.set(len(ages))
    metrics.oldest_pass.set(max(ages, default=0.0))
    return Response(metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")


def model_answer(model: Model) -> ModelAnswer:
    facts = {
        "task": model.task.prompt_task,
        "width": model.default_width,
        "characters": model.settings.chars,
        "cutoff": model.cutoff,
        "expected_overlap": model.expected_overlap,
        "capabilities": model.scorer().capabilities.to_json() | {"order_free": model.is_order_free()},
        "first_stage": {"by_place": model.first_stage, "by_rank": (model.ranked or model).first_stage},
    }
    return ModelAnswer(id=model.name, created=model.opened, order=facts)
