"""Shape A, `POST /v1/systemone`: a map of questions by id, criteria by type (TypeSafe Jev, vLLM, llama.cpp and others).

Requests are read and answers written as they are declared here, requests written and answers read by the functions below, all
without HTTP. A level's description stands in its name, since this shape has no field for it. The original ignores a field it does
not know, and refuses one inside a question: so does this.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..machine.schemas import Closed, Json, Key, Words, refuse_more_keys
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
    read_probability,
    response_of,
)

PATH = "/systemone"
"""Behind the base address, which ends in /v1."""
LIMITS = Limits(questions=64, options=26, levels=10)
"""What vLLM 0.32 takes."""


# -- requests


class QuestionShape(Closed):
    instructions: Words = ""


class NoulShape(QuestionShape):
    type: Literal["noul"]
    criteria: Annotated[dict[Literal["true", "false"], Words | None], refuse_more_keys(2)] | None = None

    def question(self, id: str) -> Noul:
        meanings = self.criteria or {}
        return Noul(self.instructions, id, meanings.get("true"), meanings.get("false"))


class OptionsShape(QuestionShape):
    type: Literal["choice"]
    criteria: Annotated[dict[Key, Words | None], Field(min_length=2, max_length=MOST_OPTIONS), refuse_more_keys(MOST_OPTIONS)]

    def question(self, id: str) -> Choice:
        return Choice(self.instructions, tuple(Option(name, text) for name, text in self.criteria.items()), id)


class LevelsShape(QuestionShape):
    type: Literal["score"]
    criteria: Annotated[list[Words], Field(min_length=2, max_length=MOST_LEVELS)]

    def question(self, id: str) -> Score:
        return Score(self.instructions, tuple(map(Level, self.criteria)), id)


EXAMPLE: Any = {
    "state": {"query": "capital of portugal", "candidates": [{"id": "a", "text": "Lisbon is the capital."}]},
    "questions": {"a": {"type": "score", "instructions": "How relevant is a?", "criteria": ["not at all", "it answers"]}},
}


class SystemOneRequest(BaseModel):
    """POST /v1/systemone."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})
    model: Words | None = None
    state: Json = Field(description="What the questions are about: a text or any JSON value.")
    instructions: Words | None = Field(default=None, description="The system message.")
    questions: Annotated[
        dict[Key, Annotated[NoulShape | OptionsShape | LevelsShape, Field(discriminator="type")]],
        Field(min_length=1, max_length=LIMITS.questions),
        refuse_more_keys(LIMITS.questions),
    ]
    order: DecisionOrder | None = None
    refuses_long: ClassVar[bool] = False
    """Whether a question that does not fit is answered with a refusal, beside the others."""

    def asked(self, model: str) -> Request:
        questions = tuple(shape.question(id) for id, shape in self.questions.items())
        return Request(model, State(self.state, self.instructions), questions)

    @staticmethod
    def answer(questions: Sequence[Question], response: Response, order: DecisionOrderAnswer | None) -> SystemOneAnswer:
        answered = {
            key: (question, answer)
            for key, question, answer in zip(keys(questions), questions, response.answers, strict=True)
            if isinstance(answer, Answer)
        }
        told = {key: Diagnostics(label_mass=a.label_mass) for key, (_, a) in answered.items() if a.label_mass is not None}
        optional: dict[str, Any] = ({"diagnostics": told} if told else {}) | ({} if order is None else {"order": order})
        return SystemOneAnswer(
            id=f"decision-{uuid.uuid4().hex}",
            object="structured_decision",
            created=int(time.time()),
            model=response.model,
            answers={key: _write_answer(question, answer) for key, (question, answer) in answered.items()},
            usage=SystemOneUsage(input_tokens=response.usage.input_tokens, output_tokens=response.usage.output_tokens),
            **optional,
        )


def write_request(request: Request) -> dict[str, Any]:
    instructions = {} if request.state.instructions is None else {"instructions": request.state.instructions}
    questions = {key: _write_question(question) for key, question in zip(keys(request.questions), request.questions, strict=True)}
    return {"model": request.model, "state": request.state.content, **instructions, "questions": questions}


def keys(questions: Sequence[Question]) -> list[str]:
    """The ids under which questions are asked; one without a name gets its number."""
    return [question.id if question.id is not None else f"question_{i}" for i, question in enumerate(questions, 1)]


def _write_question(question: Question) -> dict[str, Any]:
    return {"type": question.kind, "instructions": question.instructions, "criteria": _write_criteria(question)}


def _write_criteria(question: Question) -> Any:
    if isinstance(question, Choice):
        return {option.name: option.description for option in question.options}
    if isinstance(question, Score):
        return [level.name for level in question.levels]
    return {name: text for name, text in (("true", question.yes), ("false", question.no)) if text is not None} or None


# -- answers


class NoulAnswer(BaseModel):
    type: Literal["noul"]
    noul: float
    probabilities: dict[str, float]
    confidence: float


class ChoiceAnswer(BaseModel):
    type: Literal["choice"]
    choice: str
    probabilities: dict[str, float]
    confidence: float


class ScoreAnswer(BaseModel):
    type: Literal["score"]
    score: float
    legend: dict[str, str]
    probabilities: dict[str, float]
    confidence: float


class Diagnostics(BaseModel):
    label_mass: float = Field(description="Probability that lay on the labels before renormalisation.")


class SystemOneUsage(BaseModel):
    input_tokens: int
    output_tokens: int


class SystemOneAnswer(BaseModel):
    id: str
    object: Literal["structured_decision"]
    created: int
    model: str
    answers: dict[str, NoulAnswer | ChoiceAnswer | ScoreAnswer]
    usage: SystemOneUsage
    diagnostics: dict[str, Diagnostics] = {}
    order: DecisionOrderAnswer | None = None


def _write_answer(question: Question, answer: Answer) -> NoulAnswer | ChoiceAnswer | ScoreAnswer:
    names, confidence = outcome_names(question), answer.confidence
    probabilities = dict(zip(names, answer.probabilities, strict=True))
    if isinstance(question, Noul):
        return NoulAnswer(type="noul", noul=answer.probabilities[0], probabilities=probabilities, confidence=confidence)
    if isinstance(question, Choice):
        return ChoiceAnswer(type="choice", choice=names[answer.best], probabilities=probabilities, confidence=confidence)
    legend = dict(zip(names, question.outcomes, strict=True))
    score = answer.expected_level
    return ScoreAnswer(type="score", score=score, legend=legend, probabilities=probabilities, confidence=confidence)


def outcome_names(question: Question) -> list[str]:
    """What the outcomes of a question are called in an answer."""
    return [str(level) for level in range(len(question.outcomes))] if isinstance(question, Score) else list(question.outcomes)


def read_answers(questions: Sequence[Question], body: Any) -> Response:
    """The answers to these questions; `UnusableAnswer` names whatever is missing or is not a distribution."""
    mistakes: list[str] = []
    given = body.get("answers") if isinstance(body, dict) else None
    if not isinstance(given, dict):
        raise UnusableAnswer(["the answer has no map of answers"])
    diagnostics = body.get("diagnostics")
    read = []
    for key, question in zip(keys(questions), questions, strict=True):
        if key not in given:
            mistakes.append(f"question {key} was not answered")
            continue
        answer = _read_answer(question, given[key], f"question {key}", mistakes)
        about = diagnostics.get(key) if isinstance(diagnostics, dict) else None
        if isinstance(answer, Answer) and isinstance(about, dict):
            answer = _with_diagnostics(answer, about, f"question {key}", mistakes)
        read.append(answer)
    return response_of(body, read, mistakes)


def _read_answer(question: Question, given: Any, what: str, mistakes: list[str]) -> Answer | Refusal:
    names = outcome_names(question)
    typed = {"type": question.kind, **given} if isinstance(given, dict) else given

    def values_of(answer: dict[str, Any]) -> list[Any] | None:
        probabilities = answer.get("probabilities")
        if isinstance(question, Noul) and probabilities is None:
            return []
        if not isinstance(probabilities, dict) or sorted(probabilities) != sorted(names):
            return None
        if isinstance(question, Score) and answer.get("legend") not in (None, dict(zip(names, question.outcomes, strict=True))):
            mistakes.append(f"{what}: the legend is not that of the levels asked about")
        return [probabilities[name] for name in names]

    return read_answer(question, typed, question.kind, "noul", names, values_of, what, mistakes)


def _with_diagnostics(answer: Answer, told: dict[str, Any], what: str, mistakes: list[str]) -> Answer:
    mass, is_label = told.get("label_mass"), told.get("argmax_is_label")
    return replace(
        answer,
        label_mass=None if mass is None else read_probability(mass, f"{what}: label_mass", mistakes),
        argmax_is_label=is_label if isinstance(is_label, bool) else None,
    )
