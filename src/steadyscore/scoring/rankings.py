"""A collection scored in its own order, query by query, and the candidates of each ranked: what `steadyscore score` gives.

The scores are kept in a run folder while they are made, so a stopped command resumes and workers share the work; the rankings
are read off it one query at a time, so that a collection may be larger than memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..collection import Data, Source, open_collection
from ..engines import EngineOptions
from ..errors import InputError
from ..machine.console import bar
from ..machine.disk import remove_tree
from ..machine.places import Place as Folder
from ..machine.places import parse_place
from ..models.embedded import DEFAULT, FIRST_STAGE_SHARE
from ..runs.folder import Run
from ..runs.table import Scored
from ..tasks import TASKS
from ..terms import Failure
from .config import AuditConfig
from .mitigations import mitigate
from .opening import in_precision_of, open_scorer
from .parts import Worker
from .score import score_collection
from .scorer import PoolScorer


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
