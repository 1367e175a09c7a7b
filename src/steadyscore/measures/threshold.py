"""The threshold consumer: which candidates a frozen cutoff, or a budget, retains (§5 and §F.1 of the paper).

The cutoff is fitted in one presentation (first-stage order) on other queries than it is measured on, and then frozen:
reshuffling changes what the filter admits and not how it was fitted. Retained sets are bool arrays (..., M, n) beside
the scores they come from.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..machine.bounds import Positive, field_mistakes
from ..terms import Array
from .ranking import check_choice, finite_scores, is_relevant, rank, ratio, spread, unless_single, unless_unjudged

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

    def to_json(self) -> dict[str, Any]:
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


# ---- measuring: M permutations ----


def retained(scores: ArrayLike, cutoff: float | Array) -> Array:
    """What a frozen or fixed cutoff keeps: score >= cutoff, (..., M, n) bool; of several cutoffs (C, 1, 1) what each keeps."""
    return finite_scores(scores) >= cutoff


def retained_top_k(scores: ArrayLike, k: int) -> Array:
    """What a budget of k keeps: the first k, ties by candidate id, (..., M, n) bool."""
    return rank(scores) < k


def retained_share(scores: ArrayLike, share: float) -> Array:
    """What a share of every pool keeps: the first `share` n candidates, rounded, at least one; ties by candidate id."""
    n = np.asarray(scores).shape[-1]
    size = int(np.floor(share * n + 0.5 + 1e-9))  # 0.29 of 50 is 14.5, but not in binary
    return retained_top_k(scores, max(1, size))


def overlap(retained: ArrayLike) -> Array:
    """Mean pairwise Jaccard of the sets retained under M permutations, (...); empty against empty is 1. NaN when M <
    2.
    """
    jaccard, _ = _pairwise_jaccard(retained)
    permutations = jaccard.shape[-1]
    return ratio(jaccard.sum(axis=(-2, -1)) - permutations, permutations * (permutations - 1))


def overlap_nonempty(retained: ArrayLike) -> Array:
    """`overlap` without the pairs in which both sets are empty, (...): agreement on keeping nothing is not counted as
    agreement on what to keep. NaN where no pair is left.
    """
    jaccard, sizes = _pairwise_jaccard(retained)
    permutations = jaccard.shape[-1]
    counted = ((sizes[..., :, None] + sizes[..., None, :]) > 0) & ~np.eye(permutations, dtype=bool)
    return ratio(np.where(counted, jaccard, 0.0).sum(axis=(-2, -1)), counted.sum(axis=(-2, -1)))


def _pairwise_jaccard(retained: ArrayLike) -> tuple[Array, Array]:
    """The Jaccard index of every two sets, (..., M, M), empty against empty being 1; and the size of each, (..., M)."""
    sets = np.asarray(retained, np.float32)
    both = sets @ sets.swapaxes(-1, -2)  # (..., M, M): every intersection at once; counts are exact in float32
    sizes = sets.sum(axis=-1)
    return ratio(both, sizes[..., :, None] + sizes[..., None, :] - both, undefined=1.0), sizes


def empty_sets(retained: ArrayLike) -> Array:
    """Share of the permutations under which nothing is retained, (...)."""
    share: Array = (~np.asarray(retained, bool).any(axis=-1)).mean(axis=-1)
    return share


def chance_overlap(retained: ArrayLike) -> Array:
    """What `overlap` would be, on average, for sets of the same sizes drawn at random from the pool, (...); NaN when M < 2."""
    sets = np.asarray(retained, bool)
    sizes, (*_, permutations, n) = sets.sum(axis=-1), sets.shape
    first, second = np.triu_indices(permutations, 1)
    if not len(first):
        return np.full(sets.shape[:-2], np.nan)[()]
    pairs = np.stack([sizes[..., first], sizes[..., second]], axis=-1)
    distinct, place = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    expected = np.array([expected_jaccard(n, int(a), int(b)) for a, b in distinct])
    mean: Array = expected[place.reshape(pairs.shape[:-1])].mean(axis=-1)
    return mean


@lru_cache(maxsize=100_000)
def expected_jaccard(n: int, a: int, b: int) -> float:
    """The mean Jaccard index of two sets of a and b members, drawn at random from n; two empty ones have 1.

    How many they share is hypergeometric: both(i) = C(a, i) C(n - a, b - i) / C(n, b).
    """
    if a == b == 0:
        return 1.0
    shared = np.arange(max(0, a + b - n), min(a, b) + 1)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])

    def log_choices(size: int, count: Array | int) -> Array:
        chosen: Array = log_factorial[size] - log_factorial[count] - log_factorial[size - np.asarray(count)]
        return chosen

    chances = np.exp(log_choices(a, shared) + log_choices(n - a, b - shared) - log_choices(n, b))
    return float((chances * shared / (a + b - shared)).sum())


def set_f1(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """F1 of every permutation's retained set against the relevant candidates of the pool, (..., M): 2 hits / (kept +
    relevant).

    0 for an empty set and for a pool without a relevant candidate; NaN for a query without any judgement.
    """
    sets, relevance = np.asarray(retained, bool), np.asarray(relevance, float)
    gold = is_relevant(relevance)
    hits = (sets & gold[..., None, :]).sum(axis=-1)
    f1 = ratio(2 * hits, sets.sum(axis=-1) + gold.sum(axis=-1)[..., None], undefined=0.0)
    return unless_unjudged(f1, relevance[..., None, :])


def retained_f1(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """Mean over permutations of `set_f1`, (...)."""
    mean: Array = set_f1(retained, relevance).mean(axis=-1)
    return mean


def f1_spread(retained: ArrayLike, relevance: ArrayLike) -> Array:
    """Mean minus worst permutation's `set_f1` per query, (...) (§F.2)."""
    return spread(set_f1(retained, relevance))


def retention(retained: ArrayLike) -> Array:
    """Share of the pool that is retained, mean over permutations, (...)."""
    share: Array = np.asarray(retained, bool).mean(axis=(-2, -1))
    return share


def set_flip_rate(retained: ArrayLike) -> Array:
    """Of the candidates retained under some permutation, the share not retained under all, (...); NaN where none ever
    is.
    """
    sets = np.asarray(retained, bool)
    ever, always = sets.any(axis=-2).sum(axis=-1), sets.all(axis=-2).sum(axis=-1)
    return unless_single(ratio(ever - always, ever), sets.shape[-2])


def churned_relevance(retained: ArrayLike, relevance: ArrayLike) -> tuple[Array, Array]:
    """(relevance density of churned documents, of kept ones), each (...) (§F.2).

    Over all pairs of permutations: churned documents are in exactly one of the two sets, kept ones in both. A document
    retained by c of M permutations churns in c (M - c) pairs and is kept in c (c - 1) / 2. NaN where nothing churned,
    or was kept, and for a query without any judgement.
    """
    sets, gold = np.asarray(retained, bool), is_relevant(relevance)
    count = sets.sum(axis=-2)
    churned, kept = count * (sets.shape[-2] - count), count * (count - 1) // 2
    return (
        unless_unjudged(ratio((churned * gold).sum(axis=-1), churned.sum(axis=-1)), relevance),
        unless_unjudged(ratio((kept * gold).sum(axis=-1), kept.sum(axis=-1)), relevance),
    )
