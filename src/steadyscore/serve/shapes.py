"""Requests and answers as JSON: the kinds of values in all of them, and the shapes of our own routes.

What is ours travels under `order` in the shapes of others (`rerank_shapes.py`). `order`, /v1/decide and /v1/audit refuse a field
that nobody knows. A key that was not asked for is left out, never null.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from ..machine.schemas import Closed, Count, Flag, Real, Seed, Words, check_characters, check_whole
from ..measures.ranking import ranking, unless_nan
from ..measures.settling import DecisionRule, PairRule, ThresholdRule, TopKRule, distances, outcome, roles
from ..runs.table import Scored
from ..terms import Array, Instance
from .service import Model, ScoredDecision, Stopped


def check_true(value: Any) -> Any:
    """1 equals True in Python, not in JSON."""
    if value is not True:
        raise PydanticCustomError("literal_error", "Input should be true")
    return value


Query = Annotated[str, Field(min_length=1, examples=["what is the capital of portugal"]), AfterValidator(check_characters)]
DOCUMENTS: list[Any] = [
    "Lisbon is the capital of Portugal.",
    "Bread rises because yeast makes gas.",
    "The Tagus reaches the sea near Lisbon.",
]
LARGEST_BUDGET = 10**9
"""More documents than any request has; a number in JSON may be larger than an array index."""


class Document(BaseModel):
    """A document as an object."""

    text: Words
    title: Words | None = None
    rank: Count | None = Field(default=None, description="In a first stage, from 1; for all documents of a request or for none.")


# Lists fail at their first wrong item: pydantic writes two mistakes for each one, and a body has room for two million.
Documents = Annotated[list[Words | Document], Field(min_length=1, fail_fast=True, examples=[DOCUMENTS])]


SEVERAL_CANONICAL: dict[str, Any] = {
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


class Threshold(Closed):
    threshold: Real

    @property
    def rule(self) -> DecisionRule:
        return ThresholdRule(self.threshold)


class TopK(Closed):
    top_k: Count

    @property
    def rule(self) -> DecisionRule:
        return TopKRule(min(self.top_k, LARGEST_BUDGET))


class Pair(Closed):
    pair: Annotated[Literal[True], BeforeValidator(check_true)]

    @property
    def rule(self) -> DecisionRule:
        return PairRule()


def decision_kind(value: Any) -> str | None:
    """Which decision an object asks for, by its only key; None where it is none, or several."""
    kinds = {"threshold": "Threshold", "top_k": "TopK", "pair": "Pair"}
    named = [kinds[key] for key in kinds if isinstance(value, dict) and key in value]
    return named[0] if len(named) == 1 else None


DecisionShape = Annotated[
    Annotated[Threshold, Tag("Threshold")] | Annotated[TopK, Tag("TopK")] | Annotated[Pair, Tag("Pair")],
    Discriminator(
        decision_kind, custom_error_type="decision", custom_error_message="give an object with one of threshold, top_k and pair"
    ),
]


ASK: dict[str, Any] = {"query": "what is the capital of portugal", "documents": DOCUMENTS}
DECIDE_EXAMPLES: list[Any] = [ASK | {"decision": {"threshold": 0.5}}, ASK | {"decision": {"top_k": 1}, "permutations": 8}]


class DecideRequest(Closed):
    """POST /v1/decide."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": DECIDE_EXAMPLES})
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


REFUSALS = {
    400: "the body is not JSON",
    401: "no token",
    404: "unknown model",
    422: "a mistake in the body",
    429: "the queue is full, see Retry-After",
    500: "the scorer failed",
    501: "a model that cannot answer typed questions",
    503: "shutting down",
    504: "out of time",
}
"""Statuses of a route's own refusals."""
RETRY_AFTER = {"required": True, "schema": {"type": "integer", "minimum": 1, "maximum": 60}, "description": "Seconds."}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These refusals as the specification states them."""
    stated: dict[int | str, dict[str, Any]] = {s: {"model": Problem, "description": REFUSALS[s]} for s in statuses}
    if 429 in stated:
        stated[429]["headers"] = {"Retry-After": RETRY_AFTER}
    return stated


class Usage(BaseModel):
    total_tokens: int = Field(description="Prompt tokens; 0 for a scorer that counts none.")


class Text(BaseModel):
    text: str


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


@dataclass(frozen=True, slots=True)
class ScoredPool:
    """What the answer to a rerank request is made of."""

    model: Model
    instance: Instance
    scores: Array
    """(n,) mean over the presentations."""
    order: OrderAnswer | None
    usage: Usage

    def text(self, i: int) -> Text:
        return Text(text=self.instance.pool[i].text)


Role = Literal["kept", "dropped", "chosen", "rejected", "neither"]
SET_ROLES: dict[int, Role] = {1: "kept", 0: "dropped"}
PAIR_ROLES: dict[int, Role] = {1: "chosen", 0: "neither", -1: "rejected"}


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
    role: Role
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
    stopped: Stopped
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


# -- from arrays to answers


def order_answer(model: Model, scored: Scored, asked: Order) -> OrderAnswer:
    """What the answer says under `order`."""
    presentations, n = scored.scores.shape
    retained = None
    if asked.threshold is not None:
        retained = outcome(scored.scores.mean(axis=0), ThresholdRule(asked.threshold)).kept
    return OrderAnswer(
        permutations=presentations,
        width=asked.width or model.width_for(n),
        presentation="permuted" if presentations > 1 else "canonical" if asked.canonical else "given",
        first_stage=model.first_stage,
        threshold=asked.threshold,
        retained=retained,
        sd=scored.scores.std(axis=0, ddof=1).tolist() if presentations > 1 else None,
        grades=scored.grades.mean(axis=0).tolist() if asked.distribution and scored.grades is not None else None,
    )


def outcome_answer(scores: Array, rule: DecisionRule, expected_overlap: float | None) -> Outcome:
    return Outcome(**asdict(outcome(scores, rule)), expected_overlap=expected_overlap)


def decided_rows(decision: ScoredDecision, rule: DecisionRule, instance: Instance, documents: bool) -> list[Decided]:
    """Every document, best first."""
    scores, grades, steady = decision.scores, decision.grades, decision.stability
    role, away = roles(scores, rule), distances(scores, rule)
    names = PAIR_ROLES if isinstance(rule, PairRule) else SET_ROLES
    return [
        Decided(
            index=int(i),
            score=float(scores[i]),
            role=names[int(role[i])],
            distance=None if away is None else float(away[i]),
            grades=None if grades is None else grades[i].tolist(),
            agreement=None if steady is None else float(steady.by_document[i]),
            settled=None if steady is None else bool(steady.settled[i]),
            document=Text(text=instance.pool[i].text) if documents else None,
        )
        for i in ranking(scores)
    ]


def stability_answer(decision: ScoredDecision, asked: int) -> StabilityAnswer | None:
    """None where the request asked for one presentation."""
    if decision.stability is None or decision.stopped is None:
        return None
    steady = decision.stability
    return StabilityAnswer(
        permutations=decision.permutations,
        asked=asked,
        stopped=decision.stopped,
        agreement=steady.agreement,
        overlap=unless_nan(steady.overlap),
        unsettled=np.flatnonzero(~steady.settled).tolist(),
    )


def audit_presentations(scored: Scored) -> list[PresentationAnswer]:
    """One row per order, the order given first."""
    assert scored.slots is not None  # a scorer's own table has places
    assert scored.windows is not None
    return [
        PresentationAnswer(
            order=np.lexsort((slots, windows)).tolist(), scores=scores, slots=slots.tolist(), windows=windows.tolist()
        )
        for scores, slots, windows in zip(scored.scores.tolist(), scored.slots, scored.windows, strict=True)
    ]
