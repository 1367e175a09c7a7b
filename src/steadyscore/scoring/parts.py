"""A collection in parts that workers score side by side, on one machine or many, into one run folder.

Every worker plans the same parts: stretches of the collection of about PART_WINDOWS windows, named by a hash of what is in them.
A worker takes every n-th part (`Share`) or the parts that a scheduler hands it, passes over what is on disk, and writes each
part once, whole. Nobody waits for anybody and nothing is locked: two workers on the same part write the same file. The command
without a share collects the parts, scores what is still missing, and completes the run; queries are scored one by one in every
case, so its table is the same bit for bit, whoever scored what.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ..collection import Data, Source, open_collection
from ..errors import DamagedFile, InputError, RunMismatch
from ..machine.stopping import finishing
from ..runs.layout import FailedQuery, Session
from ..runs.parts import PartSession, join_run, part_file, part_id, read_part, write_part
from ..terms import Failure, Instance
from .canary import Canary
from .score import (
    AuditConfig,
    about_run,
    ask_stored,
    count_shown,
    cut_instances,
    fingerprint_of,
    naming_failures,
    score_query,
    windows_of,
)  # fmt: skip
from .scorer import PoolScorer
from .starts import Start, refusal, start_of

T = TypeVar("T")

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


def plan_parts(scorer: PoolScorer, source: Source, config: AuditConfig, *, windows: int = PART_WINDOWS) -> list[Part]:
    """The parts of a collection under a scorer, in order; every worker plans the same ones."""
    fingerprint = fingerprint_of(scorer, source, config)
    instances = cut_instances(source.instances(), config.cut)
    counted = ((i.id, windows_of(scorer, i, count_shown(config, len(i.pool)))) for i in instances)
    return [Part(part_id(fingerprint, ids), tuple(ids), total) for ids, total in cut_stretches(counted, windows)]


def cut_stretches(counted: Iterable[tuple[T, int]], windows: int = PART_WINDOWS) -> Iterator[tuple[list[T], int]]:
    """Queries with their windows, cut into stretches that end after so many windows."""
    stretch: list[T] = []
    total = 0
    for query, count in counted:
        stretch.append(query)
        total += count
        if total >= windows:
            yield stretch, total
            stretch, total = [], 0
    if stretch:
        yield stretch, total


class Worker:
    """A scorer at work on the parts of one run."""

    def __init__(
        self,
        scorer: PoolScorer,
        data: Data,
        folder: Path,
        config: AuditConfig,
        command: Iterable[str] = (),
        *,
        allow_scorer_change: bool = False,
    ):
        self._scorer, self._source, self._folder, self._config = scorer, open_collection(data), folder, config
        self._allow_scorer_change = allow_scorer_change
        self.parts = plan_parts(scorer, self._source, config)
        about = about_run(scorer, self._source, list(command))
        self._run = join_run(folder, fingerprint_of(scorer, self._source, config), **about)
        self._canary: Canary | None = None
        self._own: list[str] = []
        """Files of the parts that this worker wrote."""
        self._instances: Iterator[Instance] = iter(())
        self._next = len(self.parts)

    def score(self, number: int) -> PartResult:
        """Score what of a part is not on disk, and write it. A stop in between keeps what was scored."""
        part = self.parts[number]
        if self._run.is_complete:
            return PartResult(part.id, len(part.query_ids), 0, 0, 0.0)
        queries, record = read_part(self._folder, part.id)
        there = {query.query_id for query in queries}
        if there.issuperset(part.query_ids):
            return PartResult(part.id, len(part.query_ids), 0, 0, 0.0)
        failed: list[Failure] = []
        session = Session(windows=0, tokens=0, shrunk=[])
        began, spent = time.monotonic(), self._scorer.backend.spent()
        start = self._compare()
        first = sum(len(before.query_ids) for before in self.parts[:number])
        try:
            for place, instance in enumerate(self._read(number), first):
                if instance.id not in there:
                    with finishing(f"query {instance.id}"), naming_failures(failed, instance.id):
                        queries.append(score_query(self._scorer, instance, self._config, session, place=place))
        finally:
            session["seconds"] = round(time.monotonic() - began, 1)
            session["spent"] = self._scorer.backend.spent_since(spent)
            record["sessions"].append(PartSession(session=session, start=start.to_json()))
            record["failed"] = [FailedQuery(query_id=failure.query_id, reason=failure.reason) for failure in failed]
            with finishing("writing what was scored"):
                write_part(self._folder, part.id, queries, record)
            self._own.append(part_file(self._folder, part.id).name)
        scored = len(queries) - len(there)
        return PartResult(part.id, len(part.query_ids), scored, session["windows"], session["seconds"], tuple(failed))

    def _compare(self) -> Start:
        """What scores now. Once, when there are parts of others, it scores windows of theirs again, and must not be another."""
        if self._canary is None and len(self._own) < LOOKED:
            with suppress(DamagedFile):  # whoever has that part sets it aside
                self._canary = ask_stored(self._run, self._scorer, self._source, self._config, self._own)
            if self._canary is not None and self._canary.is_changed and self._scorer.backend.endpoint is not None:
                log.warning("%s: %s.", self._scorer.name, self._canary.words)
        start = start_of(self._scorer.backend, self._canary)
        if start.changed and not self._allow_scorer_change:
            raise RunMismatch(refusal(self._run, start.changed))
        return start

    def _read(self, number: int) -> list[Instance]:
        """The instances of a part. Parts that come in order cost one pass over the collection."""
        if number < self._next:
            self._instances, self._next = cut_instances(self._source.instances(), self._config.cut), 0
        skipped = sum(len(part.query_ids) for part in self.parts[self._next : number])
        self._next = number + 1
        return list(islice(self._instances, skipped, skipped + len(self.parts[number].query_ids)))
