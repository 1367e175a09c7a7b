"""First stages: what puts the top candidates of a corpus in front of a scorer (§5: BM25, dense BGE, learned-sparse SPLADE).

Each is a function from texts to a search: query and depth in, (document index, score) out, best first, ties by document index.
They hold their index in memory; for corpora of many millions bring a run made elsewhere (run:FILE).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError, ModelError
from ..machine.extras import check_installed
from ..terms import Array

Search = Callable[[str, int], list[tuple[int, float]]]

BM25_SETTINGS = {"default": (0.9, 0.4), "msmarco": (0.82, 0.68)}
"""Named (k1, b): Anserini's default, and the pair tuned on MS MARCO passages, which made the paper's training pools."""

STOPWORDS = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on", "or",
    "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
]  # fmt: skip
"""Lucene's English list."""

TOKEN = r"(?u)\b\w+\b"
BGE_QUERY = "Represent this sentence for searching relevant passages: "


@dataclass(frozen=True, slots=True)
class FirstStage:
    """A first stage as the command line names it: bm25, bm25:msmarco, dense:MODEL, splade:MODEL, run:FILE."""

    kind: str
    argument: str | None = None
    k1: float = BM25_SETTINGS["default"][0]
    b: float = BM25_SETTINGS["default"][1]

    @property
    def provenance(self) -> dict[str, object]:
        settings = {"k1": self.k1, "b": self.b, "stemmer": "snowball-english", "stopwords": "lucene"}
        return {"kind": self.kind} | (settings if self.kind == "bm25" else {"source": self.argument})


def parse_first_stage(spec: str, *, k1: float | None = None, b: float | None = None) -> FirstStage:
    kind, _, argument = spec.partition(":")
    if kind == "bm25" and (argument or "default") in BM25_SETTINGS:
        named = BM25_SETTINGS[argument or "default"]
        return FirstStage("bm25", None, named[0] if k1 is None else k1, named[1] if b is None else b)
    if kind in ("dense", "splade", "run") and argument:
        return FirstStage(kind, argument)
    raise InputError(f"{spec} is not a first stage. Give bm25, bm25:msmarco, dense:MODEL, splade:MODEL or run:FILE.")


STAGE_MODULES = {
    "bm25": ("bm25s", "Stemmer"),
    "dense": ("sentence_transformers",),
    "splade": ("sentence_transformers",),
    "run": (),
}


def check_stage(stage: FirstStage) -> None:
    """Refuse a stage whose library is not installed: a corpus may take hours to read before it is searched."""
    check_installed(f"the {stage.kind} first stage", *STAGE_MODULES[stage.kind])


def search_over(stage: FirstStage, texts: Iterable[str]) -> Search:
    """The search of a stage over a corpus."""
    if stage.kind == "bm25":
        return bm25(texts, k1=stage.k1, b=stage.b)
    return {"dense": dense, "splade": splade}[stage.kind](list(texts), stage.argument or "")


def bm25(texts: Iterable[str], *, k1: float = 0.9, b: float = 0.4) -> Search:
    """Lucene's BM25 over stemmed words without stopwords. A document that shares no word with the query is not returned."""
    check_stage(FirstStage("bm25"))
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    options: dict[str, object] = {
        "stopwords": STOPWORDS, "stemmer": stemmer, "token_pattern": TOKEN, "show_progress": False,
    }  # fmt: skip
    index = bm25s.BM25(k1=k1, b=b, method="lucene")
    index.index(bm25s.tokenize(list(texts), **options), show_progress=False)

    def search(query: str, depth: int) -> list[tuple[int, float]]:
        words = [word for word in bm25s.tokenize([query], return_ids=False, **options)[0] if word in index.vocab_dict]
        return top_documents(index.get_scores(words), depth, above=0.0) if words else []

    return search


def dense(texts: list[str], model: str) -> Search:
    """Inner product of unit sentence embeddings; BGE's English models get the query prefix they were trained with."""
    encoder = _sentence_transformers("the dense first stage", "SentenceTransformer", model)
    prefix = BGE_QUERY if "bge-" in model.lower() and "-en" in model.lower() else ""
    corpus = np.asarray(encoder.encode_document(texts, normalize_embeddings=True, show_progress_bar=False))  # (n, d)

    def search(query: str, depth: int) -> list[tuple[int, float]]:
        embedded = encoder.encode_query([prefix + query], normalize_embeddings=True, show_progress_bar=False)  # (1, d)
        return top_documents(corpus @ np.asarray(embedded)[0], depth)

    return search


def splade(texts: list[str], model: str) -> Search:
    """Inner product of learned sparse vectors. A document without a common term is not returned."""
    encoder = _sentence_transformers("the learned-sparse first stage", "SparseEncoder", model)
    corpus = encoder.encode_document(texts, convert_to_tensor=True, show_progress_bar=False)  # (n, vocabulary), sparse

    def search(query: str, depth: int) -> list[tuple[int, float]]:
        embedded = encoder.encode_query([query], convert_to_tensor=True, show_progress_bar=False)
        return top_documents(encoder.similarity(embedded, corpus).cpu().numpy()[0], depth, above=0.0)

    return search


def top_documents(scores: Array, depth: int, *, above: float = -np.inf) -> list[tuple[int, float]]:
    """The best `depth` of (n,) scores, equal scores by index; those not above the floor are left out."""
    least = np.partition(scores, -depth)[-depth] if depth < len(scores) else -np.inf
    kept = np.flatnonzero((scores >= least) & (scores > above))  # all that tie at the edge, so that the cut is by index
    order = kept[np.argsort(-scores[kept], kind="stable")][:depth]
    return [(int(index), float(scores[index])) for index in order]


def _sentence_transformers(what: str, encoder: str, model: str) -> Any:
    check_installed(what, *STAGE_MODULES["dense"])
    import sentence_transformers

    try:
        return getattr(sentence_transformers, encoder)(model)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ModelError(f"{what} cannot load {model}: {reason} Give a local folder, or bring its run with run:FILE.") from None
