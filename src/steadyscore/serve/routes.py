"""The scoring routes: each turns its shape into a pool, has it scored and turns the scores into its answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ..decisions.openai_shape import DecisionsAnswer, DecisionsRequest
from ..decisions.order import DecisionOrder
from ..decisions.questions import Refusal, Usage
from ..decisions.questions import Response as Answers
from ..decisions.system_one import SystemOneAnswer, SystemOneRequest
from ..errors import InputError
from ..measures.settling import DecisionRule, ThresholdRule, check_rule
from ..terms import Array, Instance
from .batcher import Admission
from .rerank_shapes import (
    AnyRequest,
    CohereAnswer,
    CohereRequest,
    JinaAnswer,
    JinaRequest,
    ScoreDatum,
    ScoreRequest,
    ScoresAnswer,
    ScoreUsage,
    TeiRanked,
    TeiRequest,
    UnionAnswer,
    UnionRequest,
)
from .runner import RequestRunner, Runner
from .service import Model, PoolAudit, ScoredDecision
from .shapes import (
    AuditAnswer,
    AuditRequest,
    DecideAnswer,
    DecideRequest,
    ScoredPool,
    audit_presentations,
    decided_rows,
    outcome_answer,
    problems,
    stability_answer,
)
from .truncation import cut_to_tokens, truncate_texts
from .typed_decisions import AnsweredQuestion, answer_request, can_answer, count_windows, mean_answers, order_answer


class StrictRequest(Request):
    """NaN and Infinity are Python's, not JSON's."""

    async def json(self) -> Any:
        return json.loads(await self.body(), parse_constant=_refuse_constant)


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return handle_strictly


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


router = APIRouter(responses=problems(400, 401, 404, 422, 429, 500, 503, 504), route_class=StrictRoute)
post = partial(router.post, response_model_exclude_none=True)
ask = partial(router.post, response_model_exclude_unset=True, responses=problems(501))

# A route's name is part of its operation id in the specification, and a docstring would be its description there.

# -- the shapes of Jina, Cohere, TEI and vLLM


@post("/v1/rerank", response_model=JinaAnswer, summary="Rerank, Jina's shape")
async def jina(body: JinaRequest, request: Request, runner: Runner) -> JinaAnswer:
    return body.answer(await score_ranked(body, request, runner))


@post("/v2/rerank", response_model=CohereAnswer, summary="Rerank, Cohere's shape")
async def cohere(body: CohereRequest, request: Request, runner: Runner) -> CohereAnswer:
    return body.answer(await score_ranked(body, request, runner))


@post(
    "/rerank",
    response_model=UnionAnswer | list[TeiRanked],
    summary="Rerank, TEI's shape with `texts`, else what Cohere, Jina and vLLM share",
)
async def rerank(body: AnyRequest, request: Request, runner: Runner) -> UnionAnswer | list[TeiRanked]:
    return body.answer(await score_ranked(body, request, runner))


async def score_ranked(
    body: JinaRequest | CohereRequest | TeiRequest | UnionRequest, request: Request, runner: RequestRunner
) -> ScoredPool:
    """The pool of a rerank request as its model scores it."""
    model, instance = runner.read(body.model, body.query, body.documents, body.instruction)

    def cut(pool: Instance, orders: Array) -> Instance:
        pool = cut_to_tokens(pool, model, body.max_tokens_per_doc or None, body.default_tokens)
        if not isinstance(body, TeiRequest):
            return pool
        width = body.order.width if body.order else None
        return truncate_texts(pool, model, orders, body.truncate, body.truncation_direction, width)

    return await runner.score_pool(request, model, instance, body.order, body.top_n, cut)


@post("/v1/score", response_model=ScoresAnswer, summary="Scores in the order of the documents, vLLM's shape")
@post("/score", response_model=ScoresAnswer, summary="Scores in the order of the documents, vLLM's shape")
async def score(body: ScoreRequest, request: Request, runner: Runner) -> ScoresAnswer:
    model, service, limits = runner.find_model(body.model), runner.service, runner.limits
    pools = [runner.read_pool(query, documents) for query, documents in body.pairs()]
    model = model.asked(body.instruction, pools[0].pool[0].rank if len(pools) == 1 else None)
    if model.first_stage and len(pools) > 1:
        raise InputError("pairs of a query and a document have no rank in a first stage. Give one query with its documents.")
    documents = sum(len(pool.pool) for pool in pools)
    windows = sum(service.count_windows(model, len(pool.pool), 1) for pool in pools)
    if documents > limits.candidates:
        raise InputError(f"{documents:,} documents were sent, the server takes {limits.candidates:,}.")
    if windows > limits.queue_windows:
        raise InputError(f"{len(pools):,} queries are {windows:,} windows, the server takes {limits.queue_windows:,}.")

    def work(admission: Admission) -> Array:
        return np.concatenate(service.score_pools(model, admission, pools))

    scores, usage = await runner.run(request, model, documents, windows, work)
    return ScoresAnswer(
        model=model.name,
        data=[ScoreDatum(index=i, score=float(s)) for i, s in enumerate(scores)],
        usage=ScoreUsage(prompt_tokens=usage.total_tokens, total_tokens=usage.total_tokens),
    )


# -- our own shapes


@post("/v1/decide", response_model=DecideAnswer, summary="The decision, how near it was and how settled it is")
async def decide(body: DecideRequest, request: Request, runner: Runner) -> DecideAnswer:
    model, instance = runner.read(body.model, body.query, body.documents)
    rule, n, count = rule_of(body, model), len(instance.pool), body.permutations
    check_rule(rule, n)
    runner.check_permutations(count)
    windows = runner.service.count_windows(model, n, count, body.width)

    def work(admission: Admission) -> ScoredDecision:
        return runner.service.decide(
            model, admission, instance, rule, count, adaptive=body.adaptive, seed=body.seed, width=body.width
        )

    decision, usage = await runner.run(request, model, n, windows, work)
    runner.record_scores(model, instance, rule, decision.scores, count, body.width)
    return DecideAnswer(
        model=model.name,
        decision=outcome_answer(decision.scores, rule, model.expected_overlap if body.decision is None else None),
        results=decided_rows(decision, rule, instance, body.return_documents),
        stability=stability_answer(decision, count),
        usage=usage,
    )


@post("/v1/audit", response_model=AuditAnswer, summary="One pool under M permutations: its scores and measures")
async def audit(body: AuditRequest, request: Request, runner: Runner) -> AuditAnswer:
    model, instance = runner.read(body.model, body.query, body.documents)
    n, count = len(instance.pool), body.permutations
    runner.check_permutations(count)
    cutoff = body.threshold if body.threshold is not None else model.cutoff
    windows = runner.service.count_windows(model, n, count + 1, body.width)

    def work(admission: Admission) -> PoolAudit:
        return runner.service.audit_pool(model, admission, instance, count, seed=body.seed, width=body.width, cutoff=cutoff)

    audited, usage = await runner.run(request, model, n, windows, work)
    return AuditAnswer(
        model=model.name,
        width=body.width or model.width_for(n),
        threshold=cutoff,
        presentations=audit_presentations(audited.scored),
        measures=audited.measures,
        slot_profile=audited.slot_profile,
        usage=usage,
    )


def rule_of(body: DecideRequest, model: Model) -> DecisionRule:
    """The decision that a request asks for; without one, the model's own cutoff."""
    if body.decision is not None:
        return body.decision.rule
    if model.cutoff is None:
        raise InputError(f"{model.name} has no cutoff of its own. Give a decision: threshold, top_k or pair.")
    return ThresholdRule(model.cutoff)


# -- typed questions, for every model that can be read at the tokens of a label


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
    asked = body.asked(model.name)
    runner.check_permutations(order.permutations)
    windows = count_windows(runner.service, model, asked, order)

    def work(admission: Admission) -> list[AnsweredQuestion | Refusal]:
        return answer_request(runner.service, model, admission, asked, order, refuse_long=body.refuses_long)

    answered, usage = await runner.run(request, model, len(asked.questions), windows, work)
    answers = Answers(model.name, mean_answers(answered), Usage(usage.total_tokens))
    told = None if body.order is None else order_answer(model, asked.questions, answered, order)
    return body.answer(asked.questions, answers, told)
