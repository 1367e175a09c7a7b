"""Shape B, `POST /v1/decisions`: a list of questions, answered in its order (OpenAI, SGLang, Fireworks and others).

Requests are read and answers written as they are declared here, requests written and answers read by the functions below, all
without HTTP. What this shape has no field for is written into the nearest text: a state that is neither a text nor a list of
messages as JSON, the criteria of a yes-or-no question behind its instructions. A field that nobody knows is ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictBool
from pydantic_core import PydanticCustomError

from ..machine.schemas import Closed, Words, check_json
from .order import DecisionOrder, DecisionOrderAnswer
from .questions import (
    MOST_LEVELS,
    MOST_OPTIONS,
    Answer,
    Choice,
    Level,
    Limits,
    Noul,
    Option,
    Question,
    Refusal,
    Request,
    Response,
    Score,
    State,
    UnusableAnswer,
    read_answer,
    response_of,
)

PATH = "/decisions"
"""Behind the base address, which ends in /v1."""
LIMITS = Limits(questions=400, options=255, levels=10)
"""What OpenAI takes."""
TYPES = {"noul": "predicate", "choice": "choice", "score": "score"}
"""This shape's word for each kind of question."""


# -- requests


class TextPart(BaseModel):
    type: Literal["input_text", "output_text", "text"]
    text: Words


class JsonPart(BaseModel):
    type: Literal["input_json"]
    data: Annotated[dict[str, Any] | Annotated[list[dict[str, Any]], Field(fail_fast=True)], AfterValidator(check_json)]


class Message(BaseModel):
    role: Literal["user", "assistant", "system", "developer"]
    content: Words | Annotated[list[TextPart | JsonPart], Field(min_length=1, fail_fast=True)]

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        parts = [part.text if isinstance(part, TextPart) else json.dumps(part.data, ensure_ascii=False) for part in self.content]
        return "\n".join(parts)


def refuse_twice(names: Sequence[str], what: str = "") -> None:
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise PydanticCustomError("twice", "{words} stands more than once", {"words": f"{what}{', '.join(twice)}"})


class NamedQuestion(Closed):
    name: Words | None = None
    instructions: Words


class PredicateQuestion(NamedQuestion):
    type: Literal["predicate"]

    def question(self) -> Noul:
        return Noul(self.instructions, self.name)


class ChoiceValue(Closed):
    value: Words | StrictBool
    description: Words | None = None

    @property
    def option(self) -> Option:
        return Option(self.value, self.description)


def check_values(choices: list[ChoiceValue]) -> list[ChoiceValue]:
    refuse_twice([choice.option.name for choice in choices])
    return choices


class ChoiceQuestion(NamedQuestion):
    type: Literal["choice"]
    choices: Annotated[list[ChoiceValue], Field(min_length=2, max_length=MOST_OPTIONS), AfterValidator(check_values)]

    def question(self) -> Choice:
        return Choice(self.instructions, tuple(choice.option for choice in self.choices), self.name)


class ScoreLevel(Closed):
    label: Words
    description: Words | None = None


class ScoreQuestion(NamedQuestion):
    type: Literal["score"]
    levels: Annotated[list[ScoreLevel], Field(min_length=2, max_length=MOST_LEVELS)]

    def question(self) -> Score:
        return Score(self.instructions, tuple(Level(level.label, level.description) for level in self.levels), self.name)


AnyQuestion = Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]


def check_names(questions: list[AnyQuestion]) -> list[AnyQuestion]:
    refuse_twice([question.name for question in questions if question.name is not None], "the name ")
    return questions


class DecisionsRequest(BaseModel):
    """POST /v1/decisions."""

    model: Words | None = None
    input: Words | Annotated[list[Message], Field(min_length=1, fail_fast=True)] = Field(
        description="What the questions are about: a text, or messages of text and JSON parts."
    )
    questions: Annotated[
        list[AnyQuestion],
        Field(min_length=1, max_length=LIMITS.questions, fail_fast=True),
        AfterValidator(check_names),
    ]
    order: DecisionOrder | None = None
    refuses_long: ClassVar[bool] = True
    """Whether a question that does not fit is answered with a refusal, beside the others."""

    @property
    def state(self) -> Any:
        """A text or a conversation; one message is its text."""
        if isinstance(self.input, str):
            return self.input
        if len(self.input) == 1:
            return self.input[0].text
        return [{"role": message.role, "content": message.text} for message in self.input]

    def asked(self, model: str) -> Request:
        return Request(model, State(self.state), tuple(question.question() for question in self.questions))

    @staticmethod
    def answer(questions: Sequence[Question], response: Response, order: DecisionOrderAnswer | None) -> DecisionsAnswer:
        usage, optional = response.usage, {} if order is None else {"order": order}
        return DecisionsAnswer(
            model=response.model,
            answers=[_write_answer(question, answer) for question, answer in zip(questions, response.answers, strict=True)],
            usage=DecisionsUsage(
                input_tokens=usage.input_tokens,
                input_tokens_details=InputDetails(cached_tokens=usage.cached_tokens, cache_write_tokens=0),
                output_tokens=usage.output_tokens,
                output_tokens_details=OutputDetails(reasoning_tokens=0),
                total_tokens=usage.input_tokens + usage.output_tokens,
            ),
            **optional,
        )


def write_request(request: Request) -> dict[str, Any]:
    state = request.state
    shown = state.content if is_messages(state.content) and not state.instructions else state.text
    return {"model": request.model, "input": shown, "questions": [_write_question(question) for question in request.questions]}


def is_messages(content: Any) -> bool:
    """Whether a state is a conversation: a list of objects that each have a role and a content."""
    return (
        isinstance(content, list)
        and len(content) > 0
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message for message in content
        )
    )


def _write_question(question: Question) -> dict[str, Any]:
    named = {} if question.id is None else {"name": question.id}
    written = {"type": TYPES[question.kind], **named, "instructions": question.instructions}
    if isinstance(question, Noul):
        return {**written, "instructions": question.text}
    if isinstance(question, Choice):
        return {**written, "choices": [_described("value", option.value, option.description) for option in question.options]}
    return {**written, "levels": [_described("label", level.label, level.description) for level in question.levels]}


def _described(field: str, value: Any, description: str | None) -> dict[str, Any]:
    return {field: value} if description is None else {field: value, "description": description}


# -- answers


class PredicateAnswer(BaseModel):
    type: Literal["predicate"]
    name: str | None
    probability: float


class ValueProbability(BaseModel):
    value: str | StrictBool
    probability: float


class NamedChoiceAnswer(BaseModel):
    type: Literal["choice"]
    name: str | None
    choice: str | StrictBool
    probabilities: list[ValueProbability]
    confidence: float


class LevelProbability(BaseModel):
    value: int
    label: str
    probability: float


class NamedScoreAnswer(BaseModel):
    type: Literal["score"]
    name: str | None
    score: float
    probabilities: list[LevelProbability]
    confidence: float


class RefusalAnswer(BaseModel):
    """A question that does not fit the model's context, beside others that do."""

    type: Literal["refusal"]
    name: str | None


AnyAnswer = PredicateAnswer | NamedChoiceAnswer | NamedScoreAnswer | RefusalAnswer


class InputDetails(BaseModel):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(BaseModel):
    reasoning_tokens: int


class DecisionsUsage(BaseModel):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class DecisionsAnswer(BaseModel):
    model: str
    answers: list[AnyAnswer] = Field(description="In the order of the questions.")
    usage: DecisionsUsage
    order: DecisionOrderAnswer | None = None


def _write_answer(question: Question, answer: Answer | Refusal) -> AnyAnswer:
    name = question.id
    if isinstance(answer, Refusal):
        return RefusalAnswer(type="refusal", name=name)
    if isinstance(question, Noul):
        return PredicateAnswer(type="predicate", name=name, probability=answer.probabilities[0])
    if isinstance(question, Choice):
        values = [option.value for option in question.options]
        shares = [ValueProbability(value=v, probability=p) for v, p in zip(values, answer.probabilities, strict=True)]
        chosen = values[answer.best]
        return NamedChoiceAnswer(type="choice", name=name, choice=chosen, probabilities=shares, confidence=answer.confidence)
    labels = enumerate(zip(question.levels, answer.probabilities, strict=True))
    levels = [LevelProbability(value=i, label=level.label, probability=p) for i, (level, p) in labels]
    score = answer.expected_level
    return NamedScoreAnswer(type="score", name=name, score=score, probabilities=levels, confidence=answer.confidence)


def read_answers(questions: Sequence[Question], body: Any) -> Response:
    """The answers to these questions; `UnusableAnswer` names whatever is missing or is not a distribution."""
    given = body.get("answers") if isinstance(body, dict) else None
    if not isinstance(given, list) or len(given) != len(questions):
        count = len(given) if isinstance(given, list) else "no"
        raise UnusableAnswer([f"{count} answers came back for {len(questions)} questions"])
    mistakes: list[str] = []
    named = {answer["name"]: answer for answer in given if isinstance(answer, dict) and isinstance(answer.get("name"), str)}
    asked = [q.id if len(given) > 1 else None for q in questions]  # one answer needs no name
    joined = [answer if name is None else named.get(name) for name, answer in zip(asked, given, strict=True)]
    read = [_read_answer(i, q, a, mistakes) for i, (q, a) in enumerate(zip(questions, joined, strict=True), 1)]
    return response_of(body, read, mistakes)


def _read_answer(number: int, question: Question, given: Any, mistakes: list[str]) -> Answer | Refusal:
    what = f"question {question.id or number}"
    if given is None:
        mistakes.append(f"{what} has no answer")
        return Refusal()
    if isinstance(given, dict) and given.get("name") not in (None, question.id):
        mistakes.append(f"{what}: the answer in its place is that of {given['name']!r}")
        return Refusal()
    names: list[Any] = (
        [option.value for option in question.options] if isinstance(question, Choice) else list(range(len(question.outcomes)))
    )
    labels = [level.label for level in question.levels] if isinstance(question, Score) else [None] * len(names)

    def values_of(answer: dict[str, Any]) -> list[Any] | None:
        return [] if isinstance(question, Noul) else _read_probabilities(answer.get("probabilities"), names, labels)

    return read_answer(question, given, TYPES[question.kind], "probability", names, values_of, what, mistakes)


def _read_probabilities(given: Any, names: list[Any], labels: Sequence[str | None]) -> list[Any] | None:
    """The probability of each outcome, each exactly once and in any order; None where they are not these outcomes."""
    if not isinstance(given, list) or len(given) != len(names):
        return None
    values: list[Any] = []
    for name, label in zip(names, labels, strict=True):  # True == 1 in Python: the type must be the same too
        entries = [e for e in given if isinstance(e, dict) and type(e.get("value")) is type(name) and e["value"] == name]
        if len(entries) != 1 or (label is not None and (entries[0].get("label") or label) != label):
            return None
        values.append(entries[0].get("probability"))
    return values
