"""The cutoff of the threshold consumer: how it is asked for, how it is fitted, and what was frozen (§5 and §F.1 of the paper).

It is fitted in one presentation (first-stage order) on other queries than it is measured on, and then frozen: reshuffling
changes what the filter admits and not how it was fitted. What it retains is measured in `retained_sets`.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..machine.bounds import Positive, field_mistakes
from ..runs.table import Scored
from ..terms import Array, JsonObject
from .ranking import check_choice, finite_scores, is_relevant
from .retained_sets import retained, retained_share, retained_top_k

Protocol = Literal["midpoints", "reference"]

REFERENCE_SEED = 20260610
REFERENCE_POINTS = 41
"""The split seed and the grid of the authors' code (docs/protocol.md#thresholds)."""
KEPT = 0.3
"""The share of the pool that a cutoff is fitted to keep where nothing else is asked for."""
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Threshold:
    """How the threshold consumer gets its cutoff: by default it is fitted to keep 30 % of the pool, in five folds."""

    cutoff: float | Literal["f1"] | None = None
    """A fixed threshold; f1: tuned to F1 on half of the queries and measured on the other half (§5)."""
    protocol: Protocol = "midpoints"
    """How it is fitted; reference: on the released code's grid, split and presentation, and to F1 unless a share is given."""
    seed: int = 0
    retention: float | None = None
    """Fit it to keep this share of the pool (matched retention, §F.1)."""
    retention_of: str | None = None
    """Fit it to keep the share that the F1-tuned cutoff of this run keeps, on the same collection at the same serving budget."""
    keep_first: Positive | None = None
    """No cutoff: keep exactly the first K candidates of every pool."""
    keep_share: float | None = None
    """No cutoff: keep this share of every pool, rounded, at least one candidate."""
    half: bool = False
    """Fit it on half of the queries and measure on the other half, as the paper does, instead of in folds."""

    def __post_init__(self) -> None:
        share = self.retention if self.retention_of is None else self.retention_of
        rules = {"cutoff": self.cutoff, "match_retention": share, "keep_first": self.keep_first, "keep_share": self.keep_share}
        given = [name for name, value in rules.items() if value is not None]
        mistakes = [f"{' and '.join(given)} each say what is kept. Give one of them."] if len(given) > 1 else []
        mistakes += field_mistakes(self)
        if self.keep_share is not None and not 0 < self.keep_share < 1:
            mistakes.append(f"keep_share {self.keep_share} is not a share between 0 and 1, such as 0.3.")
        if self.retention is not None and not 0 <= self.retention <= 1:
            mistakes.append(f"match_retention {self.retention} is not a share from 0 to 1.")
        is_number = isinstance(self.cutoff, int | float) and math.isfinite(self.cutoff)
        if self.cutoff not in (None, "f1") and not is_number:
            mistakes.append(f"cutoff {self.cutoff!r} is neither a finite number nor f1.")
        if mistakes:
            raise InputError(mistakes)
        is_half = self.half or self.protocol == "reference" or self.cutoff == "f1"
        if not given:  # one value for one way, so that two that say the same are equal
            object.__setattr__(self, "cutoff" if is_half else "retention", "f1" if is_half else KEPT)
        object.__setattr__(self, "half", is_half and self.is_fitted)

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> Threshold:
        """As a run keeps it; before there were folds, every cutoff was fitted on half of the queries."""
        return cls(**({"half": True} | dict(values)))

    @property
    def is_fitted(self) -> bool:
        return self.cutoff == "f1" or self.retention is not None or self.retention_of is not None


@dataclass(frozen=True, slots=True)
class Cutoff:
    """The threshold consumer's cutoff and how it was found."""

    value: float | None
    """The one to freeze; None where there is none: `how` says why, or what keeps candidates instead."""
    how: str
    fitted_in: str | None = None
    """The presentation it was fitted in: `first-stage order` or `permutation 0`."""
    fitted_on: int | None = None
    """Queries it was fitted on; None for a fixed cutoff."""
    measured_on: int | None = None
    """Queries on which decisions are measured."""
    seed: int | None = None
    keep_first: int | None = None
    """A rule per query: the first K of every pool."""
    keep_share: float | None = None
    """A rule per query: this share of every pool."""
    retention: float | None = None
    """The share of the pool it was fitted to keep, where it was."""
    folds: int | None = None
    """Every query is measured with a cutoff that was fitted on the queries of the other folds; None: all with `value`."""
    values: Array | None = field(default=None, compare=False, repr=False)
    """(Q,) that of every query, NaN where it is not measured; None where there is none, or a rule per query."""

    @property
    def is_per_query(self) -> bool:
        """Whether every pool has a rule of its own, so that a set is never empty and rankings will do."""
        return self.keep_first is not None or self.keep_share is not None

    def of(self, place: int) -> Cutoff:
        """That of one query, by its place; without a value where it is not measured."""
        if self.values is None:
            return self
        own = float(self.values[place])
        return replace(self, value=None if math.isnan(own) else own, values=None)

    def decides(self, places: Array) -> Array:
        """(Q,) about which queries at these places it decides."""
        return np.ones(len(places), bool) if self.values is None else ~np.isnan(self.values[places])

    def retained(self, scores: Array, ranked: Array | None = None, places: Array | None = None) -> Array | None:
        """(..., M, n) what is kept of scores (..., M, n), of the queries at these `places`; None where nothing decides.

        `ranked` are numbers that rank as the reading of ties has it, where that is not the scores' own order.
        """
        by_rank = scores if ranked is None else ranked
        if self.keep_first is not None:
            return retained_top_k(by_rank, self.keep_first)
        if self.keep_share is not None:
            return retained_share(by_rank, self.keep_share)
        own = self.value if places is None or self.values is None else self.values[places][:, None, None]
        return None if self.value is None or own is None else retained(scores, own)

    def to_json(self) -> JsonObject:
        rule = {"keep_first": self.keep_first, "keep_share": self.keep_share}
        fixed = {"value": self.value, "how": self.how, **{key: value for key, value in rule.items() if value is not None}}
        if self.fitted_on is None:
            return fixed
        fitted = {"canonical": self.fitted_in, "fitted_on": self.fitted_on, "measured_on": self.measured_on, "seed": self.seed}
        return fixed | fitted | ({} if self.folds is None else {"folds": self.folds})


# ---- fitting: one presentation, queries of any pool size ----


def deal_queries(query_ids: Sequence[str], seed: int = 0, protocol: Protocol = "midpoints") -> list[str]:
    """Ids in the order in which they are dealt to halves and folds; the input's order plays no part.

    It is that of a hash of seed and id, or for `reference` that in which numpy's generator of seed 20260610 shuffles the
    sorted ids.
    """
    ids = sorted(query_ids)
    if protocol == "reference":
        np.random.default_rng(REFERENCE_SEED).shuffle(ids)
    else:
        ids.sort(key=lambda query_id: hashlib.sha256(f"{seed}:{query_id}".encode()).digest())
    return ids


def fold_queries(query_ids: Sequence[str], seed: int = 0, folds: int = FOLDS) -> Array:
    """(Q,) the fold of every query, 0 to `folds` - 1. Fewer queries than folds have one each."""
    dealt = {query_id: place % folds for place, query_id in enumerate(deal_queries(query_ids, seed))}
    return np.fromiter((dealt[query_id] for query_id in query_ids), np.int8, len(query_ids))


def cutoff_grid(scores: Array, protocol: Protocol = "midpoints") -> Array:
    """Candidate cutoffs, ascending, for the scores (N,) of all candidates of some queries.

    `midpoints`: the lowest score (retain all), then the midpoint of every two neighbouring distinct scores, so every
    different decision is tried once. `reference`: 41 equally spaced values from the lowest to the highest score.
    """
    check_choice(protocol, get_args(Protocol), "protocol")
    if not len(scores):
        raise InputError("no query to fit a cutoff on. Give at least one query with scores.")
    distinct = np.unique(finite_scores(scores))
    if protocol == "reference":
        return np.unique(np.linspace(distinct[0], distinct[-1], REFERENCE_POINTS))
    return np.concatenate([distinct[:1], distinct[:-1] + np.diff(distinct) / 2])


class Steps:
    """Every candidate's score, and what keeping it too adds to the figure of its query: the retained share of the pool, or the
    F1 of the retained set where relevance is given.

    A query's figure is a step function of the cutoff that moves only at its own scores. All steps of all queries,
    sorted by score and summed from above, give the mean at any cutoff: one sort instead of queries x cutoffs
    evaluations. Numbers lie end to end: as a list of arrays, a query would take two hundred bytes more.
    """

    def __init__(self, scores: Sequence[ArrayLike] = (), relevance: Sequence[ArrayLike] | None = None):
        self._levels, self._steps, self._sizes = array("d"), array("d"), array("q")
        for index, row in enumerate(scores):
            self.add(row, None if relevance is None else relevance[index])

    def add(self, scores: ArrayLike, relevance: ArrayLike | None = None) -> None:
        """Those of one more query."""
        row = np.asarray(scores, float)
        best_first = np.argsort(-row)
        kept = np.arange(1, len(row) + 1)
        if relevance is None:
            figure = kept / len(row)
        else:
            gold = is_relevant(relevance)[best_first]
            figure = 2 * np.cumsum(gold) / (kept + gold.sum())
        self._levels.frombytes(row[best_first].tobytes())
        self._steps.frombytes(np.diff(figure, prepend=0.0).tobytes())
        self._sizes.append(len(row))

    @property
    def levels(self) -> Array:
        """(N,) the scores."""
        return np.asarray(self._levels)

    def shares(self, cutoff: float) -> Array:
        """(Q,) the share of every pool that a cutoff keeps."""
        sizes = np.array(self._sizes)
        kept = np.bincount(np.repeat(np.arange(len(sizes)), sizes), self.levels >= cutoff, len(sizes))
        share: Array = kept / sizes
        return share

    def fit(self, parts: Sequence[Array], target: float | None = None, grid: Array | None = None) -> list[float]:
        """For each part of the queries, (Q,) bool, the cutoff with the greatest mean figure, or the one whose mean is closest to
        a target (§F.1); ties go to the higher one, and differences below 1e-12 are rounding of the sums.

        Cutoffs are those of the grid, else the midpoints between the part's own scores.
        """
        ascending = np.argsort(self.levels)
        levels, steps = self.levels[ascending], np.asarray(self._steps)[ascending]
        owner = np.repeat(np.arange(len(self._sizes), dtype=np.int32), self._sizes)[ascending]
        del ascending  # a number for each candidate, of which there may be millions
        cutoffs = []
        for part in parts:
            own = part[owner]
            level, step = levels[own], steps[own]
            tried = cutoff_grid(level) if grid is None else grid
            from_above = np.append(np.cumsum(step[::-1])[::-1], 0.0)
            mean = from_above[np.searchsorted(level, tried, side="left")] / int(part.sum())
            objective = mean if target is None else -np.abs(mean - target)
            cutoffs.append(float(tried[np.flatnonzero(objective >= objective.max() - 1e-12)[-1]]))
        return cutoffs


def fit_cutoff(
    scores: Sequence[ArrayLike],
    relevance: Sequence[ArrayLike],
    protocol: Protocol = "midpoints",
    grid_scores: Sequence[ArrayLike] | None = None,
) -> float:
    """The cutoff with the greatest mean per-query F1 of the retained set on the fitting half; ties go to the higher one.

    `scores` and `relevance` hold one (n,) array per query, scored in one presentation (first-stage order).
    The grid is made from these scores, so no test query leaks in. The authors' `reference` protocol takes the range of
    all queries' scores, and permutation 0 to fit on: pass those as `grid_scores` and `scores`.
    """
    if len(scores) != len(relevance):
        raise InputError(
            f"{len(scores)} queries have scores and {len(relevance)} have relevance. Give both for the same queries."
        )
    steps = Steps(scores, relevance)
    grid = cutoff_grid((steps if grid_scores is None else Steps(grid_scores)).levels, protocol)
    return steps.fit([np.ones(len(scores), bool)], grid=grid)[0]


@dataclass
class FittingScores:
    """What a cutoff is fitted on: the scores of every query in one presentation, and its judgements."""

    ids: list[str] = field(default_factory=list)
    steps: Steps = field(default_factory=Steps)
    """Empty where no cutoff is fitted."""
    is_judged: list[bool] = field(default_factory=list)
    has_relevant: list[bool] = field(default_factory=list)
    """Which queries have a relevant candidate."""
    in_permutation: bool = False
    """The presentation is permutation 0, and not the first-stage order."""

    def add(self, query: Scored, by: Threshold) -> None:
        first_stage, gold = query.first_stage if by.protocol != "reference" else None, query.gold
        self.ids.append(query.query_id)
        self.is_judged.append(query.is_judged)
        self.has_relevant.append(bool(is_relevant(gold).any()))
        self.in_permutation |= first_stage is None
        if by.is_fitted:
            row = query.permuted[0] if first_stage is None else first_stage
            self.steps.add(row, gold if by.cutoff == "f1" else None)

    def half(self, by: Threshold) -> Array:
        """(Q,) which queries are the half that a cutoff is fitted on; at least one."""
        dealt = deal_queries(self.ids, by.seed, by.protocol)
        chosen = set(dealt[: max(1, round(len(dealt) / 2))])
        return np.fromiter((query_id in chosen for query_id in self.ids), bool, len(self.ids))

    def retention(self, cutoff: float, by: Threshold) -> float:
        """The share of the pool that a cutoff keeps on that half."""
        return float(self.steps.shares(cutoff)[self.half(by)].mean())


def freeze_cutoff(on: FittingScores, by: Threshold) -> Cutoff:
    """The frozen cutoff of every query, fitted on others."""
    if by.keep_first is not None:
        return Cutoff(None, f"the first {by.keep_first} of every pool", keep_first=by.keep_first)
    if by.keep_share is not None:
        return Cutoff(None, f"{100 * by.keep_share:.3g}% of every pool, at least one", keep_share=by.keep_share)
    count = len(on.ids)
    if isinstance(by.cutoff, int | float):
        return Cutoff(by.cutoff, "fixed", values=np.full(count, float(by.cutoff)))
    if count < 2:
        return Cutoff(None, "none: it is fitted on other queries, and there is only one; --cutoff and --keep need no other")
    is_f1, is_reference = by.retention is None, by.protocol == "reference"
    if is_f1 and not any(on.is_judged):
        return Cutoff(None, "none: tuning it to F1 needs judgements; --match-retention, --cutoff X and --keep do without")
    fitted = on.half(by) if by.half else np.ones(count, bool)
    if is_f1 and not np.array(on.has_relevant)[fitted].any():
        return Cutoff(
            None,
            "none: no query of the half it is fitted on has a relevant candidate; --match-retention and --cutoff need none",
        )
    folds = None if by.half else fold_queries(on.ids, by.seed)
    others = [] if folds is None else [folds != fold for fold in range(int(folds.max()) + 1)]
    grid = cutoff_grid(on.steps.levels, by.protocol) if is_reference else None
    value, *apart = on.steps.fit([fitted, *others], by.retention, grid)
    values = np.where(fitted, np.nan, value) if folds is None else np.array(apart)[folds]
    return Cutoff(
        value=value,
        how=f"{'F1-tuned' if is_f1 else 'retention-matched'}, {by.protocol}",
        fitted_in="permutation 0" if on.in_permutation else "first-stage order",
        fitted_on=int(fitted.sum()),
        measured_on=int((~np.isnan(values)).sum()),
        seed=REFERENCE_SEED if is_reference else by.seed,
        retention=by.retention,
        folds=len(others) or None,
        values=values,
    )
