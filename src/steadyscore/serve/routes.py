"""The scoring routes: each turns its shape into a pool, has it scored and turns the scores into its answer.

All take a `RequestRunner`, which finds the model, holds the pool against the limits and has it scored in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from ..engines.http import TooLong
from ..errors import InputError, UnusableScorer, WindowTooLong
from ..measures.settling import DecisionRule, ThresholdRule, TopKRule, check_rule
from ..runs.table import Scored
from ..terms import Array, Instance
from .batcher import Admission, Busy, ClientDisconnected, EngineFailed, ShuttingDown, TimedOut
from .monitor import Monitor
from .operations import Metrics, log_fault
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
from .service import Model, PoolAudit, Presentations, ScoredPool, Service
from .settings import ServerSettings
from .shapes import (
    AuditAnswer,
    AuditRequest,
    DecideAnswer,
    DecideRequest,
    Document,
    Order,
    Usage,
    audit_presentations,
    problems,
)
from .truncation import cut_to_tokens, truncate_texts

T = TypeVar("T")
POLL = 0.25
"""Seconds between two checks that the client is still connected."""


class RequestRunner:
    """Takes scoring requests from their shape to scores: model, limits, admission, a thread, the metrics."""

    def __init__(self, service: Service, metrics: Metrics, settings: ServerSettings):
        self.aliases, self.any_model = dict(settings.aliases), settings.any_model
        self.service, self.limits, self.metrics = service, service.limits, metrics
        self.monitor = Monitor(service, metrics, settings.monitor_share)
        self.executor = ThreadPoolExecutor(self.limits.requests, thread_name_prefix="request")

    def find_model(self, name: str | None) -> Model:
        """The model of that name or alias; without a name, or where any name will do, the first one."""
        models = self.service.models
        name = self.aliases.get(name, name) if name else None
        if not name or (self.any_model and name not in models):
            return next(iter(models.values()))
        if name not in models:
            raise HTTPException(404, f"model {name[:80]!r} is not served here. Models: {', '.join(models)}.")
        return models[name]

    def read_pool(self, query: str, documents: Sequence[str | Document]) -> Instance:
        """The request as an instance within the limits."""
        listed = [Document(text=d) if isinstance(d, str) else d for d in documents]
        return self.service.read_pool(query, [d.text for d in listed], [d.title for d in listed], [d.rank for d in listed])

    def read(
        self, name: str | None, query: str, documents: Sequence[str | Document], instruction: str | None = None
    ) -> tuple[Model, Instance]:
        """The pool of a request, and the model it asks for as it answers this request."""
        model, instance = self.find_model(name), self.read_pool(query, documents)
        return model.asked(instruction, instance.pool[0].rank), instance

    def check_permutations(self, count: int) -> None:
        if count > self.limits.permutations:
            raise InputError(f"{count:,} permutations were asked for, the server takes {self.limits.permutations:,}.")

    async def run(
        self, request: Request, model: Model, documents: int, windows: int, work: Callable[[Admission], T]
    ) -> tuple[T, Usage]:
        """Let a request in, do its work in a thread, and stop when the client disconnects."""
        with self.service.batcher.admit(windows, self.limits.seconds, model.name) as admission:
            task = asyncio.get_running_loop().run_in_executor(self.executor, work, admission)
            try:
                while not (await asyncio.wait({task}, timeout=POLL))[0]:
                    if await request.is_disconnected():
                        admission.cancel()
                result = await task
            except UnusableScorer as fault:  # its words may hold a path of this machine or the address of an endpoint
                raise self._failed(model, fault) from fault
            except (InputError, Busy, ClientDisconnected, TimedOut, ShuttingDown):
                raise
            except WindowTooLong:
                self.metrics.overflow.labels(model.name).inc()
                raise
            except TooLong as refusal:
                self.metrics.overflow.labels(model.name).inc()
                raise InputError(
                    f"a window does not fit {model.name}, by the words of the endpoint behind it. "
                    "Send shorter documents, or fewer per prompt."
                ) from refusal
            except Exception as fault:
                raise self._failed(model, fault) from fault
            finally:
                admission.cancel()
                self.metrics.tokens.labels(model.name).inc(admission.tokens)
                request.state.facts.update(
                    model=model.name, documents=documents, windows=admission.windows, tokens=admission.tokens
                )
        return result, Usage(total_tokens=admission.tokens)

    def _failed(self, model: Model, fault: Exception) -> EngineFailed:
        log_fault("engine failed", fault, model=model.name)
        return EngineFailed(f"the scorer of {model.name} failed ({type(fault).__name__}). The log names the place.")

    async def score_pool(
        self,
        request: Request,
        model: Model,
        instance: Instance,
        asked: Presentations,
        *,
        decision: DecisionRule | None = None,
        implied: DecisionRule | None = None,
        cut: Callable[[Instance, Array], Instance] = lambda instance, orders: instance,
    ) -> ScoredPool:
        """One pool as it is asked for, no further than a decision takes. `cut` shortens what is read.

        implied  the decision that somebody takes with the scores, for the stability monitor
        """
        self.check_permutations(asked.count)
        n, orders = len(instance.pool), asked.orders(instance)
        windows = self.service.count_windows(model, n, asked.count, asked.width)

        def work(admission: Admission) -> tuple[Instance, Scored]:
            read = cut(instance, orders)
            return read, self.service.present(model, admission, read, orders, asked, decision)

        (read, scored), usage = await self.run(request, model, n, windows, work)
        pool = ScoredPool(model, instance, asked, scored, usage.total_tokens)
        presentations = len(scored.scores)
        request.state.facts["presentations"] = presentations
        self.metrics.presentations.labels(model.name).inc(presentations)
        self.metrics.spared.labels(model.name).inc(asked.count - presentations)
        self.metrics.ties.labels(model.name).inc(int((np.diff(np.sort(pool.scores)) == 0).sum()))
        self.metrics.neighbours.labels(model.name).inc(n - 1)
        if asked.count == 1:
            self.monitor.offer(model, read, decision or implied, pool.scores, asked.width)
        return pool


async def runner_of(request: Request) -> RequestRunner:
    runner: RequestRunner = request.app.state.runner
    return runner


Runner = Annotated[RequestRunner, Depends(runner_of)]
"""What a route takes to score."""


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
    order, n = body.order or Order(), len(instance.pool)
    asked = order.presentations(model)
    implied = implied_rule(order.threshold, body.top, n)

    def cut(pool: Instance, orders: Array) -> Instance:
        pool = cut_to_tokens(pool, model, body.max_tokens_per_doc or None, body.default_tokens)
        if not isinstance(body, TeiRequest):
            return pool
        return truncate_texts(pool, model, orders, body.truncate, body.truncation_direction, asked.width)

    decision = model.decision(asked, implied, n)
    return await runner.score_pool(request, model, instance, asked, decision=decision, implied=implied, cut=cut)


def implied_rule(threshold: float | None, top: int | None, n: int) -> DecisionRule | None:
    """The decision that a rerank request implies; None where it takes all documents."""
    if threshold is not None:
        return ThresholdRule(threshold)
    return TopKRule(top) if top and top < n else None


@post("/v1/score", response_model=ScoresAnswer, summary="Scores in the order of the documents, vLLM's shape")
@post("/score", response_model=ScoresAnswer, summary="Scores in the order of the documents, vLLM's shape")
async def score(body: ScoreRequest, request: Request, runner: Runner) -> ScoresAnswer:
    pairs = body.pairs()
    if len(pairs) == 1:
        model, instance = runner.read(body.model, *pairs[0], body.instruction)
        asked = model.presentations(Presentations(), is_stated=False)
        decision = model.decision(asked, None, len(instance.pool))
        pool = await runner.score_pool(request, model, instance, asked, decision=decision)
        return scores_answer(model, pool.scores, pool.tokens)
    model, service, limits = runner.find_model(body.model).asked(body.instruction, None), runner.service, runner.limits
    pools = [runner.read_pool(query, documents) for query, documents in pairs]
    if model.first_stage:
        raise InputError("pairs of a query and a document have no rank in a first stage. Give one query with its documents.")
    if len(pools) > limits.candidates:
        raise InputError(f"{len(pools):,} documents were sent, the server takes {limits.candidates:,}.")
    if len(pools) > limits.queue_windows:
        raise InputError(f"{len(pools):,} queries are {len(pools):,} windows, the server takes {limits.queue_windows:,}.")

    def work(admission: Admission) -> Array:
        return np.concatenate(service.score_pools(model, admission, pools))

    scores, usage = await runner.run(request, model, len(pools), len(pools), work)
    return scores_answer(model, scores, usage.total_tokens)


def scores_answer(model: Model, scores: Array, tokens: int) -> ScoresAnswer:
    return ScoresAnswer(
        model=model.name,
        data=[ScoreDatum(index=i, score=float(s)) for i, s in enumerate(scores)],
        usage=ScoreUsage(prompt_tokens=tokens, total_tokens=tokens),
    )


# -- our own shapes


@post("/v1/decide", response_model=DecideAnswer, summary="The decision, how near it was and how settled it is")
async def decide(body: DecideRequest, request: Request, runner: Runner) -> DecideAnswer:
    model, instance = runner.read(body.model, body.query, body.documents, body.instruction)
    rule = rule_of(body, model, len(instance.pool))
    check_rule(rule, len(instance.pool))
    asked = body.presentations(model)
    return body.answer(await runner.score_pool(request, model, instance, asked, decision=rule), rule)


@post("/v1/audit", response_model=AuditAnswer, summary="One pool under M permutations: its scores and measures")
async def audit(body: AuditRequest, request: Request, runner: Runner) -> AuditAnswer:
    model, instance = runner.read(body.model, body.query, body.documents, body.instruction)
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


def rule_of(body: DecideRequest, model: Model, n: int) -> DecisionRule:
    """The decision that a request asks for; without one, the model's own cutoff."""
    if body.decision is not None:
        return body.decision.rule(n)
    if model.cutoff is None:
        raise InputError(f"{model.name} has no cutoff of its own. Give a decision: threshold, top_k, share or pair.")
    return ThresholdRule(model.cutoff)
