"""The routes of typed questions: System One's and OpenAI's shape, for every model that can be read at the tokens of a label."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from ..decisions import openai_shape, questions, system_one
from ..decisions.questions import Question, Refusal, Response, Usage
from . import decision_schemas
from .batcher import Admission
from .decision_schemas import DecisionOrder
from .routes import StrictRoute
from .runner import RequestRunner, Runner
from .service import Model
from .shapes import problems
from .typed_decisions import AnsweredQuestion, answer_request, can_answer, count_windows, mean_answers, order_answer

router = APIRouter(responses=problems(400, 401, 404, 422, 429, 500, 501, 503, 504), route_class=StrictRoute)
post = partial(router.post, response_model_exclude_unset=True)


class Decided(NamedTuple):
    """What a request came to."""

    response: Response
    extra: dict[str, Any]
    """Our one key, where the request has it."""


@post("/v1/systemone", response_model=decision_schemas.SystemOneAnswer, summary="Typed questions, System One's shape")
async def ask_system_one(
    body: decision_schemas.SystemOneRequest, request: Request, runner: Runner
) -> decision_schemas.SystemOneAnswer:
    model = find_readable(runner, body.model, body.order)
    asked = system_one.read_request(body.model_dump(exclude={"order"}) | {"model": model.name})
    decided = await decide(runner, request, model, asked, body.order, refuse_long=False)
    answer = system_one.write_answers(asked.questions, decided.response, f"decision-{uuid.uuid4().hex}", int(time.time()))
    return decision_schemas.SystemOneAnswer.model_validate(answer | decided.extra)


@post("/v1/decisions", response_model=decision_schemas.DecisionsAnswer, summary="Typed questions, OpenAI's shape")
async def ask_decisions(
    body: decision_schemas.DecisionsRequest, request: Request, runner: Runner
) -> decision_schemas.DecisionsAnswer:
    model = find_readable(runner, body.model, body.order)
    asked = openai_shape.read_request(
        body.model_dump(exclude={"order"}, exclude_none=True) | {"model": model.name, "input": body.state}
    )
    decided = await decide(runner, request, model, asked, body.order, refuse_long=True)
    answer = openai_shape.write_answers(asked.questions, decided.response)
    return decision_schemas.DecisionsAnswer.model_validate(answer | decided.extra)


def find_readable(runner: RequestRunner, name: str | None, order: DecisionOrder | None) -> Model:
    """The model of that name, or 501 where it cannot be read at a question's labels; its own window needs no labels."""
    model = runner.find_model(name)
    if not can_answer(model) and (order is None or order.readout != "window"):
        raise HTTPException(
            501, f"{model.name} cannot answer typed questions: it is not read at the tokens of a label. Serve a local model."
        )
    return model


async def decide(
    runner: RequestRunner,
    request: Request,
    model: Model,
    asked: questions.Request,
    order: DecisionOrder | None,
    *,
    refuse_long: bool,
) -> Decided:
    """Have the questions answered as `order` says, by default once in the order given."""
    how = order or DecisionOrder()
    runner.check_permutations(how.permutations)
    windows = count_windows(runner.service, model, asked, how)

    def work(admission: Admission) -> list[AnsweredQuestion | Refusal]:
        return answer_request(runner.service, model, admission, asked, how, refuse_long=refuse_long)

    answered, usage = await runner.run(request, model, len(asked.questions), windows, work)
    response = Response(model.name, mean_answers(answered), Usage(usage.total_tokens))
    return Decided(response, _extra(model, asked.questions, answered, order))


def _extra(
    model: Model, asked: Sequence[Question], answered: Sequence[AnsweredQuestion | Refusal], order: DecisionOrder | None
) -> dict[str, Any]:
    if order is None:
        return {}
    return {"order": order_answer(model, asked, answered, order).model_dump(exclude_none=True)}
