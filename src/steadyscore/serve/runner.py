"""What every scoring route needs: a model by name, a pool within the limits, and the scores from a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, TypeVar

import numpy as np
from fastapi import Depends, Request
from starlette.exceptions import HTTPException

from ..engines.http import TooLong
from ..errors import InputError, UnusableScorer, WindowTooLong
from ..measures.settling import DecisionRule
from ..runs.table import Scored
from ..terms import Array, Instance
from .batcher import Admission, Busy, ClientDisconnected, EngineFailed, ShuttingDown, TimedOut
from .monitor import Monitor
from .operations import Metrics, log_fault
from .service import Model, Presentations, ScoredPool, Service
from .shapes import Document, Usage

T = TypeVar("T")
POLL = 0.25
"""Seconds between two checks that the client is still connected."""


class RequestRunner:
    """Takes scoring requests from their shape to scores: model, limits, admission, a thread, the metrics."""

    def __init__(
        self,
        service: Service,
        metrics: Metrics,
        monitor: Monitor,
        aliases: Mapping[str, str] | None = None,
        any_model: bool = False,
    ):
        self.aliases, self.any_model = aliases or {}, any_model
        self.service, self.limits, self.metrics, self.monitor = service, service.limits, metrics, monitor
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
