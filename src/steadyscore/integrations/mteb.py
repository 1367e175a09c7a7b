"""A model of MTEB (pip install mteb) that keeps a query's candidates together, so that listwise scorers can be evaluated there.

MTEB's own cross-encoders are given (query, text) pairs of all queries in one stream. Here a query's candidates are one pool.
From MTEB's command line: `python -m steadyscore.integrations.mteb ADDRESS run -t TASK`; the rest is `mteb`'s own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import mteb.models.model_implementations
from mteb.models import ModelMeta

from ..errors import InputError
from ..scoring.rerank import Document
from . import Ranker


class SteadyscoreSearch:
    """`mteb.evaluate(SteadyscoreSearch("hf:..."), tasks)`: reranks what a task ranked first, pool by pool."""

    def __init__(self, scorer: Any, **how: Any):
        self.ranker = Ranker(scorer, **how)
        self.mteb_model_meta = model_meta(self.ranker.name)
        self._documents: dict[str, Document] = {}

    def index(self, corpus: Any, **how: Any) -> None:
        self._documents = {
            row["id"]: {"text": row["text"], "title": row["title"]} if row.get("title") else row["text"] for row in corpus
        }

    def search(self, queries: Any, *, top_k: int, top_ranked: Any = None, **how: Any) -> dict[str, dict[str, float]]:
        """The scores of each query's candidates, in the order in which the task's first stage ranked them."""
        if top_ranked is None:
            raise InputError("this task ranks a whole corpus. Take a reranking task, or one with top_ranked documents.")
        return {row["id"]: self._scores(row["text"], top_ranked.get(row["id"], [])) for row in queries}

    def _scores(self, query: str, ids: Sequence[str]) -> dict[str, float]:
        scores = self.ranker.scores(query, [self._documents[id] for id in ids])
        return dict(zip(ids, scores, strict=True))


def model_meta(name: str) -> ModelMeta:
    """What MTEB keeps of a model beside its results; an address is a name, and is opened when MTEB loads the model."""
    unknown = (
        "revision", "release_date", "languages", "n_parameters", "memory_usage_mb", "max_tokens", "embed_dim", "license",
        "open_weights", "public_training_code", "public_training_data", "similarity_fn_name", "use_instructions",
        "training_datasets",
    )  # fmt: skip
    return ModelMeta(
        loader=lambda _, revision=None, device=None, **kwargs: SteadyscoreSearch(name),
        name=f"steadyscore/{name.replace('/', '_')}",
        framework=[],
        **dict.fromkeys(unknown),
    )


def main(arguments: Sequence[str]) -> None:
    """MTEB's command line, with the scorer as its model."""
    from mteb.cli.build_cli import main as run_mteb

    if len(arguments) < 2 or arguments[1] != "run":
        raise SystemExit("usage: python -m steadyscore.integrations.mteb ADDRESS run -t TASK [options of mteb run]")
    meta = model_meta(arguments[0])
    assert meta.name is not None
    mteb.models.model_implementations.MODEL_REGISTRY[meta.name] = meta
    sys.argv = ["mteb", "run", "-m", meta.name, *arguments[2:]]
    run_mteb()


if __name__ == "__main__":
    main(sys.argv[1:])
