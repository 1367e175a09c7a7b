"""A document compressor of LangChain (pip install langchain-core)."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from . import Ranker


class SteadyscoreCompressor(BaseDocumentCompressor):
    """`SteadyscoreCompressor(ranker=Ranker("hf:..."), top_n=5)`; each document carries its score in its metadata."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    ranker: Ranker
    top_n: int | None = None

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        ranked = self.ranker.rank(query, [document.page_content for document in documents], self.top_n)
        return [_with_score(documents[index], score) for index, score in ranked]


def _with_score(document: Document, score: float) -> Document:
    return document.model_copy(update={"metadata": document.metadata | {"relevance_score": score}})
