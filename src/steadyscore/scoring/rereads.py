"""The same requests read again, each time in other calls: what an engine moves by itself when nothing is presented anew.

The windows of all queries are shuffled together and sent in calls of at most 128, so that a window shares its call with
others every time. Averaged, the reads are an estimator of the same scores with as many passes as a mean over permutations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ..collection import Data, open_collection
from ..engines import Grader, Recording
from ..errors import InputError, SteadyscoreError
from ..measures.views import with_scores
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Failure, Instance, Window
from ..window.presentation import generator, permutation, permutations, windows
from .config import AuditConfig
from .loop import Progress, QueryTask, run_tasks
from .presented import Cost, WindowReading
from .score import cut_instances
from .scorer import PoolScorer, Scorer

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
    read = _read_together if isinstance(scorer, Scorer) and isinstance(scorer.backend, Grader) else _read_apart

    def tasks() -> Iterator[QueryTask | None]:
        for number in range(reads):
            missing = [i for i in instances if len(rows.get(i.id, ())) == number]  # one that failed is not read again
            yield from read(scorer, missing, config.seed, number)  # type: ignore[arg-type]
            yield None
            if missing and keep and (queries := _as_scored(instances, known, rows, number + 1)):
                keep(queries)

    def add(instance: Instance, scores: np.ndarray) -> None:
        rows.setdefault(instance.id, []).append(scores)

    failed = run_tasks(tasks(), add, scorer.backend, progress, sum(max(reads - len(rows.get(i.id, ())), 0) for i in instances))
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
    queries = [query for query in known if query.query_id not in asked]
    for instance in instances:
        if len(scores := rows.get(instance.id, ())) >= least:
            ids = tuple(sorted(candidate.id for candidate in instance.pool))
            queries.append(Scored(instance.id, ids, np.arange(len(scores)), np.stack(scores), relevance=instance.relevance(ids)))
    return queries


def _order(instance: Instance, seed: int) -> np.ndarray:
    return permutation(len(instance.pool), seed=seed, query_id=instance.id, index=0)


def _read_together(scorer: Scorer, instances: Sequence[Instance], seed: int, read: int) -> Iterator[QueryTask]:
    """Requests of all queries, shuffled by the number of the read; each task gives a row with columns sorted by candidate id."""
    width, partition = scorer.width, scorer.settings.partition
    cuts = {i.id: windows(_order(i, seed), width or len(i.pool), partition) for i in instances}
    requests = [(instance, window) for instance in instances for window in cuts[instance.id]]
    shuffled = [requests[i] for i in generator("reads", seed, read).permutation(len(requests))]
    size = max(1, min(CALL, -(-len(requests) // 2)))
    readings: dict[tuple[str, int], WindowReading] = {}
    lost: dict[str, Exception] = {}
    for start in range(0, len(shuffled), size):
        _read_call(scorer, shuffled[start : start + size], readings, lost)

    def present(instance: Instance) -> np.ndarray:
        if instance.id in lost:
            raise lost[instance.id]
        cut = cuts[instance.id]
        row = [readings[instance.id, window.index] for window in cut]
        scores: np.ndarray = scorer.present(instance, [cut], [row], [read], Cost()).scores[0]
        return scores

    return (QueryTask(instance, partial(present, instance)) for instance in instances)


def _read_call(
    scorer: Scorer,
    call: Sequence[tuple[Instance, Window]],
    readings: dict[tuple[str, int], WindowReading],
    lost: dict[str, Exception],
) -> None:
    """One call; where it fails, its requests one by one, so that only the queries that fail are lost."""
    try:
        for (instance, window), reading in zip(call, scorer.read_windows(call).windows, strict=True):
            readings[instance.id, window.index] = reading
    except SteadyscoreError:
        raise
    except Exception as fault:
        if len(call) == 1:
            lost[call[0][0].id] = fault
            return
        for one in call:
            if one[0].id not in lost:
                _read_call(scorer, [one], readings, lost)


def _read_apart(scorer: PoolScorer, instances: Sequence[Instance], seed: int, read: int) -> Iterator[QueryTask]:
    """Query by query, for what makes its calls itself: other orders of the query share them, as many as the read's number."""

    def ask(instance: Instance) -> np.ndarray:
        others = permutations(len(instance.pool), read, seed=seed + 1, query_id=instance.id)
        orders = np.vstack([_order(instance, seed)[None], others])
        row: np.ndarray = scorer.score_orders(instance, orders, range(read + 1)).scores[0]
        return row

    return (QueryTask(instance, partial(ask, instance)) for instance in instances)
