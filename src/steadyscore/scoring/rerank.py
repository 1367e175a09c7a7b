"""`steadyscore.rerank`: a query and documents in, the documents in the order of their scores out; `Ranker` also decides."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from ..collection.format import is_encodable
from ..engines import EngineOptions
from ..errors import InputError
from ..machine.extras import check_installed
from ..machine.names import short_repr, shorten
from ..measures.settling import Outcome, check_rule, outcome
from ..terms import Candidate, Collection, Instance, JsonObject, PromptStyle, TaskName
from .adaptive import for_pool, parse_rule
from .config import AuditConfig
from .mitigations import Mitigated, count_windows, mitigate
from .opening import open_scorer
from .presented import in_pool_order
from .scorer import Settings

if TYPE_CHECKING:
    import pandas as pd

Document = str | Mapping[str, Any]
"""A text, or a dict with `text` and, where there is one, `title`; whatever else it holds is handed back."""


@dataclass(frozen=True, slots=True)
class RankedDocument:
    """A document and what it was given."""

    rank: int
    """1 is the best."""
    index: int
    """Its place among the documents that were given, from 0."""
    score: float
    document: Document


class Ranking(Sequence[RankedDocument]):
    """Documents, best first. Prints as a table."""

    def __init__(self, query: str, documents: Iterable[RankedDocument]):
        self.query = query
        self._documents = tuple(documents)

    @overload
    def __getitem__(self, index: int) -> RankedDocument: ...
    @overload
    def __getitem__(self, index: slice) -> Ranking: ...
    def __getitem__(self, index: int | slice) -> RankedDocument | Ranking:
        chosen = self._documents[index]
        return Ranking(self.query, chosen) if isinstance(chosen, tuple) else chosen

    def __len__(self) -> int:
        return len(self._documents)

    def to_json(self) -> list[JsonObject]:
        return [{"rank": d.rank, "index": d.index, "score": d.score, "document": d.document} for d in self]

    def to_pandas(self) -> pd.DataFrame:
        """A row per document."""
        check_installed("to_pandas()", "pandas")
        import pandas as pd

        return pd.DataFrame(self.to_json())

    def __str__(self) -> str:
        lines = [f"{d.rank:>4}  {d.score:.4f}  [{d.index}] {_beginning(d.document)}" for d in self]
        return "\n".join([f"{len(self)} documents for {self.query!r}", *lines])

    def __repr__(self) -> str:
        first = f", first {_beginning(self[0].document)!r}" if self else ""
        return short_repr(self, f"of {len(self)} documents for {self.query!r}{first}")


def _beginning(document: Document) -> str:
    return shorten(" ".join(_candidate("", document).text.split()), 80)


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided of some documents, by their places among those that were given, from 0."""

    outcome: Outcome
    scores: list[float]
    windows: int
    """What the scorer was shown for it."""


class Ranker:
    """A scorer that is opened once, as a function of a query and texts."""

    def __init__(
        self,
        scorer: Any,
        *,
        task: TaskName = "passage_reranking",
        width: int | None = None,
        chars: int | None = None,
        prompt: PromptStyle | None = None,
        mitigations: Sequence[str] = (),
        options: EngineOptions | None = None,
    ):
        config = AuditConfig(settings=Settings(width=width, prompt=prompt, label_mass=False), chars=chars)
        self.scorer: Any = mitigate(open_scorer(scorer, Collection("texts", task), config, options), mitigations)
        self.name = self.scorer.name

    def scores(self, query: str, documents: Sequence[Document]) -> list[float]:
        """One score per document, as presented in the order given."""
        return [float(score) for score in self.scorer.score(_instance(query, documents))] if documents else []

    def rank(self, query: str, documents: Sequence[Document], top_k: int | None = None) -> list[tuple[int, float]]:
        """(index, score) best first; equal scores by text, never by the place they came in."""
        if top_k is not None and top_k < 1:
            raise InputError(f"top_k is {top_k}: give 1 or more, or leave it out for the whole ranking.")
        texts = [_text(document) for document in documents]
        scores = list(enumerate(self.scores(query, documents)))
        return sorted(scores, key=lambda each: (-each[1], texts[each[0]], each[0]))[:top_k]

    def decide(self, query: str, documents: Sequence[Document], rule: str) -> Decision:
        """What a rule (cutoff=0.5, top=3, share=0.3 or pair) makes of the scores; equal ones by text, as in `rank`.

        Under `adaptive:K` the documents are presented until this rule has decided, whatever decision the name carries.
        """
        n, named = len(documents), parse_rule(rule)
        if not n:
            raise InputError("there are no documents to decide about. Give at least one, and two for a pair.")
        check_rule(decision := for_pool(named, n), n)
        scorer = self.scorer.with_rule(named) if isinstance(self.scorer, Mitigated) else self.scorer
        by_text = np.array(sorted(range(n), key=lambda i: (_text(documents[i]), i)))
        instance = _instance(query, documents)
        presented = scorer.score_orders(instance, np.arange(n)[None], [0])
        scores = in_pool_order(presented, instance)
        windows = round(count_windows(n, scorer.width, scorer.mitigations)) - presented.cost.skipped
        return Decision(outcome(scores, decision, by_text), scores.tolist(), windows)


def rerank(
    scorer: Any,
    query: str,
    documents: Iterable[Document],
    *,
    top_k: int | None = None,
    task: TaskName = "passage_reranking",
    width: int | None = None,
    chars: int | None = None,
    prompt: PromptStyle | None = None,
    mitigations: Sequence[str] = (),
    options: EngineOptions | None = None,
) -> Ranking:
    """Put documents in the order of their scores, best first; equal scores by text, so that the order given never decides.

    scorer       an address (opened anew by each call), what `open_engine` gives, a callable `(query, texts) -> scores`, or an
                 object with `.predict` or `.rank`
    documents    texts, or dicts with `text` and, where there is one, `title`
    top_k        only the first of the ranking
    width        documents per prompt; by default the task's for a language model, all of them for other scorers
    prompt       how a pool is worded and read; by default as an adapter was trained
    mitigations  ways to serve the scorer that make it steadier, such as `self-consistency:4`
    """
    if isinstance(documents, str | bytes | Mapping):
        raise InputError("documents is one document. Give a list of texts, or of dicts with a text under `text`.")
    given = list(documents)
    _check_texts(query, given)
    ranker = Ranker(scorer, task=task, width=width, chars=chars, prompt=prompt, mitigations=mitigations, options=options)
    ranked = enumerate(ranker.rank(query, given, top_k), 1)
    return Ranking(query, (RankedDocument(rank, index, score, given[index]) for rank, (index, score) in ranked))


def _check_texts(query: str, documents: Sequence[Any]) -> None:
    mistakes = [
        f"document {place} is not a text or a dict with a text under `text`, but a {type(document).__name__}."
        for place, document in enumerate(documents)
        if not isinstance(document.get("text") if isinstance(document, Mapping) else document, str)
    ]
    if mistakes:
        raise InputError(mistakes)
    texts = {"the query": query} | {f"document {i}": _text(one) for i, one in enumerate(documents)}
    if halves := [name for name, text in texts.items() if not is_encodable(text)]:
        raise InputError([f"{name} holds half of a surrogate pair, which is not a character. Replace it." for name in halves])


def _candidate(id: str, document: Document) -> Candidate:
    if isinstance(document, str):
        return Candidate(id, document)
    return Candidate(id, document["text"], title=document.get("title"))


def _instance(query: str, documents: Sequence[Document]) -> Instance:
    pool = (_candidate(id, document) for id, document in zip(_ids(documents), documents, strict=True))
    return Instance(query, query, tuple(pool))


def _text(document: Document) -> str:
    """Title and text as they were given: documents that differ in a blank are two."""
    candidate = _candidate("", document)
    return candidate.text if candidate.title is None else f"{candidate.title}\n{candidate.text}"


def _ids(documents: Sequence[Document]) -> list[str]:
    """A name that a document has in every order; repeated texts are numbered."""
    seen: Counter[str] = Counter()
    names = []
    for document in documents:
        digest = hashlib.blake2b(_text(document).encode(), digest_size=8).hexdigest()
        names.append(f"{digest}-{seen[digest]}")
        seen[digest] += 1
    return names
