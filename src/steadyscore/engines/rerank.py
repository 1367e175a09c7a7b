"""Any `/rerank` endpoint: Cohere v2, Jina, vLLM, SGLang, Infinity, Voyage and Text Embeddings Inference.

Two questions exist: `documents` (all but one) and `texts` (TEI). Which one an endpoint takes is found by asking, or named:
`rerank+tei:<url>`. Answers come sorted; they are put back by index, and each index must come exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import InputError
from ..terms import JsonObject
from . import HTTP, Address, Capabilities, EngineOptions, Kind, Listing, Reranker
from .answers import Malformed, field, number
from .http import Endpoint, Silent, Unusable
from .servers import split_model_and_base

PROBE = ("why is the sky blue", ["Short waves of light scatter more in air.", "The ferry leaves at nine."])


class HttpReranker(Reranker):
    """`rerank[+shape]:[model@]<url>`: the url of the endpoint itself, such as https://api.cohere.com/v2/rerank."""

    endpoint: Endpoint

    def __init__(self, endpoint: Endpoint, model: str, shape: str):
        self.endpoint, self.model, self.shape = endpoint, model, shape
        self.name = f"rerank+{shape}:{model + '@' if model else ''}{endpoint.base}"
        self.capabilities = Capabilities(gives="score")

    def identity(self) -> JsonObject:
        return {"kind": "rerank", "model": self.model or self.endpoint.base, "shape": self.shape}

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.score_pools([(query, texts)])[0]

    def score_pools(self, pools: Sequence[tuple[str, Sequence[str]]]) -> list[Sequence[float]]:
        return self.endpoint.map(self._ask, pools)

    async def _ask(self, pool: tuple[str, Sequence[str]]) -> Sequence[float]:
        query, texts = pool
        body = build_request(self.shape, self.model, query, list(texts))
        return await self.endpoint.post("", body, lambda answer: parse_scores(answer, texts))


def open_rerank(address: Address, options: EngineOptions) -> HttpReranker:
    _, shape, rest = address
    model, base = split_model_and_base(rest)
    endpoint = Endpoint(base, options)
    if shape:
        return HttpReranker(endpoint, model, shape)
    refusals = []
    for candidate in ("cohere", "tei"):
        reranker = HttpReranker(endpoint, model, candidate)
        try:
            reranker.score(*PROBE)
        except Silent as silence:  # whatever the shape
            raise InputError(f"{base} cannot be reached: {silence}. Is the server running there?") from silence
        except Unusable as refusal:
            refusals.append(f"{candidate}: {refusal}")
        else:
            return reranker
    raise InputError(f"{base} answered neither shape of question. {'; '.join(refusals)}. Name the shape: rerank+tei:{rest}.")


def build_request(shape: str, model: str, query: str, texts: list[str]) -> dict[str, object]:
    if shape == "tei":
        return {"query": query, "texts": texts}
    named = {"model": model} if model else {}
    # All results are wanted, and none of the documents back.
    extra = {"return_documents": False} if shape == "jina" else {}
    return {**named, "query": query, "documents": texts, "top_n": len(texts), **extra}


def parse_scores(answer: Any, texts: Sequence[str]) -> list[float]:
    """Scores in the order the texts were sent."""
    n = len(texts)
    results = answer.get("results", answer.get("data")) if isinstance(answer, dict) else answer
    if not isinstance(results, list) or len(results) != n:
        raise Malformed(f"{len(results) if isinstance(results, list) else 'no'} results came back for {n} texts")
    scores: dict[int, float] = {}
    for result in results:
        index = field(result, "index")
        value = result.get("relevance_score", result.get("score"))
        if type(index) is not int or not 0 <= index < n or index in scores:
            raise Malformed(f"index {index!r} is out of range or came twice")
        document = result.get("document", result.get("text"))
        text = document.get("text") if isinstance(document, dict) else document
        if text != texts[index] and text in texts:
            raise Malformed(f"index {index} came back with another of the texts than was sent at that place")
        scores[index] = number(value, f"the score of text {index}")
    return [scores[i] for i in range(n)]


KINDS = (
    Kind(
        "rerank",
        open_rerank,
        takes="pool",
        listed=(Listing("rerank[+cohere|+jina|+tei]:[<model>@]<url>", "score"),),
        options=HTTP,
        needs=lambda rest: ("httpx2",),
        variants=("cohere", "jina", "tei"),
        is_server=True,
    ),
)
