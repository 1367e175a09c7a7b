"""Any scorer address behind the interface of a library that reranks, each in a thin module of its own.

`rerankers`, `sentence_transformers` (no dependency), `langchain`, `llama_index`, `haystack`, `pyterrier`. They share
`Ranker`: texts in, one score per text out, under the mitigations that were asked for.
"""

from __future__ import annotations

from ..scoring.rerank import Ranker

__all__ = ["Ranker"]
