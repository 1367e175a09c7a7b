"""What the two request shapes share: writing a request, reading its answers, and naming every question without a usable one.

`system_one.py` and `openai_shape.py` each hold one `Shape`, which says how theirs differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from ..machine.names import shorten
from ..terms import JsonObject
from .questions import Answer, Choice, Kind, Noul, Question, Refusal, Request, Response, Usage

SLACK = 1e-2
"""How far probabilities may be from their sum: servers round them."""


class UnusableAnswer(ValueError):
    """An answer of a decision model that does not answer what was asked; every question without one is named."""


class Given(NamedTuple):
    """What a server answered to one question."""

    answer: object
    """None where there is none."""
    diagnostics: JsonObject = MappingProxyType({})


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
    unwrap: Callable[[Sequence[Question], JsonObject], Sequence[Given]]
    """What was answered to each question."""
    read_outcomes: Callable[[Question, JsonObject], Mapping[str | bool | int, object]]
    """The probability of each outcome of an answer, in the order of the question's own; empty where only that of yes is told."""

    def write_request(self, request: Request) -> dict[str, object]:
        written = [
            {"type": self.kinds[question.kind], "instructions": question.instructions, **self.write_question(question)}
            for question in request.questions
        ]
        return {"model": request.model, **self.wrap(request, written)}

    def read_answers(self, questions: Sequence[Question], body: object) -> Response:
        """The answers to these questions; `UnusableAnswer` where one is missing or is not a distribution over its outcomes."""
        whole = body if isinstance(body, dict) else {}
        answers: list[Answer | Refusal] = []
        mistakes: list[str] = []
        for number, (question, given) in enumerate(zip(questions, self.unwrap(questions, whole), strict=True), 1):
            what = f"question {question.id or number}"
            if given.answer is None:
                mistakes.append(f"{what} was not answered")
                continue
            try:
                answers.append(self._read_answer(question, given))
            except UnusableAnswer as odd:
                mistakes.append(f"{what}: {odd}")
        if mistakes:
            raise UnusableAnswer("; ".join(mistakes))
        model = whole.get("model")
        return Response(model if isinstance(model, str) else "", tuple(answers), read_usage(whole.get("usage")))

    def _read_answer(self, question: Question, given: Given) -> Answer | Refusal:
        answer, kind = given.answer, self.kinds[question.kind]
        if not isinstance(answer, dict):
            raise UnusableAnswer("the answer is not an object")
        if answer.get("type") == "refusal":
            return Refusal()
        if answer.get("type") != kind:
            raise UnusableAnswer(f"it is a {kind}, its answer a {answer.get('type')!r}")
        outcomes = self.read_outcomes(question, answer)
        if outcomes:
            read = _read_decided(question, answer.get(question.kind), outcomes)
        else:
            yes = _read_probability(answer.get(self.yes), self.yes)
            read = Answer((yes, 1 - yes))
        mass, is_label = given.diagnostics.get("label_mass"), given.diagnostics.get("argmax_is_label")
        return replace(
            read,
            label_mass=None if mass is None else _read_probability(mass, "label_mass"),
            argmax_is_label=is_label if isinstance(is_label, bool) else None,
        )


def other_outcomes(names: Sequence[object]) -> UnusableAnswer:
    """For an answer whose probabilities are those of other outcomes than these."""
    return UnusableAnswer(f"the probabilities are not those of {', '.join(map(str, names))}")


def _read_decided(question: Question, stated: object, outcomes: Mapping[str | bool | int, object]) -> Answer:
    """The probabilities of an answer, with what the server itself reads off them: its option, or a score that must be theirs."""
    probabilities = tuple(_read_probability(value, "a probability") for value in outcomes.values())
    if abs(math.fsum(probabilities) - 1) > SLACK:
        raise UnusableAnswer(f"the probabilities sum to {math.fsum(probabilities):.4g}, not to 1")
    answer = Answer(probabilities)
    if stated is None:
        return answer
    if isinstance(question, Choice):
        place = next((i for i, name in enumerate(outcomes) if name == stated and type(name) is type(stated)), None)
        if place is None:
            raise UnusableAnswer(f"the choice {_short(stated)} is not among the options")
        return answer if place == answer.best else replace(answer, named=place)
    own = probabilities[0] if isinstance(question, Noul) else answer.expected_level
    slack = 10 * SLACK * (len(probabilities) - 1)
    if not isinstance(stated, int | float) or not own - slack <= stated <= own + slack:
        raise UnusableAnswer(f"the {question.kind} is {_short(stated)}, and its probabilities make it {own:.4g}")
    return answer


def _read_probability(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -SLACK <= value <= 1 + SLACK:
        raise UnusableAnswer(f"{what} is {_short(value)}, not a probability")
    return min(max(float(value), 0.0), 1.0)


def read_usage(usage: object) -> Usage:
    """Token counts; a server need not give them, and what it gives may be anything."""
    given = usage if isinstance(usage, dict) else {}
    details = given.get("input_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(_count(given.get("input_tokens")), _count(cached), _count(given.get("output_tokens")))


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _short(value: object) -> str:
    return shorten(repr(value), 40, "...")
