"""Dynamic batching: a few worker threads call the engines for the windows of all requests.

A request's scorer runs in its own thread on a batched backend (`batched.py`), which queues its windows here and waits.
While passes run, windows of other requests collect; the next pass takes one window of each request in turn, as many as a
pass may have tokens. Idle workers share the windows that wait: on a CPU two passes on half the cores each score more than
one on all of them. Small requests share no pass with large ones, and where large ones keep the workers busy, one more worker
takes the small ones. Passes with the same `exclusive_key` never run at the same time, for engines that take one call at a
time. A pass that nobody waits for any more is abandoned. Prompts are made by `Scorer` alone: this module never sees a text.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from .settings import Limits

T = TypeVar("T")
R = TypeVar("R")
BatchKey = tuple[int, bool]
"""Which backend, and whether the label mass is read: windows with the same key may share a call."""
Cost = Mapping[int, int]
"""Tokens of a window, by the hash of what is read: what windows of a pass have in common is read once."""
SMALL_TOKENS = 1024
"""A request of at most so many tokens at a time is a small one."""
QUEUE_PASSES = 32
"""Passes of the most tokens that may wait or run."""


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


class Abandoned(Exception):
    """Nobody waits for what a pass computes."""


def count_tokens(costs: Iterable[Cost]) -> int:
    """Tokens that are read for the windows of one pass."""
    return sum({part: tokens for cost in costs for part, tokens in cost.items()}.values())


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
        """Drop the windows that wait; a pass that runs is finished only where other requests are in it."""
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
    costs: Sequence[Cost]
    exclusive_key: int | None
    """Passes with the same one do not overlap; None: any number of passes."""
    results: list[Any]
    model: str = ""
    taken: int = 0
    missing: int = 0
    tokens: int = 0
    is_large: bool = False
    future: Future[list[Any]] = field(default_factory=Future)


_worker = threading.local()
"""Of each worker: the jobs of its pass."""


def check_wanted(*_: object) -> None:
    """Raise where nobody waits for the calling worker's pass; local models call it before each of their layers."""
    jobs = getattr(_worker, "jobs", ())
    if jobs and all(job.future.done() for job in jobs):
        raise Abandoned


class Batcher:
    def __init__(self, limits: Limits, on_batch: Callable[[int, int, float], None] = lambda windows, requests, seconds: None):
        self.limits, self.on_batch = limits, on_batch
        self.in_flight = 0
        """Requests that were let in and are not answered yet."""
        self.tokens = 0
        """Of the windows that wait or run."""
        self._reserved: Counter[str] = Counter()
        """Windows of the requests in flight, by model."""
        self._rates: dict[str, float] = {}
        """Windows per second of one worker, by model, smoothed over passes."""
        self._jobs: list[Job] = []
        self._passes: dict[int, tuple[float, Job]] = {}
        """Those that run, by worker: since when, and one of the jobs in it."""
        self._free = 0
        """Workers that are idle, without the one for small requests."""
        self._changed = threading.Condition()
        self._closing = False
        self._workers = [
            threading.Thread(target=self._work, args=(i == limits.workers,), name=f"engine-{i}", daemon=True)
            for i in range(limits.workers + 1)
        ]
        for worker in self._workers:
            worker.start()

    # -- requests

    @contextmanager
    def admit(self, windows: int, seconds: float, model: str = "") -> Iterator[Admission]:
        """Let a request in for all the windows it may ever need, or raise `Busy`; its first call may too: it knows tokens."""
        with self._changed:
            if self._closing:
                raise ShuttingDown("the server is shutting down.")
            if self.in_flight >= self.limits.requests or self.reserved + windows > self.limits.queue_windows:
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

    @property
    def ages(self) -> list[tuple[float, int | None]]:
        """Of every pass that runs: its age in seconds and its exclusive key."""
        with self._changed:
            return [(time.monotonic() - began, job.exclusive_key) for began, job in self._passes.values()]

    @property
    def is_stuck(self) -> bool:
        """Whether passes that outlived every request in them keep windows of some model from being scored."""
        keys = [key for age, key in self.ages if age > self.limits.seconds]
        return len(keys) >= self.limits.workers or any(key is not None for key in keys)

    def call(
        self,
        admission: Admission,
        key: BatchKey,
        run: Callable[[list[T]], Sequence[R]],
        items: Sequence[T],
        exclusive_key: int | None = None,
        costs: Sequence[Cost] = (),
    ) -> list[R]:
        """Queue a request's windows and wait for their results."""
        if not items:
            return []
        job = Job(key, run, items, costs or [{}] * len(items), exclusive_key, [None] * len(items), admission.model)
        job.missing, job.tokens, admission.job = len(items), count_tokens(job.costs), job
        job.is_large = job.tokens > SMALL_TOKENS
        if admission.cancelled:
            raise ClientDisconnected
        with self._changed:
            begins_beside_others = self.tokens and not admission.windows
            if begins_beside_others and self.tokens + job.tokens > QUEUE_PASSES * self.limits.window_tokens:
                raise Busy(self.retry_after())
            self.tokens += job.tokens
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
        finally:
            with self._changed:
                self.tokens -= job.tokens
        admission.windows += len(items)
        return cast(list[R], results)

    # -- the workers

    def _work(self, only_small: bool) -> None:
        worker = threading.get_ident()
        while True:
            with self._changed:
                self._free += not only_small
                while not (batch := self._next_batch(only_small)) and (self.in_flight or not self._closing):
                    self._changed.wait()
                self._free -= not only_small
                if not batch:
                    return
                self._passes[worker] = time.monotonic(), batch[0][0]
                self._changed.notify_all()  # this may have been the last idle worker
            self._run(batch)
            with self._changed:
                del self._passes[worker]
                self._changed.notify_all()

    def _next_batch(self, only_small: bool) -> list[tuple[Job, int]]:
        """One window of each request in turn, of one engine and one size, until this worker's share or the pass is full."""
        running = [job for _, job in self._passes.values()]
        if only_small and (self._free or not any(job.is_large for job in running)):
            return []
        self._jobs = [job for job in self._jobs if not job.future.done()]  # else cancelled, timed out or failed
        busy_keys = {job.exclusive_key for job in running} - {None}
        ready = [job for job in self._jobs if job.exclusive_key not in busy_keys and not (only_small and job.is_large)]
        alike = [job for job in ready if (job.key, job.is_large) == (ready[0].key, ready[0].is_large)]
        turns, batch = deque(alike), list[tuple[Job, int]]()
        waiting = sum(len(job.items) - job.taken for job in turns)
        share = waiting if alike and alike[0].exclusive_key is not None else -(-waiting // max(1, self._free))
        while turns and len(batch) < min(share, self.limits.batch_windows):
            more = [*batch, (turns[0], turns[0].taken)]
            if batch and count_tokens(job.costs[i] for job, i in more) > self.limits.window_tokens:
                break
            batch, job = more, turns.popleft()
            job.taken += 1
            if job.taken < len(job.items):
                turns.append(job)
        # another engine's turn comes first in the next pass
        self._jobs = [job for job in self._jobs if job not in alike] + list(turns)
        return batch

    def _run(self, batch: list[tuple[Job, int]]) -> None:
        began = time.monotonic()
        _worker.jobs = jobs = list(dict.fromkeys(job for job, _ in batch))
        try:
            results = list(batch[0][0].run([job.items[i] for job, i in batch]))
            if len(results) != len(batch):
                raise RuntimeError(f"{len(batch)} windows were given and {len(results)} results came back")
        except Abandoned:
            return
        except Exception as fault:
            if len(jobs) == 1:
                with suppress(InvalidStateError):
                    jobs[0].future.set_exception(fault)
                return
            for job in jobs:  # one request's fault is not the others': each again, alone
                self._run([(owner, i) for owner, i in batch if owner is job])
            return
        seconds = time.monotonic() - began
        self.on_batch(len(batch), len(jobs), seconds)
        with self._changed:  # a request's windows may be in two passes
            rate, model = len(batch) / max(seconds, 1e-6), jobs[0].model
            self._rates[model] = 0.8 * self._rates.get(model, rate) + 0.2 * rate
            for (job, i), result in zip(batch, results, strict=True):
                job.results[i] = result
                job.missing -= 1
                if not job.missing:
                    with suppress(InvalidStateError):  # the client went away meanwhile
                        job.future.set_result(job.results)

    def close(self, seconds: float = 30.0) -> None:
        """Finish the requests that were let in, refuse others, end the workers."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
