"""The two shapes of typed questions as JSON: `/v1/systemone` and `/v1/decisions`. What is ours travels under `order`.

Both originals ignore a field they do not know, and System One refuses one inside a question: so do these. The values that
the rest of the code works with are in `decisions/questions.py`.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictBool
from pydantic_core import PydanticCustomError, PydanticKnownError

from ..decisions import openai_shape, system_one
from ..engines.typed_questions import LIMITS
from .shapes import SURROGATE, Closed, Count, Real, Seed, Words


def check_json(value: Any) -> Any:
    """Any JSON value whose texts UTF-8 can carry."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", SURROGATE) from None
    return value


def refuse_more_keys(most: int) -> BeforeValidator:
    """pydantic counts the keys of an object when it has written the mistakes of all of them; this counts them before."""

    def check(value: Any) -> Any:
        if isinstance(value, dict) and len(value) > most:
            sizes = {"field_type": "Dictionary", "max_length": most, "actual_length": len(value)}
            raise PydanticKnownError("too_long", sizes)
        return value

    return BeforeValidator(check)


Json = Annotated[Any, AfterValidator(check_json)]
Key = Annotated[str, Field(min_length=1), AfterValidator(check_json)]
PATH = r"^\$(\.[A-Za-z_][A-Za-z0-9_]*|\[[0-9]+\]|\['[^']*'\])*$"
Path = Annotated[str, Field(pattern=PATH, examples=["$.candidates"]), AfterValidator(check_json)]
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


# -- System One


class QuestionShape(Closed):
    instructions: Words = ""


class NoulShape(QuestionShape):
    type: Literal["noul"]
    criteria: Annotated[dict[Literal["true", "false"], Words | None], refuse_more_keys(2)] | None = None


class OptionsShape(QuestionShape):
    type: Literal["choice"]
    criteria: Annotated[dict[Key, Words | None], Field(min_length=2, max_length=LIMITS.options), refuse_more_keys(LIMITS.options)]


class LevelsShape(QuestionShape):
    type: Literal["score"]
    criteria: Annotated[list[Words], Field(min_length=2, max_length=LIMITS.levels)]


class SystemOneRequest(BaseModel):
    """POST /v1/systemone."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "state": {"query": "capital of portugal", "candidates": [{"id": "a", "text": "Lisbon is the capital."}]},
                    "questions": {
                        "a": {"type": "score", "instructions": "How relevant is a?", "criteria": ["not at all", "it answers"]}
                    },
                }
            ]
        }
    )
    model: Words | None = None
    state: Json = Field(description="What the questions are about: a text or any JSON value.")
    instructions: Words | None = Field(default=None, description="The system message.")
    questions: Annotated[
        dict[Key, Annotated[NoulShape | OptionsShape | LevelsShape, Field(discriminator="type")]],
        Field(min_length=1, max_length=system_one.LIMITS.questions),
        refuse_more_keys(system_one.LIMITS.questions),
    ]
    order: DecisionOrder | None = None


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


class SystemOneAnswer(BaseModel):
    id: str
    object: Literal["structured_decision"]
    created: int
    model: str
    answers: dict[str, NoulAnswer | ChoiceAnswer | ScoreAnswer]
    usage: SystemOneUsage
    diagnostics: dict[str, Diagnostics] = {}
    order: DecisionOrderAnswer | None = None


# -- OpenAI Decisions


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


class NamedQuestion(Closed):
    name: Words | None = None
    instructions: Words


class PredicateQuestion(NamedQuestion):
    type: Literal["predicate"]


class ChoiceValue(Closed):
    value: Words | StrictBool
    description: Words | None = None


class ChoiceQuestion(NamedQuestion):
    type: Literal["choice"]
    choices: Annotated[list[ChoiceValue], Field(min_length=2, max_length=LIMITS.options)]


class ScoreLevel(Closed):
    label: Words
    description: Words | None = None


class ScoreQuestion(NamedQuestion):
    type: Literal["score"]
    levels: Annotated[list[ScoreLevel], Field(min_length=2, max_length=LIMITS.levels)]


class DecisionsRequest(BaseModel):
    """POST /v1/decisions."""

    model: Words | None = None
    input: Words | Annotated[list[Message], Field(min_length=1, fail_fast=True)] = Field(
        description="What the questions are about: a text, or messages of text and JSON parts."
    )
    questions: Annotated[
        list[Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]],
        Field(min_length=1, max_length=openai_shape.LIMITS.questions, fail_fast=True),
    ]
    order: DecisionOrder | None = None

    @property
    def state(self) -> Any:
        """A text or a conversation; one message is its text."""
        if isinstance(self.input, str):
            return self.input
        if len(self.input) == 1:
            return self.input[0].text
        return [{"role": message.role, "content": message.text} for message in self.input]


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
    answers: list[PredicateAnswer | NamedChoiceAnswer | NamedScoreAnswer | RefusalAnswer] = Field(
        description="In the order of the questions."
    )
    usage: DecisionsUsage
    order: DecisionOrderAnswer | None = None
