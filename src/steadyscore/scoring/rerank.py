"""`steadyscore.rerank`: a query and documents in, the documents in the order of their scores out; `Ranker` also decides.

`steadyscore score` ranks the candidates of each query of a collection, scored in its own order. The scores are kept in a run
folder while they are made, so a stopped command resumes and workers share the work; the rankings are read off it one query at a
time, so that a collection may be larger than memory.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from ..collection import Data, Source, open_collection
from ..collection.format import is_encodable
from ..engines import EngineOptions
from ..errors import InputError
from ..machine.console import bar
from ..machine.disk import remove_tree
from ..machine.extras import check_installed
from ..machine.names import short_repr, shorten
from ..machine.places import Place as Folder
from ..machine.places import parse_place
from ..measures.settling import Outcome, check_rule, outcome
from ..models.embedded import DEFAULT, FIRST_STAGE_SHARE
from ..runs.folder import Run
from ..runs.table import Scored
from ..tasks import TASKS
from ..terms import Candidate, Collection, Failure, Instance, JsonObject, PromptStyle, TaskName
from .config import AuditConfig, in_precision_of, open_scorer
from .mitigations import Mitigated, count_windows, for_pool, mitigate, parse_rule
from .parts import Worker
from .presented import in_pool_order
from .score import score_collection
from .scorer import PoolScorer, Settings

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


# -- a collection in its own order


class Place(NamedTuple):
    """A candidate in the ranking of its query."""

    query_id: str
    rank: int
    candidate_id: str
    score: float


@dataclass(frozen=True, slots=True)
class RankingWork:
    """One call of `rank_collection`; also what workers are told (`scoring.parts.Work`)."""

    scorer: str
    data: Data
    folder: str | Folder | None
    """Where scores are kept until all are there; None: in a temporary one."""
    config: AuditConfig
    options: EngineOptions = field(default_factory=EngineOptions)
    quiet: bool = False
    command: Sequence[str] = ()
    allow_scorer_change: bool = False
    mitigations: Sequence[str] | None = None
    """Ways to serve the scorer; None: the usual ones."""

    def open_scorer(self, source: Source) -> PoolScorer:
        names = usual_mitigations(self.scorer, source) if self.mitigations is None else self.mitigations
        options = in_precision_of([parse_place(self.folder)] if self.folder else [], self.scorer, self.options)
        return mitigate(open_scorer(self.scorer, source.collection, self.one_order, options), names)

    @property
    def one_order(self) -> AuditConfig:
        """The pool's own order and no other."""
        return replace(self.config, permutations=0, canonical=True, scheme="hashed")

    def workers(self) -> Iterator[tuple[str, Worker]]:
        if self.folder is None:
            raise InputError("workers need a file that all of them see. Say where it is with --out.")
        source = open_collection(self.data)
        scorer = self.open_scorer(source)
        name = f"{self.scorer} on {source.collection.name}"
        folder, allowed = parse_place(self.folder), self.allow_scorer_change
        yield name, Worker(scorer, source, folder, self.one_order, self.command, allow_scorer_change=allowed)


def usual_mitigations(scorer: str, source: Source) -> list[str]:
    """Of the default scorer a share of the first stage's rank, where the collection names a first stage or carries ranks."""
    collection = source.collection
    pool = next((instance.pool for instance in source.instances()), ())
    carries_ranks = TASKS[collection.task].has_ranked_pools and any(candidate.rank for candidate in pool)
    is_ranked = carries_ranks or bool((collection.details or {}).get("first_stage"))
    return [f"first-stage:{FIRST_STAGE_SHARE}"] if scorer == DEFAULT and is_ranked else []


@dataclass(frozen=True, slots=True)
class Rankings:
    """The ranked candidates of every query, in the order of the collection; read anew by every iteration."""

    run: Run
    top: int | None = None
    """Only the first K of each query."""

    @property
    def queries(self) -> int:
        return 0 if (coverage := self.run.record.coverage) is None else coverage.queries

    @property
    def failed(self) -> list[Failure]:
        return self.run.record.failed

    def __iter__(self) -> Iterator[Place]:
        for query in self.run.iter_queries():
            yield from _rank(query, self.top)

    def to_json(self) -> dict[str, object]:
        mitigations = self.run.record.fingerprint.mitigations
        return {"queries": self.queries, "mitigations": mitigations, "failed": [asdict(failure) for failure in self.failed]}


def _rank(query: Scored, top: int | None) -> Iterator[Place]:
    """Ties by candidate id, which is how the columns are sorted."""
    scores = query.scores[0]
    for rank, i in enumerate(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:top], 1):
        yield Place(query.query_id, rank, query.candidate_ids[i], float(scores[i]))


@contextmanager
def rank_collection(work: RankingWork, top: int | None = None) -> Iterator[Rankings]:
    """Score what is not on disk yet and give the rankings, for the block to use.

    The folder goes with the end of the block, where every query was scored; else the same call tries again those that failed.
    """
    source = open_collection(work.data)
    scorer = work.open_scorer(source)
    with tempfile.TemporaryDirectory(prefix="steadyscore-") as temporary:
        folder = Path(temporary) / "run" if work.folder is None else parse_place(work.folder)
        run = score_collection(
            scorer, source, folder, work.one_order, command=list(work.command), progress=bar(work.scorer, work.quiet),
            allow_scorer_change=work.allow_scorer_change,
        )  # fmt: skip
        if not any(True for _ in run.iter_queries()):
            raise InputError(f"{scorer.name} holds no scores of the pools in their own order, and cannot score anew.")
        rankings = Rankings(run, top)
        yield rankings
        if work.folder is not None and not rankings.failed:
            remove_tree(folder)
