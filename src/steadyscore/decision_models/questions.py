"""What a decision model is asked and what it answers, as frozen values: a state, typed questions, a probability per answer.

Nothing here knows a server. `system_one.py` and `openai_shape.py` write these values into the two shapes that servers take and
read them back. Answers are in the order of their questions, and the probabilities of an answer in the order of the
question's own outcomes: yes and no, the options, or the levels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Kind = Literal["noul", "choice", "score"]

MOST_OPTIONS, MOST_LEVELS = 26, 10
"""What a local model labels: one letter for each option, one digit for each level."""


@dataclass(frozen=True, slots=True)
class State:
    """What the questions are about: a text, or any JSON value."""

    content: Any
    instructions: str | None = None
    """What holds for every question."""

    @property
    def text(self) -> str:
        """The state for whoever takes only text."""
        shown = self.content if isinstance(self.content, str) else json.dumps(self.content, ensure_ascii=False, indent=2)
        return f"{self.instructions}\n\n{shown}" if self.instructions else shown


@dataclass(frozen=True, slots=True)
class Option:
    """One answer of a choice."""

    value: str | bool
    description: str | None = None

    @property
    def name(self) -> str:
        """The value, which must be a text."""
        return self.value if isinstance(self.value, str) else str(self.value).lower()


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a score; levels ascend."""

    label: str
    description: str | None = None

    @property
    def name(self) -> str:
        """Label and description as one text."""
        return f"{self.label}: {self.description}" if self.description else self.label


@dataclass(frozen=True, slots=True)
class Noul:
    """Yes or no."""

    instructions: str
    id: str | None = None
    """None: a question without a name, which only `/v1/decisions` takes."""
    yes: str | None = None
    """When the answer is yes."""
    no: str | None = None
    kind: ClassVar[Kind] = "noul"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return ("yes", "no")

    @property
    def text(self) -> str:
        """The question with its criteria, where these have no field of their own."""
        criteria = [f"{answer} = {meaning}" for answer, meaning in (("Yes", self.yes), ("No", self.no)) if meaning is not None]
        return "\n".join([self.instructions, *criteria])


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several options, in no order of their own."""

    instructions: str
    options: tuple[Option, ...]
    id: str | None = None
    kind: ClassVar[Kind] = "choice"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return tuple(option.name for option in self.options)


@dataclass(frozen=True, slots=True)
class Score:
    """A place on ordered levels; the expected level is the score."""

    instructions: str
    levels: tuple[Level, ...]
    id: str | None = None
    kind: ClassVar[Kind] = "score"

    @property
    def outcomes(self) -> tuple[str, ...]:
        return tuple(level.name for level in self.levels)


Question = Noul | Choice | Score


@dataclass(frozen=True, slots=True)
class Request:
    """Questions to one model about one state."""

    model: str
    state: State
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """A probability for every outcome of a question; None stands for one that the model declines to answer."""

    probabilities: tuple[float, ...]
    label_mass: float | None = None
    """Probability that lay on the labels of the outcomes before renormalisation, where the server tells it."""
    named: int | None = None
    """The option that the server names, where that is not the first of the likeliest."""

    @property
    def best(self) -> int:
        """The outcome that is decided: the server's own, or the first of the likeliest."""
        return self.probabilities.index(max(self.probabilities)) if self.named is None else self.named

    @property
    def expected_level(self) -> float:
        """The score: Σ level · P(level), from 0."""
        return math.fsum(level * p for level, p in enumerate(self.probabilities))

    @property
    def confidence(self) -> float:
        return max(self.probabilities)


def place_among(value: object, names: Sequence[object]) -> int | None:
    """The place of the name that a value is; True equals 1 in Python, so the type must be the same too."""
    return next((place for place, name in enumerate(names) if type(name) is type(value) and name == value), None)
