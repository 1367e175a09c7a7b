"""From a score table to measures: stacks of equally sized queries, the frozen cutoff, coverage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np

from ..errors import InputError
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array
from ..window.presentation import count_orders
from . import ranking, threshold
from .ensembles import ensembles
from .planning import from_permutations
from .reading import ranked_first_stage, ranked_permuted
from .registry import MEASURES, NEEDS, Stack
from .rows import Rows
from .threshold import Cutoff, Threshold
from .whole import WholeCollection, placed_scores


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the measures of a run stand on."""

    queries: int
    candidates: int
    permutations: list[int]
    """Every count of permutations that a query has, ascending."""
    fewer_permutations: dict[str, int]
    """Queries that have fewer than the most, and fewer than their pool has orders, with their count."""
    few_orders: dict[int, int]
    """Pools of two candidates or more that have no more orders than were shown: how many, by their number of candidates."""
    unjudged: list[str]
    """Queries without a judged candidate: in no mean that needs judgements."""
    without_relevant: list[str]
    """Judged queries without a relevant candidate in the pool: their quality counts as 0."""
    without_first_stage: list[str]
    """Queries without scores in first-stage order, where others have them: quality is then the permutations' for all."""
    left_out: dict[str, list[str]]
    """By the need of `registry.NEEDS` that fails them, queries that are in no measure of movement."""
    failed: dict[str, str] = field(default_factory=dict)
    """Queries that could not be scored, with the reason: in no mean."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"few_orders": {str(n): pools for n, pools in self.few_orders.items()}}


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of one run, query by query."""

    query_ids: tuple[str, ...]
    values: dict[str, Array]
    """Measure -> (Q,), NaN where undefined."""
    overall: dict[str, float]
    """Measures that only a whole collection has."""
    overall_queries: dict[str, int]
    """How many queries each of those stands on."""
    cutoff: Cutoff
    coverage: Coverage
    slot_profile: list[float | None]
    """ψ(p) by slot, over all candidates; empty where places are unknown."""


BATCH = 1_000
"""Queries that are measured, and held, at once."""


def measure(queries: Iterable[Scored], threshold_by: Threshold | None = None, only: Collection[str] | None = None) -> Measured:
    """Every measure that the score table allows, or `only` these of single queries.

    `queries` is gone through twice (a list, `Run.read_queries()`), never held.
    """
    queries, survey = _survey_alike(queries, threshold_by := threshold_by or Threshold())
    if not survey.ids:
        raise InputError("no scored query was given to measure.")
    cutoff = _cutoff(survey, threshold_by)
    values: dict[str, Array] = defaultdict(lambda: np.full(len(survey.ids), np.nan))
    whole = WholeCollection(survey.width)
    for first, batch in _batches(queries):
        for members in _equal_shapes(batch):
            alike = [batch[i] for i in members]
            stack, places = _stack(alike), first + members
            sets = cutoff.retained(stack.scores, stack.ranked, places)
            stack = replace(stack, retained=sets, decided=None if sets is None else cutoff.decides(places))
            for name, found in _values(stack, only):
                values[name][places] = found
            if only is None and NEEDS["moves"](stack):
                whole.add(stack)
                if alike[0].is_placed and stack.scores.shape[1] > 1:
                    whole.add_places(alike)
    return Measured(
        query_ids=tuple(survey.ids),
        values={name: values[name] for name in MEASURES if name in values and not np.isnan(values[name]).all()},
        overall=whole.overall(),
        overall_queries=whole.counts(),
        cutoff=cutoff,
        coverage=survey.coverage(),
        slot_profile=whole.slot_profile(),
    )


def _batches(queries: Iterable[Scored]) -> Iterator[tuple[int, list[Scored]]]:
    """Queries a batch at a time, each with the place of its first."""
    remaining, first = iter(queries), 0
    while batch := list(islice(remaining, BATCH)):
        yield first, batch
        first += len(batch)


class EachChanged:
    """Queries as a function changes them, one by one in every iteration, so that none is held; None leaves a query out."""

    def __init__(self, queries: Iterable[Scored], change: Callable[[Scored], Scored | None]):
        self._queries, self._change = queries, change

    def __iter__(self) -> Iterator[Scored]:
        return (changed for query in self._queries if (changed := self._change(query)) is not None)


def average_permutations(query: Scored, serving_permutations: int) -> Scored:
    """A query as a system that averages K permutations serves it: rows are disjoint ensembles (§D.4).

    A pool that has fewer orders is averaged over all of them: one row, which nothing moves.
    """
    fewest = len(query.permuted) if query.has_every_order else serving_permutations
    return with_scores(query, ensembles(query.permuted, min(serving_permutations, fewest)))


def fewest_permutations(queries: Iterable[Scored]) -> int:
    """The fewest permutations that a query has, small pools of which every order was shown left aside where there are others."""
    counts: dict[bool, int] = {}
    for query in queries:
        is_whole, count = query.has_every_order, len(query.permuted)
        counts[is_whole] = min(count, counts.get(is_whole, count))
    return counts.get(False, counts.get(True, 0))


def pair_values(query: Scored, name: str, cutoff: Cutoff) -> Array:
    """(M, M) a measure between every two permutations of a query: what planning needs of a pilot. 1 on the diagonal."""
    rows = np.flatnonzero(query.permutations != FIRST_STAGE)
    if name.startswith("ndcg"):
        return from_permutations(_stack([_with_rows(query, rows)]).quality(int(name.removeprefix("ndcg@")))[0])
    pairs = np.ones((len(rows), len(rows)))
    for i, j in zip(*np.tril_indices(len(rows), -1), strict=True):
        stack = _stack([_with_rows(query, rows[[i, j]])])
        if "cutoff" in MEASURES[name].needs:
            stack = replace(stack, retained=cutoff.retained(stack.scores, stack.ranked))
        pairs[i, j] = pairs[j, i] = MEASURES[name].value(stack)[0]  # type: ignore[misc]
    return pairs


def _with_rows(query: Scored, rows: Array) -> Scored:
    """A query with some of its presentations, as they were shown."""

    def some(values: Array | None) -> Array | None:
        return None if values is None else values[rows]

    return replace(
        query,
        permutations=np.arange(len(rows)),
        scores=query.scores[rows],
        slots=some(query.slots),
        windows=some(query.windows),
        grades=None,
        label_mass=None,
    )


def with_scores(query: Scored, scores: Array) -> Scored:
    """A query with other rows, whose places are not known."""
    return replace(
        query,
        permutations=np.arange(len(scores)),
        scores=scores,
        slots=None,
        windows=None,
        grades=None,
        label_mass=None,
        ties="id",
    )


def rank_by_pool(query: Scored) -> Scored | None:
    """The query as its first stage ranks it, whatever order it is shown in; None where the order of its pool is not known."""
    order = query.pool_order
    if order is None:
        return None
    scores = np.empty(len(order))
    scores[order] = first_stage_scores(len(order))
    return with_scores(query, np.stack([scores, scores]))


def first_stage_scores(n: int) -> Array:
    """(n,) what a first stage says of its candidates, first to last: the share of the pool that does not stand before each.

    A cutoff then means the same on pools of other sizes.
    """
    scores: Array = 1 - np.arange(n) / n
    return scores


def _values(stack: Stack, only: Collection[str] | None = None) -> Iterator[tuple[str, Array]]:
    """The measures of a stack, each NaN for the queries that one of its needs fails."""
    for measure in MEASURES.values():
        if measure.value and (only is None or measure.name in only):
            measured = np.ones(len(stack.scores), bool)
            for need in measure.needs:
                measured &= NEEDS[need](stack)
            if measured.any():
                yield measure.name, np.where(measured, np.asarray(measure.value(stack), float), np.nan)


def _equal_shapes(queries: Sequence[Scored]) -> list[Array]:
    """Indices of queries that can be stacked."""
    shapes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, q in enumerate(queries):
        shapes[q.permuted.shape, q.first_stage is None, q.is_placed, q.ties].append(i)
    return [np.array(members) for members in shapes.values()]


def _stack(queries: Sequence[Scored]) -> Stack:
    relevance = [q.gold for q in queries]
    ideals = [own if q.ideal is None else q.ideal for q, own in zip(queries, relevance, strict=True)]
    ideal = np.full((len(queries), max(map(len, ideals))), np.nan)
    for row, found in zip(ideal, ideals, strict=True):
        row[: len(found)] = found
    orders = [q.orders() for q in queries]
    is_plain = queries[0].ties == "id"
    has_first = queries[0].first_stage is not None
    return Stack(
        scores=np.stack([q.permuted for q in queries]),
        first_stage=np.stack([q.first_stage for q in queries]) if has_first else None,  # type: ignore[misc]
        relevance=np.stack(relevance),
        ideal=ideal,
        orders=None if orders[0] is None else np.stack(orders),  # type: ignore[arg-type]
        by_rank=None if is_plain else np.stack([ranked_permuted(q) for q in queries]),
        first_by_rank=None if is_plain or not has_first else np.stack([ranked_first_stage(q) for q in queries]),  # type: ignore[misc]
    )


@dataclass
class _Survey:
    """What must be known of all queries before the first is measured."""

    ids: list[str] = field(default_factory=list)
    fitting_rows: Rows = field(default_factory=Rows)
    """Per query the scores that a cutoff is fitted on, where one is fitted; and its judgements."""
    gold: Rows = field(default_factory=Rows)
    without_first_stage: list[str] = field(default_factory=list)
    is_judged: bool = False
    width: int = 0
    candidates: int = 0
    permutations: list[int] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    without_relevant: list[str] = field(default_factory=list)
    orders: list[float] = field(default_factory=list)
    """How many each pool has."""
    few_orders: Counter[int] = field(default_factory=Counter)
    single: list[str] = field(default_factory=list)
    """Queries with one candidate."""

    def coverage(self) -> Coverage:
        most = max(self.permutations)
        shown = zip(self.ids, self.permutations, self.orders, strict=True)
        return Coverage(
            queries=len(self.ids),
            candidates=self.candidates,
            permutations=sorted(set(self.permutations)),
            fewer_permutations={q: m for q, m, orders in shown if m < min(most, orders)},
            few_orders=dict(sorted(self.few_orders.items())),
            unjudged=self.unjudged,
            without_relevant=self.without_relevant,
            without_first_stage=self.without_first_stage if self.is_mixed else [],
            left_out={"moves": self.single} if self.single else {},
        )

    @property
    def is_mixed(self) -> bool:
        """Whether some queries were scored in first-stage order and others were not."""
        return 0 < len(self.without_first_stage) < len(self.ids)


def _survey_alike(queries: Iterable[Scored], by: Threshold) -> tuple[Iterable[Scored], _Survey]:
    """Queries and their survey, all with a row of the first-stage order or all without: one mean must not hold both."""
    survey = _survey(queries, by)
    if not survey.is_mixed:
        return queries, survey
    alike = EachChanged(queries, _without_first_stage)
    return alike, replace(_survey(alike, by), without_first_stage=survey.without_first_stage)


def _without_first_stage(query: Scored) -> Scored:
    return _with_rows(query, np.flatnonzero(query.permutations != FIRST_STAGE))


def _survey(queries: Iterable[Scored], by: Threshold) -> _Survey:
    survey = _Survey()
    for query in queries:
        first_stage = query.first_stage
        if first_stage is None:
            survey.without_first_stage.append(query.query_id)
        survey.is_judged |= query.is_judged
        if by.is_fitted:
            row = query.permuted[0] if by.protocol == "reference" or first_stage is None else first_stage
            survey.fitting_rows.append(row)
            if by.cutoff == "f1":
                survey.gold.append(query.gold)
        if query.is_placed and len(query.permuted) > 1:
            survey.width = max(survey.width, int(placed_scores(query)[1].max()) + 1)
        survey.ids.append(query.query_id)
        survey.candidates += len(query.candidate_ids)
        survey.permutations.append(len(query.permuted))
        survey.orders.append(count_orders(n := len(query.candidate_ids)))
        if n < 2:
            survey.single.append(query.query_id)
        elif query.has_every_order:
            survey.few_orders[n] += 1
        if not query.is_judged:
            survey.unjudged.append(query.query_id)
        elif not ranking.is_relevant(query.gold).any():
            survey.without_relevant.append(query.query_id)
    return survey


def find_cutoff(queries: Iterable[Scored], by: Threshold) -> Cutoff:
    """The frozen cutoff of some queries."""
    return _cutoff(_survey_alike(queries, by)[1], by)


def _cutoff(survey: _Survey, by: Threshold) -> Cutoff:
    """The frozen cutoff of every query, fitted on others."""
    ids, rows = survey.ids, survey.fitting_rows
    if by.keep_first is not None:
        return Cutoff(None, f"the first {by.keep_first} of every pool", keep_first=by.keep_first)
    if by.keep_share is not None:
        return Cutoff(None, f"{100 * by.keep_share:.3g}% of every pool, at least one", keep_share=by.keep_share)
    if isinstance(by.cutoff, int | float):
        return Cutoff(by.cutoff, "fixed", values=np.full(len(ids), float(by.cutoff)))
    if len(ids) < 2:
        return Cutoff(None, "none: it is fitted on other queries, and there is only one; --cutoff and --keep-share need no other")
    fitted_in = "permutation 0" if survey.without_first_stage or by.protocol == "reference" else "first-stage order"
    if by.retention is not None and not by.half:
        folds = threshold.fold_queries(ids, by.seed)
        value, values = threshold.cross_match_retention(rows, by.retention, folds)
        how, count = f"retention-matched, {by.protocol}", len(ids)
        return Cutoff(
            value, how, fitted_in, count, count, by.seed, retention=by.retention, folds=int(folds.max()) + 1, values=values
        )
    if by.retention is None and not survey.is_judged:
        return Cutoff(None, "none: tuning it to F1 needs judgements; --match-retention, --cutoff X and --keep-share do without")
    reference = by.protocol == "reference"
    fitted = _fitting_half(ids, by)
    half = Rows(row for row, mine in zip(rows, fitted, strict=True) if mine)
    grid = rows if reference else None
    if by.retention is None:
        gold = Rows(row for row, mine in zip(survey.gold, fitted, strict=True) if mine)
        if not any(ranking.is_relevant(row).any() for row in gold):
            return Cutoff(
                None,
                "none: no query of the half it is fitted on has a relevant candidate; --match-retention and --cutoff need none",
            )
        value = threshold.fit_cutoff(half, gold, by.protocol, grid)
    else:
        value = threshold.match_retention(half, by.retention, by.protocol, grid)
    return Cutoff(
        value=value,
        how=f"{'F1-tuned' if by.retention is None else 'retention-matched'}, {by.protocol}",
        fitted_in=fitted_in,
        fitted_on=int(fitted.sum()),
        measured_on=int((~fitted).sum()),
        seed=threshold.REFERENCE_SEED if reference else by.seed,
        retention=by.retention,
        values=np.where(fitted, np.nan, value),
    )


def _fitting_half(ids: Sequence[str], by: Threshold) -> Array:
    """(Q,) which queries a cutoff is fitted on."""
    is_reference = by.protocol == "reference"
    fit_ids, _ = threshold.split_queries(
        ids, None if is_reference else by.seed, protocol="reference" if is_reference else "hashed"
    )
    chosen = set(fit_ids)
    return np.fromiter((query_id in chosen for query_id in ids), bool, len(ids))


def fitted_retention(queries: Iterable[Scored], cutoff: float, by: Threshold) -> float:
    """The share of the pool that a cutoff keeps on the half it was fitted on: what another scorer's cutoff is matched to."""
    _, survey = _survey_alike(queries, Threshold(half=True, protocol=by.protocol, seed=by.seed))
    fitted = _fitting_half(survey.ids, by)
    kept = (float((row >= cutoff).mean()) for row, mine in zip(survey.fitting_rows, fitted, strict=True) if mine)
    return float(np.mean(np.fromiter(kept, float)))
