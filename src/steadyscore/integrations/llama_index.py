"""A node postprocessor of LlamaIndex (pip install llama-index-core)."""

from __future__ import annotations

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle

from ..errors import InputError
from . import Ranker


class SteadyscorePostprocessor(BaseNodePostprocessor):
    """`SteadyscorePostprocessor(ranker=Ranker("hf:..."), top_n=5)`."""

    ranker: Ranker
    top_n: int | None = None

    @classmethod
    def class_name(cls) -> str:
        return "SteadyscorePostprocessor"

    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None) -> list[NodeWithScore]:
        if query_bundle is None:
            raise InputError("nodes cannot be scored without a query: pass query_str or query_bundle.")
        texts = [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        ranked = self.ranker.rank(query_bundle.query_str, texts, self.top_n)
        return [NodeWithScore(node=nodes[index].node, score=score) for index, score in ranked]
