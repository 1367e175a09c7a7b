"""A component of Haystack pipelines (pip install haystack-ai)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict

from . import Ranker


@component
class SteadyscoreRanker:
    """`SteadyscoreRanker("hf:...", top_k=5)`: documents in, documents out, best first. The model is opened on warm up."""

    def __init__(self, address: str, top_k: int | None = None, how: dict[str, Any] | None = None):
        self.address, self.top_k, self.how = address, top_k, how or {}
        self._ranker: Ranker | None = None

    def warm_up(self) -> None:
        self._ranker = self._ranker or Ranker(self.address, **self.how)

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = default_to_dict(self, address=self.address, top_k=self.top_k, how=self.how)
        return fields

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SteadyscoreRanker:
        made: SteadyscoreRanker = default_from_dict(cls, data)
        return made

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, list[Document]]:
        self.warm_up()
        assert self._ranker is not None
        most = self.top_k if top_k is None else top_k
        ranked = self._ranker.rank(query, [document.content or "" for document in documents], most)
        return {"documents": [replace(documents[index], score=score) for index, score in ranked]}
