"""Typed questions over HTTP, for every model that can be read at the tokens of a label; and the explorer's examples of them."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ..collection import open_collection
from ..serve.batcher import Admission
from ..serve.routes import RequestRunner, Runner, StrictRoute
from ..serve.shapes import problems
from ..tasks import TASKS
from ..window.prompt import collapse
from .cases import read_cases
from .openai_shape import DecisionsAnswer, DecisionsRequest
from .serving import AnsweredQuestion, AskedQuestions, can_answer
from .shape import DecisionOrder
from .system_one import SystemOneAnswer, SystemOneRequest

MEMBERS, MEMBER_CHARS = 4, 300
"""Of the state that is made of a pool: every member is asked about."""

router = APIRouter(responses=problems(400, 401, 404, 422, 429, 500, 503, 504), route_class=StrictRoute)
ask = partial(router.post, response_model_exclude_unset=True, responses=problems(501))

# A route's name is part of its operation id in the specification, and a docstring would be its description there.


@ask("/v1/systemone", response_model=SystemOneAnswer, summary="Typed questions, System One's shape")
async def ask_system_one(body: SystemOneRequest, request: Request, runner: Runner) -> SystemOneAnswer | DecisionsAnswer:
    return await answer_questions(body, request, runner)


@ask("/v1/decisions", response_model=DecisionsAnswer, summary="Typed questions, OpenAI's shape")
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
    runner.check_permutations(order.permutations)
    asked = AskedQuestions(runner.service, model, body.asked(model.name), order)

    def work(admission: Admission) -> list[AnsweredQuestion | None]:
        return asked.answer(admission, refuse_long=body.refuses_long)

    answered, usage = await runner.run(request, model, len(asked.questions), asked.count_windows(), work)
    told = {} if body.order is None else {"order": asked.order_answer(answered)}
    return body.answer(asked.request, [None if each is None else each.mean for each in answered], usage.total_tokens, **told)


# -- examples


class DecisionExample(BaseModel):
    """A state, the path of its list, and one question about it as `/v1/systemone` takes it."""

    name: str
    state: Any
    pool: str
    question: dict[str, Any]
    threshold: float | None = None


@cache
def decision_examples() -> list[DecisionExample]:
    """Passages that are each graded, and the questions of one embedded ticket."""
    passages = next(iter(open_collection("passages").instances()))
    members = [{"id": f"p{i}", "text": collapse(c.text)[:MEMBER_CHARS]} for i, c in enumerate(passages.pool[:MEMBERS], 1)]
    graded = {
        "type": "score",
        "instructions": "How relevant to the query is passage {id}?",
        "criteria": list(TASKS["passage_reranking"].levels),
    }
    state = {"query": collapse(passages.query), "candidates": members}
    offered = [DecisionExample(name="passages: each graded", state=state, pool="$.candidates", question=graded, threshold=1.5)]
    ticket = read_cases("tickets")[0].row
    for name, question in ticket["questions"].items():
        if question["type"] in ("choice", "score"):
            offered.append(
                DecisionExample(name=f"ticket: {name}", state=ticket["state"], pool=ticket["candidates"], question=question)
            )
    return offered


@router.get("/v1/examples/decisions", include_in_schema=False)
def offer_decision_examples() -> list[DecisionExample]:
    return decision_examples()
