"""The cutoff of the threshold consumer: how it is asked for, how it is fitted, and what was frozen (§5 and §F.1 of the paper).

It is fitted in one presentation (first-stage order) on other queries than it is measured on, and then frozen: reshuffling
changes what the filter admits and not how it was fitted. What it retains is measured in `retained_sets`.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..machine.bounds import Positive, field_mistakes
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


def split_queries(
    query_ids: Sequence[str],
    seed: int | None = None,
    fraction: float = 0.5,
    protocol: Literal["hashed", "reference"] = "hashed",
) -> tuple[list[str], list[str]]:
    """(queries to fit the cutoff on, queries to measure on); at least one to fit on.

    `hashed` orders the ids by a hash of seed (default 0) and id, so the input's order plays no part. `reference`
    shuffles the sorted ids with numpy's generator, seed 20260610 unless another is given.
    """
    check_choice(protocol, ("hashed", "reference"), "protocol")
    ids = sorted(query_ids)
    if protocol == "reference":
        np.random.default_rng(REFERENCE_SEED if seed is None else seed).shuffle(ids)
    else:
        ids.sort(key=lambda query_id: hashlib.sha256(f"{seed or 0}:{query_id}".encode()).digest())
    cut = max(1, round(fraction * len(ids)))
    return ids[:cut], ids[cut:]


def fold_queries(query_ids: Sequence[str], seed: int = 0, folds: int = FOLDS) -> Array:
    """(Q,) the fold of every query, 0 to `folds` - 1: ids are dealt in the order of a hash, so the input's order plays no part.

    Fewer queries than folds have one each.
    """
    dealt = {query_id: place % folds for place, query_id in enumerate(split_queries(query_ids, seed, fraction=1)[0])}
    return np.fromiter((dealt[query_id] for query_id in query_ids), np.int8, len(query_ids))


def cutoff_grid(scores: Sequence[ArrayLike], protocol: Protocol = "midpoints") -> Array:
    """Candidate cutoffs, ascending.

    `midpoints`: the lowest score (retain all), then the midpoint of every two neighbouring distinct scores, so every
    different decision is tried once. `reference`: 41 equally spaced values from the lowest to the highest score.
    """
    check_choice(protocol, get_args(Protocol), "protocol")
    if not len(scores):
        raise InputError("no query to fit a cutoff on. Give at least one query with scores.")
    distinct = np.unique(finite_scores(_end_to_end(scores)))
    if protocol == "reference":
        return np.unique(np.linspace(distinct[0], distinct[-1], REFERENCE_POINTS))
    return _midpoints(distinct)


def _midpoints(distinct: Array) -> Array:
    return np.concatenate([distinct[:1], distinct[:-1] + np.diff(distinct) / 2])


def _end_to_end(rows: Sequence[ArrayLike]) -> Array:
    """Rows as one, without a list of arrays: there may be a million of them."""
    return np.fromiter((value for row in rows for value in np.ravel(row).tolist()), float)


def _mean_at(scores: Sequence[ArrayLike], f1_against: Sequence[ArrayLike] | None, grid: Array) -> Array:
    """Mean over queries of the retained share, or of the set F1 against relevance, at every cutoff of the grid."""
    level, step, _ = _steps(scores, f1_against)
    return _sum_at(level, step, grid) / len(scores)


def _sum_at(level: Array, step: Array, grid: Array) -> Array:
    """What the steps from every cutoff of the grid on sum up to."""
    from_above = np.append(np.cumsum(step[::-1])[::-1], 0.0)
    return from_above[np.searchsorted(level, grid, side="left")]


def _steps(scores: Sequence[ArrayLike], f1_against: Sequence[ArrayLike] | None) -> tuple[Array, Array, Array]:
    """Every candidate's score, ascending; what keeping it too adds to the figure of its query; and its place end to end.

    A query's figure is a step function of the cutoff that moves only at its own scores. All steps of all queries,
    sorted by score and summed from above, give the mean at any cutoff: one sort instead of queries x cutoffs
    evaluations.
    """
    levels, steps = array("d"), array("d")
    for index, row in enumerate(scores):
        row = np.asarray(row, float)
        best_first = np.argsort(-row)
        kept = np.arange(1, len(row) + 1)
        if f1_against is None:
            figure = kept / len(row)
        else:
            gold = is_relevant(f1_against[index])[best_first]
            figure = 2 * np.cumsum(gold) / (kept + gold.sum())
        levels.frombytes(row[best_first].tobytes())
        steps.frombytes(np.diff(figure, prepend=0.0).tobytes())
    level, step = np.array(levels), np.array(steps)
    ascending = np.argsort(level)
    return level[ascending], step[ascending], ascending


def _highest(grid: Array, objective: Array) -> float:
    """The highest cutoff with the greatest objective; differences below 1e-12 are rounding of the sums."""
    return float(grid[np.flatnonzero(objective >= objective.max() - 1e-12)[-1]])


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
    grid = cutoff_grid(scores if grid_scores is None else grid_scores, protocol)
    return _highest(grid, _mean_at(scores, relevance, grid))


def match_retention(
    scores: Sequence[ArrayLike],
    target: float,
    protocol: Protocol = "midpoints",
    grid_scores: Sequence[ArrayLike] | None = None,
) -> float:
    """The cutoff whose mean retention on the fitting half is closest to `target` (§F.1); ties go to the higher one.

    Overlap rises with set size, so two scorers are compared at cutoffs that retain equally much.
    """
    grid = cutoff_grid(scores if grid_scores is None else grid_scores, protocol)
    return _highest(grid, -np.abs(_mean_at(scores, None, grid) - target))


def cross_match_retention(scores: Sequence[ArrayLike], target: float, folds: Array) -> tuple[float, Array]:
    """`match_retention` on all queries, and (Q,) for each query on those of the other folds: all sorted once."""
    level, step, place = _steps(scores, None)
    owner = np.repeat(folds, [len(np.asarray(row)) for row in scores])[place]
    finite_scores(level)

    def fit(kept: Array, queries: int) -> float:
        grid = _midpoints(np.unique(level[kept]))
        return _highest(grid, -np.abs(_sum_at(level[kept], step[kept], grid) / queries - target))

    apart = np.array([fit(owner != fold, int((folds != fold).sum())) for fold in range(int(folds.max()) + 1)])
    return fit(np.ones(len(owner), bool), len(folds)), apart[folds]


class Rows(Sequence[Array]):
    """Rows of floats of different lengths, end to end: appended once and read often; a row that is read is a copy.

    Eight bytes a number, where a list of arrays takes a hundred more a row.
    """

    def __init__(self, rows: Iterable[Array] = ()):
        self._values, self._ends = array("d"), array("q", [0])
        for row in rows:
            self.append(row)

    def append(self, row: Array) -> None:
        self._values.frombytes(np.ascontiguousarray(row, float).tobytes())
        self._ends.append(len(self._values))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> Array:  # type: ignore[override]
        place = range(len(self))[index]  # negative ones from the end; IndexError beyond it
        return np.array(self._values[self._ends[place] : self._ends[place + 1]])


@dataclass
class FittingScores:
    """What a cutoff is fitted on: the scores of every query in one presentation, and its judgements."""

    ids: list[str] = field(default_factory=list)
    rows: Rows = field(default_factory=Rows)
    """None where no cutoff is fitted."""
    gold: Rows = field(default_factory=Rows)
    """Where it is fitted to F1."""
    is_judged: bool = False
    in_permutation: bool = False
    """The presentation is permutation 0, and not the first-stage order."""

    def add(self, query_id: str, by: Threshold, row: Array, gold: Array, *, in_permutation: bool, is_judged: bool) -> None:
        self.ids.append(query_id)
        self.in_permutation |= in_permutation
        self.is_judged |= is_judged
        if by.is_fitted:
            self.rows.append(row)
        if by.cutoff == "f1":
            self.gold.append(gold)

    def half(self, by: Threshold) -> Array:
        """(Q,) which queries are the half that a cutoff is fitted on."""
        is_reference = by.protocol == "reference"
        fit_ids, _ = split_queries(
            self.ids, None if is_reference else by.seed, protocol="reference" if is_reference else "hashed"
        )
        chosen = set(fit_ids)
        return np.fromiter((query_id in chosen for query_id in self.ids), bool, len(self.ids))

    def retention(self, cutoff: float, by: Threshold) -> float:
        """The share of the pool that a cutoff keeps on that half."""
        kept = (float((row >= cutoff).mean()) for row, mine in zip(self.rows, self.half(by), strict=True) if mine)
        return float(np.mean(np.fromiter(kept, float)))


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
    fitted_in = "permutation 0" if on.in_permutation else "first-stage order"
    if by.retention is not None and not by.half:
        folds = fold_queries(on.ids, by.seed)
        value, values = cross_match_retention(on.rows, by.retention, folds)
        how, number = f"retention-matched, {by.protocol}", int(folds.max()) + 1
        return Cutoff(value, how, fitted_in, count, count, by.seed, retention=by.retention, folds=number, values=values)
    if by.retention is None and not on.is_judged:
        return Cutoff(None, "none: tuning it to F1 needs judgements; --match-retention, --cutoff X and --keep do without")
    fitted = on.half(by)
    half = Rows(row for row, mine in zip(on.rows, fitted, strict=True) if mine)
    is_reference = by.protocol == "reference"
    grid = on.rows if is_reference else None
    if by.retention is None:
        gold = Rows(row for row, mine in zip(on.gold, fitted, strict=True) if mine)
        if not any(is_relevant(row).any() for row in gold):
            return Cutoff(
                None,
                "none: no query of the half it is fitted on has a relevant candidate; --match-retention and --cutoff need none",
            )
        value = fit_cutoff(half, gold, by.protocol, grid)
    else:
        value = match_retention(half, by.retention, by.protocol, grid)
    return Cutoff(
        value=value,
        how=f"{'F1-tuned' if by.retention is None else 'retention-matched'}, {by.protocol}",
        fitted_in=fitted_in,
        fitted_on=int(fitted.sum()),
        measured_on=int((~fitted).sum()),
        seed=REFERENCE_SEED if is_reference else by.seed,
        retention=by.retention,
        values=np.where(fitted, np.nan, value),
    )
