"""An audit that stops when it knows: queries in random order, a few permutations of each first, a look after every query.

The order is a hash of seed and query id. An answer comes from the queries in this order, whether they were on disk or are scored
now, and whichever of them finished first: so it is the same after a kill and under any concurrency.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace

import numpy as np

from ..engines import Backend, Recording
from ..errors import UsageError
from ..measures.measurement import OneByOne
from ..measures.registry import MEASURES, NOT_SHARES, OF_FEW
from ..measures.stopping import ERROR, Evidence
from ..runs.folder import Run
from ..runs.records import EarlyStop
from ..runs.stored import wanted_of
from ..runs.table import Scored, from_table, stack_rows, take_rows
from ..terms import Instance
from .config import AuditConfig
from .loop import QueryTask
from .scorer import ideal_gains

FEW = 3
"""Permutations of every query that are scored before all of them."""
AT_ONCE = 1_000
"""Queries that are held at once: a collection is read once for each so many."""


def split_steps(config: AuditConfig) -> tuple[AuditConfig, ...]:
    """A few permutations of every query and then all; only all, where a few say something else or save little."""
    assert config.until is not None
    is_apart = config.scheme in ("distinct", "hashed") and config.view.serving_permutations == 1
    if is_apart and config.until.measure in OF_FEW and config.permutations >= 2 * FEW:
        return replace(config, permutations=FEW), config
    return (config,)


class Stopper:
    """What an audit with `until` scores next, and what it knows so far."""

    def __init__(self, config: AuditConfig, read: Callable[[], Iterable[Instance]]):
        assert config.until is not None
        self._config, self._read, self.until = config, read, config.until
        self._steps = split_steps(config)
        self._measure = OneByOne(self.until.measure, config.threshold, None)
        self._begin(self._steps[0])

    def _begin(self, step: AuditConfig) -> None:
        self.step = step
        """How the queries that come now are scored."""
        self._measure = OneByOne(self.until.measure, step.threshold, self._measure)
        self._evidence = Evidence(self.until, ERROR / len(self._steps))  # each step may err, so each has its share
        self._coming: deque[str] = deque()
        self._results: dict[str, Scored | None] = {}
        self._stored: dict[str, Scored] = {}
        self._looked: list[str] = []

    @property
    def is_decided(self) -> bool:
        return self._evidence.answer != "undecided"

    def missing(self, run: Run, task_of: Callable[[Instance, AuditConfig, int], QueryTask | None]) -> Iterator[QueryTask | None]:
        """What is to be scored, until the answer is known; None where all before must have ended.

        task_of  an instance, how it is scored and its place -> what the run lacks of it
        """
        place = 0
        self._ids = shuffle_ids((instance.id for instance in self._read()), self._config.seed)
        for step in self._steps:
            self._begin(step)
            for first in range(0, len(self._ids), AT_ONCE):
                wanted = frozenset(ids := self._ids[first : first + AT_ONCE])
                instances = {instance.id: instance for instance in self._read() if instance.id in wanted}
                run.flush()
                tables = run.ledger.tables(ids, wanted_of({"permutations": step.permutations}))
                self._stored = {query.query_id: query for table in tables for query in from_table(table)}
                for query_id in ids:
                    self._coming.append(query_id)
                    if task := task_of(instances[query_id], step, place):
                        place += 1
                        yield task
                    else:
                        self.look(instances[query_id], None)
                    if self.is_decided:
                        return
                yield None
                if self.is_decided:
                    return

    def look(self, instance: Instance, scored: Scored | None) -> bool:
        """Take in what was scored of a query, None where that failed or all was on disk; whether the answer is known."""
        known = self._stored.pop(instance.id, None)
        whole = scored if known is None else known if scored is None else join_rows(known, scored)
        self._results[instance.id] = None if whole is None else replace(whole, ideal=ideal_gains(instance))
        while self._coming and self._coming[0] in self._results and not self.is_decided:
            self._looked.append(self._coming.popleft())
            if (query := self._results.pop(self._looked[-1])) is not None:
                self._evidence.add(self._measure.value(self._config.view.of(query)))
        return self.is_decided

    def narrowed(self) -> AuditConfig:
        """The part of the configuration that the answer comes from; all of it where there is none."""
        if not self.is_decided:
            return self._config
        is_part = len(self._looked) < len(self._ids)
        return narrow(self._config, self.step.permutations, self._looked if is_part else self._config.cut.query_ids)

    def record(self, windows: int) -> EarlyStop:
        """What the run keeps of the answer. `windows`: of all queries under all permutations."""
        queries, permutations = (len(self._looked), len(self._ids)), (self.step.permutations, self._config.permutations)
        return stop_record(self._evidence, queries, permutations, windows)


def stop_record(evidence: Evidence, queries: tuple[int, int], permutations: tuple[int, int], windows: int) -> EarlyStop:
    """What a run keeps of an answer: how many queries and permutations it took, and how many of these and windows there are."""
    low, high = evidence.limits
    return EarlyStop(str(evidence.until), evidence.answer, low, high, *queries, *permutations, windows)


def shuffle_ids(ids: Iterable[str], seed: int) -> list[str]:
    """Ids in a random order that depends on the seed and on nothing else."""
    return sorted(ids, key=lambda query_id: hashlib.sha256(f"until:{seed}:{query_id}".encode()).digest())


def join_rows(known: Scored, scored: Scored) -> Scored:
    """A query with the rows of both, by permutation."""
    both = stack_rows([known, scored])
    return take_rows(both, np.argsort(both.permutations, kind="stable"))


def narrow(config: AuditConfig, permutations: int, query_ids: Iterable[str] | None) -> AuditConfig:
    """The configuration of a part of what was asked for."""
    cut = replace(config.cut, query_ids=None if query_ids is None else tuple(sorted(query_ids)))
    return replace(config, permutations=permutations, cut=cut)


def check_until(config: AuditConfig, name: str, pools: Collection[Instance]) -> None:
    """Refuse a measure that cannot be decided on a collection, one query after the other."""
    if config.until is None:
        return
    asked, fewest = config.until.measure, 2 * config.view.serving_permutations
    needs: Collection[str] = MEASURES[asked].needs if asked in MEASURES else ()
    if asked not in MEASURES:
        why = f"unknown measure {asked!r}; `steadyscore list measures` prints them."
    elif MEASURES[asked].value is None:
        why = f"{asked} is not a measure of the scores of one query. Name another."
    elif asked in NOT_SHARES:
        why = f"{asked} may lie outside 0 to 1, and only what cannot is decided early. Name another."
    elif "permutations" in needs and config.permutations < fewest:
        why = f"{asked} compares permutations. Raise --permutations to {fewest} at least."
    elif "pair" in needs and not any(len(instance.pool) == 2 for instance in pools):
        why = f"{asked} is of pools of two candidates, and {name} has none. Name another measure."
    elif ("relevance" in needs or (config.threshold.cutoff == "f1" and "cutoff" in needs)) and not any(
        instance.judgements() for instance in pools
    ):
        why = f"{asked} needs judgements here, and {name} has none. Name another measure."
    else:
        return
    raise UsageError(f"until {config.until}: {why}")


def check_until_scorer(config: AuditConfig, backend: Backend, name: str) -> None:
    """Refuse a scorer of which nothing is saved, or whose ranks have no cutoff."""
    if config.until is not None and isinstance(backend, Recording):
        raise UsageError(f"until {config.until}: {name} reads scores that exist, so nothing would be saved. Leave out --until.")
    is_by_rank = config.threshold.keep_first is not None or config.threshold.keep_share is not None
    if config.until is None or backend.capabilities.gives != "ranking" or is_by_rank:
        return
    if "cutoff" in MEASURES[config.until.measure].needs:
        raise UsageError(f"until {config.until}: {name} ranks, and ranks have no cutoff. Add --keep.")
