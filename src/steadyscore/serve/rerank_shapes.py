"""The rerank requests and answers of others, to the key: Jina, Cohere, Voyage, TEI, vLLM and what they share.

They ignore fields they do not know, and so do these shapes. Refused is what would give another answer than was asked for; every
other field of theirs (`user`, `priority`, `request_id`, `cache_salt`, `padding`, `mm_processor_kwargs`: there are no images) is
ignored, as is `return_documents` where answers never carry any.
"""

from __future__ import annotations

import time
import uuid
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, AliasChoices, BaseModel, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from ..errors import InputError
from ..machine.schemas import Count, Flag, Natural, Words
from .service import ScoredPool
from .shapes import Document, Documents, Instruction, Order, OrderAnswer, Query, Text, Usage, text_of

UNHONOURED: dict[str, dict[str, tuple[Any, ...]]] = {
    "title and text are read, in this order": {"rank_fields": (["text"], ["title", "text"])},
    "no document is cut into chunks, its beginning is read": {"max_chunks_per_doc": (1,), "max_chunk_per_doc": (1,)},
    "say max_tokens_per_doc, or truncate with `texts` on /rerank": {
        "max_doc_length": (), "truncate_prompt_tokens": (-1,), "truncation_side": ("right",), "truncation": (True,),
        "truncate": (True,), "truncation_direction": ("right", "Right"),
    },
    "scores are from 0 to 1, and raw ones are given with `texts` on /rerank": {
        "use_activation": (True,), "activation": (True,), "softmax": (True,), "raw_scores": (False,),
    },
    "the prompt is the server's; say instruction": {"chat_template": (), "chat_template_kwargs": ({},)},
    "say return_documents": {"return_text": (False,)},
    "say top_n": {"top_k": ()},
    "there are none": {"return_embeddings": (False,)},
}  # fmt: skip
"""What to say, and each field with the values that ask for nothing else than what is done anyway."""
EITHER = "give documents, or texts for TEI's shape, and not both"
TOKENS_PER_DOCUMENT = "Tokens read of each document; 0 as many as the server reads, as vLLM has it."
COHERE_TOKENS = 4096
"""Cohere's `max_tokens_per_doc` where a request names none."""
# Lists fail at their first wrong item: pydantic writes two mistakes for each one, and a body has room for two million.
Queries = Annotated[list[Query], Field(min_length=1, fail_fast=True)]
Texts = Annotated[list[Words], Field(min_length=1, fail_fast=True)]
Direction = Annotated[Literal["left", "right", "Left", "Right"], AfterValidator(str.lower)]
"""TEI takes both spellings."""


class ForeignRequest(BaseModel):
    """What the shapes of others share."""

    model: Words | None = None
    instruction: Instruction | None = None

    @model_validator(mode="before")
    @classmethod
    def refuse_unhonoured(cls, value: Any) -> Any:
        known = cls.model_fields.keys() - {"truncation"}  # declared to tell a request of Voyage's, and not honoured
        body = value if isinstance(value, dict) else {}
        mistakes = [
            f"{name} is not honoured here: {words}. Leave it out"
            for words, names in UNHONOURED.items()
            for name, harmless in names.items()
            if name not in known and (given := body.get(name)) is not None and given not in harmless
        ]
        if mistakes:
            raise PydanticCustomError("unhonoured", "{mistakes}", {"mistakes": "; ".join(mistakes)})
        return value


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: Text | None = None


class RerankRequest(ForeignRequest):
    """What the requests for a ranking share; each says how its answer is made of a scored pool."""

    query: Query
    top_n: Count | None = None
    top_k: Count | None = Field(default=None, description="Voyage's name of top_n.")
    max_tokens_per_doc: Natural | None = Field(default=None, description=TOKENS_PER_DOCUMENT)
    order: Order | None = None
    default_tokens: ClassVar[int | None] = None
    """Tokens read of each document where the request names none; None: as many as the server reads."""

    @model_validator(mode="after")
    def check_one_number(self) -> Self:
        if None not in (self.top_n, self.top_k) and self.top_n != self.top_k:
            raise PydanticCustomError("either", "top_n and top_k are two names of one number. Give one of them")
        return self

    @property
    def top(self) -> int | None:
        """Documents that are asked for; None: all of them."""
        return self.top_n or self.top_k or None

    def rows(self, pool: ScoredPool, documents: bool = False) -> list[Ranked]:
        return [
            Ranked(index=i, relevance_score=score, document=text_of(pool.instance, i) if documents else None)
            for i, score in self.best(pool)
        ]

    def best(self, pool: ScoredPool) -> list[tuple[int, float]]:
        """The documents that are asked for and their scores, best first."""
        scores = pool.scores
        return [(i, float(scores[i])) for i in pool.ranked[: self.top]]

    def told(self, pool: ScoredPool) -> OrderAnswer | None:
        """What is said about the presentations, where the request has `order`."""
        return None if self.order is None else self.order.answer(pool)


class VoyageRanked(BaseModel):
    index: int
    relevance_score: float
    document: str | None = None


class JinaAnswer(BaseModel):
    model: str
    object: Literal["list"] = "list"
    usage: Usage
    results: list[Ranked]
    data: list[VoyageRanked] | None = Field(default=None, description="The same, where the request has a field of Voyage's.")
    order: OrderAnswer | None = None


class JinaRequest(RerankRequest):
    """POST /v1/rerank: Jina's, and Voyage's."""

    documents: Documents
    return_documents: Flag = True
    truncation: Literal[True] | None = Field(
        default=None, description="Voyage's: documents are always cut to what the server reads."
    )

    def answer(self, pool: ScoredPool) -> JinaAnswer:
        return JinaAnswer(
            model=pool.model.name,
            usage=Usage(total_tokens=pool.tokens),
            results=self.rows(pool, self.return_documents),
            data=self.voyage_rows(pool) if self.is_of_voyage else None,
            order=self.told(pool),
        )

    @property
    def is_of_voyage(self) -> bool:
        return self.top_k is not None or self.truncation is not None

    def voyage_rows(self, pool: ScoredPool) -> list[VoyageRanked]:
        """Voyage gives no documents unless they are asked for."""
        named = self.return_documents and "return_documents" in self.model_fields_set
        return [
            VoyageRanked(index=i, relevance_score=score, document=pool.instance.pool[i].text if named else None)
            for i, score in self.best(pool)
        ]


class BilledUnits(BaseModel):
    search_units: float = 1


class ApiVersion(BaseModel):
    version: str = "2"


class Tokens(BaseModel):
    input_tokens: int


class Meta(BaseModel):
    api_version: ApiVersion = Field(default_factory=ApiVersion)
    billed_units: BilledUnits = Field(default_factory=BilledUnits)
    tokens: Tokens | None = None


class CohereAnswer(BaseModel):
    id: str
    results: list[Ranked]
    meta: Meta
    order: OrderAnswer | None = None


class CohereRequest(RerankRequest):
    """POST /v2/rerank. Answers never carry documents."""

    documents: Documents
    max_tokens_per_doc: Count | None = Field(
        default=None, description="Tokens read of each document, 4096 where none are named; never more than the server reads."
    )
    default_tokens: ClassVar[int | None] = COHERE_TOKENS

    def answer(self, pool: ScoredPool) -> CohereAnswer:
        meta = Meta(tokens=Tokens(input_tokens=pool.tokens))
        return CohereAnswer(id=str(uuid.uuid4()), results=self.rows(pool), meta=meta, order=self.told(pool))


class TeiRanked(BaseModel):
    index: int
    score: float
    text: str | None = None


class TeiRequest(RerankRequest):
    """POST /rerank with `texts`."""

    documents: Texts = Field(alias="texts")
    raw_scores: Flag = Field(default=False, description="The expected grade from 0 to 3 instead of the score from 0 to 1.")
    return_text: Flag = False
    truncate: Flag | None = Field(
        default=None, description="Cut a text that is too long, or refuse it; without this field, as the server was started."
    )
    truncation_direction: Direction = Field(default="right", description="The side that is cut.")
    top_n: Natural | None = None

    def answer(self, pool: ScoredPool) -> list[TeiRanked]:
        scale = 3.0 if self.raw_scores and pool.model.backend.capabilities.gives == "distribution" else 1.0
        return [
            TeiRanked(index=i, score=scale * score, text=pool.instance.pool[i].text if self.return_text else None)
            for i, score in self.best(pool)
        ]


class UnionAnswer(BaseModel):
    id: str
    model: str
    object: Literal["list"] = "list"
    usage: Usage
    results: list[Ranked]
    meta: Meta = Field(default_factory=Meta)
    order: OrderAnswer | None = None


class UnionRequest(RerankRequest):
    """POST /rerank with `documents`: what Cohere, Jina and vLLM share."""

    documents: Documents
    top_n: Natural | None = Field(default=None, description="0 keeps all, as vLLM has it.")
    return_documents: Flag = False

    def answer(self, pool: ScoredPool) -> UnionAnswer:
        return UnionAnswer(
            id=f"rerank-{uuid.uuid4().hex}",
            model=pool.model.name,
            usage=Usage(total_tokens=pool.tokens),
            results=self.rows(pool, self.return_documents),
            order=self.told(pool),
        )


def texts_or_documents(value: Any) -> str | None:
    """Which of the two shapes of /rerank a body has, by the list in it; None where it has both, or neither."""
    if not isinstance(value, dict):
        return UnionRequest.__name__
    shapes = {"texts": TeiRequest, "documents": UnionRequest}
    given = [shape.__name__ for name, shape in shapes.items() if value.get(name) is not None]
    return given[0] if len(given) == 1 else None


AnyRequest = Annotated[
    Annotated[TeiRequest, Tag("TeiRequest")] | Annotated[UnionRequest, Tag("UnionRequest")],
    Discriminator(texts_or_documents, custom_error_type="either", custom_error_message=EITHER),
]


class ScoreRequest(ForeignRequest):
    """POST /score and /v1/score, vLLM's shape: one query and its documents, or as many queries as documents."""

    queries: Query | Queries = Field(
        validation_alias=AliasChoices("queries", "text_1"), description="Its older name, text_1, is read too."
    )
    documents: Words | Documents = Field(
        validation_alias=AliasChoices("documents", "text_2"), description="Its older name, text_2, is read too."
    )

    @model_validator(mode="before")
    @classmethod
    def leave_out_null(cls, value: Any) -> Any:
        """The older name is read where the newer one has no value."""
        names = ("queries", "documents")
        return {k: v for k, v in value.items() if k not in names or v is not None} if isinstance(value, dict) else value

    def pairs(self) -> list[tuple[str, list[str | Document]]]:
        """Each query with its documents: one with all of them, or each with its own."""
        queries = [self.queries] if isinstance(self.queries, str) else self.queries
        documents: list[str | Document] = [self.documents] if isinstance(self.documents, str) else self.documents
        if len(queries) == 1:
            return [(queries[0], documents)]
        if len(queries) != len(documents):
            raise InputError(
                f"{len(queries)} queries and {len(documents)} documents cannot be paired. "
                "Give one query, or as many as documents."
            )
        return [(query, [document]) for query, document in zip(queries, documents, strict=True)]


class ScoreUsage(Usage):
    prompt_tokens: int = Field(description="The same: nothing is written.")


class ScoreDatum(BaseModel):
    index: int
    object: Literal["score"] = "score"
    score: float


class ScoresAnswer(BaseModel):
    id: str = Field(default_factory=lambda: f"score-{uuid.uuid4().hex}")
    object: Literal["list"] = "list"
    created: int = Field(default_factory=lambda: int(time.time()))
    model: str
    data: list[ScoreDatum]
    usage: ScoreUsage
