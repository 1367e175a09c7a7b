"""Dynamic batching: one worker thread owns the engine and serves the windows of all requests.

A request's scorer runs in its own thread on a stand-in for the engine (`stand_in`), which queues its prompts here and
waits. While a pass runs, windows of other requests collect; the next pass takes one window of each request in turn, so
a large request does not stand before a small one. Prompts are made by `Scorer` alone: this module never sees a text.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

from ..engines import Engine, Grader, Reranker
from ..readout import Reading
from ..terms import Prompt


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
    """One request's claim on the worker."""

    deadline: float
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
    results: list[Any]
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
        on_batch: Callable[[int, int, float], None] = lambda windows, requests, seconds: None,
    ):
        self.batch_windows, self.queue_windows, self.requests, self.on_batch = batch_windows, queue_windows, requests, on_batch
        self.reserved = self.in_flight = 0
        """Windows and requests that were let in and are not answered yet."""
        self.rate = 1.0
        """Windows per second, smoothed over passes."""
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._worker = threading.Thread(target=self._work, name="engine", daemon=True)
        self._worker.start()

    # -- requests

    @contextmanager
    def admitted(self, windows: int, seconds: float) -> Iterator[Ticket]:
        """Let a request in for all the windows it may ever need, or raise Busy: what was let in is never refused later."""
        with self._changed:
            if self._closing:
                raise Closing("the server is shutting down.")
            if self.in_flight >= self.requests or self.reserved + windows > self.queue_windows:
                raise Busy(self.retry_after())
            self.reserved += windows
            self.in_flight += 1
        ticket = Ticket(time.monotonic() + seconds)
        try:
            yield ticket
        finally:
            with self._changed:
                self.reserved -= windows
                self.in_flight -= 1

    def retry_after(self) -> int:
        """Seconds until about half of what is let in will be through, from 1 to 60."""
        return int(min(60, max(1, self.reserved / 2 / self.rate)))

    @property
    def idle(self) -> bool:
        return not self.in_flight

    @property
    def alive(self) -> bool:
        return self._worker.is_alive() and not self._closing

    def call(
        self, ticket: Ticket, key: tuple[int, bool], run: Callable[[list[Any]], Sequence[Any]], items: Sequence[Any]
    ) -> list[Any]:
        """Queue a request's windows and wait for their results."""
        if not items:
            return []
        ticket.job = job = Job(key, run, items, [None] * len(items), missing=len(items))
        if ticket.cancelled:
            raise Gone
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()
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

    # -- the worker

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._closing:
                    self._changed.wait()
                batch = self._next_batch()
            if batch:
                self._pass(batch)
            elif self._closing and not self.in_flight:
                return
            elif self._closing:
                time.sleep(0.01)  # a request that was let in may still queue its next windows

    def _next_batch(self) -> list[tuple[Job, int]]:
        """One window of each request in turn, of one engine, until the batch is full."""
        batch: list[tuple[Job, int]] = []
        later: list[Job] = []
        while self._jobs and len(batch) < self.batch_windows:
            job = self._jobs.popleft()
            if job.future.done():  # cancelled, timed out or failed
                continue
            if batch and job.key != batch[0][0].key:
                later.append(job)
                continue
            batch.append((job, job.taken))
            job.taken += 1
            if job.taken < len(job.items):
                self._jobs.append(job)
        self._jobs.extendleft(reversed(later))  # another engine's turn comes first in the next pass
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
        self.rate += 0.2 * (len(batch) / max(seconds, 1e-6) - self.rate)
        self.on_batch(len(batch), len({id(job) for job, _ in batch}), seconds)
        for (job, i), result in zip(batch, found, strict=True):
            job.results[i] = result
            job.missing -= 1
            if not job.missing:
                with suppress(InvalidStateError):  # the client went away meanwhile
                    job.future.set_result(job.results)

    def _fail(self, job: Job, fault: Exception) -> None:
        with suppress(InvalidStateError):
            job.future.set_exception(fault)

    def close(self, seconds: float = 30.0) -> None:
        """Finish what was let in, refuse the rest, end the worker."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._worker.join(seconds)


SHOWN = ("name", "capabilities", "identity", "encoder", "context", "width")
"""What a scorer may ask of a backend besides its work."""


def stand_in(backend: Engine | Grader | Reranker, batcher: Batcher, ticket: Ticket) -> Any:
    """What a request's scorer takes for the backend: the same but for its work, which goes to the worker."""
    shown = SimpleNamespace(**{name: getattr(backend, name) for name in SHOWN if hasattr(backend, name)})

    def grade_logits(prompts: Sequence[Any], *, label_mass: bool = False) -> list[Reading]:
        ticket.tokens += sum(len(prompt) for prompt in prompts if isinstance(prompt, Prompt))
        work = partial(backend.grade_logits, label_mass=label_mass)  # type: ignore[union-attr]
        return batcher.call(ticket, (id(backend), label_mass), work, prompts)

    def score(query: str, texts: Sequence[str]) -> Sequence[float]:
        return batcher.call(ticket, (id(backend), False), rerank, [(query, texts)])[0]

    def rerank(batch: list[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        return [backend.score(*window) for window in batch]  # type: ignore[union-attr]

    if isinstance(backend, Reranker):
        shown.score = score
    else:
        shown.grade_logits = grade_logits
    return shown
