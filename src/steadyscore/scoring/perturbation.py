"""What is scored in addition to a run: perturbations of order, pool and markers (§C.1), and the same requests read again.

A pool stands in first-stage order 0..n-1, and a perturbed order maps position -> index into the pool. What a query gets
depends on (seed, query id, tag) alone, through a hash, never on which other queries are scored; where a function takes
random numbers, `presentation.generator(seed, query_id, tag)` makes them so. Each kind that is scored is one more
presentation per query, on up to 100 queries, with the serving order held fixed.

Reads of one presentation say what an engine moves by itself when nothing is presented anew. The windows of all queries are
shuffled together and sent in calls of at most 128, so that a window shares its call with others every time. Averaged, the reads
are an estimator of the same scores with as many passes as a mean over permutations.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..collection import Data, open_collection
from ..engines import Grader, Recording
from ..errors import InputError, SteadyscoreError
from ..measures.instability import pool_psi, tau_psi, top_k_changed
from ..measures.ranking import delta_ndcg_pool
from ..measures.views import quality_of, with_scores
from ..runs.folder import Run
from ..runs.layout import perturbed_file, perturbed_schema
from ..runs.records import Cost
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array, Failure, Instance, JsonObject, Markers, Partition, Perturbation, Window
from ..window.presentation import generator, permutation, permutations, windows
from .config import AuditConfig
from .loop import Progress, QueryTask, run_tasks
from .presented import WindowReading
from .score import cut_instances
from .scorer import PoolScorer, Scorer

Order = NDArray[np.int_]
Place = Literal["top", "middle", "bottom"]
MARKER_SCHEMES: tuple[Markers, ...] = get_args(Markers)
PARTITIONS: tuple[Partition, ...] = get_args(Partition)
HELD_OUT_MARKERS: tuple[Markers, ...] = ("roman", "random3")
"""Schemes that no training shows (§C.1)."""
HELD_OUT_SEEDS = (0, 1)
"""Each scheme is shown with its labels shuffled over the slots by each of these."""
NOISE_SCALE = 0.3
"""Noise on the first stage's scores, in their standard deviations."""
MAX_QUERIES = 100
NOISE_READS = 3
NOISE_QUERIES = 20
CALL = 128
"""Requests that share a call, at most; fewer where all requests would fit into one."""


# -- a run under perturbation


def score_perturbed(
    scorer: PoolScorer,
    run: Run,
    source: Data,
    config: AuditConfig,
    kinds: Sequence[Perturbation],
    progress: Progress | None = None,
    *,
    scored: Sequence[Scored] | None = None,
) -> dict[Perturbation, list[Failure]]:
    """Score what was perturbed into `perturbed-<kind>.parquet`, for `Run.read_perturbed`; those of `drop` end in `_drop`.

    Gives the queries that the scorer failed on, with the reason: in no mean, tried again by the same command.
    """
    if isinstance(scorer.backend, Recording):
        raise InputError(f"{scorer.name} holds scores that were given before; --perturb needs a scorer that can score again.")
    queries = {query.query_id: query for query in (run.read_queries() if scored is None else scored)}
    return {kind: _score_kind(scorer, run, queries, source, config, kind, progress) for kind in kinds}


def _score_kind(
    scorer: PoolScorer,
    run: Run,
    scored: dict[str, Scored],
    source: Data,
    config: AuditConfig,
    kind: Perturbation,
    progress: Progress | None,
) -> list[Failure]:
    """Score the queries that the run's table of this kind lacks; gives what failed."""
    import pyarrow as pa

    name = perturbed_file(kind)
    sample = set(perturbed_sample(list(scored), config.seed))
    missing = sample - (set(run.read(name).column("query_id").to_pylist()) if run.has(name) else set())
    if not missing:
        return []
    rows: dict[str, list[JsonObject]] = {}
    """Of each query that was asked, in the order of the collection."""
    written = time.monotonic()

    def tasks() -> Iterator[QueryTask]:
        for instance in open_collection(source).instances(reserve=True):
            if instance.id in missing:
                rows[instance.id] = []
                yield QueryTask(instance, partial(_values, scorer, scored[instance.id], instance, config, kind))

    def write() -> None:
        nonlocal written
        run.write(name, pa.Table.from_pylist([row for each in rows.values() for row in each], schema=perturbed_schema()))
        written = time.monotonic()

    def keep(instance: Instance, values: dict[str, float]) -> None:
        rows[instance.id] = [{"query_id": instance.id, "measure": measure, "value": float(x)} for measure, x in values.items()]
        if time.monotonic() - written > run.pause:  # a kill loses a second's work, or what is under way
            write()

    try:
        return run_tasks(tasks(), keep, scorer.backend, progress, len(missing))
    finally:
        write()


def _values(scorer: PoolScorer, scored: Scored, instance: Instance, config: AuditConfig, kind: Perturbation) -> dict[str, float]:
    n = len(scored.candidate_ids)
    pool = replace(instance, pool=instance.pool[:n])
    rng = generator(config.seed, instance.id, kind)
    match kind:
        case "markers":
            return {"marker_tau_psi": _marker_tau_psi(scorer, pool, [(scheme, None) for scheme in MARKER_SCHEMES])}
        case "held-out-markers":
            schemes = [(scheme, seed) for scheme in HELD_OUT_MARKERS for seed in HELD_OUT_SEEDS]
            return {"held_out_marker_tau_psi": _marker_tau_psi(scorer, pool, schemes)}
        case "reverse":
            backwards = _ranked_anew(scorer, pool, np.arange(n)[::-1])
            return {"reverse_psi": _moved(scored, backwards), "reverse_ndcg@10": float(quality_of(scored, backwards, 10)[0])}
        case "forced-position":
            return _forced(scorer, scored, pool)
        case "swaps":
            return {"swap_psi": _moved(scored, _ranked_anew(scorer, pool, neighbour_swaps(n, n, rng)))}
        case "noise":
            order = score_noise([c.score for c in pool.pool], NOISE_SCALE, rng)
            return {"first_stage_noise_psi": _moved(scored, _ranked_anew(scorer, pool, order))}
        case "churn":
            return _churn(scorer, instance, n, config.seed)
        case "replace" | "drop":
            return _changed_pool(scorer, scored, instance, config.seed, kind)


def _rows(scorer: PoolScorer, pool: Instance, orders: Sequence[Order]) -> np.ndarray:
    """(P, n) scores of a query under some orders, columns sorted by candidate id."""
    scores: np.ndarray = scorer.score_orders(pool, np.stack(orders), range(len(orders))).scores
    return scores


def _ranked_anew(scorer: PoolScorer, pool: Instance, order: Order) -> np.ndarray:
    """(1, n) scores where the first stage itself had ranked the pool in this order: a scorer may count its ranks too."""
    ranked = replace(pool, pool=tuple(pool.pool[i] for i in order))
    return _rows(scorer, ranked, [np.arange(len(ranked.pool))])


def _moved(scored: Scored, rows: np.ndarray) -> float:
    """tau-PSI between the ranking in first-stage order and that of the first of some rows."""
    assert scored.first_stage is not None
    return float(tau_psi(np.stack([scored.first_stage, rows[0]])))


def _forced(scorer: PoolScorer, scored: Scored, pool: Instance) -> dict[str, float]:
    """nDCG@10 with the strongest candidate first minus last, and the mean of both minus in the middle."""
    best = strongest_candidate([c.relevance or 0 for c in pool.pool], [c.id for c in pool.pool])
    if best is None:
        return {}  # without a relevant candidate there is none to place
    orders = [forced_position(len(pool.pool), best, place) for place in get_args(Place)]
    top, middle, bottom = quality_of(scored, _rows(scorer, pool, orders), 10).tolist()
    return {"forced_primacy@10": top - bottom, "forced_u_shape@10": (top + bottom) / 2 - middle}


def _churn(scorer: PoolScorer, instance: Instance, n: int, seed: int) -> dict[str, float]:
    """pool_psi under each rule that cuts an order into windows: one document in the index replaced by another."""
    pool, moved = replace(instance, pool=instance.pool[:n]), {}
    for rule in PARTITIONS if len(instance.pool) > n else ():  # else nothing in reserve could join
        ruled = scorer.with_settings(replace(scorer.settings, partition=rule))
        before = dict(zip([c.id for c in pool.pool], ruled.score(pool).tolist(), strict=True))
        if changed := _move_pool(ruled, before, instance, seed, "replace"):
            _, old, new = changed
            moved[f"churn_psi_{rule}"] = float(pool_psi(old, new))
    return moved


def _move_pool(
    scorer: PoolScorer, before: Mapping[str, float], instance: Instance, seed: int, kind: Literal["replace", "drop"]
) -> tuple[list[str], Array, Array] | None:
    """The candidates that a pool shares with the one after a change, and their scores before and after it."""
    n = len(before)
    is_replaced = kind == "replace"
    if (is_replaced and len(instance.pool) <= n) or (not is_replaced and n < 2):
        return None  # the first stage stops here, so that nobody could join; or nobody would be left
    rank = perturbed_rank(n, seed=seed, query_id=instance.id)
    order = changed_pool(n, rank, is_replaced=is_replaced)
    changed = replace(instance, pool=tuple(instance.pool[i] for i in order))
    after = scorer.score_orders(changed, np.arange(len(order))[None], [FIRST_STAGE])
    now = dict(zip(after.candidate_ids, after.scores[0], strict=True))
    shared = sorted(i for i in before if i != instance.pool[rank].id)
    return shared, np.array([before[i] for i in shared]), np.array([now[i] for i in shared])


def _changed_pool(
    scorer: PoolScorer, scored: Scored, instance: Instance, seed: int, kind: Literal["replace", "drop"]
) -> dict[str, float]:
    assert scored.first_stage is not None
    first_stage = dict(zip(scored.candidate_ids, scored.first_stage.tolist(), strict=True))
    if (moved := _move_pool(scorer, first_stage, instance, seed, kind)) is None:
        return {}
    ids, before, after = moved
    gold = None if scored.relevance is None else dict(zip(scored.candidate_ids, scored.relevance, strict=True))
    relevance = np.array([np.nan if gold is None else gold[i] for i in ids])
    suffix = "" if kind == "replace" else "_drop"
    return {
        f"pool_psi{suffix}": float(pool_psi(before, after)),
        f"top10_changed{suffix}": float(top_k_changed(before, after)),
        f"pool_delta_ndcg@10{suffix}": float(delta_ndcg_pool(before, after, relevance)),
        f"pool_absolute_delta_ndcg@10{suffix}": float(delta_ndcg_pool(before, after, relevance, absolute=True)),
    }


def _marker_tau_psi(scorer: PoolScorer, pool: Instance, schemes: Sequence[tuple[Markers, int | None]]) -> float:
    """tau-PSI of the first-stage order under several marker schemes, labels shuffled by a seed where there is one."""
    shown = scorer.presentation(range(len(pool.pool)))
    presentations = [replace(shown, markers=scheme, marker_seed=seed) for scheme, seed in schemes]
    return float(tau_psi(np.stack([scorer.score_presentation(pool, one) for one in presentations])))


# -- perturbed orders


def strongest_candidate(relevance: ArrayLike, ids: Sequence[str]) -> int | None:
    """Pool index of the candidate with the highest positive relevance, smallest id among equals; None without a positive."""
    relevance = np.asarray(relevance, float)
    positive = np.flatnonzero(relevance > 0).tolist()
    return min(positive, key=lambda i: (-relevance[i], ids[i])) if positive else None


def forced_position(n: int, candidate: int, place: Place) -> Order:
    """First-stage order with one candidate moved to position 0, n // 2 or n - 1."""
    rest = np.delete(np.arange(n), candidate)
    return np.insert(rest, {"top": 0, "middle": n // 2, "bottom": n - 1}[place], candidate)


def perturbed_rank(depth: int, *, seed: int, query_id: str) -> int:
    """The 0-based rank a pool perturbation removes, uniform over the pool."""
    return int.from_bytes(_digest(seed, query_id, "pool")[:16], "big") % depth


def changed_pool(depth: int, rank: int, *, is_replaced: bool) -> Order:
    """The pool without the candidate at `rank`; where it is replaced, the next of the first stage, index `depth`, joins at the
    end. Survivors behind the gap move up by one slot, so one crosses each later window boundary.
    """
    return np.delete(np.arange(depth + is_replaced), rank)


def perturbed_sample(query_ids: Sequence[str], seed: int) -> list[str]:
    """The queries of a run that are perturbed: the first MAX_QUERIES in the order of their hash.

    A run that grows has another sample, and rows of others stay unread.
    """
    return sorted(query_ids, key=lambda query_id: _digest(seed, query_id, "sample"))[:MAX_QUERIES]


def neighbour_swaps(n: int, swaps: int, rng: np.random.Generator) -> Order:
    """First-stage order after `swaps` exchanges of random neighbours, one after the other: a retriever that varies a little."""
    order = np.arange(n)
    for i in rng.integers(0, n - 1, swaps) if n > 1 else ():
        order[[i, i + 1]] = order[[i + 1, i]]
    return order


def score_noise(first_stage_scores: Sequence[float | None] | Array, scale: float, rng: np.random.Generator) -> Order:
    """The order of a pool after normal noise of `scale` SDs on its first-stage scores (n,); equal scores keep their order."""
    strengths = _strengths(np.asarray(first_stage_scores, float))
    return np.argsort(-(strengths + scale * strengths.std() * rng.standard_normal(len(strengths))), kind="stable")


def _strengths(scores: Array) -> Array:
    """First-stage scores of which the highest is first in the pool: distances are negated, and where a score is missing or
    contradicts the order of the pool, ranks stand for all of them."""
    steps = np.diff(scores) if np.isfinite(scores).all() else np.full(2, np.nan)
    if np.all(steps <= 0):
        return scores
    return -scores if np.all(steps >= 0) else -np.arange(len(scores), dtype=float)


def _digest(seed: int, query_id: str, tag: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{query_id}\x1f{tag}".encode()).digest()


# -- the same requests, read again


def noise_floor(
    scorer: PoolScorer,
    data: Data,
    config: AuditConfig,
    known: Sequence[Scored] = (),
    progress: Progress | None = None,
    keep: Callable[[list[Scored]], None] | None = None,
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
