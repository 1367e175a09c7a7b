"""A ranker of the `rerankers` library (pip install rerankers)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerankers.documents import Document
from rerankers.models.ranker import BaseRanker
from rerankers.results import RankedResults, Result

from . import Ranker


class SteadyscoreRanker(BaseRanker):
    """`SteadyscoreRanker("hf:...").rank(query, docs)`, as every model of the library."""

    def __init__(self, model_name_or_path: str, verbose: int = 0, **how: Any):
        self.ranker = Ranker(model_name_or_path, **how)
        self.verbose = verbose

    def score(self, query: str, doc: str) -> float:
        return self.ranker.scores(query, [doc])[0]

    def rank(
        self,
        query: str,
        docs: str | Document | Sequence[str | Document],
        doc_ids: Sequence[str | int] | None = None,
        metadata: Sequence[dict[str, Any]] | None = None,
    ) -> RankedResults:
        listed = [docs] if isinstance(docs, str | Document) else list(docs)
        documents = [
            doc
            if isinstance(doc, Document)
            else Document(doc, doc_ids[i] if doc_ids else i, metadata=metadata[i] if metadata else None)
            for i, doc in enumerate(listed)
        ]
        ranked = self.ranker.rank(query, [document.text for document in documents])
        results = [Result(documents[index], score, place) for place, (index, score) in enumerate(ranked, start=1)]
        return RankedResults(results, query, has_scores=True)
