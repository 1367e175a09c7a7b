"""From a score table to measures: stacks of equally sized queries, the frozen cutoff, coverage."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from ..errors import InputError
from ..machine.bounds import Positive, field_mistakes
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array
from . import ranking, threshold
from .ensembles import ensembles
from .planning import from_permutations
from .reading import ranked_first_stage, ranked_permuted
from .registry import MEASURES, Stack
from .rows import Rows
from .whole import WholeCollection, placed_scores


@dataclass(frozen=True, slots=True)
class Threshold:
    """How the threshold consumer gets its cutoff."""

    cutoff: float | None = None
    """A fixed threshold; None tunes one to F1 on half of the queries (§5)."""
    protocol: Literal["midpoints", "reference"] = "midpoints"
    """How it is tuned; reference: on the released code's grid, split and presentation."""
    seed: int = 0
    retention: float | None = None
    """Tune it to keep this share of the pool (matched retention, §F.1)."""
    retention_of: str | None = None
    """Tune it to keep the share that the F1-tuned cutoff of this run keeps, on the same collection at the same serving budget."""
    keep_first: Positive | None = None
    """No cutoff: keep exactly the first K candidates of every pool."""
    keep_share: float | None = None
    """No cutoff: keep this share of every pool, rounded, at least one candidate."""

    def __post_init__(self) -> None:
        fitted = next((value for value in (self.cutoff, self.retention, self.retention_of) if value is not None), None)
        rules = {"cutoff or match_retention": fitted, "keep_first": self.keep_first, "keep_share": self.keep_share}
        given = [name for name, value in rules.items() if value is not None]
        mistakes = [f"{' and '.join(given)} each say what is kept. Give one of them."] if len(given) > 1 else []
        mistakes += field_mistakes(self)
        if self.keep_share is not None and not 0 < self.keep_share < 1:
            mistakes.append(f"keep_share {self.keep_share} is not a share between 0 and 1, such as 0.3.")
        if self.retention is not None and not 0 <= self.retention <= 1:
            mistakes.append(f"match_retention {self.retention} is not a share from 0 to 1.")
        if self.cutoff is not None and not (isinstance(self.cutoff, int | float) and math.isfinite(self.cutoff)):
            mistakes.append(f"cutoff {self.cutoff!r} is not a finite number.")
        if mistakes:
            raise InputError(mistakes)


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The threshold consumer's cutoff and how it was found."""

    value: float | None
    """None where there is none; `how` says why, or what keeps candidates instead."""
    how: str
    fitted_in: str | None = None
    """The presentation it was fitted in: `first-stage order` or `permutation 0`."""
    fitted_on: int | None = None
    """Queries it was fitted on; None for a fixed cutoff."""
    measured_on: int | None = None
    """The other queries, on which decisions are measured."""
    seed: int | None = None
    keep_first: int | None = None
    """A rule per query: the first K of every pool."""
    keep_share: float | None = None
    """A rule per query: this share of every pool."""
    retention: float | None = None
    """The share of the pool it was fitted to keep, where it was."""

    @property
    def is_per_query(self) -> bool:
        """Whether every pool has a cutoff of its own, so that a set is never empty and rankings will do."""
        return self.keep_first is not None or self.keep_share is not None

    def retained(self, scores: Array, ranked: Array | None = None) -> Array | None:
        """(..., M, n) what is kept of scores (..., M, n); None where nothing decides.

        `ranked` are numbers that rank as the reading of ties has it, where that is not the scores' own order.
        """
        by_rank = scores if ranked is None else ranked
        if self.keep_first is not None:
            return threshold.retained_top_k(by_rank, self.keep_first)
        if self.keep_share is not None:
            return threshold.retained_share(by_rank, self.keep_share)
        return None if self.value is None else threshold.retained(scores, self.value)

    def to_json(self) -> dict[str, Any]:
        rule = {"keep_first": self.keep_first, "keep_share": self.keep_share}
        fixed = {"value": self.value, "how": self.how, **{key: value for key, value in rule.items() if value is not None}}
        if self.fitted_on is None:
            return fixed
        return fixed | {
            "canonical": self.fitted_in, "fitted_on": self.fitted_on, "measured_on": self.measured_on, "seed": self.seed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the measures of a run stand on."""

    queries: int
    candidates: int
    permutations: list[int]
    """Every count of permutations that a query has, ascending."""
    fewer_permutations: dict[str, int]
    """Queries that have fewer than the most, with their count."""
    unjudged: list[str]
    """Queries without a judged candidate: in no mean that needs judgements."""
    without_relevant: list[str]
    """Judged queries without a relevant candidate in the pool: their quality counts as 0."""
    without_first_stage: list[str]
    """Queries without scores in first-stage order, where others have them: quality is then the permutations' for all."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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

    `queries` is gone through twice (a list, `Run.queries()`), never held.
    """
    threshold_by = threshold_by or Threshold()
    queries, survey = _survey_alike(queries, threshold_by)
    if not survey.ids:
        raise InputError("no scored query was given to measure.")
    cutoff, tested = _cutoff(survey, threshold_by)
    values: dict[str, Array] = defaultdict(lambda: np.full(len(survey.ids), np.nan))
    whole = WholeCollection(survey.width)
    for first, batch in _batches(queries):
        for members in _equal_shapes(batch):
            alike = [batch[i] for i in members]
            stack, places = _stack(alike), first + members
            for name, found in _values(stack, only).items():
                values[name][places] = found
            if stack.scores.shape[1] > 1 and (sets := cutoff.retained(stack.scores, stack.ranked)) is not None:
                for name, found in _values(replace(stack, retained=sets), only, needing="cutoff").items():
                    values[name][places] = np.where(tested[places], found, np.nan)
            if only is None:
                whole.add(stack)
                if alike[0].is_placed and stack.scores.shape[1] > 1:
                    whole.add_places(alike)
    return Measured(
        query_ids=tuple(survey.ids),
        values={name: found for name, found in values.items() if not np.isnan(found).all()},
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
    """A query as a system that averages K permutations serves it: rows are disjoint ensembles (§D.4)."""
    return with_scores(query, ensembles(query.permuted, serving_permutations))


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


def _values(stack: Stack, only: Collection[str] | None = None, needing: str | None = None) -> dict[str, Array]:
    """The measures of a stack: those that need the cutoff, or all others its arrays allow."""
    missing = {"reader", "perturbed"} | ({"cutoff"} if needing is None else set())
    if stack.scores.shape[1] < 2:
        missing.add("permutations")
    if np.isnan(stack.ideal).all():
        missing.add("relevance")
    if stack.orders is None:
        missing.add("orders")
    return {
        m.name: np.asarray(m.value(stack), float)
        for m in MEASURES.values()
        if m.value
        and (only is None or m.name in only)
        and missing.isdisjoint(m.needs)
        and (needing is None or needing in m.needs)
    }


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

    def coverage(self) -> Coverage:
        most = max(self.permutations)
        return Coverage(
            queries=len(self.ids),
            candidates=self.candidates,
            permutations=sorted(set(self.permutations)),
            fewer_permutations={q: m for q, m in zip(self.ids, self.permutations, strict=True) if m < most},
            unjudged=self.unjudged,
            without_relevant=self.without_relevant,
            without_first_stage=self.without_first_stage if self.is_mixed else [],
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
        if by.cutoff is None:
            row = query.permuted[0] if by.protocol == "reference" or first_stage is None else first_stage
            survey.fitting_rows.append(row)
            survey.gold.append(query.gold)
        if query.is_placed and len(query.permuted) > 1:
            survey.width = max(survey.width, int(placed_scores(query)[1].max()) + 1)
        survey.ids.append(query.query_id)
        survey.candidates += len(query.candidate_ids)
        survey.permutations.append(len(query.permuted))
        if not query.is_judged:
            survey.unjudged.append(query.query_id)
        elif not ranking.is_relevant(query.gold).any():
            survey.without_relevant.append(query.query_id)
    return survey


def find_cutoff(queries: Iterable[Scored], by: Threshold) -> tuple[Cutoff, Array]:
    """The frozen cutoff of some queries, and (Q,) which of them it may be measured on."""
    return _cutoff(_survey_alike(queries, by)[1], by)


def _cutoff(survey: _Survey, by: Threshold) -> tuple[Cutoff, Array]:
    """The frozen cutoff, and which queries it may be measured on: those it was not fitted on."""
    ids, rows = survey.ids, survey.fitting_rows
    everyone = np.ones(len(ids), bool)
    if by.cutoff is not None:
        return Cutoff(by.cutoff, "fixed"), everyone
    if by.keep_first is not None:
        return Cutoff(None, f"the first {by.keep_first} of every pool", keep_first=by.keep_first), everyone
    if by.keep_share is not None:
        return Cutoff(None, f"{100 * by.keep_share:.3g}% of every pool, at least one", keep_share=by.keep_share), everyone
    if len(ids) < 2:
        return Cutoff(None, "none: it is fitted on half of the queries, and there is only one; --cutoff needs no half"), ~everyone
    if by.retention is None and not survey.is_judged:
        return Cutoff(None, "none: tuning it to F1 needs judgements; --cutoff or --match-retention do without"), ~everyone
    reference = by.protocol == "reference"
    fitted = _fitting_half(ids, by)
    half = Rows(row for row, mine in zip(rows, fitted, strict=True) if mine)
    grid = rows if reference else None
    if by.retention is None:
        gold = Rows(row for row, mine in zip(survey.gold, fitted, strict=True) if mine)
        if not any(ranking.is_relevant(row).any() for row in gold):
            why = "none: no query of the half it is fitted on has a relevant candidate; --cutoff or --match-retention need none"
            return Cutoff(None, why), ~everyone
        value = threshold.fit_cutoff(half, gold, by.protocol, grid)
    else:
        value = threshold.match_retention(half, by.retention, by.protocol, grid)
    cutoff = Cutoff(
        value=value,
        how=f"{'F1-tuned' if by.retention is None else 'retention-matched'}, {by.protocol}",
        fitted_in="permutation 0" if survey.without_first_stage or reference else "first-stage order",
        fitted_on=int(fitted.sum()),
        measured_on=int((~fitted).sum()),
        seed=threshold.REFERENCE_SEED if reference else by.seed,
        retention=by.retention,
    )
    return cutoff, ~fitted


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
    _, survey = _survey_alike(queries, replace(by, cutoff=None))
    fitted = _fitting_half(survey.ids, by)
    kept = (float((row >= cutoff).mean()) for row, mine in zip(survey.fitting_rows, fitted, strict=True) if mine)
    return float(np.mean(np.fromiter(kept, float)))
