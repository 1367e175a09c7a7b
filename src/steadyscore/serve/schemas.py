"""Requests and answers as JSON. Fields are those of each shape's original; what is ours travels under `order`.

Jina, Cohere, TEI and vLLM ignore fields they do not know, so do these shapes (but for `foreign_fields.py`); `order`,
/v1/decide and /v1/audit are ours and refuse them. A key that was not asked for is left out, never null.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    FiniteFloat,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from .foreign_fields import unhonoured_mistakes
from .variants import Schema, a_value, keep_kinds, newer_or_older, null, state_variants

SURROGATE = "holds half of a surrogate pair, which is not a character. Send text that UTF-8 can carry"


def check_characters(text: str) -> str:
    """JSON can spell text that no tokenizer, file or answer can hold: `\\ud800` alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", SURROGATE) from None
    return text


def check_whole(value: Any) -> Any:
    """pydantic would also read true and "1" as a number; 1.0 is an integer in JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


def check_true(value: Any) -> Any:
    """1 equals True in Python, not in JSON."""
    if value is not True:
        raise PydanticCustomError("literal_error", "Input should be true")
    return value


Flag = Annotated[bool, Field(strict=True)]
Real = Annotated[FiniteFloat, Field(strict=True)]
Natural = Annotated[int, Field(ge=0), BeforeValidator(check_whole)]
Words = Annotated[str, AfterValidator(check_characters)]
Query = Annotated[str, Field(min_length=1, examples=["what is the capital of portugal"]), AfterValidator(check_characters)]
Count = Annotated[int, Field(ge=1), BeforeValidator(check_whole)]
Seed = Annotated[int, Field(ge=0, lt=2**63), BeforeValidator(check_whole)]
Direction = Annotated[Literal["left", "right", "Left", "Right"], AfterValidator(str.lower)]
"""TEI takes both spellings."""
DOCUMENTS: list[Any] = [
    "Lisbon is the capital of Portugal.",
    "Bread rises because yeast makes gas.",
    "The Tagus reaches the sea near Lisbon.",
]
TEI_FIELDS = {"raw_scores", "return_text", "truncate", "truncation_direction"}
"""Honoured with `texts` only."""
TOKENS_PER_DOCUMENT = "Tokens read of each document; 0 as many as the server reads, as vLLM has it."
MOST_UNKNOWN = 5
"""Unknown fields of one object that are named in a refusal."""


class Closed(BaseModel):
    """A shape in which a field nobody knows is a mistake."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def keep_few_unknown(cls, value: Any) -> Any:
        """pydantic writes a mistake for each unknown field, and a body has room for 400,000."""
        if not isinstance(value, dict):
            return value
        unknown = {name: value[name] for name in islice((n for n in value if n not in cls.model_fields), MOST_UNKNOWN)}
        return {name: value[name] for name in cls.model_fields if name in value} | unknown


class Document(BaseModel):
    """A document as an object."""

    text: Words
    title: Words | None = None
    rank: Count | None = Field(default=None, description="In a first stage, from 1; for all documents of a request or for none.")


# Lists fail at their first wrong item: pydantic writes two mistakes for each one, and a body has room for two million.
Documents = Annotated[list[Words | Document], Field(min_length=1, fail_fast=True, examples=[DOCUMENTS])]
Queries = Annotated[list[Query], Field(min_length=1, fail_fast=True)]
Texts = Annotated[list[Words], Field(min_length=1, fail_fast=True)]


SEVERAL_CANONICAL: Schema = {
    "properties": {"canonical": {"const": True}, "permutations": {"minimum": 2}},
    "required": ["canonical", "permutations"],
}


class Order(Closed):
    """Our one extra key of a request: how the documents are presented, and what to tell about it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"not": SEVERAL_CANONICAL})
    permutations: Count = Field(default=1, description="1: the order given. More: the mean over this many random orders.")
    seed: Seed = 0
    canonical: Flag = Field(
        default=False,
        description="Present the documents sorted by a hash of title and text, however they came; not with permutations.",
    )
    width: Count | None = Field(default=None, description="Documents per prompt.")
    threshold: Real | None = Field(default=None, description="Also say which documents this cutoff retains.")
    distribution: Flag = Field(default=False, description="Also give P(grade) for the grades 0 to 3.")

    @model_validator(mode="after")
    def check_one_presentation(self) -> Order:
        if self.canonical and self.permutations > 1:
            raise PydanticCustomError("canonical", "canonical is one order and permutations are several. Give one of the two")
        return self


class ForeignRequest(BaseModel):
    """What the shapes of others share."""

    model: Words | None = None
    instruction: Words | None = Field(
        default=None, max_length=20_000, description="What counts as relevant, for a model whose prompt says so; else refused."
    )

    @model_validator(mode="before")
    @classmethod
    def refuse_unhonoured(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = set(cls.model_fields) - (TEI_FIELDS if value.get("texts") is None else set())
            if mistakes := unhonoured_mistakes(value, known):
                raise PydanticCustomError("unhonoured", "{mistakes}", {"mistakes": "; ".join(mistakes)})
        return value


class JinaRequest(ForeignRequest):
    """POST /v1/rerank."""

    query: Query
    documents: Documents
    top_n: Count | None = None
    max_tokens_per_doc: Natural | None = Field(default=None, description=TOKENS_PER_DOCUMENT)
    return_documents: Flag = True
    order: Order | None = None


class CohereRequest(ForeignRequest):
    """POST /v2/rerank. Answers never carry documents."""

    query: Query
    documents: Documents
    top_n: Count | None = None
    max_tokens_per_doc: Count | None = Field(
        default=None, description="Tokens read of each document, 4096 where none are named; never more than the server reads."
    )
    order: Order | None = None


class AnyRequest(ForeignRequest):
    """POST /rerank: TEI's shape where `texts` is given, else the union of Cohere's, Jina's and vLLM's."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: state_variants(
            schema, {"texts": a_value, "documents": null}, {"documents": a_value, "texts": null}
        )
    )
    query: Query
    texts: Texts | None = Field(default=None, description="TEI's documents.")
    raw_scores: Flag = Field(default=False, description="TEI: the expected grade from 0 to 3 instead of the score from 0 to 1.")
    return_text: Flag = False
    truncate: Flag | None = Field(
        default=None, description="TEI: cut a text that is too long, or refuse it; without this field, as the server was started."
    )
    truncation_direction: Direction = Field(default="right", description="TEI: the side that is cut.")
    documents: Documents | None = None
    top_n: Natural | None = Field(default=None, description="0 keeps all, as vLLM has it.")
    max_tokens_per_doc: Natural | None = Field(default=None, description=TOKENS_PER_DOCUMENT)
    return_documents: Flag = False
    order: Order | None = None


class ScoreRequest(ForeignRequest):
    """POST /score and /v1/score, vLLM's shape: one query and its documents, or as many queries as documents."""

    model_config = ConfigDict(
        json_schema_extra=lambda schema: state_variants(
            schema,
            *(
                {**queries, **texts}
                for queries in newer_or_older("queries", "text_1")
                for texts in newer_or_older("documents", "text_2")
            ),
        )
    )
    queries: Query | Queries | None = None
    documents: Words | Documents | None = None
    text_1: Query | Queries | None = Field(default=None, description="Older name of `queries`.")
    text_2: Words | Documents | None = Field(default=None, description="Older name of `documents`.")


class Threshold(Closed):
    threshold: Real


class TopK(Closed):
    top_k: Count


class Pair(Closed):
    pair: Annotated[Literal[True], BeforeValidator(check_true)]


def decision_kind(value: Any) -> str | None:
    """Which decision an object asks for, by its only key; None where it is none, or several."""
    if isinstance(value, BaseModel):
        return type(value).__name__
    kinds = {"threshold": "Threshold", "top_k": "TopK", "pair": "Pair"}
    named = [kinds[key] for key in kinds if isinstance(value, dict) and key in value]
    return named[0] if len(named) == 1 else None


DecisionShape = Annotated[
    Annotated[Threshold, Tag("Threshold")] | Annotated[TopK, Tag("TopK")] | Annotated[Pair, Tag("Pair")],
    Discriminator(
        decision_kind, custom_error_type="decision", custom_error_message="give an object with one of threshold, top_k and pair"
    ),
]


def describe_decide(schema: Schema) -> None:
    """A pair needs two documents; two examples."""
    ask = {"query": "what is the capital of portugal", "documents": DOCUMENTS}
    schema["examples"] = [ask | {"decision": {"threshold": 0.5}}, ask | {"decision": {"top_k": 1}, "permutations": 8}]
    state_variants(
        schema,
        {"decision": keep_kinds(is_pair), "documents": lambda field: field | {"minItems": 2}},
        {"decision": keep_kinds(lambda kind: not is_pair(kind))},
    )


def is_pair(kind: Schema) -> bool:
    return Pair.__name__ in kind.get("$ref", "")


class DecideRequest(Closed):
    """POST /v1/decide."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=describe_decide)
    model: Words | None = None
    query: Query
    documents: Documents
    decision: DecisionShape | None = Field(
        default=None, description="Without one: the model's own cutoff, where its card has one."
    )
    permutations: Count = Field(default=1, description="1: the order given. More: random orders, whose mean decides.")
    adaptive: Flag = Field(default=True, description="Stop when every document's membership is settled.")
    seed: Seed = 0
    width: Count | None = None
    return_documents: Flag = False


class AuditRequest(Closed):
    """POST /v1/audit: one pool under M permutations."""

    model: Words | None = None
    query: Query
    documents: Documents
    permutations: Annotated[int, Field(ge=2), BeforeValidator(check_whole)] = 10
    seed: Seed = 0
    width: Count | None = None
    threshold: Real | None = Field(default=None, description="Cutoff of the threshold measures; without one, the model's own.")


# -- answers


class Problem(BaseModel):
    """What went wrong, as one sentence."""

    message: str


class Usage(BaseModel):
    total_tokens: int = Field(description="Prompt tokens; 0 for a scorer that counts none.")


class ScoreUsage(Usage):
    prompt_tokens: int = Field(description="The same: nothing is written.")


class Text(BaseModel):
    text: str


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: Text | None = None


class OrderAnswer(BaseModel):
    """Our one extra key of an answer; present where the request has `order`."""

    permutations: int
    width: int
    tie_rule: Literal["index"] = Field(default="index", description="Equal scores stand in the order of the request.")
    presentation: Literal["given", "canonical", "permuted"]
    first_stage: int | None = Field(default=None, description="Percentage of each score that is the first stage's rank.")
    threshold: float | None = None
    retained: list[int] | None = None
    sd: list[float] | None = Field(
        default=None, description="Standard deviation of each document's score over the permutations, by index."
    )
    grades: list[list[float]] | None = Field(default=None, description="P(grade) of each document, by index.")


class JinaAnswer(BaseModel):
    model: str
    object: Literal["list"] = "list"
    usage: Usage
    results: list[Ranked]
    order: OrderAnswer | None = None


class BilledUnits(BaseModel):
    search_units: float = 1


class ApiVersion(BaseModel):
    version: str = "2"


class Meta(BaseModel):
    api_version: ApiVersion = Field(default_factory=ApiVersion)
    billed_units: BilledUnits = Field(default_factory=BilledUnits)


class CohereAnswer(BaseModel):
    id: str
    results: list[Ranked]
    meta: Meta = Field(default_factory=Meta)
    order: OrderAnswer | None = None


class TeiRanked(BaseModel):
    index: int
    score: float
    text: str | None = None


class UnionAnswer(BaseModel):
    id: str
    model: str
    object: Literal["list"] = "list"
    usage: Usage
    results: list[Ranked]
    meta: Meta = Field(default_factory=Meta)
    order: OrderAnswer | None = None


class ScoreDatum(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoreAnswer(BaseModel):
    id: str
    object: Literal["list"] = "list"
    created: int
    model: str
    data: list[ScoreDatum]
    usage: ScoreUsage


class Outcome(BaseModel):
    kind: Literal["threshold", "top_k", "pair"]
    kept: list[int] | None = Field(default=None, description="Best first.")
    chosen: int | None = None
    rejected: int | None = None
    k: int | None = None
    cutoff: float | None = Field(
        default=None, description="Of a budget: midway between the last score inside and the first outside."
    )
    expected_overlap: float | None = Field(
        default=None, description="Overlap under reordering at this cutoff, from the adapter's card."
    )


class Decided(BaseModel):
    index: int
    score: float
    role: Literal["kept", "dropped", "chosen", "rejected", "neither"]
    distance: float | None = Field(
        default=None, description="From the cutoff, positive where kept; of a pair: the lead, or how far behind."
    )
    grades: list[float] | None = Field(default=None, description="P(grade) for the grades 0 to 3.")
    agreement: float | None = Field(default=None, description="Share of permutations that give this document the same role.")
    settled: bool | None = None
    document: Text | None = None


class StabilityAnswer(BaseModel):
    permutations: int
    asked: int
    stopped: Literal["settled", "budget", "order_free"]
    agreement: float = Field(description="Share of permutations that take this very decision.")
    overlap: float | None = Field(default=None, description="Mean pairwise Jaccard of the kept sets.")
    unsettled: list[int]


class DecideAnswer(BaseModel):
    model: str
    decision: Outcome
    results: list[Decided]
    stability: StabilityAnswer | None = None
    usage: Usage


class PresentationAnswer(BaseModel):
    order: list[int] = Field(description="Position in the prompt sequence -> index of the document.")
    scores: list[float] = Field(description="By index.")
    slots: list[int]
    windows: list[int]


class AuditAnswer(BaseModel):
    model: str
    width: int
    threshold: float | None = None
    presentations: list[PresentationAnswer] = Field(description="The first is the order given.")
    measures: dict[str, float]
    slot_profile: list[float]
    usage: Usage
