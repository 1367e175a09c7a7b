"""The `.predict()` and `.rank()` of a sentence-transformers `CrossEncoder`, without the package."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from . import Ranker


class CrossEncoder:
    """Takes the place of `sentence_transformers.CrossEncoder`: `CrossEncoder("hf:...").rank(query, documents)`."""

    def __init__(self, address: str, **how: Any):
        self.ranker = Ranker(address, **how)

    def predict(self, sentences: Sequence[tuple[str, str]] | tuple[str, str]) -> np.ndarray | float:
        """Scores of (query, text) pairs. Neighbouring pairs of one query are one pool: they are scored together."""
        if sentences and isinstance(sentences[0], str):
            return self.ranker.scores(sentences[0], [sentences[1]])[0]  # type: ignore[list-item]
        pools = groupby(sentences, key=lambda pair: pair[0])
        return np.array([score for query, pairs in pools for score in self.ranker.scores(query, [text for _, text in pairs])])

    def rank(
        self, query: str, documents: Sequence[str], top_k: int | None = None, return_documents: bool = False
    ) -> list[dict[str, Any]]:
        """[{"corpus_id", "score"[, "text"]}], best first."""
        return [
            {"corpus_id": index, "score": score} | ({"text": documents[index]} if return_documents else {})
            for index, score in self.ranker.rank(query, documents, top_k)
        ]
