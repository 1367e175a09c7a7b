"""Requests and answers as JSON. Fields are those of each shape's original; what is ours travels under `order`.

Jina, Cohere, TEI and vLLM ignore fields they do not know, so do these shapes; /v1/decide and /v1/audit are ours and
refuse them. A key that was not asked for is left out, never null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat
from pydantic_core import PydanticCustomError

SURROGATE = "holds half of a surrogate pair, which is not a character. Send text that UTF-8 can carry"


def check_characters(text: str) -> str:
    """JSON can spell text that no tokenizer, file or answer can hold: `\\ud800` alone."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", SURROGATE) from None
    return text


Words = Annotated[str, AfterValidator(check_characters)]
Query = Annotated[str, Field(min_length=1, examples=["what is the capital of portugal"]), AfterValidator(check_characters)]
Count = Annotated[int, Field(ge=1)]
Direction = Annotated[Literal["left", "right", "Left", "Right"], AfterValidator(str.lower)]
"""TEI takes both spellings."""
DOCUMENTS: list[Any] = [
    "Lisbon is the capital of Portugal.",
    "Bread rises because yeast makes gas.",
    "The Tagus reaches the sea near Lisbon.",
]


class Ours(BaseModel):
    """A shape of our own: a field nobody knows is a mistake."""

    model_config = ConfigDict(extra="forbid")


class Document(BaseModel):
    """A document as an object."""

    text: Words
    title: Words | None = None


Documents = Annotated[list[Words | Document], Field(min_length=1, examples=[DOCUMENTS])]


class Order(BaseModel):
    """Our one extra key of a request: how the documents are presented, and what to tell about it."""

    permutations: Count = Field(default=1, description="1: the order given. More: the mean over this many random orders.")
    seed: int = Field(default=0, ge=0, lt=2**63)
    canonical: bool = Field(
        default=False, description="Present the documents sorted by a hash of their text, whatever order they came in."
    )
    width: Count | None = Field(default=None, description="Documents per prompt.")
    threshold: FiniteFloat | None = Field(default=None, description="Also say which documents this cutoff retains.")
    distribution: bool = Field(default=False, description="Also give P(grade) for the grades 0 to 3.")


class JinaRequest(BaseModel):
    """POST /v1/rerank."""

    model: Words | None = None
    query: Query
    documents: Documents
    top_n: Count | None = None
    return_documents: bool = True
    order: Order | None = None


class CohereRequest(BaseModel):
    """POST /v2/rerank. Answers never carry documents."""

    model: Words | None = None
    query: Query
    documents: Documents
    top_n: Count | None = None
    max_tokens_per_doc: Count | None = Field(
        default=None, description="Tokens read of each document, 4096 where none are named; never more than the server reads."
    )
    order: Order | None = None


class AnyRequest(BaseModel):
    """POST /rerank: TEI's shape where `texts` is given, else the union of Cohere's, Jina's and vLLM's."""

    query: Query
    texts: Annotated[list[Words], Field(min_length=1)] | None = Field(default=None, description="TEI's documents.")
    raw_scores: bool = Field(default=False, description="TEI: the expected grade from 0 to 3 instead of the score from 0 to 1.")
    return_text: bool = False
    truncate: bool | None = Field(
        default=None, description="TEI: cut a text that is too long, or refuse it; without this field, as the server was started."
    )
    truncation_direction: Direction = Field(default="right", description="TEI: the side that is cut.")
    model: Words | None = None
    documents: Documents | None = None
    top_n: int | None = Field(default=None, ge=0, description="0 keeps all, as vLLM has it.")
    max_tokens_per_doc: int | None = Field(
        default=None, ge=0, description="Tokens read of each of `documents`; 0 as many as the server reads, as vLLM has it."
    )
    return_documents: bool = False
    order: Order | None = None


class ScoreRequest(BaseModel):
    """POST /score, vLLM's shape: one query and its documents, or as many queries as documents."""

    model: Words | None = None
    queries: Query | Annotated[list[Query], Field(min_length=1)] | None = None
    documents: Words | Documents | None = None
    text_1: Query | Annotated[list[Query], Field(min_length=1)] | None = Field(
        default=None, description="Older name of `queries`."
    )
    text_2: Words | Documents | None = Field(default=None, description="Older name of `documents`.")


class Threshold(Ours):
    threshold: FiniteFloat


class TopK(Ours):
    top_k: Count


class Pair(Ours):
    pair: Literal[True]


DecisionShape = Threshold | TopK | Pair


class DecideRequest(Ours):
    """POST /v1/decide."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"query": "what is the capital of portugal", "documents": DOCUMENTS, "decision": {"threshold": 0.5}},
                {"query": "what is the capital of portugal", "documents": DOCUMENTS, "decision": {"top_k": 1}, "permutations": 8},
            ]
        },
    )
    model: Words | None = None
    query: Query
    documents: Documents
    decision: DecisionShape | None = Field(
        default=None, description="Without one: the model's own cutoff, where its card has one."
    )
    permutations: Count = Field(default=1, description="1: the order given. More: random orders, whose mean decides.")
    adaptive: bool = Field(default=True, description="Stop when every document's membership is settled.")
    seed: int = Field(default=0, ge=0, lt=2**63)
    width: Count | None = None
    return_documents: bool = False


class AuditRequest(Ours):
    """POST /v1/audit: one pool under M permutations."""

    model: Words | None = None
    query: Query
    documents: Documents
    permutations: Annotated[int, Field(ge=2)] = 10
    seed: int = Field(default=0, ge=0, lt=2**63)
    width: Count | None = None
    threshold: FiniteFloat | None = Field(
        default=None, description="Cutoff of the threshold measures; without one, the model's own."
    )


# -- answers


class Problem(BaseModel):
    """What went wrong, as one sentence."""

    message: str


class Usage(BaseModel):
    total_tokens: int = Field(description="Prompt tokens; 0 for a scorer that counts none.")


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
    usage: Usage


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


class ModelAnswer(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "steadyscore"
    order: dict[str, Any]


class ModelsAnswer(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelAnswer]


class State(BaseModel):
    status: str
