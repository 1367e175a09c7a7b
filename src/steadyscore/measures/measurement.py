"""From a score table to measures: stacks of equally sized queries, the frozen cutoff, coverage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..runs.table import FIRST_STAGE, Scored, take_rows
from ..terms import Array
from ..window.presentation import count_orders
from . import ranking
from .registry import MEASURES, NEEDS, Stack
from .threshold import Cutoff, FittingScores, Threshold, freeze_cutoff
from .views import ranked_first_stage, ranked_permuted, with_scores
from .whole import WholeCollection


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the measures of a run were computed from."""

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

    def to_json(self) -> dict[str, object]:
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
    """How many queries each of those was computed from."""
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
    cutoff = freeze_cutoff(survey.fitting, threshold_by)
    values: dict[str, Array] = defaultdict(lambda: np.full(len(survey.ids), np.nan))
    whole = WholeCollection(survey.width)
    for places, alike in _equal_shapes(queries):
        stack = _stack(alike)
        sets = cutoff.retained(stack.scores, stack.ranked, places)
        stack = replace(stack, retained=sets, decided=None if sets is None else cutoff.decides(places))
        for name, column in _values(stack, only):
            values[name][places] = column
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


FITTED_FIRST = 8
"""Queries on which a cutoff is fitted for the first time where queries are measured as they come."""


class OneByOne:
    """A measure of queries as they come, each value at once.

    A cutoff that is fitted is fitted on the queries before: on the first 8, and again on all whenever they are twice as many.
    Those before it was fitted have no value. Where all have come before, in fewer permutations, it is that of a whole audit.
    """

    def __init__(self, name: str, by: Threshold, before: OneByOne | None = None):
        self._name, self._by, self._cutoff = name, by, Cutoff(None, "none yet")
        self._before = FittingScores()
        self._whole: dict[str, Cutoff] = {}
        if before is not None and before._before.ids:
            fitted = freeze_cutoff(before._before, by)
            self._whole = {query_id: fitted.of(place) for place, query_id in enumerate(before._before.ids)}

    def value(self, query: Scored) -> float:
        """Its value; NaN where it has none."""
        stack = _stack([query])
        if "cutoff" in MEASURES[self._name].needs:
            sets = (self._whole.get(query.query_id) or self._fit(query)).retained(stack.scores, stack.ranked)
            stack = replace(stack, retained=sets, decided=None if sets is None else np.ones(1, bool))
        return next((float(values[0]) for _, values in _values(stack, (self._name,))), float("nan"))

    def _fit(self, query: Scored) -> Cutoff:
        """The cutoff for this query, which is then one of those before."""
        if not self._by.is_fitted:
            return find_cutoff([query], self._by)
        if (count := len(self._before.ids)) >= FITTED_FIRST and (count & (count - 1)) == 0:
            self._cutoff = replace(freeze_cutoff(self._before, self._by), values=None)
        self._before.add(query, self._by)
        return self._cutoff


class EachChanged:
    """Queries as a function changes them, one by one in every iteration, so that none is held; None leaves a query out."""

    def __init__(self, queries: Iterable[Scored], change: Callable[[Scored], Scored | None]):
        self._queries, self._change = queries, change

    def __iter__(self) -> Iterator[Scored]:
        return (changed for query in self._queries if (changed := self._change(query)) is not None)


def fewest_permutations(queries: Iterable[Scored]) -> int:
    """The fewest permutations that a query has, small pools of which every order was shown left aside where there are others."""
    counts: dict[bool, int] = {}
    for query in queries:
        is_whole, count = query.has_every_order, len(query.permuted)
        counts[is_whole] = min(count, counts.get(is_whole, count))
    return counts.get(False, counts.get(True, 0))


def qualities(queries: Iterable[Scored], k: int) -> list[Array]:
    """Of every query (M,) nDCG@k by permutation, NaN where it has no judgements."""
    by_place: dict[int, Array] = {}
    for places, alike in _equal_shapes(queries):
        judged = [query.gold if query.ideal is None else query.ideal for query in alike]
        lengths = np.array([len(ideal) for ideal in judged])
        for length in np.unique(lengths):  # another length sums in another order
            members = np.flatnonzero(lengths == length)
            ranked, gold = (np.stack([of(alike[i]) for i in members]) for of in (ranked_permuted, attrgetter("gold")))
            values = ranking.ndcg(ranked, gold, k, judged_gains=np.stack([judged[i] for i in members]))
            by_place |= zip(places[members].tolist(), values, strict=True)
    return [by_place[place] for place in range(len(by_place))]


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


def from_permutations(values: ArrayLike) -> Array:
    """Pair values whose mean is the mean of per-permutation `values` (M,), such as nDCG: h(i, j) = (v_i + v_j) / 2."""
    values = np.asarray(values, float)
    pairs: Array = (values[:, None] + values[None, :]) / 2
    return pairs


def _with_rows(query: Scored, rows: Array) -> Scored:
    """A query with some of its presentations, as they were shown."""
    return replace(take_rows(replace(query, grades=None, label_mass=None), rows), permutations=np.arange(len(rows)))


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


def _equal_shapes(queries: Iterable[Scored]) -> Iterator[tuple[Array, list[Scored]]]:
    """Queries that can be stacked, of a batch at a time, and their places."""
    remaining, first = iter(queries), 0
    while batch := list(islice(remaining, BATCH)):
        shapes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
        for i, q in enumerate(batch):
            drawn = np.count_nonzero(q.permutations != FIRST_STAGE)
            shapes[drawn, len(q.candidate_ids), drawn == len(q.permutations), q.is_placed, q.ties].append(i)
        yield from ((first + np.array(members), [batch[i] for i in members]) for members in shapes.values())
        first += len(batch)


def _stack(queries: Sequence[Scored]) -> Stack:
    relevance = [q.gold for q in queries]
    ideals = [own if q.ideal is None else q.ideal for q, own in zip(queries, relevance, strict=True)]
    ideal = np.full((len(queries), max(map(len, ideals))), np.nan)
    for row, gains in zip(ideal, ideals, strict=True):
        row[: len(gains)] = gains
    orders, first = [q.orders() for q in queries], [ranked_first_stage(q) for q in queries]
    scores = np.stack([q.permuted for q in queries])
    ranked = scores if queries[0].ties == "id" else np.stack([ranked_permuted(q) for q in queries])
    return Stack(
        scores=scores,
        ranked=ranked,
        served=ranked if first[0] is None else np.stack(first)[:, None],  # type: ignore[arg-type]
        relevance=np.stack(relevance),
        ideal=ideal,
        orders=None if orders[0] is None else np.stack(orders),  # type: ignore[arg-type]
    )


@dataclass
class _Survey:
    """What must be known of all queries before the first is measured."""

    fitting: FittingScores = field(default_factory=FittingScores)
    without_first_stage: list[str] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)
    """How many each pool has."""
    permutations: list[int] = field(default_factory=list)
    width: int = 0

    def coverage(self) -> Coverage:
        most = max(self.permutations)
        sizes = list(zip(self.ids, self.candidates, self.permutations, strict=True))
        judged = list(zip(self.ids, self.fitting.is_judged, self.fitting.has_relevant, strict=True))
        single = [query_id for query_id, n, _ in sizes if n < 2]
        return Coverage(
            queries=len(sizes),
            candidates=sum(self.candidates),
            permutations=sorted(set(self.permutations)),
            fewer_permutations={query_id: m for query_id, n, m in sizes if m < min(most, count_orders(n))},
            few_orders=dict(sorted(Counter(n for _, n, m in sizes if n > 1 and m >= count_orders(n)).items())),
            unjudged=[query_id for query_id, is_judged, _ in judged if not is_judged],
            without_relevant=[query_id for query_id, is_judged, has_relevant in judged if is_judged and not has_relevant],
            without_first_stage=self.without_first_stage if self.is_mixed else [],
            left_out={"moves": single} if single else {},
        )

    @property
    def ids(self) -> list[str]:
        return self.fitting.ids

    @property
    def is_mixed(self) -> bool:
        """Whether some queries were scored in first-stage order and others were not."""
        return 0 < len(self.without_first_stage) < len(self.ids)


def _survey_alike(queries: Iterable[Scored], by: Threshold) -> tuple[Iterable[Scored], _Survey]:
    """Queries and their survey, all with a row of the first-stage order or all without: one mean must not hold both."""
    survey = _survey(queries, by)
    if not survey.is_mixed:
        return queries, survey
    alike = EachChanged(queries, lambda query: _with_rows(query, np.flatnonzero(query.permutations != FIRST_STAGE)))
    return alike, replace(_survey(alike, by), without_first_stage=survey.without_first_stage)


def _survey(queries: Iterable[Scored], by: Threshold) -> _Survey:
    survey = _Survey()
    for query in queries:
        survey.fitting.add(query, by)
        if query.first_stage is None:
            survey.without_first_stage.append(query.query_id)
        shown = np.flatnonzero(query.permutations != FIRST_STAGE)
        if query.slots is not None and query.is_placed and len(shown) > 1:
            survey.width = max(survey.width, int(query.slots[shown].max()) + 1)
        survey.candidates.append(len(query.candidate_ids))
        survey.permutations.append(len(shown))
    return survey


def find_cutoff(queries: Iterable[Scored], by: Threshold) -> Cutoff:
    """The frozen cutoff of some queries."""
    return freeze_cutoff(_survey_alike(queries, by)[1].fitting, by)


def fitted_retention(queries: Iterable[Scored], cutoff: float, by: Threshold) -> float:
    """The share of the pool that a cutoff keeps on the half it was fitted on: what another scorer's cutoff is matched to."""
    _, survey = _survey_alike(queries, Threshold(half=True, protocol=by.protocol, seed=by.seed))
    return survey.fitting.retention(cutoff, by)
