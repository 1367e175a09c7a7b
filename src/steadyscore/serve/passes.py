"""Windows that wait and windows that are scored together: what they cost, and whether anybody wants them.

Windows are wanted as long as their request waits for them. What is not wanted any more leaves the queue, a pass in which nothing
is wanted is abandoned at the next layer of its model, and its results go nowhere.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ..terms import Prompt

BatchKey = tuple[int, bool]
"""Which backend, and whether the label mass is read: windows with the same key may share a call."""
Cost = Mapping[int, int]
"""Tokens of a window, by the hash of what is read: what windows of a pass have in common is read once."""
SMALL_TOKENS = 1024
"""A request of at most so many tokens at a time is a small one."""


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
