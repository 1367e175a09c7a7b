"""Shape B, `POST /v1/decisions`: a list of questions, answered in its order (OpenAI, SGLang, Fireworks and others).

Requests are read and answers written as they are declared here, requests written and answers read by `SHAPE`, all without HTTP.
What this shape has no field for is written into the nearest text: a state that is neither a text nor a list of messages as JSON,
the criteria of a yes-or-no question behind its instructions. A field that nobody knows is ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictBool
from pydantic_core import PydanticCustomError

from ..engines.answers import Malformed, as_object
from ..machine.schemas import Closed, Words, check_json
from ..terms import JsonObject
from .questions import (
    MOST_LEVELS,
    MOST_OPTIONS,
    Answer,
    Choice,
    Level,
    Noul,
    Option,
    Question,
    Request,
    Score,
    State,
    place_among,
)
from .shape import DecisionOrder, DecisionOrderAnswer, Shape, other_outcomes

MOST_QUESTIONS = 400
"""What OpenAI takes in a request, and we do."""


# -- requests


class TextPart(BaseModel):
    type: Literal["input_text", "output_text", "text"]
    text: Words


class JsonPart(BaseModel):
    type: Literal["input_json"]
    data: Annotated[JsonObject | Annotated[list[JsonObject], Field(fail_fast=True)], AfterValidator(check_json)]


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
        Field(min_length=1, max_length=MOST_QUESTIONS, fail_fast=True),
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
    def answer(request: Request, answers: Sequence[Answer | None], tokens: int, **order: DecisionOrderAnswer) -> DecisionsAnswer:
        """What is answered, in the order of the questions; `order` where the request has it."""
        return DecisionsAnswer(
            model=request.model,
            answers=[_write_answer(question, answer) for question, answer in zip(request.questions, answers, strict=True)],
            usage=DecisionsUsage(
                input_tokens=tokens,
                input_tokens_details=InputDetails(cached_tokens=0, cache_write_tokens=0),
                output_tokens=0,
                output_tokens_details=OutputDetails(reasoning_tokens=0),
                total_tokens=tokens,
            ),
            **order,
        )


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


def _write_answer(question: Question, answer: Answer | None) -> AnyAnswer:
    name = question.id
    if answer is None:
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


# -- what we ask of others


def _write_question(question: Question) -> JsonObject:
    if isinstance(question, Noul):
        return {"instructions": question.text}
    if isinstance(question, Choice):
        return {"choices": [_described("value", option.value, option.description) for option in question.options]}
    return {"levels": [_described("label", level.label, level.description) for level in question.levels]}


def _described(field: str, value: object, description: str | None) -> JsonObject:
    return {field: value} if description is None else {field: value, "description": description}


def _wrap(request: Request, written: Sequence[JsonObject]) -> JsonObject:
    state = request.state
    shown = state.content if is_messages(state.content) and not state.instructions else state.text
    named = [{} if question.id is None else {"name": question.id} for question in request.questions]
    return {"input": shown, "questions": [{**body, **name} for body, name in zip(written, named, strict=True)]}


def is_messages(content: object) -> bool:
    """Whether a state is a conversation: a list of objects that each have a role and a content."""
    return (
        isinstance(content, list)
        and len(content) > 0
        and all(
            isinstance(message, dict) and isinstance(message.get("role"), str) and "content" in message for message in content
        )
    )


def _unwrap(questions: Sequence[Question], body: JsonObject) -> list[object]:
    """Answers by the name of their question, or by its place where it has none; a single answer may be without its name."""
    given = body.get("answers")
    if not isinstance(given, list) or len(given) != len(questions):
        count = len(given) if isinstance(given, list) else "no"
        raise Malformed(f"{count} answers came back for {len(questions)} questions")
    names = [answer.get("name") if isinstance(answer, dict) else None for answer in given]
    named = {name: answer for name, answer in zip(names, given, strict=True) if isinstance(name, str)}
    if len(given) > 1:
        placed = [answer if name is None else None for name, answer in zip(names, given, strict=True)]
        return [p if q.id is None else named.get(q.id) for q, p in zip(questions, placed, strict=True)]
    return given if names[0] in (None, questions[0].id) else [None]


def _read_outcomes(question: Question, answer: JsonObject) -> list[object]:
    """The probability of each outcome, each exactly once and in any order."""
    if isinstance(question, Noul):
        return []
    labels = [level.label for level in question.levels] if isinstance(question, Score) else []
    names = range(len(labels)) if isinstance(question, Score) else [option.value for option in question.options]
    given = answer.get("probabilities")
    entries = [as_object(entry) for entry in given] if isinstance(given, list) else []
    by_place = {place_among(entry.get("value"), names): entry for entry in entries}
    is_other = any((by_place[place].get("label") or label) != label for place, label in enumerate(labels) if place in by_place)
    if len(entries) != len(names) or by_place.keys() != set(range(len(names))) or is_other:
        raise other_outcomes(names)
    return [by_place[place].get("probability") for place in range(len(names))]


SHAPE = Shape(
    path="/decisions",
    key="OPENAI_API_KEY",
    kinds={"noul": "predicate", "choice": "choice", "score": "score"},
    most_questions=200,  # OpenAI takes 400, vLLM 200
    yes="probability",
    write_question=_write_question,
    wrap=_wrap,
    unwrap=_unwrap,
    read_outcomes=_read_outcomes,
)
