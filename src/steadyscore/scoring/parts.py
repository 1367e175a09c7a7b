"""A collection in parts that workers score side by side, on one machine or many, into one run folder.

Every worker plans the same parts: stretches of the collection of about PART_WINDOWS windows, named by a hash of what is in them.
A worker takes every n-th part (`Share`) or the parts that a scheduler hands it, passes over what is on disk, and writes what it
scored of each as a part of the run. Nobody waits for anybody and nothing is locked: rows that two workers wrote count once. The
command without a share scores what is still missing and completes the run; queries are scored one by one in every case, so its
table is the same bit for bit, whoever scored what.

`score_share` is one worker of a Slurm array or an indexed job; `score_on_ray` hands the parts to the actors of a Ray cluster.
What they are told (`Work`) opens the scorers where the worker runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol

from ..collection import Data, Source, open_collection
from ..errors import DamagedFile, InputError, RunMismatch
from ..machine.console import bar
from ..machine.places import Place
from ..runs.folder import Run
from ..runs.parts import WORKER
from ..runs.records import Session, Start
from ..terms import Failure, Instance, JsonObject
from .canary import Canary
from .config import AuditConfig, MissingQuery
from .ray_launcher import Cluster, connect, map_on_ray
from .score import (  # fmt: skip
    about_run,
    ask_stored,
    count_shown,
    cut_instances,
    fingerprint_of,
    missing_numbers,
    score_queries,
    windows_of,
)
from .scorer import PoolScorer
from .starts import refusal, start_of

log = logging.getLogger("steadyscore")

LOOKED = 4
"""Parts before which a worker looks for those of others: among a million, the list of the folder takes longer than a part."""
PART_WINDOWS = 128
"""Windows after which a part ends: minutes of work, so that a lost worker costs little, and few files."""


@dataclass(frozen=True, slots=True)
class Share:
    """The parts of one worker among several: number 2 of 8 takes the second, the tenth, ..."""

    number: int
    """Counted from 1."""
    workers: int

    @classmethod
    def parse(cls, text: str) -> Share:
        fields = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
        share = cls(int(fields[1]), int(fields[2])) if fields else cls(0, 0)
        if not 1 <= share.number <= share.workers:
            raise InputError(f"{text!r} is not a share: write I/N with I from 1 to N, such as 2/8 for the second of 8 workers.")
        return share

    def parts(self, count: int) -> range:
        """Places of its parts among `count`, from 0."""
        return range(self.number - 1, count, self.workers)

    def __str__(self) -> str:
        return f"{self.number}/{self.workers}"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a collection."""

    id: str
    query_ids: tuple[str, ...]
    windows: int


@dataclass(frozen=True, slots=True)
class PartResult:
    """What a worker did with a part: one row of its manifest."""

    part: str
    queries: int
    scored: int
    """Queries that this worker scored; the others were on disk, or failed."""
    windows: int
    """Windows that this worker scored."""
    seconds: float
    failed: tuple[Failure, ...] = ()


def part_id(fingerprint: JsonObject, query_ids: Sequence[str]) -> str:
    """The name of a part: the same on every machine that scores the same queries in the same way."""
    content = json.dumps([fingerprint, list(query_ids)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:15]


def plan_parts(scorer: PoolScorer, source: Source, config: AuditConfig, *, windows: int = PART_WINDOWS) -> list[Part]:
    """The parts of a collection under a scorer, in order, each of at least so many windows; every worker plans the same ones."""
    fingerprint = fingerprint_of(scorer, source, config)
    parts: list[Part] = []
    ids: list[str] = []
    total = 0
    for instance in cut_instances(source.instances(), config.cut):
        ids.append(instance.id)
        total += windows_of(scorer, instance, count_shown(config, len(instance.pool)))
        if total >= windows:
            parts.append(Part(part_id(fingerprint, ids), tuple(ids), total))
            ids, total = [], 0
    return [*parts, Part(part_id(fingerprint, ids), tuple(ids), total)] if ids else parts


class Worker:
    """A scorer at work on the parts of one run."""

    def __init__(
        self,
        scorer: PoolScorer,
        data: Data,
        folder: Place,
        config: AuditConfig,
        command: Iterable[str] = (),
        *,
        allow_scorer_change: bool = False,
    ):
        self._scorer, self._source, self._config = scorer, open_collection(data), config
        self._allow_scorer_change = allow_scorer_change
        self.parts = plan_parts(scorer, self._source, config)
        self._run = Run.join(
            folder, fingerprint_of(scorer, self._source, config), **about_run(scorer, self._source, list(command))
        )
        self._canary: Canary | None = None
        self._session: tuple[Start, Session] | None = None
        self._own: list[str] = []
        """Files of the parts that this worker wrote."""
        self._instances: Iterator[Instance] = iter(())
        self._next = len(self.parts)

    def score(self, number: int) -> PartResult:
        """Score what of a part is not on disk, and write it. A stop in between keeps what was scored."""
        part, group = self.parts[number], f"{WORKER}{self.parts[number].id}"
        self._run.join_stretch(group)
        ledger, config = self._run.ledger, self._config
        first = sum(len(earlier.query_ids) for earlier in self.parts[:number])
        instances = enumerate(self._read(number), first)
        waiting = [
            MissingQuery(place, instance, config)
            for place, instance in instances
            if missing_numbers(self._scorer, instance, config, ledger.numbers(instance.id))
        ]
        if not waiting:
            return PartResult(part.id, len(part.query_ids), 0, 0, 0.0)
        before, session = self._scorer.backend.spent(), self._begin()
        seconds, windows = session.seconds or 0.0, session.windows or 0

        def flush() -> None:
            if (file := self._run.flush(group)) is not None:
                self._own.append(file.name)

        failed = score_queries(self._run, self._scorer, waiting, session, before, self._run.hold, flush)
        took, scored = round((session.seconds or 0.0) - seconds, 1), len(waiting) - len(failed)
        return PartResult(part.id, len(part.query_ids), scored, (session.windows or 0) - windows, took, tuple(failed))

    def _begin(self) -> Session:
        """The session of this worker. Where others wrote parts, it scores windows of theirs again, and must not be another."""
        if self._canary is None and len(self._own) < LOOKED:
            with suppress(DamagedFile, FileNotFoundError):  # whoever has that part sets it aside, or it was merged
                self._canary = ask_stored(self._run, self._scorer, self._source, self._config, self._own)
            if self._canary is not None and self._canary.is_changed and self._scorer.backend.endpoint is not None:
                log.warning("%s: %s.", self._scorer.name, self._canary.words)
        start = start_of(self._scorer.backend, self._canary)
        if start.changed and not self._allow_scorer_change:
            raise RunMismatch(refusal(self._run, start.changed))
        if self._session is None or self._session[0] != start:
            self._session = start, self._run.begin_session(start)
        return self._session[1]

    def _read(self, number: int) -> list[Instance]:
        """The instances of a part. Parts that come in order cost one pass over the collection."""
        if number < self._next:
            self._instances, self._next = cut_instances(self._source.instances(), self._config.cut), 0
        skipped = sum(len(part.query_ids) for part in self.parts[self._next : number])
        self._next = number + 1
        return list(islice(self._instances, skipped, skipped + len(self.parts[number].query_ids)))


# -- what all workers are told, and what they did


class Work(Protocol):
    """What all workers are told."""

    @property
    def quiet(self) -> bool:
        """No progress."""
        ...

    def workers(self) -> Iterator[tuple[str, Worker]]:
        """A worker for every run, with what messages call it, in the same order everywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """What workers did: a row for every part, and what could not be done."""

    rows: tuple[PartResult, ...]
    lost: tuple[str, ...] = ()
    """A sentence for every part that no worker brought to an end."""

    def to_json(self) -> JsonObject:
        return {"parts": [asdict(row) for row in self.rows], "lost": list(self.lost)}

    def counts(self) -> dict[str, int]:
        return {
            "parts": len(self.rows),
            "queries": sum(row.queries for row in self.rows),
            "scored now": sum(row.scored for row in self.rows),
            "windows scored now": sum(row.windows for row in self.rows),
            "queries that failed": sum(len(row.failed) for row in self.rows),
            "parts lost": len(self.lost),
        }

    @property
    def failed(self) -> list[Failure]:
        return [failure for row in self.rows for failure in row.failed]


def score_share(work: Work, share: Share) -> Manifest:
    """Score the parts of one worker among several.

    Perturbations, readers and the noise floor are left to the call that collects: they are made from complete runs.
    """
    rows: list[PartResult] = []
    for name, worker in work.workers():
        mine = share.parts(len(worker.parts))
        show = bar(f"{name}, share {share}", work.quiet, "part")
        rows += [worker.score(number) for number in show(mine, len(mine))]
    return Manifest(tuple(rows))


# -- Ray


def score_on_ray(work: Work, cluster: Cluster) -> Manifest:
    """Score every part on a Ray cluster. What Ray loses is named; what is on disk is never scored again."""
    with connect(cluster) as ray:
        counts: list[tuple[str, int]] = ray.get(ray.remote(**cluster.resources)(_count_parts).remote(work))
        rows = [{"run": run, "part": part} for run, (_, parts) in enumerate(counts) for part in range(parts)]
        answers = map_on_ray(cluster, OpenWorkers, work, rows, quiet=work.quiet)
    done, lost = [], []
    for row, answer in zip(rows, answers, strict=True):
        name, parts = counts[row["run"]]
        if answer.error:
            lost.append(f"{name}, part {row['part'] + 1} of {parts}: {answer.error}")
        else:
            failed = tuple(Failure(**failure) for failure in answer.value["failed"])
            done.append(PartResult(**answer.value | {"failed": failed}))
    return Manifest(tuple(done), tuple(lost))


def score_on(cluster: str | Cluster, work: Work, say: Callable[[str], None]) -> None:
    """Have a cluster score before a call collects; what the cluster lost is said, and left to that call."""
    for sentence in score_on_ray(work, Cluster.parse(cluster) if isinstance(cluster, str) else cluster).lost:
        say(f"{sentence}. It is scored here now.")


class OpenWorkers:
    """What an actor works with: each scorer is opened once, when a part of its run comes first."""

    def __init__(self, work: Work):
        self._coming = work.workers()
        self._workers: list[Worker] = []

    def __call__(self, row: dict[str, int]) -> dict[str, Any]:
        while len(self._workers) <= row["run"]:
            self._workers.append(next(self._coming)[1])
        return asdict(self._workers[row["run"]].score(row["part"]))


def _count_parts(work: Work) -> list[tuple[str, int]]:
    """(run, parts) of every scorer on every collection, found where the scorer can be opened."""
    return [(name, len(worker.parts)) for name, worker in work.workers()]
