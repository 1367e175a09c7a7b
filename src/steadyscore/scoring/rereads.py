"""The same requests read again, each time in other calls: what an engine moves by itself when nothing is presented anew.

The windows of all queries are shuffled together and sent in calls of at most 128, so that a window shares its call with
others every time. Averaged, the reads are an estimator of the same scores with as many passes as a mean over permutations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from ..collection import Data, open_collection
from ..engines import Grader, Recording
from ..errors import InputError, SteadyscoreError
from ..measures.measurement import with_scores
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Failure, Instance, Window
from ..window.presentation import generator, permutations, windows
from .score import AuditConfig, Progress, cut_instances, naming_failures
from .scorer import PoolScorer, Scorer, WindowReading, align_readings

NOISE_READS = 3
NOISE_QUERIES = 20
CALL = 128
"""Requests that share a call, at most; fewer where all requests would fit into one."""

Keep = Callable[[list[Scored]], None]


def noise_floor(
    scorer: PoolScorer,
    data: Data,
    config: AuditConfig,
    known: Sequence[Scored] = (),
    progress: Progress | None = None,
    keep: Keep | None = None,
) -> tuple[list[Scored], list[Failure]]:
    """One presentation of some queries, or with `config.noise_reads` of all, scored repeatedly in other batches.

    Reads that are known are not made again, and `keep` gets what there is after each; queries that the scorer failed on
    come beside the others, named.
    """
    if isinstance(scorer.backend, Recording):
        raise InputError(f"{scorer.name} holds scores that were given before; a noise floor needs a scorer that can score again.")
    source = open_collection(data)
    reads = config.noise_reads or NOISE_READS
    cut = config.cut
    if not config.noise_reads:
        cut = replace(cut, queries=min(cut.queries or NOISE_QUERIES, NOISE_QUERIES))
    instances = list(cut_instances(source.instances(), cut))
    rows = {query.query_id: list(query.scores) for query in known}
    failed: list[Failure] = []
    read = _read_together if isinstance(scorer, Scorer) and isinstance(scorer.backend, Grader) else _read_apart

    def work() -> Iterator[Instance]:
        for number in range(reads):
            lost = {failure.query_id for failure in failed}
            missing = [i for i in instances if len(rows.get(i.id, ())) == number and i.id not in lost]
            for instance, scores in read(scorer, missing, config.seed, number, failed):  # type: ignore[arg-type]
                rows.setdefault(instance.id, []).append(scores)
                yield instance
            if missing and keep and (found := _as_scored(instances, known, rows, number + 1)):
                keep(found)

    missing = sum(max(reads - len(rows.get(i.id, ())), 0) for i in instances)
    for _ in progress(work(), missing) if progress else work():
        pass
    return _as_scored(instances, known, rows, reads), failed


def average_reads(query: Scored) -> Scored:
    """A query whose reads of one presentation are averaged, as the first-stage order and as one permutation."""
    mean = np.repeat(query.scores.mean(axis=0, keepdims=True), 2, axis=0)
    return replace(with_scores(query, mean), permutations=np.array([FIRST_STAGE, 0]))


def _as_scored(
    instances: Sequence[Instance], known: Sequence[Scored], rows: dict[str, list[np.ndarray]], least: int
) -> list[Scored]:
    """The queries that were read at least so often, and those that were known before."""
    asked = {instance.id for instance in instances}
    found = [query for query in known if query.query_id not in asked]
    for instance in instances:
        if len(scores := rows.get(instance.id, ())) >= least:
            ids = tuple(sorted(candidate.id for candidate in instance.pool))
            found.append(Scored(instance.id, ids, np.arange(len(scores)), np.stack(scores), relevance=instance.relevance(ids)))
    return found


Rows = Iterator[tuple[Instance, np.ndarray]]
"""Queries with their scores, columns sorted by candidate id."""


def _order(instance: Instance, seed: int) -> np.ndarray:
    return permutations(len(instance.pool), 1, seed=seed, query_id=instance.id)[0]


def _read_together(scorer: Scorer, instances: Sequence[Instance], seed: int, read: int, failed: list[Failure]) -> Rows:
    """Requests of all queries, shuffled by the number of the read."""
    width, partition = scorer.width, scorer.settings.partition
    cuts = {i.id: windows(_order(i, seed), width or len(i.pool), partition) for i in instances}
    requests = [(instance, window) for instance in instances for window in cuts[instance.id]]
    shuffled = [requests[i] for i in generator("reads", seed, read).permutation(len(requests))]
    size = max(1, min(CALL, -(-len(requests) // 2)))
    found: dict[tuple[str, int], WindowReading] = {}
    for start in range(0, len(shuffled), size):
        call = shuffled[start : start + size]
        found |= zip(((i.id, window.index) for i, window in call), _read_call(scorer, call, failed), strict=True)
    lost = {failure.query_id for failure in failed}
    for instance in (i for i in instances if i.id not in lost):
        cut = cuts[instance.id]
        row = align_readings([[found[instance.id, window.index] for window in cut]], [cut], len(instance.pool))
        yield instance, scorer.as_scored(instance, [cut], row, [read]).scores[0]


def _read_call(scorer: Scorer, call: Sequence[tuple[Instance, Window]], failed: list[Failure]) -> list[WindowReading]:
    """One call; where it fails, its requests one by one, so that only the queries that fail are named."""
    try:
        return scorer.read_windows(call)
    except SteadyscoreError:
        raise
    except Exception:
        found = []
        for instance, window in call:
            reading = WindowReading(np.full(len(window.candidates), np.nan))
            if instance.id not in {failure.query_id for failure in failed}:
                with naming_failures(failed, instance.id):
                    reading = scorer.read_windows([(instance, window)])[0]
            found.append(reading)
        return found


def _read_apart(scorer: PoolScorer, instances: Sequence[Instance], seed: int, read: int, failed: list[Failure]) -> Rows:
    """Query by query, for what makes its calls itself: other orders of the query share them, as many as the read's number."""
    for instance in instances:
        with naming_failures(failed, instance.id):
            others = permutations(len(instance.pool), read, seed=seed + 1, query_id=instance.id)
            orders = np.vstack([_order(instance, seed)[None], others])
            yield instance, scorer.score_orders(instance, orders, range(read + 1)).scores[0]
