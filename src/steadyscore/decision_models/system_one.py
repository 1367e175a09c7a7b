"""Shape A, `POST /v1/systemone`: a map of questions by id, criteria by type (TypeSafe Jev, vLLM, llama.cpp and others).

Requests are read and answers written as they are declared here, requests written and answers read by `SHAPE`, all without HTTP.
A level's description is part of its name: this shape has no field for it. The original ignores a field it does not know, and
refuses one inside a question: so does this.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..engines.answers import Malformed, as_object
from ..machine.schemas import Closed, Json, Key, Words, refuse_more_keys
from ..terms import JsonObject
from .questions import MOST_LEVELS, MOST_OPTIONS, Answer, Choice, Level, Noul, Option, Question, Request, Score, State
from .shape import DecisionOrder, DecisionOrderAnswer, Shape, other_outcomes

MOST_QUESTIONS = 64
"""What vLLM takes in a request, and we do."""


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
        Field(min_length=1, max_length=MOST_QUESTIONS),
        refuse_more_keys(MOST_QUESTIONS),
    ]
    order: DecisionOrder | None = None
    refuses_long: ClassVar[bool] = False
    """Whether a question that does not fit is answered with a refusal, beside the others."""

    def asked(self, model: str) -> Request:
        questions = tuple(shape.question(id) for id, shape in self.questions.items())
        return Request(model, State(self.state, self.instructions), questions)

    @staticmethod
    def answer(request: Request, answers: Sequence[Answer | None], tokens: int, **order: DecisionOrderAnswer) -> SystemOneAnswer:
        """What is answered, to questions that are all answered; `order` where the request has it."""
        named = dict(zip(keys(request.questions), zip(request.questions, answers, strict=True), strict=True))
        masses = {key: answer.label_mass for key, (_, answer) in named.items() if answer and answer.label_mass is not None}
        optional: Any = {"diagnostics": {key: Diagnostics(label_mass=mass) for key, mass in masses.items()}} if masses else {}
        return SystemOneAnswer(
            id=f"decision-{uuid.uuid4().hex}",
            object="structured_decision",
            created=int(time.time()),
            model=request.model,
            answers={key: _write_answer(question, answer) for key, (question, answer) in named.items() if answer},
            usage=SystemOneUsage(input_tokens=tokens, output_tokens=0),
            **optional | order,
        )


def keys(questions: Sequence[Question]) -> list[str]:
    """The ids under which questions are asked; one without a name gets its number."""
    return [question.id if question.id is not None else f"question_{i}" for i, question in enumerate(questions, 1)]


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


# -- what we ask of others


def _write_question(question: Question) -> JsonObject:
    if isinstance(question, Choice):
        return {"criteria": {option.name: option.description for option in question.options}}
    if isinstance(question, Score):
        return {"criteria": [level.name for level in question.levels]}
    return {
        "criteria": {name: text for name, text in (("true", question.yes), ("false", question.no)) if text is not None} or None
    }


def _wrap(request: Request, written: Sequence[JsonObject]) -> JsonObject:
    state = request.state
    instructions = {} if state.instructions is None else {"instructions": state.instructions}
    return {"state": state.content, **instructions, "questions": dict(zip(keys(request.questions), written, strict=True))}


def _unwrap(questions: Sequence[Question], body: JsonObject) -> list[object]:
    answers, told = body.get("answers"), as_object(body.get("diagnostics"))
    if not isinstance(answers, dict):
        raise Malformed("the answer has no map of answers")

    def given(key: str, question: Question) -> object:
        """Some servers leave the type out: it is that of the question."""
        answer = answers.get(key)
        mass = as_object(told.get(key)).get("label_mass")
        return {"type": question.kind, **answer, "label_mass": mass} if isinstance(answer, dict) else answer

    return [given(key, question) for key, question in zip(keys(questions), questions, strict=True)]


def _read_outcomes(question: Question, answer: JsonObject) -> list[object]:
    probabilities, names = answer.get("probabilities"), outcome_names(question)
    if isinstance(question, Noul) and probabilities is None:
        return []
    if not isinstance(probabilities, dict) or sorted(probabilities) != sorted(names):
        raise other_outcomes(names)
    if isinstance(question, Score) and answer.get("legend") not in (None, dict(zip(names, question.outcomes, strict=True))):
        raise Malformed("the legend is not that of the levels asked about")
    return [probabilities[name] for name in names]


SHAPE = Shape(
    path="/systemone",
    key="TYPESAFE_API_KEY",
    kinds={"noul": "noul", "choice": "choice", "score": "score"},
    most_questions=MOST_QUESTIONS,
    yes="noul",
    write_question=_write_question,
    wrap=_wrap,
    unwrap=_unwrap,
    read_outcomes=_read_outcomes,
)
