"""The routes of typed questions: System One's and OpenAI's shape, for every model that can be read at the tokens of a label."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException

from ..decisions.openai_shape import DecisionsAnswer, DecisionsRequest
from ..decisions.order import DecisionOrder
from ..decisions.questions import Refusal, Response, Usage
from ..decisions.system_one import SystemOneAnswer, SystemOneRequest
from .batcher import Admission
from .routes import StrictRoute
from .runner import RequestRunner, Runner
from .shapes import problems
from .typed_decisions import AnsweredQuestion, answer_request, can_answer, count_windows, mean_answers, order_answer

router = APIRouter(responses=problems(400, 401, 404, 422, 429, 500, 501, 503, 504), route_class=StrictRoute)
post = partial(router.post, response_model_exclude_unset=True)


@post("/v1/systemone", response_model=SystemOneAnswer, summary="Typed questions, System One's shape")
async def ask_system_one(body: SystemOneRequest, request: Request, runner: Runner) -> SystemOneAnswer | DecisionsAnswer:
    return await answer_questions(body, request, runner)


@post("/v1/decisions", response_model=DecisionsAnswer, summary="Typed questions, OpenAI's shape")
async def ask_decisions(body: DecisionsRequest, request: Request, runner: Runner) -> SystemOneAnswer | DecisionsAnswer:
    return await answer_questions(body, request, runner)


async def answer_questions(
    body: SystemOneRequest | DecisionsRequest, request: Request, runner: RequestRunner
) -> SystemOneAnswer | DecisionsAnswer:
    """The questions answered as the request's `order` says, by default once in the order given."""
    model, order = runner.find_model(body.model), body.order or DecisionOrder()
    if not can_answer(model) and order.readout != "window":  # its own window needs no labels
        raise HTTPException(
            501, f"{model.name} cannot answer typed questions: it is not read at the tokens of a label. Serve a local model."
        )
    asked = body.asked(model.name)
    runner.check_permutations(order.permutations)
    windows = count_windows(runner.service, model, asked, order)

    def work(admission: Admission) -> list[AnsweredQuestion | Refusal]:
        return answer_request(runner.service, model, admission, asked, order, refuse_long=body.refuses_long)

    answered, usage = await runner.run(request, model, len(asked.questions), windows, work)
    response = Response(model.name, mean_answers(answered), Usage(usage.total_tokens))
    told = None if body.order is None else order_answer(model, asked.questions, answered, order)
    return body.answer(asked.questions, response, told)
