"""Dynamic batching: a few worker threads call the engines for the windows of all requests.

A request's scorer runs in its own thread on a batched backend (`batched.py`), which queues its windows here and waits.
While passes run, windows of other requests collect; the next pass takes one window of each request in turn, so that a
large request does not delay a small one. Idle workers share the windows that wait: on a CPU two passes on half the cores
each score more than one on all of them. Passes with the same `exclusive_key` never run at the same time, for engines that
take one call at a time. Prompts are made by `Scorer` alone: this module never sees a text.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")
BatchKey = tuple[int, bool]
"""Which backend, and whether the label mass is read: windows with the same key may share a call."""


class Busy(Exception):
    """The queue is full."""

    def __init__(self, retry_after: int):
        self.retry_after = retry_after
        super().__init__(f"the queue is full. Try again in {retry_after} s.")


class ShuttingDown(Exception):
    """The server is shutting down."""


class TimedOut(Exception):
    """A request's deadline passed before it was scored."""


class ClientDisconnected(Exception):
    """The client closed its connection before the answer."""


class EngineFailed(Exception):
    """The engine raised an exception that is not one of ours."""


@dataclass(slots=True, eq=False)
class Admission:
    """A request that was let in: its deadline, and what was scored for it so far."""

    deadline: float
    model: str = ""
    windows: int = 0
    tokens: int = 0
    cancelled: bool = False
    job: Job | None = None

    def cancel(self) -> None:
        """Drop the windows that wait; a pass that runs is finished for the other requests in it."""
        self.cancelled = True
        if self.job is not None:
            self.job.future.cancel()

    def check_time(self) -> None:
        """Raise where nobody waits for the answer any more: before work that goes through no pass."""
        if self.cancelled:
            raise ClientDisconnected
        if time.monotonic() >= self.deadline:
            raise TimedOut


@dataclass(slots=True, eq=False)
class Job:
    """Windows of one request that go through one function, and the future that gives all their results."""

    key: BatchKey
    run: Callable[[list[Any]], Sequence[Any]]
    items: Sequence[Any]
    exclusive_key: int | None
    """Passes with the same one do not overlap; None: any number of passes."""
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
        self._busy_keys: set[int] = set()
        """Exclusive keys of the passes that run."""
        self._free = 0
        """Workers that are idle."""
        self._changed = threading.Condition()
        self._closing = False
        self._workers = [threading.Thread(target=self._work, name=f"engine-{i}", daemon=True) for i in range(workers)]
        for worker in self._workers:
            worker.start()

    # -- requests

    @contextmanager
    def admit(self, windows: int, seconds: float, model: str = "") -> Iterator[Admission]:
        """Let a request in for all the windows it may ever need, or raise `Busy`: once let in, it is never refused later."""
        with self._changed:
            if self._closing:
                raise ShuttingDown("the server is shutting down.")
            if self.in_flight >= self.requests or self.reserved + windows > self.queue_windows:
                raise Busy(self.retry_after())
            self._reserved[model] += windows
            self.in_flight += 1
        admission = Admission(time.monotonic() + seconds, model)
        try:
            yield admission
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
        admission: Admission,
        key: BatchKey,
        run: Callable[[list[T]], Sequence[R]],
        items: Sequence[T],
        exclusive_key: int | None = None,
    ) -> list[R]:
        """Queue a request's windows and wait for their results."""
        if not items:
            return []
        admission.job = job = Job(key, run, items, exclusive_key, [None] * len(items), admission.model, missing=len(items))
        if admission.cancelled:
            raise ClientDisconnected
        with self._changed:
            self._jobs.append(job)
            self._changed.notify_all()
        try:
            results = job.future.result(timeout=max(0.0, admission.deadline - time.monotonic()))
        except CancelledError:
            raise ClientDisconnected from None
        except TimeoutError:
            if job.future.cancel():
                raise TimedOut from None
            results = job.future.result()  # it came in the last moment, or the engine itself raised TimeoutError
        admission.windows += len(items)
        return cast(list[R], results)

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
                exclusive_key = batch[0][0].exclusive_key
                if exclusive_key is not None:
                    self._busy_keys.add(exclusive_key)
            self._run(batch)
            if exclusive_key is not None:
                with self._changed:
                    self._busy_keys.remove(exclusive_key)
                    self._changed.notify_all()

    def _next_batch(self) -> list[tuple[Job, int]]:
        """One window of each request in turn, of one engine, until this worker's share of them or the batch is full."""
        self._jobs = [job for job in self._jobs if not job.future.done()]  # else cancelled, timed out or failed
        first = next((job for job in self._jobs if job.exclusive_key not in self._busy_keys), None)
        if first is None:
            return []
        turns = deque(job for job in self._jobs if job.key == first.key)
        waiting = sum(len(job.items) - job.taken for job in turns)
        share = -(-waiting // (self._free if first.exclusive_key is None else 1))
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

    def _run(self, batch: list[tuple[Job, int]]) -> None:
        began = time.monotonic()
        try:
            results = list(batch[0][0].run([job.items[i] for job, i in batch]))
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} windows were given and {len(results)} results came back")
        except Exception as fault:
            jobs = list(dict.fromkeys(job for job, _ in batch))
            if len(jobs) == 1:
                self._fail(jobs[0], fault)
                return
            for job in jobs:  # one request's fault is not the others': each again, alone
                self._run([(owner, i) for owner, i in batch if owner is job])
            return
        seconds = time.monotonic() - began
        self.on_batch(len(batch), len({id(job) for job, _ in batch}), seconds)
        with self._changed:  # a request's windows may be in two passes
            self._update_rate(batch[0][0].model, len(batch) / max(seconds, 1e-6))
            for (job, i), result in zip(batch, results, strict=True):
                job.results[i] = result
                job.missing -= 1
                if not job.missing:
                    with suppress(InvalidStateError):  # the client went away meanwhile
                        job.future.set_result(job.results)

    def _update_rate(self, model: str, rate: float) -> None:
        known = self._rates.get(model, rate)
        self._rates[model] = known + 0.2 * (rate - known)

    def _fail(self, job: Job, fault: Exception) -> None:
        with suppress(InvalidStateError):
            job.future.set_exception(fault)

    def close(self, seconds: float = 30.0) -> None:
        """Finish the requests that were let in, refuse others, end the workers."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
