"""Dynamic batching: a few worker threads own the engines and serve the windows of all requests.

A request's scorer runs in its own thread on a stand-in for the engine (`stand_in`), which queues its prompts here and
waits. While passes run, windows of other requests collect; the next pass takes one window of each request in turn, so
a large request does not stand before a small one. Workers that have nothing to do share what waits: on a CPU two passes
on half the cores each get through more than one on all of them. An engine that takes one pass at a time has a lane, and
no two passes are in it. Prompts are made by `Scorer` alone: this module never sees a text.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..engines import Engine, Grader, Reranker
from ..terms import Prompt
from ..window.readout import SlotLogits


class Busy(Exception):
    """The queue is full."""

    def __init__(self, retry_after: int):
        self.retry_after = retry_after
        super().__init__(f"the queue is full. Try again in {retry_after} s.")


class Closing(Exception):
    """The server is shutting down."""


class TimedOut(Exception):
    """A request's time ran out before its scores were there."""


class Gone(Exception):
    """The client went away."""


class EngineFailed(Exception):
    """The engine raised something that no message of ours explains."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's claim on the workers."""

    deadline: float
    model: str = ""
    windows: int = 0
    """Windows scored so far."""
    tokens: int = 0
    cancelled: bool = False
    job: Job | None = None

    def cancel(self) -> None:
        """Drop what waits; a pass that runs is finished for the others in it."""
        self.cancelled = True
        if self.job is not None:
            self.job.future.cancel()


@dataclass(slots=True, eq=False)
class Job:
    """Windows of one request that go through one function, and the answer that waits for all of them."""

    key: tuple[int, bool]
    """Windows with the same key may share a call."""
    run: Callable[[list[Any]], Sequence[Any]]
    items: Sequence[Any]
    lane: int | None
    """Held by one pass at a time; None: any number of passes."""
    results: list[Any]
    model: str = ""
    taken: int = 0
    missing: int = 0
    future: Future[list[Any]] = field(default_factory=Future)


class Batcher:
    def __init__(
        self,
        *,
        batch_windows: int = 16,
        queue_windows: int = 2048,
        requests: int = 64,
        workers: int = 1,
        on_batch: Callable[[int, int, float], None] = lambda windows, requests, seconds: None,
    ):
        self.batch_windows, self.queue_windows, self.requests, self.on_batch = batch_windows, queue_windows, requests, on_batch
        self.in_flight = 0
        """Requests that were let in and are not answered yet."""
        self._reserved: Counter[str] = Counter()
        """Their windows, by model."""
        self._rates: dict[str, float] = {}
        """Windows per second of one worker, by model, smoothed over passes."""
        self._jobs: list[Job] = []
        self._lanes: set[int] = set()
        """Lanes that a pass is in."""
        self._free = 0
        """Workers with nothing to do."""
        self._changed = threading.Condition()
        self._closing = False
        self._workers = [threading.Thread(target=self._work, name=f"engine-{i}", daemon=True) for i in range(workers)]
        for worker in self._workers:
            worker.start()

    # -- requests

    @contextmanager
    def admitted(self, windows: int, seconds: float, model: str = "") -> Iterator[Ticket]:
        """Let a request in for all the windows it may ever need, or raise Busy: what was let in is never refused later."""
        with self._changed:
            if self._closing:
                raise Closing("the server is shutting down.")
            if self.in_flight >= self.requests or self.reserved + windows > self.queue_windows:
                raise Busy(self.retry_after())
            self._reserved[model] += windows
            self.in_flight += 1
        ticket = Ticket(time.monotonic() + seconds, model)
        try:
            yield ticket
        finally:
            with self._changed:
                self._reserved[model] -= windows
                self.in_flight -= 1
                self._changed.notify_all()  # workers that are closing wait for the last request

    def retry_after(self) -> int:
        """Seconds until about half of what is let in will be through, each model at its own rate, from 1 to 60."""
        seconds = sum(windows / self._rates.get(model, 1.0) for model, windows in self._reserved.items())
        return int(min(60, max(1, seconds / 2)))

    @property
    def reserved(self) -> int:
        """Windows that were let in and are not answered yet."""
        with self._changed:
            return self._reserved.total()

    @property
    def idle(self) -> bool:
        return not self.in_flight

    @property
    def alive(self) -> bool:
        return all(worker.is_alive() for worker in self._workers) and not self._closing

    def call(
        self,
        ticket: Ticket,
        key: tuple[int, bool],
        run: Callable[[list[Any]], Sequence[Any]],
        items: Sequence[Any],
        lane: int | None = None,
    ) -> list[Any]:
        """Queue a request's windows and wait for their results."""
        if not items:
            return []
        ticket.job = job = Job(key, run, items, lane, [None] * len(items), ticket.model, missing=len(items))
        if ticket.cancelled:
            raise Gone
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        try:
            found = job.future.result(timeout=max(0.0, ticket.deadline - time.monotonic()))
        except CancelledError:
            raise Gone from None
        except TimeoutError:
            if job.future.cancel():
                raise TimedOut from None
            found = job.future.result()  # it came in the last moment, or the engine itself raised TimeoutError
        ticket.windows += len(items)
        return found

    # -- the workers

    def _work(self) -> None:
        while True:
            with self._changed:
                self._free += 1
                while not (batch := self._next_batch()) and (self.in_flight or not self._closing):
                    self._changed.wait()
                self._free -= 1
                if not batch:
                    return
                lane = batch[0][0].lane
                if lane is not None:
                    self._lanes.add(lane)
            self._pass(batch)
            if lane is not None:
                with self._changed:
                    self._lanes.remove(lane)
                    self._changed.notify_all()

    def _next_batch(self) -> list[tuple[Job, int]]:
        """One window of each request in turn, of one engine, until this worker's share of them or the batch is full."""
        self._jobs = [job for job in self._jobs if not job.future.done()]  # else cancelled, timed out or failed
        first = next((job for job in self._jobs if job.lane not in self._lanes), None)
        if first is None:
            return []
        turns = deque(job for job in self._jobs if job.key == first.key)
        waiting = sum(len(job.items) - job.taken for job in turns)
        share = -(-waiting // (self._free if first.lane is None else 1))
        batch: list[tuple[Job, int]] = []
        while turns and len(batch) < min(share, self.batch_windows):
            job = turns.popleft()
            batch.append((job, job.taken))
            job.taken += 1
            if job.taken < len(job.items):
                turns.append(job)
        # another engine's turn comes first in the next pass
        self._jobs = [job for job in self._jobs if job.key != first.key] + list(turns)
        return batch

    def _pass(self, batch: list[tuple[Job, int]]) -> None:
        began = time.monotonic()
        try:
            found = list(batch[0][0].run([job.items[i] for job, i in batch]))
        except Exception as fault:
            jobs = list(dict.fromkeys(job for job, _ in batch))
            if len(jobs) == 1:
                self._fail(jobs[0], fault)
                return
            for job in jobs:  # one request's fault is not the others': each again, alone
                self._pass([(owner, i) for owner, i in batch if owner is job])
            return
        seconds = time.monotonic() - began
        self.on_batch(len(batch), len({id(job) for job, _ in batch}), seconds)
        with self._changed:  # a request's windows may be in two passes
            self._learn(batch[0][0].model, len(batch) / max(seconds, 1e-6))
            for (job, i), result in zip(batch, found, strict=True):
                job.results[i] = result
                job.missing -= 1
                if not job.missing:
                    with suppress(InvalidStateError):  # the client went away meanwhile
                        job.future.set_result(job.results)

    def _learn(self, model: str, rate: float) -> None:
        known = self._rates.get(model, rate)
        self._rates[model] = known + 0.2 * (rate - known)

    def _fail(self, job: Job, fault: Exception) -> None:
        with suppress(InvalidStateError):
            job.future.set_exception(fault)

    def close(self, seconds: float = 30.0) -> None:
        """Finish what was let in, refuse the rest, end the workers."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))


def stand_in(backend: Grader | Reranker, batcher: Batcher, ticket: Ticket) -> Grader | Reranker:
    """What a request's scorer takes for the backend: the same but for its work, which goes to the workers."""
    if isinstance(backend, Engine):
        return _BatchedEngine(backend, batcher, ticket)
    return _BatchedGrader(backend, batcher, ticket) if isinstance(backend, Grader) else _BatchedReranker(backend, batcher, ticket)


class _BatchedGrader(Grader):
    """A grader whose windows go to the workers."""

    def __init__(self, backend: Grader, batcher: Batcher, ticket: Ticket):
        self._backend, self._batcher, self._ticket = backend, batcher, ticket
        self.name, self.capabilities, self.width = backend.name, backend.capabilities, backend.width

    def identity(self) -> dict[str, Any]:
        return self._backend.identity()

    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[SlotLogits]:
        self._ticket.tokens += sum(len(prompt) for prompt in prompts if isinstance(prompt, Prompt))
        work = partial(self._backend.grade_logits, label_mass=label_mass)
        key = (id(self._backend), label_mass)
        return self._batcher.call(self._ticket, key, work, prompts, self._backend.exclusive_key)


class _BatchedEngine(_BatchedGrader, Engine):
    """The same of an engine, with the encoder that its prompts are made by."""

    def __init__(self, backend: Engine, batcher: Batcher, ticket: Ticket):
        super().__init__(backend, batcher, ticket)
        self.encoder, self.context = backend.encoder, backend.context


class _BatchedReranker(Reranker):
    """A reranker whose questions go to the workers."""

    def __init__(self, backend: Reranker, batcher: Batcher, ticket: Ticket):
        self._backend, self._batcher, self._ticket = backend, batcher, ticket
        self.name, self.capabilities, self.width = backend.name, backend.capabilities, backend.width

    def identity(self) -> dict[str, Any]:
        return self._backend.identity()

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        key = (id(self._backend), False)
        scores: list[Sequence[float]] = self._batcher.call(
            self._ticket, key, self._score_all, [(query, texts)], self._backend.exclusive_key
        )
        return scores[0]

    def _score_all(self, questions: list[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        return [self._backend.score(query, texts) for query, texts in questions]
