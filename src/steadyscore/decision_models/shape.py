"""What the two request shapes share: requests written, answers read with every question without a usable one named, and `order`.

`system_one.py` and `openai_shape.py` each hold one `Shape`, which says how theirs differs. `order` is our one extra key of a
request to them and of its answer: how the list in a state is presented, and how the answers moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from ..engines.answers import SLACK, Malformed, as_object, token_counts
from ..machine.names import shorten
from ..machine.schemas import Closed, Count, Real, Seed, check_characters
from ..terms import JsonObject
from .questions import Answer, Choice, Kind, Noul, Question, Request, place_among


@dataclass(frozen=True, slots=True)
class Shape:
    """A request shape: where its requests go, its words for what all shapes have, and how requests and answers are laid out."""

    path: str
    """Behind a base address that ends in /v1."""
    key: str
    """The environment variable that may hold the key of its best known provider."""
    kinds: Mapping[Kind, str]
    """Its word for each kind of question."""
    most_questions: int
    """In one request that every known server takes."""
    yes: str
    """The field for the probability of yes."""
    write_question: Callable[[Question], JsonObject]
    """A question without its kind and its name."""
    wrap: Callable[[Request, Sequence[JsonObject]], JsonObject]
    """The request around its written questions."""
    unwrap: Callable[[Sequence[Question], JsonObject], Sequence[object]]
    """What was answered to each question, with the `label_mass` where a server tells it; None where there is no answer."""
    read_outcomes: Callable[[Question, JsonObject], Sequence[object]]
    """What an answer gives as the probability of each outcome of the question, in its order; none where only yes is told."""

    def write_request(self, request: Request) -> dict[str, object]:
        written = [
            {"type": self.kinds[question.kind], "instructions": question.instructions, **self.write_question(question)}
            for question in request.questions
        ]
        return {"model": request.model, **self.wrap(request, written)}

    def read_answers(self, questions: Sequence[Question], body: object) -> list[Answer | None]:
        """The answers to these questions; `Malformed` where one is missing or is not a distribution over its outcomes."""
        answers: list[Answer | None] = []
        mistakes: list[str] = []
        for number, (question, answer) in enumerate(zip(questions, self.unwrap(questions, as_object(body)), strict=True), 1):
            what = f"question {question.id or number}"
            if answer is None:
                mistakes.append(f"{what} was not answered")
                continue
            try:
                answers.append(self._read_answer(question, answer))
            except Malformed as odd:
                mistakes.append(f"{what}: {odd}")
        if mistakes:
            raise Malformed("; ".join(mistakes))
        return answers

    def _read_answer(self, question: Question, answer: object) -> Answer | None:
        kind = self.kinds[question.kind]
        if not isinstance(answer, dict):
            raise Malformed("the answer is not an object")
        if answer.get("type") == "refusal":
            return None
        if answer.get("type") != kind:
            raise Malformed(f"it is a {kind}, its answer a {answer.get('type')!r}")
        if outcomes := self.read_outcomes(question, answer):
            read = _read_decided(question, answer.get(question.kind), outcomes)
        else:
            yes = _read_probability(answer.get(self.yes), self.yes)
            read = Answer((yes, 1 - yes))
        mass = answer.get("label_mass")
        return read if mass is None else replace(read, label_mass=_read_probability(mass, "label_mass"))


def other_outcomes(names: Sequence[object]) -> Malformed:
    """For an answer whose probabilities are those of other outcomes than these."""
    return Malformed(f"the probabilities are not those of {', '.join(map(str, names))}")


def _read_decided(question: Question, stated: object, outcomes: Sequence[object]) -> Answer:
    """The probabilities of an answer, with what the server itself reads off them: its option, or a score that must be theirs."""
    probabilities = tuple(_read_probability(value, "a probability") for value in outcomes)
    if abs(math.fsum(probabilities) - 1) > SLACK:
        raise Malformed(f"the probabilities sum to {math.fsum(probabilities):.4g}, not to 1")
    answer = Answer(probabilities)
    if stated is None:
        return answer
    if isinstance(question, Choice):
        place = place_among(stated, [option.value for option in question.options])
        if place is None:
            raise Malformed(f"the choice {_short(stated)} is not among the options")
        return answer if place == answer.best else replace(answer, named=place)
    own = probabilities[0] if isinstance(question, Noul) else answer.expected_level
    slack = 10 * SLACK * (len(probabilities) - 1)
    if not isinstance(stated, int | float) or not own - slack <= stated <= own + slack:
        raise Malformed(f"the {question.kind} is {_short(stated)}, and its probabilities make it {own:.4g}")
    return answer


def _read_probability(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -SLACK <= value <= 1 + SLACK:
        raise Malformed(f"{what} is {_short(value)}, not a probability")
    return min(max(float(value), 0.0), 1.0)


def _short(value: object) -> str:
    return shorten(repr(value), 40, "...")


def usage_of(body: object) -> dict[str, int]:
    """The tokens that an answer says it took, all that were read and those of them that came from the server's cache.

    A server need not give them, and what it gives may be anything.
    """
    usage = as_object(as_object(body).get("usage"))
    cached = as_object(usage.get("input_tokens_details")).get("cached_tokens")
    return token_counts(prompt=usage.get("input_tokens"), cached_prompt=cached, completion=usage.get("output_tokens"))


# -- our one extra key


PATH = r"^\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\]|\['[^']*'\])*$"
Path = Annotated[str, Field(pattern=PATH, examples=["$.candidates"]), AfterValidator(check_characters)]
Readout = Literal["state", "alone", "window"]


class DecisionOrder(Closed):
    """Our one extra key of a request: how the list in the state is presented, and what to tell about it."""

    readout: Readout = Field(
        default="state",
        description="state: every question behind the whole state. alone: each question behind a state that holds only the "
        "member it names, so no order is left. window: `score` questions of four levels by the model's own shared window.",
    )
    pool: Path = Field(default="$.candidates", description="Where the state holds the list that may be reordered.")
    query: Path = Field(default="$.query", description="Where the state holds the query, for the window.")
    permutations: Count = Field(default=1, description="1: the order given. More: the mean over this many random orders.")
    seed: Seed = 0
    width: Count | None = Field(default=None, description="Documents per prompt, for the window.")
    threshold: Real | None = Field(default=None, description="Also say which `score` answers reach this level.")


class QuestionStability(BaseModel):
    """How one answer moved over the presentations."""

    agreement: float = Field(
        description="Share of presentations that decide as their mean does: the likelier side, the option, the likeliest level; "
        "with a threshold, whether the score reaches it."
    )
    sd: float | None = Field(default=None, description="Standard deviation of the score or the probability.")
    kept: bool | None = Field(default=None, description="Whether the score reaches the threshold.")
    label_mass: float | None = None


class DecisionOrderAnswer(BaseModel):
    """Our one extra key of an answer; present where the request has `order`."""

    readout: Readout
    permutations: int = Field(description="Presentations behind each answer.")
    order_free: bool = Field(description="Whether the order of the list cannot change an answer by construction.")
    questions: list[QuestionStability] = Field(description="In the order of the questions.")
