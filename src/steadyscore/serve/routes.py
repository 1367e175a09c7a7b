"""The scoring routes: each turns its shape into a pool, has it scored and turns the scores into its answer."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import numpy as np
from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from ..errors import InputError
from ..terms import Array, Instance
from . import schemas
from .answers import audit_presentations, decided_rows, outcome_answer, ranked_rows, stability_answer, tei_rows
from .batcher import Admission
from .decisions import DecisionRule, PairRule, ThresholdRule, TopKRule, check_rule
from .requests import PoolScores, RequestRunner, Runner
from .service import Model, PoolAudit, ScoredDecision
from .truncation import COHERE_TOKENS, cut_to_tokens, truncate_texts

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": words}
    for status, words in {
        400: "the body is not JSON",
        401: "no token",
        404: "unknown model",
        422: "a mistake in the body",
        429: "the queue is full, see Retry-After",
        500: "the scorer failed",
        503: "shutting down",
        504: "out of time",
    }.items()
}
"""Refusals of a scoring route; those that come before any route are added to the specification elsewhere."""
PROBLEMS[429]["headers"] = {
    "Retry-After": {"required": True, "schema": {"type": "integer", "minimum": 1, "maximum": 60}, "description": "Seconds."}
}
LARGEST_BUDGET = 10**9
"""More documents than any request has; a number in JSON may be larger than an array index."""


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


RerankRequest = schemas.JinaRequest | schemas.CohereRequest | schemas.AnyRequest
router = APIRouter(responses=PROBLEMS, route_class=StrictRoute)
post = partial(router.post, response_model_exclude_none=True)

# A route's name is part of its operation id in the specification, and a docstring would be its description there.

# -- the shapes of Jina, Cohere, TEI and vLLM


@post("/v1/rerank", response_model=schemas.JinaAnswer, summary="Rerank, Jina's shape")
async def jina(body: schemas.JinaRequest, request: Request, runner: Runner) -> schemas.JinaAnswer:
    model, instance, pool = await score_ranked(body, body.documents, request, runner)
    results = ranked_rows(pool.scores, instance, body.top_n, body.return_documents)
    return schemas.JinaAnswer(model=model.name, usage=pool.usage, results=results, order=pool.order)


@post("/v2/rerank", response_model=schemas.CohereAnswer, summary="Rerank, Cohere's shape")
async def cohere(body: schemas.CohereRequest, request: Request, runner: Runner) -> schemas.CohereAnswer:
    _, instance, pool = await score_ranked(body, body.documents, request, runner, COHERE_TOKENS)
    results = ranked_rows(pool.scores, instance, body.top_n, documents=False)
    return schemas.CohereAnswer(id=str(uuid.uuid4()), results=results, order=pool.order)


@post(
    "/rerank",
    response_model=schemas.UnionAnswer | list[schemas.TeiRanked],
    summary="Rerank, TEI's shape with `texts`, else what Cohere, Jina and vLLM share",
)
async def rerank(body: schemas.AnyRequest, request: Request, runner: Runner) -> schemas.UnionAnswer | list[schemas.TeiRanked]:
    model, instance, pool = await score_ranked(body, documents_or_texts(body), request, runner)
    if body.texts is not None:
        raw = body.raw_scores and model.backend.capabilities.gives == "distribution"
        return tei_rows(pool.scores, instance, scale=3.0 if raw else 1.0, texts=body.return_text)[: body.top_n or None]
    return schemas.UnionAnswer(
        id=f"rerank-{uuid.uuid4().hex}",
        model=model.name,
        usage=pool.usage,
        results=ranked_rows(pool.scores, instance, body.top_n, body.return_documents),
        order=pool.order,
    )


async def score_ranked(
    body: RerankRequest, documents: schemas.Documents, request: Request, runner: RequestRunner, most_tokens: int | None = None
) -> tuple[Model, Instance, PoolScores]:
    """The pool of a rerank request as its model scores it; `most_tokens`: read of a document where the request says nothing."""
    model, instance = runner.read(body, documents)

    def cut(pool: Instance, orders: Array) -> Instance:
        pool = cut_to_tokens(pool, model, body.max_tokens_per_doc or None, most_tokens)
        if not isinstance(body, schemas.AnyRequest) or body.texts is None:
            return pool
        width = body.order.width if body.order else None
        return truncate_texts(pool, model, orders, body.truncate, body.truncation_direction, width)

    return model, instance, await runner.score_pool(request, model, instance, body.order, body.top_n, cut)


@post("/v1/score", response_model=schemas.ScoreAnswer, summary="Scores in the order of the documents, vLLM's shape")
@post("/score", response_model=schemas.ScoreAnswer, summary="Scores in the order of the documents, vLLM's shape")
async def score(body: schemas.ScoreRequest, request: Request, runner: Runner) -> schemas.ScoreAnswer:
    model, pools, service = runner.find_model(body.model), score_pools(runner, body), runner.service
    model = model.asked(body.instruction, pools[0].pool[0].rank if len(pools) == 1 else None)
    if model.first_stage and len(pools) > 1:
        raise InputError("pairs of a query and a document have no rank in a first stage. Give one query with its documents.")
    documents = sum(len(pool.pool) for pool in pools)
    windows = sum(service.count_windows(model, len(pool.pool), 1) for pool in pools)
    limits = runner.limits
    if documents > limits.candidates:
        raise InputError(f"{documents:,} documents were sent, the server takes {limits.candidates:,}.")
    if windows > limits.queue_windows:
        raise InputError(f"{len(pools):,} queries are {windows:,} windows, the server takes {limits.queue_windows:,}.")

    def work(admission: Admission) -> Array:
        return np.concatenate(service.score_pools(model, admission, pools))

    scores, usage = await runner.run(request, model, documents, windows, work)
    data = [schemas.ScoreDatum(index=i, score=float(s)) for i, s in enumerate(scores)]
    return schemas.ScoreAnswer(
        id=f"score-{uuid.uuid4().hex}",
        created=int(time.time()),
        model=model.name,
        data=data,
        usage=schemas.ScoreUsage(prompt_tokens=usage.total_tokens, total_tokens=usage.total_tokens),
    )


# -- our own shapes


@post("/v1/decide", response_model=schemas.DecideAnswer, summary="The decision, how near it was and how settled it is")
async def decide(body: schemas.DecideRequest, request: Request, runner: Runner) -> schemas.DecideAnswer:
    model, instance = runner.read(body, body.documents)
    rule, n, count = rule_of(body.decision, model), len(instance.pool), body.permutations
    check_rule(rule, n)
    runner.check_permutations(count)
    windows = runner.service.count_windows(model, n, count, body.width)

    def work(admission: Admission) -> ScoredDecision:
        return runner.service.decide(
            model, admission, instance, rule, count, adaptive=body.adaptive, seed=body.seed, width=body.width
        )

    decision, usage = await runner.run(request, model, n, windows, work)
    runner.record_scores(model, instance, rule, decision.scores, count, body.width)
    return schemas.DecideAnswer(
        model=model.name,
        decision=outcome_answer(decision.scores, rule, model.expected_overlap if body.decision is None else None),
        results=decided_rows(decision, rule, instance, body.return_documents),
        stability=stability_answer(decision, count),
        usage=usage,
    )


@post("/v1/audit", response_model=schemas.AuditAnswer, summary="One pool under M permutations: its scores and measures")
async def audit(body: schemas.AuditRequest, request: Request, runner: Runner) -> schemas.AuditAnswer:
    model, instance = runner.read(body, body.documents)
    n, count = len(instance.pool), body.permutations
    runner.check_permutations(count)
    cutoff = body.threshold if body.threshold is not None else model.cutoff
    windows = runner.service.count_windows(model, n, count + 1, body.width)

    def work(admission: Admission) -> PoolAudit:
        return runner.service.audit_pool(model, admission, instance, count, seed=body.seed, width=body.width, cutoff=cutoff)

    audited, usage = await runner.run(request, model, n, windows, work)
    return schemas.AuditAnswer(
        model=model.name,
        width=body.width or model.width_for(n),
        threshold=cutoff,
        presentations=audit_presentations(audited.scored),
        measures=audited.measures,
        slot_profile=audited.slot_profile,
        usage=usage,
    )


# -- from requests to pools and rules


def documents_or_texts(body: schemas.AnyRequest) -> schemas.Documents:
    """What /rerank is asked to score: `documents`, or TEI's `texts`."""
    if (body.texts is None) == (body.documents is None):
        raise InputError("give documents, or texts for TEI's shape, and not both.")
    return body.documents or [*(body.texts or ())]


def score_pools(runner: RequestRunner, body: schemas.ScoreRequest) -> list[Instance]:
    """One query's documents are one pool; pairs are pools of one."""
    queries = body.queries if body.queries is not None else body.text_1
    documents = body.documents if body.documents is not None else body.text_2
    if queries is None or documents is None:
        raise InputError("give queries and documents.")
    asked, listed = [queries] if isinstance(queries, str) else queries, [documents] if isinstance(documents, str) else documents
    if len(asked) == 1:
        return [runner.read_pool(asked[0], listed)]
    if len(asked) != len(listed):
        raise InputError(
            f"{len(asked)} queries and {len(listed)} documents cannot be paired. Give one query, or as many as documents."
        )
    return [runner.read_pool(query, [document]) for query, document in zip(asked, listed, strict=True)]


def rule_of(shape: schemas.DecisionShape | None, model: Model) -> DecisionRule:
    """The decision that a request asks for; without one, the model's own cutoff."""
    if isinstance(shape, schemas.Threshold):
        return ThresholdRule(shape.threshold)
    if isinstance(shape, schemas.TopK):
        return TopKRule(min(shape.top_k, LARGEST_BUDGET))
    if isinstance(shape, schemas.Pair):
        return PairRule()
    if model.cutoff is None:
        raise InputError(f"{model.name} has no cutoff of its own. Give a decision: threshold, top_k or pair.")
    return ThresholdRule(model.cutoff)
