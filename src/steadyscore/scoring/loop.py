"""The one loop of everything that is scored: runs, workers' shares, noise reads, perturbations, what readers write, labels.

A task is what is asked about one query. An endpoint is asked about several queries at a time, each on a thread of its own, so
that it always has as many requests under way as it may; all else is asked about one after the other. What tasks give is kept on
the calling thread, in the order in which they end: a kill costs what was under way, and what needs another order brings it there.
A task that fails is named and left out, a mistake that the user can fix ends the loop, and a stop waits a moment.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from operator import itemgetter
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from ..engines import Backend
from ..errors import SteadyscoreError
from ..machine.console import one_line
from ..machine.credentials import redact
from ..machine.process import PATIENCE, finishing
from ..terms import Failure, Instance

if TYPE_CHECKING:
    from ..engines.http import Endpoint

Progress = Callable[[Iterable[Instance], int | None], Iterable[Instance]]
"""Instances as their tasks end, and how many there will be -> the same instances, with progress shown to the user."""


class QueryTask(NamedTuple):
    """What is asked about one query."""

    instance: Instance
    do: Callable[[], Any]
    """Gives the result; changes nothing that other tasks see."""
    windows: int = 1
    """About how many requests it is."""


Result = Callable[[], Any]
"""Gives the result of a task or raises what it failed of."""


class Loop:
    """Tasks at work: iterated as instances, for a progress bar, each when its task has ended."""

    def __init__(
        self,
        tasks: Iterable[QueryTask | None],
        keep: Callable[[Instance, Any], None],
        endpoint: Endpoint | None,
        write: Callable[[], object],
        is_enough: Callable[[Instance, Any], bool],
    ):
        self._tasks, self._keep, self._endpoint = enumerate(tasks), keep, endpoint
        self._write, self._is_enough = write, is_enough
        self._failures: list[tuple[int, Failure]] = []
        self._under_way: dict[int, tuple[threading.Thread, QueryTask]] = {}
        self._ended: SimpleQueue[tuple[int, Result]] = SimpleQueue()
        self._is_waiting = False
        """Whether no task may begin until those before it have ended."""
        self._is_over = False

    @property
    def failures(self) -> list[Failure]:
        """What failed, in the order of the tasks."""
        return [failure for _, failure in sorted(self._failures, key=itemgetter(0))]

    def about(self) -> str:
        """What progress says beside the count."""
        return f"{self._endpoint.limit.under_way:,} requests under way" if self._endpoint and self._under_way else ""

    def __iter__(self) -> Iterator[Instance]:
        return self._iterate_side_by_side() if self._endpoint and self._endpoint.limit.most > 1 else self._iterate()

    def _iterate(self) -> Iterator[Instance]:
        """One after the other."""
        for number, task in self._tasks:
            if task is not None:
                with finishing(f"query {task.instance.id}"):
                    self._end(number, task, task.do)
                    self._write()
                yield task.instance
            if self._is_over:
                return

    def _end(self, number: int, task: QueryTask, result: Result) -> None:
        failed: list[Failure] = []
        kept = None
        with naming_failures(failed, task.instance.id):
            try:
                given = result()
                self._keep(task.instance, given)
                kept = given
            finally:
                del result  # a failure refers to this frame, and would keep itself and the endpoint alive
        self._failures += [(number, failure) for failure in failed]
        self._is_over = self._is_enough(task.instance, kept) or self._is_over

    def _iterate_side_by_side(self) -> Iterator[Instance]:
        """Several at a time."""
        assert self._endpoint is not None
        try:
            while self._begin_more():
                with finishing("what is under way") as stops:
                    ended = [self._end_next()]
                    while not self._ended.empty() or (stops and self._under_way):
                        ended.append(self._end_next())
                    if not stops:
                        self._begin_more()  # the endpoint is busy while this is written
                    self._write()
                yield from ended
        except BaseException:  # a mistake, or a stop: what ends within a moment is kept
            ends = time.monotonic() + PATIENCE
            with finishing("what is under way"), suppress(Empty):
                while self._under_way:
                    with suppress(SteadyscoreError):
                        self._end_next(max(0.0, ends - time.monotonic()))
            raise
        finally:
            self._endpoint.give_up([thread for thread, _ in self._under_way.values()])

    def _begin_more(self) -> bool:
        """Begin tasks until the endpoint is busy for as long as the first of them lasts; whether any is under way."""
        assert self._endpoint is not None
        while not self._is_over and not (self._is_waiting and self._under_way):
            windows = [task.windows for _, task in self._under_way.values()]
            if sum(windows[1:]) >= self._endpoint.limit.most:
                break
            number, task = next(self._tasks, (-1, None))
            self._is_over, self._is_waiting = number < 0, task is None
            if task is not None:
                thread = threading.Thread(target=self._do, args=(number, task), name=f"query {task.instance.id}", daemon=True)
                self._under_way[number] = thread, task
                thread.start()
        return bool(self._under_way)

    def _do(self, number: int, task: QueryTask) -> None:
        future: Future[Any] = Future()
        try:
            future.set_result(task.do())
        except BaseException as fault:
            future.set_exception(fault)
        self._ended.put((number, future.result))
        del future  # as above

    def _end_next(self, seconds: float | None = None) -> Instance:
        number, result = self._ended.get(timeout=seconds)
        _, task = self._under_way.pop(number)
        self._end(number, task, result)
        return task.instance


def never_enough(instance: Instance, result: object) -> bool:
    return False


def run_tasks(
    tasks: Iterable[QueryTask | None],
    keep: Callable[[Instance, Any], None],
    backend: Backend,
    progress: Progress | None = None,
    total: int | None = None,
    *,
    write: Callable[[], object] = lambda: None,
    is_enough: Callable[[Instance, Any], bool] = never_enough,
) -> list[Failure]:
    """Begin tasks in their order and keep what each gives; gives those that failed.

    tasks      None among them: those before it end before the next one is asked for
    keep       takes the instance of a task and its result, on this thread
    backend    what the tasks ask
    total      how many tasks there are, for the progress
    write      called when what has ended by now is kept
    is_enough  asked after each task, with its result or None where it failed, whether to begin no more
    """
    loop = Loop(tasks, keep, backend.endpoint, write, is_enough)
    for _ in progress(loop, total) if progress else loop:
        pass
    return loop.failures


@contextmanager
def naming_failures(failed: list[Failure], query_id: str) -> Iterator[None]:
    """Somebody else's code may fail on a query: name it, count it, go on. A mistake that the user can fix goes through."""
    try:
        yield
    except SteadyscoreError:
        raise
    except Exception as fault:
        failed.append(Failure(query_id, one_line(redact(f"{type(fault).__name__}: {fault}"))))
