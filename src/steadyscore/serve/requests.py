"""What every scoring route does: find the model, check the limits, let the request in, work in a thread, count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
from fastapi import Request
from starlette.exceptions import HTTPException

from ..errors import InputError, SteadyscoreError, WindowTooLong
from ..runs.table import Scored
from ..terms import Array, Instance
from ..window.presentation import permutations
from . import schemas
from .batcher import Closing, EngineFailed, Gone, Ticket, TimedOut
from .decisions import Decision, outcome
from .logs import log_fault
from .metrics import Metrics
from .monitor import Monitor
from .service import Model, Service, content_order, instance_of
from .settings import Limits

T = TypeVar("T")
POLL = 0.25
"""Seconds between two looks whether the client is still there."""


class Served(NamedTuple):
    model: Model
    scores: Array
    order: schemas.OrderAnswer | None
    usage: schemas.Usage


class Desk:
    def __init__(self, service: Service, limits: Limits, metrics: Metrics, monitor: Monitor):
        self.service, self.limits, self.metrics, self.monitor = service, limits, metrics, monitor
        self.executor = ThreadPoolExecutor(limits.requests, thread_name_prefix="request")

    def model(self, name: str | None) -> Model:
        if (model := self.service.model(name)) is None:
            raise HTTPException(404, f"model {name[:80]!r} is not served here. Models: {', '.join(self.service.models)}.")  # type: ignore[index]
        return model

    def pool(self, query: str, documents: Sequence[str | schemas.Document]) -> Instance:
        """The request as an instance, or everything that is too much, at once."""
        texts, limits = [d if isinstance(d, str) else d.text for d in documents], self.limits
        mistakes = []
        if len(texts) > limits.candidates:
            mistakes.append(f"{len(texts):,} documents were sent, the server takes {limits.candidates:,}.")
        if len(query) > limits.query_chars:
            mistakes.append(f"the query has {len(query):,} characters, the server takes {limits.query_chars:,}.")
        if long := [i for i, text in enumerate(texts) if len(text) > limits.document_chars]:
            size = len(texts[long[0]])
            mistakes.append(f"document {long[0]} has {size:,} characters, the server takes {limits.document_chars:,}.")
        if mistakes:
            raise InputError(mistakes)
        return instance_of(query, texts, [None if isinstance(d, str) else d.title for d in documents])

    def permutations(self, count: int) -> int:
        if count > self.limits.permutations:
            raise InputError(f"{count:,} permutations were asked for, the server takes {self.limits.permutations:,}.")
        return count

    async def run(
        self, request: Request, model: Model, documents: int, windows: int, work: Callable[[Ticket], T]
    ) -> tuple[T, schemas.Usage]:
        """Let a request in, work in a thread, and stop when the client goes away."""
        with self.service.admitted(windows, model.name) as ticket:
            task = asyncio.get_running_loop().run_in_executor(self.executor, work, ticket)
            try:
                while not (await asyncio.wait({task}, timeout=POLL))[0]:
                    if await request.is_disconnected():
                        ticket.cancel()
                found = await task
            except (SteadyscoreError, Gone, TimedOut, Closing) as known:
                if isinstance(known, WindowTooLong):
                    self.metrics.overflow.labels(model.name).inc()
                raise
            except Exception as fault:
                log_fault("engine failed", fault, model=model.name)
                raise EngineFailed(
                    f"the scorer of {model.name} failed ({type(fault).__name__}). The log names the place."
                ) from fault
            finally:
                ticket.cancel()
                self.metrics.tokens.labels(model.name).inc(ticket.tokens)
                request.state.facts.update(model=model.name, documents=documents, windows=ticket.windows, tokens=ticket.tokens)
        return found, schemas.Usage(total_tokens=ticket.tokens)

    def count(self, model: Model, instance: Instance, decision: Decision | None, scores: Array, presentations: int) -> None:
        """Ties for the metrics; and what was served once may be looked at again."""
        self.metrics.ties.labels(model.name).inc(int((np.diff(np.sort(scores)) == 0).sum()))
        self.metrics.neighbours.labels(model.name).inc(len(scores) - 1)
        if presentations == 1:
            self.monitor.offer(model, instance, decision, scores)

    async def served(
        self,
        request: Request,
        model: Model,
        instance: Instance,
        how: schemas.Order | None,
        top: int | None,
        cut: Callable[[Instance, Array], Instance] = lambda instance, orders: instance,
    ) -> Served:
        """One pool scored as `order` says, by default once in the order given. `cut` shortens what is read of it."""
        n, ask = len(instance.pool), how or schemas.Order()
        if self.permutations(ask.permutations) > 1:
            orders = permutations(n, ask.permutations, seed=ask.seed, query_id=instance.query)
        else:
            orders = (content_order([c.text for c in instance.pool]) if ask.canonical else np.arange(n))[None]
        windows = self.service.windows_of(model, n, len(orders), ask.width)

        def work(ticket: Ticket) -> tuple[Instance, Scored]:
            read = cut(instance, orders)
            return read, self.service.scored(model, ticket, read, orders, ask.width)

        (read, found), usage = await self.run(request, model, n, windows, work)
        scores = found.scores.mean(axis=0)
        decision = None if ask.threshold is None else Decision("threshold", ask.threshold)
        self.count(model, read, decision or (Decision("top_k", top) if top and top < n else None), scores, len(orders))
        if how is None:
            return Served(model, scores, None, usage)
        told = schemas.OrderAnswer(
            permutations=len(orders),
            width=ask.width or model.width(n),
            presentation="permuted" if len(orders) > 1 else "canonical" if ask.canonical else "given",
            threshold=ask.threshold,
            retained=None if decision is None else outcome(scores, decision)["kept"],
            sd=found.scores.std(axis=0, ddof=1).tolist() if len(orders) > 1 else None,
            grades=found.grades.mean(axis=0).tolist() if ask.distribution and found.grades is not None else None,
        )
        return Served(model, scores, told, usage)
