"""Any scorer address behind the interface of a library that reranks, each in a thin module of its own.

`rerankers`, `sentence_transformers` (no dependency), `langchain`, `llama_index`, `haystack`, `pyterrier`, `mteb`. They share
`Ranker`: texts in, one score per text out, under the mitigations that were asked for. `inspect_ai` runs tasks of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..scoring.rerank import Ranker

__all__ = ["Ranker"]


def __getattr__(name: str) -> Any:
    """Ranker on its first use: pytest imports this package at every start, for its plugin."""
    if name == "Ranker":
        from ..scoring.rerank import Ranker

        return Ranker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
