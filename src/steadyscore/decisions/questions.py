"""What a decision model is asked and what it answers, as frozen values: a state, typed questions, a probability per answer.

Nothing here knows a server. `system_one.py` and `openai_shape.py` write these values into the two shapes that servers take and
read them back. Answers stand in the order of their questions, and the probabilities of an answer in the order of the
question's own outcomes: yes and no, the options, or the levels.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

Kind = Literal["noul", "choice", "score"]

MOST_OPTIONS, MOST_LEVELS = 26, 10
"""What a local model labels: one letter for each option, one digit for each level."""
SLACK = 1e-2
"""How far probabilities may be from their sum: servers round them."""


class UnusableAnswer(ValueError):
    """An answer of a decision model that does not answer what was asked; every mistake in it is named."""

    def __init__(self, mistakes: Sequence[str]):
        self.mistakes = list(mistakes)
        super().__init__("; ".join(self.mistakes))


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
        """The value where only a text can stand."""
        return self.value if isinstance(self.value, str) else str(self.value).lower()


@dataclass(frozen=True, slots=True)
class Level:
    """One level of a score; levels ascend."""

    label: str
    description: str | None = None

    @property
    def name(self) -> str:
        """Label and description where only one text can stand."""
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
    """A probability for every outcome of a question."""

    probabilities: tuple[float, ...]
    label_mass: float | None = None
    """Probability that lay on the labels of the outcomes before renormalisation, where the server tells it."""
    argmax_is_label: bool | None = None
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """A question that the model declines to answer."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request cost in tokens."""

    input_tokens: int = 0
    """All that were read, from a cache or not."""
    cached_tokens: int = 0
    """Those of them that came from the server's cache."""
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Response:
    """The answers to a request, in the order of its questions."""

    model: str
    answers: tuple[Answer | Refusal, ...]
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a server takes."""

    questions: int
    options: int
    levels: int


# -- answers of either shape


def read_probability(value: Any, what: str, mistakes: list[str]) -> float:
    """A probability, or NaN and a mistake."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not -SLACK <= value <= 1 + SLACK:
        mistakes.append(f"{what} is {_short(value)}, not a probability")
        return math.nan
    return min(max(float(value), 0.0), 1.0)


def read_distribution(values: Sequence[Any], what: str, mistakes: list[str]) -> tuple[float, ...]:
    """Probabilities of all outcomes of a question; what does not sum to 1 is a mistake."""
    before = len(mistakes)
    found = tuple(read_probability(value, f"{what}: a probability", mistakes) for value in values)
    if len(mistakes) == before and abs(math.fsum(found) - 1) > SLACK:
        mistakes.append(f"{what}: the probabilities sum to {math.fsum(found):.4g}, not to 1")
    return found


def read_decided(
    question: Question, given: dict[str, Any], names: Sequence[Any], values: Sequence[Any], what: str, mistakes: list[str]
) -> Answer:
    """The probabilities of an answer, with what the server itself reads off them: its option, or a score that must be theirs."""
    before = len(mistakes)
    answer = Answer(read_distribution(values, what, mistakes))
    if len(mistakes) > before or given.get(question.kind) is None:
        return answer
    stated = given[question.kind]
    if isinstance(question, Choice):
        place = next((i for i, name in enumerate(names) if name == stated and type(name) is type(stated)), None)
        if place is None:
            mistakes.append(f"{what}: the choice {_short(stated)} is not among the options")
        return answer if place == answer.best else replace(answer, named=place)
    own = answer.probabilities[0] if isinstance(question, Noul) else answer.expected_level
    slack = 10 * SLACK * (len(values) - 1)
    if not isinstance(stated, int | float) or not own - slack <= stated <= own + slack:
        mistakes.append(f"{what}: the {question.kind} is {_short(stated)}, and its probabilities make it {own:.4g}")
    return answer


def read_answer(
    question: Question,
    given: Any,
    kind: str,
    yes: str,
    names: Sequence[Any],
    values_of: Callable[[dict[str, Any]], Sequence[Any] | None],
    what: str,
    mistakes: list[str],
) -> Answer | Refusal:
    """One answer; `kind` is its shape's word for the question's kind, `yes` the field for the probability of yes.

    `values_of` takes the probabilities of the outcomes out of it, in the order of their names: none where only that of yes is
    told, None where they are those of other outcomes.
    """
    if not isinstance(given, dict):
        mistakes.append(f"{what}: the answer is not an object")
        return Refusal()
    if given.get("type") == "refusal":
        return Refusal()
    if given.get("type") != kind:
        mistakes.append(f"{what} is a {kind}, its answer a {given.get('type')!r}")
        return Refusal()
    values = values_of(given)
    if values is None:
        mistakes.append(f"{what}: the probabilities are not those of {', '.join(map(str, names))}")
        return Refusal()
    if not values:
        probability = read_probability(given.get(yes), f"{what}: {yes}", mistakes)
        return Answer((probability, 1 - probability))
    return read_decided(question, given, names, values, what, mistakes)


def response_of(body: dict[str, Any], answers: Sequence[Answer | Refusal], mistakes: Sequence[str]) -> Response:
    """The answers with the model's name and what was used, or every mistake in them."""
    if mistakes:
        raise UnusableAnswer(mistakes)
    model = body.get("model")
    return Response(model if isinstance(model, str) else "", tuple(answers), read_usage(body.get("usage")))


def read_usage(usage: Any) -> Usage:
    """Token counts; a server need not give them, and what it gives may be anything."""
    given = usage if isinstance(usage, dict) else {}
    details = given.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(_count(given.get("input_tokens")), _count(cached), _count(given.get("output_tokens")))


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
