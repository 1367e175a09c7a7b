"""A collection in parts that workers score side by side, on one machine or many, into one run folder.

Every worker plans the same parts: stretches of the collection of about PART_WINDOWS windows, named by a hash of what is in them.
A worker takes every n-th part (`Share`) or the parts that a scheduler hands it, passes over what is on disk, and writes what it
scored of each as a part of the run. Nobody waits for anybody and nothing is locked: rows that two workers wrote count once. The
command without a share scores what is still missing and completes the run; queries are scored one by one in every case, so its
table is the same bit for bit, whoever scored what.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from ..collection import Data, Source, open_collection
from ..errors import DamagedFile, InputError, RunMismatch
from ..machine.places import Place
from ..machine.stopping import finishing
from ..runs.folder import Run
from ..runs.layout import SessionNote
from ..runs.parts import WORKER
from ..terms import Failure, Instance
from .canary import Canary
from .score import (
    AuditConfig,
    about_run,
    ask_stored,
    count_shown,
    cut_instances,
    fingerprint_of,
    missing_numbers,
    naming_failures,
    score_query,
    windows_of,
)  # fmt: skip
from .scorer import PoolScorer
from .starts import refusal, start_of

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


def part_id(fingerprint: dict[str, Any], query_ids: Sequence[str]) -> str:
    """The name of a part: the same on every machine that scores the same queries in the same way."""
    content = json.dumps([fingerprint, list(query_ids)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:15]


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
        self._session: SessionNote | None = None
        self._own: list[str] = []
        """Files of the parts that this worker wrote."""
        self._instances: Iterator[Instance] = iter(())
        self._next = len(self.parts)
        self._last: tuple[int, list[Instance]] | None = None

    def score(self, number: int) -> PartResult:
        """Score what of a part is not on disk, and write it. A stop in between keeps what was scored."""
        part, group = self.parts[number], f"{WORKER}{self.parts[number].id}"
        self._run.join_stretch(group)
        ledger, config = self._run.ledger, self._config
        waiting = {i.id for i in self._read(number) if missing_numbers(self._scorer, i, config, ledger.numbers(i.id))}
        if not waiting:
            return PartResult(part.id, len(part.query_ids), 0, 0, 0.0)
        failed: list[Failure] = []
        began, spent = time.monotonic(), self._scorer.backend.spent()
        session = self._begin()
        seconds, windows, charged = session.get("seconds", 0.0), session.get("windows", 0), Counter(session.get("spent", {}))
        first, scored = sum(len(before.query_ids) for before in self.parts[:number]), 0
        try:
            for place, instance in enumerate(self._read(number), first):
                if instance.id in waiting:
                    with finishing(f"query {instance.id}"), naming_failures(failed, instance.id):
                        known = ledger.numbers(instance.id)
                        self._run.hold(score_query(self._scorer, instance, config, session, known, place=place))
                        scored += 1
        finally:
            session["seconds"] = round(seconds + time.monotonic() - began, 1)
            session["spent"] = dict(charged + Counter(self._scorer.backend.spent_since(spent)))
            with finishing("writing what was scored"):
                if (file := self._run.flush(group)) is not None:
                    self._own.append(file.name)
        took = round(session["seconds"] - seconds, 1)
        return PartResult(part.id, len(part.query_ids), scored, session.get("windows", 0) - windows, took, tuple(failed))

    def _begin(self) -> SessionNote:
        """The session of this worker. Where others wrote parts, it scores windows of theirs again, and must not be another."""
        if self._canary is None and len(self._own) < LOOKED:
            with suppress(DamagedFile, FileNotFoundError):  # whoever has that part sets it aside, or it was merged
                self._canary = ask_stored(self._run, self._scorer, self._source, self._config, self._own)
            if self._canary is not None and self._canary.is_changed and self._scorer.backend.endpoint is not None:
                log.warning("%s: %s.", self._scorer.name, self._canary.words)
        start = start_of(self._scorer.backend, self._canary)
        if start.changed and not self._allow_scorer_change:
            raise RunMismatch(refusal(self._run, start.changed))
        if self._session is None or self._session["scored_by"] != start.to_json():
            self._session = self._run.begin_session(start.to_json())
        return self._session

    def _read(self, number: int) -> list[Instance]:
        """The instances of a part. Parts that come in order cost one pass over the collection."""
        if self._last is not None and self._last[0] == number:
            return self._last[1]
        if number < self._next:
            self._instances, self._next = cut_instances(self._source.instances(), self._config.cut), 0
        skipped = sum(len(part.query_ids) for part in self.parts[self._next : number])
        self._next = number + 1
        read = list(islice(self._instances, skipped, skipped + len(self.parts[number].query_ids)))
        self._last = (number, read)
        return read
