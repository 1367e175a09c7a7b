"""What a reader asks of an engine: to continue a prompt, and how likely each label is behind it (§F.3).

An engine with an encoder takes token ids, any other the messages of a chat: as a grader takes its windows.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from ..terms import Prompt
from . import Backend, Engine

Ids = Sequence[int]
Decoding = Literal["greedy", "likeliest"]
"""How a label is read: token by token among the labels' own (§F.3), or as the label of highest probability as a whole."""


class Generator(Backend):
    """A backend that can read."""

    context: int = 10**9
    """Tokens that a prompt and what is written may have together; of a backend that takes text, only its endpoint knows."""

    @abstractmethod
    def generate(self, prompts: Sequence[Any], most_tokens: int) -> list[str]:
        """The greedy continuation of each prompt."""

    @abstractmethod
    def label_log_probabilities(self, prompts: Sequence[Any], labels: Sequence[Any]) -> np.ndarray:
        """(P, L) log P(label | prompt). Where a chat model writes its label: 0 for that one, -inf for the others."""


class ReadingEngine(Engine, Generator):
    """An engine that can read: it takes token ids, and tells the label mass."""

    def label_log_probabilities(self, prompts: Sequence[Ids], labels: Sequence[Ids]) -> np.ndarray:
        """(P, L) Σ_t log P(token t of the label | prompt, its tokens before t).

        A label's token is read as a grade is, from the position before it: the mass of that one token is its probability.
        """
        asked = [[[token_prompt(ids, label, t) for t in range(len(label))] for label in labels] for ids in prompts]
        flat = [prompt for row in asked for tokens in row for prompt in tokens]
        masses = iter([np.asarray(reading.label_mass).item() for reading in self.grade_logits(flat, label_mass=True)])
        with np.errstate(divide="ignore"):
            return np.array([[sum(np.log(next(masses)) for _ in tokens) for tokens in row] for row in asked])


def greedy_labels(engine: Generator, prompts: Sequence[Ids], labels: Sequence[Ids]) -> list[int | None]:
    """The label that greedy decoding writes behind each prompt if it may write nothing else; None where none has a chance.

    At every token the likeliest of those that continue a label is taken. A model is asked only where labels part: labels with
    different first tokens cost one token each. No label may be the beginning of another.
    """
    chosen: list[int | None] = [None] * len(prompts)
    open_groups: list[tuple[list[int], list[int]]] = [(list(range(len(prompts))), list(range(len(labels))))]
    while open_groups:
        asked, left = open_groups.pop()
        if len(left) == 1:
            for prompt in asked:
                chosen[prompt] = left[0]
            continue
        together = _shared_tokens([labels[i] for i in left])
        branches: dict[tuple[int, ...], list[int]] = {}
        for i in left:
            branches.setdefault(tuple(labels[i][: together + 1]), []).append(i)
        read = engine.label_log_probabilities([prompts[i] for i in asked], list(branches))
        for row, members in enumerate(branches.values()):
            followers = [i for i, each in zip(asked, read, strict=True) if each.argmax() == row and each[row] > -np.inf]
            if followers:
                open_groups.append((followers, members))
    return chosen


def _shared_tokens(labels: Sequence[Ids]) -> int:
    """Tokens with which all labels begin."""
    return next(t for t in range(len(labels[0]) + 1) if len({tuple(label[: t + 1]) for label in labels}) > 1)


def token_prompt(ids: Ids, label: Ids, t: int) -> Prompt:
    """The prompt that reads token t of a label. Up to its last id the prompt is a prefix that all its labels share."""
    return Prompt(tuple(ids[:-1]), (ids[-1], *label[: t + 1]), (len(ids) - 1 + t,), (label[t],))


def prompts_behind(rows: Sequence[Ids], tokens: Sequence[tuple[int, ...]]) -> list[Prompt]:
    """A prompt per row that reads some tokens behind its last id. What all rows begin with is their prefix, computed once."""
    alike = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))
    shared = min(alike, min(map(len, rows)) - 1) if len(rows) > 1 else 0
    ids = [tuple(row) for row in rows]
    return [Prompt(row[:shared], row[shared:], (len(row) - 1,), read) for row, read in zip(ids, tokens, strict=True)]
