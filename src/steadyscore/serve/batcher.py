"""Dynamic batching: a few worker threads call the engines for the windows of all requests.

A request's scorer runs in its own thread on a stand-in for the backend, which queues its windows here and waits. While passes
run, windows of other requests collect; the next pass takes one window of each request in turn, as many as a pass may have tokens.
Idle workers share the windows that wait: on a CPU two passes on half the cores each score more than one on all of them.

Small requests share no pass with large ones, and where large ones keep the workers busy, one more worker takes the small ones.
Passes with the same `exclusive_key` never run at the same time, for engines that take one call at a time.

Windows are wanted as long as their request waits for them. What is not wanted any more leaves the queue, a pass in which nothing
is wanted is abandoned at the next layer of its model, and its results go nowhere. Prompts are made by `Scorer` alone: this module
never sees a text.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

from ..engines import Grader, Reranker
from ..errors import InputError
from ..terms import Prompt
from ..window.readout import SlotLogits
from .settings import Limits

B = TypeVar("B", Grader, Reranker, Grader | Reranker)
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


# -- windows that wait, and windows that are scored together


class Abandoned(Exception):
    """Nobody waits for what a pass computes."""


def cost_of(window: Any) -> Cost:
    """Tokens that are read for a window on this machine; orders of one set are read as one."""
    if not isinstance(window, Prompt):
        return {}
    if window.segment:
        return {hash(replace(window, slots=())): len(window)}
    return {hash(window.prefix): len(window.prefix), hash(window): len(window.body)}


@dataclass(slots=True, eq=False)
class Job:
    """Windows of one request that go through one function, and the future that gives all their results."""

    key: BatchKey
    run: Callable[[list[Any]], Sequence[Any]]
    items: Sequence[Any]
    costs: Sequence[Cost]
    exclusive_key: int | None
    """Passes with the same one do not overlap; None: any number of passes."""
    model: str
    next_item: int = 0
    """The place of the first window that is in no pass yet."""
    results: dict[int, Any] = field(default_factory=dict)
    future: Future[list[Any]] = field(default_factory=Future)
    tokens: int = 0

    def __post_init__(self) -> None:
        self.tokens = sum({part: tokens for cost in self.costs for part, tokens in cost.items()}.values())

    @property
    def is_large(self) -> bool:
        return self.tokens > SMALL_TOKENS

    @property
    def lane(self) -> tuple[BatchKey, bool]:
        """What windows of one pass have in common: their engine, and whether their request is a large one."""
        return self.key, self.is_large

    @property
    def is_wanted(self) -> bool:
        """Whether the request still waits: it was neither cancelled nor answered, and its time is not up."""
        return not self.future.done()

    def finish(self, results: Mapping[int, Any]) -> None:
        """Take results of some windows, by their place; the last of them answer the request."""
        self.results.update(results)
        if len(self.results) == len(self.items):
            with suppress(InvalidStateError):  # not wanted since a moment ago
                self.future.set_result([self.results[i] for i in range(len(self.items))])

    def fail(self, fault: Exception) -> None:
        with suppress(InvalidStateError):
            self.future.set_exception(fault)


@dataclass(slots=True, eq=False)
class Pass:
    """Windows of one lane that a worker has the engine score together."""

    windows: list[tuple[Job, int]]
    began: float = field(default_factory=lambda: time.monotonic())

    @property
    def jobs(self) -> list[Job]:
        return list(dict.fromkeys(job for job, _ in self.windows))

    @property
    def is_wanted(self) -> bool:
        return any(job.is_wanted for job, _ in self.windows)

    def score(self) -> list[Any]:
        first, _ = self.windows[0]
        results = list(first.run([job.items[i] for job, i in self.windows]))
        if len(results) != len(self.windows):
            raise RuntimeError(f"{len(self.windows)} windows were given and {len(results)} results came back")
        return results

    def split(self) -> list[Pass]:
        """A pass for each of the jobs alone."""
        return [Pass([(owner, i) for owner, i in self.windows if owner is job]) for job in self.jobs]


class _CurrentPass(threading.local):
    value: Pass | None = None


current_pass = _CurrentPass()
"""Of each worker: the pass that it scores."""


def check_wanted(*_: object) -> None:
    """Raise where nobody waits for the calling worker's pass; local models call it before each of their layers."""
    if current_pass.value is not None and not current_pass.value.is_wanted:
        raise Abandoned


# -- requests that were let in, and the workers


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
        """The client has gone: nothing of this request is wanted any more."""
        self.cancelled = True
        if self.job is not None:
            self.job.future.cancel()

    def check(self) -> None:
        """Raise where nobody waits for the answer any more: before work that goes through no pass."""
        if self.cancelled:
            raise ClientDisconnected
        if time.monotonic() >= self.deadline:
            raise TimedOut


class Batcher:
    def __init__(self, limits: Limits, on_batch: Callable[[int, int, float], None] = lambda windows, requests, seconds: None):
        self.limits, self.on_batch = limits, on_batch
        self.in_flight = 0
        """Requests that were let in and are not answered yet."""
        self.tokens = 0
        """Of the windows that wait or run."""
        self.free = 0
        """Workers that are idle, without the one for small requests."""
        self._reserved: Counter[str] = Counter()
        """Windows of the requests in flight, by model."""
        self._rates: dict[str, float] = {}
        """Windows per second of one worker, by model, smoothed over passes."""
        self.jobs: list[Job] = []
        """With windows that no worker has taken yet, in the order of their turns."""
        self._passes: list[Pass] = []
        """Those that run."""
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
    def alive(self) -> bool:
        return all(worker.is_alive() for worker in self._workers) and not self._closing

    @property
    def ages(self) -> list[float]:
        """Seconds that each pass has run."""
        with self._changed:
            return [time.monotonic() - each.began for each in self._passes]

    @property
    def is_stuck(self) -> bool:
        """Whether passes that outlived every request in them keep windows of some model from being scored."""
        with self._changed:
            latest = time.monotonic() - self.limits.seconds
            keys = [each.windows[0][0].exclusive_key for each in self._passes if each.began < latest]
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
        if admission.cancelled:
            raise ClientDisconnected
        admission.job = job = Job(key, run, items, costs or [{}] * len(items), exclusive_key, admission.model)
        with self._changed:
            begins_beside_others = self.tokens and not admission.windows
            if begins_beside_others and self.tokens + job.tokens > QUEUE_PASSES * self.limits.window_tokens:
                raise Busy(self.retry_after())
            self.tokens += job.tokens
            self.jobs.append(job)
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
        while current := self._next_pass(only_small):
            self._run(current)
            with self._changed:
                self._passes.remove(current)
                self._changed.notify_all()

    def _next_pass(self, only_small: bool) -> Pass | None:
        """Wait for the next pass of the calling worker; None where the server is closing and the last request is answered."""
        with self._changed:
            self.free += not only_small
            while not (windows := self._take_windows(only_small)) and (self.in_flight or not self._closing):
                self._changed.wait()
            self.free -= not only_small
            if not windows:
                return None
            self._passes.append(Pass(windows))
            self._changed.notify_all()  # this may have been the last idle worker
            return self._passes[-1]

    def _take_windows(self, only_small: bool) -> list[tuple[Job, int]]:
        """One window of each request in turn, of one lane, until this worker's share or the pass is full."""
        running = [each.windows[0][0] for each in self._passes]
        if only_small and (self.free or not any(job.is_large for job in running)):
            return []
        self.jobs = [job for job in self.jobs if job.is_wanted]
        busy_keys = {job.exclusive_key for job in running} - {None}
        ready = [job for job in self.jobs if job.exclusive_key not in busy_keys and not (only_small and job.is_large)]
        turns = deque(job for job in ready if job.lane == ready[0].lane)
        others = [job for job in self.jobs if job not in turns]
        waiting = sum(len(job.items) - job.next_item for job in turns)
        share = waiting if ready and ready[0].exclusive_key is not None else -(-waiting // max(1, self.free))
        windows, parts = list[tuple[Job, int]](), dict[int, int]()
        while turns and len(windows) < min(share, self.limits.batch_windows):
            job = turns[0]
            parts |= job.costs[job.next_item]
            if windows and sum(parts.values()) > self.limits.window_tokens:
                break
            windows.append((turns.popleft(), job.next_item))
            job.next_item += 1
            if job.next_item < len(job.items):
                turns.append(job)
        self.jobs = others + list(turns)  # another lane's turn comes first in the next pass
        return windows

    def _run(self, current: Pass) -> None:
        current_pass.value = current
        jobs, began = current.jobs, time.monotonic()
        try:
            results = current.score()
        except Abandoned:
            return
        except Exception as fault:
            if len(jobs) == 1:
                jobs[0].fail(fault)
                return
            for alone in current.split():  # one request's fault is not the others'
                self._run(alone)
            return
        seconds = time.monotonic() - began
        self.on_batch(len(results), len(jobs), seconds)
        with self._changed:  # a request's windows may be in two passes
            rate, model = len(results) / max(seconds, 1e-6), jobs[0].model
            self._rates[model] = 0.8 * self._rates.get(model, rate) + 0.2 * rate
            for (job, i), result in zip(current.windows, results, strict=True):
                job.finish({i: result})

    def close(self, seconds: float = 30.0) -> bool:
        """Finish the requests that were let in, refuse others, end the workers; whether all of them ended in time."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
        return not any(worker.is_alive() for worker in self._workers)


# -- for one request: what the scorer takes for the backend


def batched_backend(backend: B, batcher: Batcher, admission: Admission) -> B:
    """A copy of a backend whose windows the batcher's workers score; a window of a reranker is a query and its texts."""
    most = batcher.limits.window_tokens

    def queue(run: Callable[[list[T]], Sequence[R]], windows: Sequence[T], label_mass: bool = False) -> list[R]:
        costs = [cost_of(window) for window in windows]
        sizes = [sum(cost.values()) for cost in costs]
        if max(sizes, default=0) > most:
            raise InputError(
                f"a window of this request has {max(sizes):,} tokens, the server takes {most:,}. "
                "Send fewer or shorter documents, or ask for fewer in a window (`width`)."
            )
        admission.tokens += sum(sizes)
        return batcher.call(admission, (id(backend), label_mass), run, windows, backend.exclusive_key, costs)

    def grade_logits(prompts: Sequence[Any], *, label_mass: bool = False) -> list[SlotLogits]:
        assert isinstance(backend, Grader)
        return queue(partial(backend.grade_logits, label_mass=label_mass), prompts, label_mass)

    def score_pools(pools: Sequence[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        assert isinstance(backend, Reranker)
        return queue(backend.score_pools, pools)

    batched: Any = copy(backend)
    if isinstance(backend, Grader):
        batched.grade_logits = grade_logits
    else:
        batched.score_pools = score_pools
        batched.score = lambda query, texts: score_pools([(query, texts)])[0]
    return cast(B, batched)
