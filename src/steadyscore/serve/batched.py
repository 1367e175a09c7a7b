"""Backends of one request: the same as the backend they wrap, but the batcher's workers score the windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from ..engines import Engine, Grader, Reranker
from ..models.card import TrainedSettings
from ..terms import Prompt
from ..window.readout import SlotLogits
from .batcher import Admission, Batcher

B = TypeVar("B", bound=Grader | Reranker)
T = TypeVar("T")
R = TypeVar("R")


def batched_backend(backend: Grader | Reranker, batcher: Batcher, admission: Admission) -> Grader | Reranker:
    """What the scorer of an admitted request takes for the backend."""
    if isinstance(backend, Engine):
        return BatchedEngine(backend, batcher, admission)
    if isinstance(backend, Grader):
        return BatchedGrader(backend, batcher, admission)
    return BatchedReranker(backend, batcher, admission)


class Batched(Generic[B]):
    """What all of them have of the backend, and how they queue windows for it."""

    def __init__(self, backend: B, batcher: Batcher, admission: Admission):
        self._backend, self._batcher, self._admission = backend, batcher, admission
        self.name, self.capabilities = backend.name, backend.capabilities
        self.width: int | None = backend.width
        self.takes_whole_text = backend.takes_whole_text
        self.trained_settings: TrainedSettings = backend.trained_settings

    def identity(self) -> dict[str, Any]:
        return self._backend.identity()

    def _queue(self, run: Callable[[list[T]], Sequence[R]], items: Sequence[T], label_mass: bool = False) -> list[R]:
        key = (id(self._backend), label_mass)
        return self._batcher.call(self._admission, key, run, items, self._backend.exclusive_key)


class BatchedGrader(Batched[Grader], Grader):
    """A grader of text."""

    def grade_logits(self, prompts: Sequence[Any], *, label_mass: bool = False) -> list[SlotLogits]:
        self._admission.tokens += sum(len(prompt) for prompt in prompts if isinstance(prompt, Prompt))
        return self._queue(partial(self._backend.grade_logits, label_mass=label_mass), prompts, label_mass)


class BatchedEngine(BatchedGrader, Engine):
    """A grader of token ids, with the encoder that makes its prompts."""

    def __init__(self, backend: Engine, batcher: Batcher, admission: Admission):
        super().__init__(backend, batcher, admission)
        self.encoder, self.context = backend.encoder, backend.context


class BatchedReranker(Batched[Reranker], Reranker):
    """A reranker; a window is a query and its texts."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        [scores] = self._queue(self._score_all, [(query, texts)])
        return scores

    def _score_all(self, windows: list[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        return [self._backend.score(query, texts) for query, texts in windows]
