"""Python values as scorers: a callable, or an object that ranks or predicts as the rerank libraries do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import InputError
from . import Backend
from .python_scorer import PythonReranker

Score = Callable[[str, list[str]], Sequence[float]]


def open_object(scorer: Any, name: str | None = None) -> Backend:
    """A backend for a Python value; an opened backend is taken as it is.

    predict   pairs of query and text -> scores (sentence-transformers' CrossEncoder)
    rank      query, texts -> results with a score and the place of each text (CrossEncoder.rank, rerankers.Reranker)
    callable  query, texts -> scores
    """
    if isinstance(scorer, Backend):
        return scorer
    function = _function(scorer)
    called = getattr(scorer, "__qualname__", None) or type(scorer).__qualname__
    return PythonReranker(function, name or f"python:{called.replace('<', '').replace('>', '')}", scorer=scorer)


def _function(scorer: Any) -> Score:
    if hasattr(scorer, "predict"):
        return lambda query, texts: scorer.predict([(query, text) for text in texts])
    if hasattr(scorer, "rank"):
        return lambda query, texts: _in_order(scorer.rank(query, texts), len(texts))
    if callable(scorer):
        return scorer  # type: ignore[no-any-return]
    raise InputError(
        f"a {type(scorer).__name__} is not a scorer. Give an address, a function `(query, texts) -> scores`, or an object with "
        "`.predict` or `.rank`."
    )


def _in_order(ranked: Any, count: int) -> list[float]:
    """Scores in the order of the texts, from results in the order of their ranks."""
    scores: dict[int, float] = {}
    for result in getattr(ranked, "results", ranked):
        place, score = _place_and_score(result)
        scores[place] = score
    if missing := [place for place in range(count) if place not in scores]:
        raise ValueError(f"rank gave no score for {len(missing)} of {count} texts, the first at place {missing[0]}")
    return [scores[place] for place in range(count)]


def _place_and_score(result: Any) -> tuple[int, float]:
    if isinstance(result, Mapping):
        return int(result.get("corpus_id", result.get("index"))), float(result["score"])
    return int(result.doc_id if hasattr(result, "doc_id") else result.index), float(result.score)
