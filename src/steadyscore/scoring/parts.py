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
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from ..collection import Data, Source, open_collection
from ..errors import DamagedFile, InputError, RunMismatch, SteadyscoreError
from ..machine.bounds import parse_number
from ..machine.console import bar
from ..machine.credentials import redact
from ..machine.extras import check_installed
from ..machine.places import Place
from ..runs.folder import Run
from ..runs.parts import WORKER
from ..runs.records import Session, Start
from ..terms import Failure, Instance, JsonObject
from .config import AuditConfig
from .score import (
    about_run,
    ask_stored,
    count_shown,
    cut_instances,
    fingerprint_of,
    missing_task,
    score_queries,
    windows_of,
)
from .scorer import PoolScorer
from .starts import Canary, refusal, start_of

log = logging.getLogger("steadyscore")

LOOKED = 4
"""Parts before which a worker looks for those of others: among a million, the list of the folder takes longer than a part."""
PART_WINDOWS = 128
"""Windows after which a part ends: minutes of work, so that a lost worker costs little, and few files."""
RETRIES = 3
"""Times that a row is handed out again after the death of its actor; then it is named, and the others go on."""
MOST_BLOCKS = 10_000
"""Blocks of a Ray data set, each begun by one task; of more rows, several share a block. Ray's own books grow with the blocks."""
AHEAD = 2
"""Blocks that wait at an actor, so that it never waits for one: all others stay where they are until somebody has room."""

Row = dict[str, Any]
T = TypeVar("T")


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
    first: int
    """Place of its first query, from 0."""
    query_ids: tuple[str, ...]


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
    stretches: dict[int, list[str]] = {}
    left = first = 0
    for place, instance in enumerate(cut_instances(source.instances(), config.cut)):
        if left <= 0:
            first, left = place, windows
        stretches.setdefault(first, []).append(instance.id)
        left -= windows_of(scorer, instance, count_shown(config, len(instance.pool)))
    return [Part(part_id(fingerprint, ids), first, tuple(ids)) for first, ids in stretches.items()]


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
        self._coming, self._place = cut_instances(self._source.instances(), config.cut), 0
        """The rest of a pass over the collection, and the place where it begins."""

    def score(self, number: int) -> PartResult:
        """Score what of a part is not on disk, and write it. A stop in between keeps what was scored."""
        part = self.parts[number]
        self._run.group = f"{WORKER}{part.id}"
        self._run.join_stretch(self._run.group)
        instances = enumerate(self._read(part), part.first)
        tasks = (missing_task(self._run, self._scorer, one, self._config, place) for place, one in instances)
        waiting = [task for task in tasks if task]
        if not waiting:
            return PartResult(part.id, len(part.query_ids), 0, 0, 0.0)
        before, session = self._scorer.backend.spent(), self._begin()
        seconds, windows = session.seconds or 0.0, session.windows or 0
        failed = score_queries(self._run, self._scorer, waiting, session, before)
        took, scored = round((session.seconds or 0.0) - seconds, 1), len(waiting) - len(failed)
        return PartResult(part.id, len(part.query_ids), scored, (session.windows or 0) - windows, took, tuple(failed))

    def _begin(self) -> Session:
        """The session of this worker. Where others wrote parts, it scores windows of theirs again, and must not be another."""
        if self._canary is None and len(self._run.written) < LOOKED:
            with suppress(DamagedFile, FileNotFoundError):  # whoever has that part sets it aside, or it was merged
                self._canary = ask_stored(self._run, self._scorer, self._source, self._config)
            if self._canary is not None and self._canary.is_changed and self._scorer.backend.endpoint is not None:
                log.warning("%s: %s.", self._scorer.name, self._canary.words)
        start = start_of(self._scorer.backend, self._canary)
        if start.changed and not self._allow_scorer_change:
            raise RunMismatch(refusal(self._run, start.changed))
        if self._session is None or self._session[0] != start:
            self._session = start, self._run.begin_session(start)
        return self._session[1]

    def _read(self, part: Part) -> list[Instance]:
        """The instances of a part. Parts that come in order cost one pass over the collection."""
        if part.first < self._place:
            self._coming, self._place = cut_instances(self._source.instances(), self._config.cut), 0
        skipped, count = part.first - self._place, len(part.query_ids)
        self._place = part.first + count
        return list(islice(self._coming, skipped, skipped + count))


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


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Ray runs and what an actor takes of it."""

    address: str | None = None
    """`ray://head:10001`, `auto` for the cluster that this machine belongs to, None for a new one on this machine."""
    actors: int | None = None
    """At most this many, as soon as they fit; None for as many as fit."""
    cpus: float = 1
    gpus: float = 0

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """`ray`, `ray:auto` or `ray://head:10001`, and behind it what an actor takes: `ray,actors=2,cpus=4,gpus=0.5`."""
        place, *resources = text.split(",")
        if place not in ("ray", "ray:auto") and not place.startswith("ray://"):
            raise InputError(f"{place!r} is not a cluster: write ray, ray:auto or ray://HEAD:PORT.")
        sizes: dict[str, Any] = {}
        for name, _, value in (each.partition("=") for each in resources):
            number = parse_number(value)
            if name not in ("actors", "cpus", "gpus") or not (number >= 0 if name == "gpus" else number >= 1 and number % 1 == 0):
                raise InputError(f"{name}={value} is not what an actor takes: write actors=N, cpus=N or gpus=N.")
            sizes[name] = number if name == "gpus" else int(number)
        return cls({"ray": None, "ray:auto": "auto"}.get(place, place), **sizes)

    @property
    def resources(self) -> dict[str, float]:
        """What an actor, or a task in its place, asks of Ray."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


@contextmanager
def connect(cluster: Cluster) -> Iterator[Any]:
    """Ray, with its data sets, connected to the cluster; for the block, unless it was connected before.

    What Ray says of its nodes goes to stderr: stdout carries results alone.
    """
    check_installed("--on ray", "ray")
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what dies is named in the end; Ray keeps the rest in its own files
    with redirect_stdout(sys.stderr):
        is_new = not ray.is_initialized()
        if is_new:
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.WARNING)
        try:
            yield ray
        finally:
            if is_new:
                ray.shutdown()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a row: what was given back, or why nothing was."""

    value: Any = None
    error: str = ""


def map_on_ray(
    cluster: Cluster, open_work: Callable[[T], Callable[[Row], Any]], argument: T, rows: Sequence[Row], *, quiet: bool = False
) -> list[Answer]:
    """`open_work(argument)(row)` for every row, by actors that call `open_work` once each; answers in the order of the rows.

    Rows and answers are what JSON can hold. An actor takes rows as it has room for them, the others wait in the data set; one
    that dies, alone or with its node, is begun again, and rows that went with it are handed out again.
    """
    answers: dict[int, Answer] = {}
    with connect(cluster) as ray:
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks, context.enable_progress_bars = -1, not quiet
        fit = int(ray.cluster_resources().get("CPU", 1) // cluster.cpus) if cluster.cpus else len(rows)
        for _ in range(RETRIES + 1):
            missing = [{"number": number, "row": json.dumps(row)} for number, row in enumerate(rows) if number not in answers]
            if missing:
                actors = min(cluster.actors or max(1, fit), len(missing))
                for row in _hand_out(ray, missing, actors, (open_work, argument), cluster):
                    answers[row["number"]] = Answer(None, row["error"]) if row["error"] else Answer(json.loads(row["answer"]))
    lost = Answer(None, f"its actor died each of the {RETRIES + 1} times that it was handed out")
    return [answers.get(number, lost) for number in range(len(rows))]


def _hand_out(ray: Any, rows: Sequence[Row], actors: int, work: tuple[Any, Any], cluster: Cluster) -> list[Row]:
    """What actors gave back; rows whose actor died are not among it."""
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors, max_tasks_in_flight_per_actor=AHEAD)
    blocks = ray.data.from_items(rows, override_num_blocks=min(len(rows), MOST_BLOCKS))
    with warnings.catch_warnings():
        # Ray takes remote arguments without a name of their own until 2.63 (pyproject.toml stays below 2.64). Without this one
        # it would begin a row that kills its actor again and again.
        warnings.simplefilter("ignore", DeprecationWarning)
        mapped = blocks.map_batches(
            Actor, fn_constructor_args=work, batch_size=1, compute=pool, max_task_retries=1, **cluster.resources
        )
    given: list[Row] = mapped.take_all()
    return given


class Actor:
    """A Ray actor: opens what it works with once, and does the rows it is handed."""

    def __init__(self, open_work: Callable[[Any], Callable[[Row], Any]], argument: Any):
        self._open_work, self._argument = open_work, argument
        self._do: Callable[[Row], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        numbers = [int(number) for number in batch["number"]]
        answers = [self._answer(row) for row in batch["row"]]
        return {"number": numbers, "answer": [a for a, _ in answers], "error": [e for _, e in answers]}

    def _answer(self, row: str) -> tuple[str, str]:
        """(answer, error) as texts. A failure becomes a value: one that is raised would end the whole data set."""
        try:
            if self._do is None:
                self._do = self._open_work(self._argument)
            return json.dumps(self._do(json.loads(row))), ""
        except Exception as fault:
            is_ours = isinstance(fault, SteadyscoreError)
            return "", redact(str(fault) if is_ours else f"{type(fault).__name__}: {fault}")
