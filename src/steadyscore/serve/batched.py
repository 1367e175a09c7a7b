"""Backends of one request: the same as the backend they stand for, but the batcher's workers score the windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ..engines import Backend, Engine, Grader, Reranker
from ..errors import InputError
from ..terms import Prompt
from ..window.readout import SlotLogits
from .batcher import Admission, Batcher, Cost

T = TypeVar("T")
R = TypeVar("R")


def batched_backend(backend: Grader | Reranker, batcher: Batcher, admission: Admission) -> Grader | Reranker:
    """What the scorer of an admitted request takes for the backend."""
    kind = BatchedReranker if isinstance(backend, Reranker) else BatchedEngine if isinstance(backend, Engine) else BatchedGrader
    return kind(backend, batcher, admission)


def cost_of(window: Any) -> Cost:
    """Tokens that are read for a window on this machine; orders of one set are read as one."""
    if not isinstance(window, Prompt):
        return {}
    if window.segment:
        return {hash(replace(window, slots=())): len(window)}
    return {hash(window.prefix): len(window.prefix), hash(window): len(window.body)}


class Batched(Backend):
    """What all of them have of the backend, and how they queue windows for it."""

    def __init__(self, backend: Any, batcher: Batcher, admission: Admission):
        self._backend, self._batcher, self._admission = backend, batcher, admission
        self.name, self.capabilities, self.width = backend.name, backend.capabilities, backend.width
        self.trained_settings, self.encoder = backend.trained_settings, backend.encoder

    def identity(self) -> dict[str, Any]:
        return dict(self._backend.identity())

    def _queue(self, run: Callable[[list[T]], Sequence[R]], windows: Sequence[T], label_mass: bool = False) -> list[R]:
        costs = [cost_of(window) for window in windows]
        sizes, most = [sum(cost.values()) for cost in costs], self._batcher.limits.window_tokens
        if max(sizes, default=0) > most:
            raise InputError(
                f"a window of this request has {max(sizes):,} tokens, the server takes {most:,}. "
                "Send fewer or shorter documents, or ask for fewer in a window (`width`)."
            )
        self._admission.tokens += sum(sizes)
        backend = self._backend
        return self._batcher.call(self._admission, (id(backend), label_mass), run, windows, backend.exclusive_key, costs)


class BatchedGrader(Batched, Grader):
    """A grader of text."""

    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[SlotLogits]:
        return self._queue(partial(self._backend.grade_logits, label_mass=label_mass), prompts, label_mass)


class BatchedEngine(BatchedGrader, Engine):
    """A grader of token ids, with the encoder that makes its prompts."""

    def __init__(self, backend: Any, batcher: Batcher, admission: Admission):
        super().__init__(backend, batcher, admission)
        self.context = backend.context


class BatchedReranker(Batched, Reranker):
    """A reranker; a window is a query and its texts."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        [scores] = self._queue(self._score_all, [(query, texts)])
        return scores

    def _score_all(self, windows: list[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        return [self._backend.score(query, texts) for query, texts in windows]
