"""The `.predict()` and `.rank()` of a sentence-transformers `CrossEncoder`, without the package."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from . import Ranker


class CrossEncoder:
    """Takes the place of `sentence_transformers.CrossEncoder`: `CrossEncoder("hf:...").rank(query, documents)`.

    Keywords of the original that say how it computes are accepted, and nothing follows from them.
    """

    def __init__(self, address: str, **how: Any):
        self.ranker = Ranker(address, **how)

    def predict(
        self,
        sentences: Sequence[tuple[str, str]] | tuple[str, str] | np.ndarray,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        num_workers: int = 0,
        convert_to_numpy: bool = True,
    ) -> np.ndarray | list[float] | float:
        """Scores of (query, text) pairs. Neighbouring pairs of one query are one pool: they are scored together."""
        given: list[Any] = sentences.tolist() if isinstance(sentences, np.ndarray) else list(sentences)
        if given and isinstance(given[0], str):
            query, text = given
            return self.ranker.scores(query, [text])[0]
        pools = groupby(given, key=lambda pair: pair[0])
        scores = [score for query, pairs in pools for score in self.ranker.scores(query, [text for _, text in pairs])]
        return np.array(scores) if convert_to_numpy else scores

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        *,
        batch_size: int = 32,
        show_progress_bar: bool | None = None,
        num_workers: int = 0,
        convert_to_numpy: bool = True,
    ) -> list[dict[str, Any]]:
        """[{"corpus_id", "score"[, "text"]}], best first."""
        return [
            {"corpus_id": index, "score": score} | ({"text": documents[index]} if return_documents else {})
            for index, score in self.ranker.rank(query, documents, top_k)
        ]
