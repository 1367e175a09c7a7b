"""The scoring routes: each turns its shape into a pool, lets the desk score it and turns the answer back."""

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
from ..measures.ranking import ranking
from ..terms import Array, Instance
from . import schemas
from .batcher import Ticket
from .decisions import Decision, distances, outcome, refuse_impossible, roles
from .requests import Desk, Served
from .service import Decided, Model
from .truncation import COHERE_TOKENS, to_tokens, truncated

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


def scoring(desk: Desk) -> APIRouter:
    router = APIRouter(responses=PROBLEMS, route_class=StrictRoute)
    post = partial(router.post, response_model_exclude_none=True)
    service = desk.service

    # -- shapes of others

    @post("/v1/rerank", response_model=schemas.JinaAnswer, summary="Rerank, Jina's shape")
    async def jina(body: schemas.JinaRequest, request: Request) -> Any:
        model, instance = desk.model(body.model), desk.pool(body.query, body.documents)
        found = await desk.served(request, model, instance, body.order, body.top_n)
        results = ranked(found, instance, body.top_n, body.return_documents)
        return schemas.JinaAnswer(model=found.model.name, usage=found.usage, results=results, order=found.order)

    @post("/v2/rerank", response_model=schemas.CohereAnswer, summary="Rerank, Cohere's shape")
    async def cohere(body: schemas.CohereRequest, request: Request) -> Any:
        model, instance = desk.model(body.model), desk.pool(body.query, body.documents)
        found = await desk.served(
            request,
            model,
            instance,
            body.order,
            body.top_n,
            lambda pool, orders: to_tokens(pool, model, body.max_tokens_per_doc, COHERE_TOKENS),
        )
        return schemas.CohereAnswer(
            id=str(uuid.uuid4()), results=ranked(found, instance, body.top_n, documents=False), order=found.order
        )

    @post(
        "/rerank",
        response_model=schemas.UnionAnswer | list[schemas.TeiRanked],
        summary="Rerank, TEI's shape with `texts`, else what Cohere, Jina and vLLM share",
    )
    async def rerank(body: schemas.AnyRequest, request: Request) -> Any:
        if body.texts is not None and body.documents is not None:
            raise InputError("give either documents or texts, not both.")
        if (given := body.texts if body.documents is None else body.documents) is None:
            raise InputError("give documents, or texts for TEI's shape.")
        model, instance = desk.model(body.model), desk.pool(body.query, given)

        def cut(pool: Instance, orders: Array) -> Instance:
            if body.texts is None:
                return to_tokens(pool, model, body.max_tokens_per_doc or None)
            width = body.order.width if body.order else None
            return truncated(pool, model, orders, body.truncate, body.truncation_direction, width)

        found = await desk.served(request, model, instance, body.order, body.top_n, cut)
        if body.texts is not None:
            return tei(found, instance, body)
        results = ranked(found, instance, body.top_n, body.return_documents)
        return schemas.UnionAnswer(
            id=f"rerank-{uuid.uuid4().hex}", model=found.model.name, usage=found.usage, results=results, order=found.order
        )

    @post("/score", response_model=schemas.ScoreAnswer, summary="Scores in the order of the documents, vLLM's shape")
    async def score(body: schemas.ScoreRequest, request: Request) -> Any:
        model, pools = desk.model(body.model), score_pools(desk, body)
        documents = sum(len(pool.pool) for pool in pools)
        windows = sum(service.windows_of(model, len(pool.pool), 1) for pool in pools)
        if max(documents, windows) > min(desk.limits.candidates, desk.limits.queue_windows):
            raise InputError(f"{documents:,} documents were sent, the server takes {desk.limits.candidates:,}.")

        def work(ticket: Ticket) -> Array:
            return np.concatenate([service.scored(model, ticket, p, np.arange(len(p.pool))[None]).scores[0] for p in pools])

        scores, usage = await desk.run(request, model, documents, windows, work)
        data = [schemas.ScoreDatum(index=i, score=float(s)) for i, s in enumerate(scores)]
        return schemas.ScoreAnswer(
            id=f"score-{uuid.uuid4().hex}", created=int(time.time()), model=model.name, data=data, usage=usage
        )

    # -- shapes of ours

    @post("/v1/decide", response_model=schemas.DecideAnswer, summary="The decision, how near it was and how settled it is")
    async def decide(body: schemas.DecideRequest, request: Request) -> Any:
        model, instance = desk.model(body.model), desk.pool(body.query, body.documents)
        decision, n = decision_of(body.decision, model), len(instance.pool)
        refuse_impossible(decision, n)
        windows = service.windows_of(model, n, desk.permutations(body.permutations), body.width)
        asked: dict[str, Any] = {"adaptive": body.adaptive, "seed": body.seed, "width": body.width}
        found, usage = await desk.run(
            request, model, n, windows, lambda t: service.decided(model, t, instance, decision, body.permutations, **asked)
        )
        desk.count(model, instance, decision, found.scores, body.permutations)
        told = outcome(found.scores, decision)
        if body.decision is None:
            told["expected_overlap"] = model.expected_overlap
        return schemas.DecideAnswer(
            model=model.name,
            decision=schemas.Outcome(**told),
            results=decided_rows(found, decision, instance, body.return_documents),
            stability=stability_answer(found, body.permutations),
            usage=usage,
        )

    @post("/v1/audit", response_model=schemas.AuditAnswer, summary="One pool under M permutations: its scores and measures")
    async def audit(body: schemas.AuditRequest, request: Request) -> Any:
        model, instance = desk.model(body.model), desk.pool(body.query, body.documents)
        n, count = len(instance.pool), desk.permutations(body.permutations)
        asked: dict[str, Any] = {"seed": body.seed, "width": body.width}
        asked["cutoff"] = body.threshold if body.threshold is not None else model.cutoff
        windows = service.windows_of(model, n, count + 1, body.width)
        (scored, measures, profile), usage = await desk.run(
            request, model, n, windows, lambda ticket: service.audited(model, ticket, instance, count, **asked)
        )
        places = zip(scored.scores.tolist(), scored.slots, scored.windows, strict=True)  # type: ignore[arg-type]
        return schemas.AuditAnswer(
            model=model.name,
            width=body.width or model.width(n),
            threshold=asked["cutoff"],
            presentations=[
                schemas.PresentationAnswer(order=np.lexsort((s, w)).tolist(), scores=v, slots=s.tolist(), windows=w.tolist())
                for v, s, w in places
            ],
            measures=measures,
            slot_profile=profile,
            usage=usage,
        )

    return router


# -- from requests to pools and decisions


def score_pools(desk: Desk, body: schemas.ScoreRequest) -> list[Instance]:
    """One query's documents are one pool; pairs are pools of one."""
    queries = body.queries if body.queries is not None else body.text_1
    documents = body.documents if body.documents is not None else body.text_2
    if queries is None or documents is None:
        raise InputError("give queries and documents.")
    asked, listed = [queries] if isinstance(queries, str) else queries, [documents] if isinstance(documents, str) else documents
    if len(asked) == 1:
        return [desk.pool(asked[0], listed)]
    if len(asked) != len(listed):
        raise InputError(
            f"{len(asked)} queries and {len(listed)} documents cannot be paired. Give one query, or as many as documents."
        )
    return [desk.pool(query, [document]) for query, document in zip(asked, listed, strict=True)]


def decision_of(shape: schemas.DecisionShape | None, model: Model) -> Decision:
    if isinstance(shape, schemas.Threshold):
        return Decision("threshold", shape.threshold)
    if isinstance(shape, schemas.TopK):
        return Decision("top_k", min(shape.top_k, 10**9))
    if isinstance(shape, schemas.Pair):
        return Decision("pair")
    if model.cutoff is None:
        raise InputError(f"{model.name} has no cutoff of its own. Give a decision: threshold, top_k or pair.")
    return Decision("threshold", model.cutoff)


# -- from arrays to answers


def ranked(found: Served, instance: Instance, top: int | None, documents: bool) -> list[schemas.Ranked]:
    return [
        schemas.Ranked(
            index=int(i),
            relevance_score=float(found.scores[i]),
            document=schemas.Text(text=instance.pool[i].text) if documents else None,
        )
        for i in ranking(found.scores)[: top or None]
    ]


def tei(found: Served, instance: Instance, body: schemas.AnyRequest) -> list[schemas.TeiRanked]:
    scale = 3.0 if body.raw_scores and found.model.backend.capabilities.gives == "distribution" else 1.0
    return [
        schemas.TeiRanked(
            index=int(i), score=float(scale * found.scores[i]), text=instance.pool[i].text if body.return_text else None
        )
        for i in ranking(found.scores)
    ]


NAMES = {"pair": {1: "chosen", 0: "neither", -1: "rejected"}}


def decided_rows(found: Decided, decision: Decision, instance: Instance, documents: bool) -> list[schemas.Decided]:
    """Every document, best first."""
    role, away, steady = roles(found.scores, decision), distances(found.scores, decision), found.stability
    names = NAMES.get(decision.kind, {1: "kept", 0: "dropped"})
    return [
        schemas.Decided(
            index=int(i),
            score=float(found.scores[i]),
            role=names[int(role[i])],  # type: ignore[arg-type]
            distance=None if away is None else float(away[i]),
            grades=None if found.grades is None else found.grades[i].tolist(),
            agreement=None if steady is None else float(steady.by_document[i]),
            settled=None if steady is None else bool(steady.settled[i]),
            document=schemas.Text(text=instance.pool[i].text) if documents else None,
        )
        for i in ranking(found.scores)
    ]


def stability_answer(found: Decided, asked: int) -> schemas.StabilityAnswer | None:
    if (steady := found.stability) is None:
        return None
    return schemas.StabilityAnswer(
        permutations=found.permutations,
        asked=asked,
        stopped=found.stopped,  # type: ignore[arg-type]
        agreement=steady.agreement,
        overlap=None if np.isnan(steady.overlap) else steady.overlap,
        unsettled=np.flatnonzero(~steady.settled).tolist(),
    )
