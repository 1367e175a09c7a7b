"""Requests and answers as JSON: the kinds of values in all of them, and the shapes of our own routes.

What is ours travels under `order` in the shapes of others (`rerank_shapes.py`). `order`, /v1/decide and /v1/audit refuse a field
that nobody knows. A key that was not asked for is left out, never null.
"""

from __future__ import annotations

from dataclasses import asdict
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
from ..measures.ranking import unless_nan
from ..measures.settling import DecisionRule, PairRule, Stability, ThresholdRule, TopKRule, distances, outcome, roles
from ..runs.table import Scored
from ..scoring.mitigations import ShareRule, Stopped, for_pool
from ..terms import Instance
from .service import Model, Presentations, ScoredPool


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
Instruction = Annotated[
    Words, Field(max_length=20_000, description="What counts as relevant, for a model whose prompt says so; else refused.")
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


ADAPTIVE = "Stop when the rest is expected to change the role of at most 2 % of the documents."
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
    adaptive: Flag = Field(
        default=False,
        description=f"{ADAPTIVE} What decides is `threshold`, else `top_n`, else the server's own decision.",
    )

    @model_validator(mode="after")
    def check_one_presentation(self) -> Order:
        if self.canonical and self.permutations > 1:
            raise PydanticCustomError("canonical", "canonical is one order and permutations are several. Give one of the two")
        return self

    def presentations(self, model: Model) -> Presentations:
        asked = Presentations(self.permutations, self.seed, self.width, self.canonical, self.adaptive)
        return model.presentations(asked, "permutations" in self.model_fields_set)

    def answer(self, pool: ScoredPool) -> OrderAnswer:
        scores, grades, n = pool.scored.scores, pool.grades, len(pool.scores)
        several = len(scores) > 1
        return OrderAnswer(
            permutations=len(scores),
            width=self.width or pool.model.width_for(n),
            tie_rule="content" if pool.asked.ties_by_content else "index",
            presentation="permuted" if pool.asked.count > 1 else "canonical" if self.canonical else "given",
            asked=pool.asked.count if pool.asked.adaptive else None,
            stopped=pool.stopped if pool.asked.adaptive else None,
            first_stage=pool.model.first_stage,
            threshold=self.threshold,
            retained=None if self.threshold is None else outcome(pool.scores, ThresholdRule(self.threshold), pool.ties).kept,
            sd=scores.std(axis=0, ddof=1).tolist() if several else None,
            grades=grades.tolist() if self.distribution and grades is not None else None,
        )


class Threshold(Closed):
    threshold: Real

    def rule(self, n: int) -> DecisionRule:
        return ThresholdRule(self.threshold)


class TopK(Closed):
    top_k: Count

    def rule(self, n: int) -> DecisionRule:
        return TopKRule(min(self.top_k, LARGEST_BUDGET))


class Share(Closed):
    share: Real = Field(gt=0, lt=1, description="Of the documents, rounded, at least one.")

    def rule(self, n: int) -> DecisionRule:
        return for_pool(ShareRule(self.share), n)


class Pair(Closed):
    pair: Annotated[Literal[True], BeforeValidator(check_true)]

    def rule(self, n: int) -> DecisionRule:
        return PairRule()


def decision_kind(value: Any) -> str | None:
    """Which decision an object asks for, by its only key; None where it is none, or several."""
    kinds = {"threshold": "Threshold", "top_k": "TopK", "share": "Share", "pair": "Pair"}
    named = [kinds[key] for key in kinds if isinstance(value, dict) and key in value]
    return named[0] if len(named) == 1 else None


DecisionShape = Annotated[
    Annotated[Threshold, Tag("Threshold")]
    | Annotated[TopK, Tag("TopK")]
    | Annotated[Share, Tag("Share")]
    | Annotated[Pair, Tag("Pair")],
    Discriminator(
        decision_kind,
        custom_error_type="decision",
        custom_error_message="give an object with one of threshold, top_k, share and pair",
    ),
]


ASK: dict[str, Any] = {"query": "what is the capital of portugal", "documents": DOCUMENTS}
DECIDE_EXAMPLES: list[Any] = [ASK | {"decision": {"threshold": 0.5}}, ASK | {"decision": {"top_k": 1}, "permutations": 8}]


class PoolRequest(Closed):
    """What our own requests share."""

    model: Words | None = None
    query: Query
    documents: Documents
    instruction: Instruction | None = None
    seed: Seed = 0
    width: Count | None = None


class DecideRequest(PoolRequest):
    """POST /v1/decide."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": DECIDE_EXAMPLES})
    decision: DecisionShape | None = Field(
        default=None, description="Without one: the model's own cutoff, where its card has one."
    )
    permutations: Count = Field(default=1, description="1: the order given. More: random orders, whose mean decides.")
    adaptive: Flag = Field(default=True, description=ADAPTIVE)
    return_documents: Flag = False

    def presentations(self, model: Model) -> Presentations:
        asked = Presentations(self.permutations, self.seed, self.width, adaptive=self.adaptive)
        return model.presentations(asked, "permutations" in self.model_fields_set)

    def answer(self, pool: ScoredPool, rule: DecisionRule) -> DecideAnswer:
        """The decision, and every document, best first."""
        scores, grades, steady = pool.scores, pool.grades, pool.stability(rule)
        role, away = np.empty(len(scores), int), distances(scores, rule)
        role[pool.ties] = roles(scores[pool.ties], rule)
        names = PAIR_ROLES if isinstance(rule, PairRule) else SET_ROLES
        rows = [
            Decided(
                index=i,
                score=float(scores[i]),
                role=names[int(role[i])],
                distance=None if away is None else float(away[i]),
                grades=None if grades is None else grades[i].tolist(),
                agreement=None if steady is None else float(steady.by_document[i]),
                settled=None if steady is None else bool(steady.settled[i]),
                document=text_of(pool.instance, i) if self.return_documents else None,
            )
            for i in pool.ranked
        ]
        expected = pool.model.expected_overlap if self.decision is None else None
        return DecideAnswer(
            model=pool.model.name,
            decision=Outcome(**asdict(outcome(scores, rule, pool.ties)), expected_overlap=expected),
            results=rows,
            stability=None if steady is None else stability_answer(pool, steady),
            usage=Usage(total_tokens=pool.tokens),
        )


class AuditRequest(PoolRequest):
    """POST /v1/audit: one pool under M permutations."""

    permutations: Annotated[int, Field(ge=2), BeforeValidator(check_whole)] = 10
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
    tie_rule: Literal["index", "content"] = Field(
        default="index", description="Equal scores stand in the order of the request, or by a hash of title and text."
    )
    presentation: Literal["given", "canonical", "permuted"]
    asked: int | None = Field(default=None, description="Presentations that there would be at most, where they are adaptive.")
    stopped: Stopped | None = None
    first_stage: int | None = Field(default=None, description="Percentage of each score that is the first stage's rank.")
    threshold: float | None = None
    retained: list[int] | None = None
    sd: list[float] | None = Field(
        default=None, description="Standard deviation of each document's score over the permutations, by index."
    )
    grades: list[list[float]] | None = Field(default=None, description="P(grade) of each document, by index.")


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


def text_of(instance: Instance, i: int) -> Text:
    return Text(text=instance.pool[i].text)


def stability_answer(pool: ScoredPool, steady: Stability) -> StabilityAnswer:
    return StabilityAnswer(
        permutations=len(pool.scored.scores),
        asked=pool.asked.count,
        stopped=pool.stopped,
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
