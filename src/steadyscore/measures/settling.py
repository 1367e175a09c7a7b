"""Decisions on one pool and how settled they are: arrays in, arrays out. Columns are documents in the order of a request.

With one presentation the decision is taken on its scores; with several, on their mean over presentations, the estimate
of the order-marginal (§3). Ties go to the document that stands first in the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from ..errors import InputError
from ..terms import Array
from .preference import pair
from .ranking import ranking, ratio
from .retained_sets import overlap, retained, retained_top_k

ERROR_RATE = 0.05
"""Probability, over all documents of a request, that one is called settled wrongly."""
CHANGED_SHARE = 0.02
"""Share of the documents to which the presentations that adaptive stopping leaves out are expected to give another role."""
OTHERS_WEIGHT = 4
"""How many presentations of its own the variance of the other documents counts as, in the variance of a document."""
PLACE_SIZES = ((0.0, 0.5), (0.05, 0.125), (0.2, 0.125), (0.8, 0.125), (3.2, 0.125))
"""Variance that effects of place may have, as a multiple of the variance of a score, and the chance of each before any score is
seen: as likely none as some."""

Kind = Literal["threshold", "top_k", "pair"]


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """Keep what scores at least the cutoff."""

    cutoff: float
    kind: ClassVar[Kind] = "threshold"


@dataclass(frozen=True, slots=True)
class TopKRule:
    """Keep the k best."""

    k: int
    kind: ClassVar[Kind] = "top_k"


@dataclass(frozen=True, slots=True)
class PairRule:
    """Choose the best and reject the worst."""

    kind: ClassVar[Kind] = "pair"


DecisionRule = ThresholdRule | TopKRule | PairRule


def check_rule(rule: DecisionRule, n: int) -> None:
    """Refuse a decision that n documents do not allow."""
    if isinstance(rule, PairRule) and n < 2:
        raise InputError("a pair needs at least two documents. Send another one, or ask for a threshold or top_k.")


def roles(scores: Array, rule: DecisionRule) -> Array:
    """What each presentation makes of each document, (..., n): 1 kept or chosen, -1 rejected, 0 neither."""
    scores = np.asarray(scores, float)
    if isinstance(rule, ThresholdRule):
        return retained(scores, rule.cutoff).astype(np.int8)
    if isinstance(rule, TopKRule):
        return retained_top_k(scores, rule.k).astype(np.int8)
    role = np.zeros(scores.shape, np.int8)
    ends = pair(scores)
    np.put_along_axis(role, ends[..., 1:], -1, axis=-1)
    np.put_along_axis(role, ends[..., :1], 1, axis=-1)
    return role


def cutoff(mean: Array, rule: DecisionRule) -> float | None:
    """The score that separates kept from not; for a budget, midway between the last score inside and the first outside.

    None where it separates nothing: a budget of the whole pool, or a pair, whose chosen document is compared with the next.
    """
    if isinstance(rule, ThresholdRule):
        return rule.cutoff
    if isinstance(rule, PairRule) or rule.k >= len(mean):
        return None
    best_first = np.sort(mean)[::-1]
    return float((best_first[rule.k - 1] + best_first[rule.k]) / 2)


def distances(mean: Array, rule: DecisionRule) -> Array | None:
    """How far each document is from the cutoff, (n,), positive where it is kept.

    A pair has no cutoff: the chosen document's lead over the best of the others, and how far each other one is behind.
    """
    if not isinstance(rule, PairRule):
        line = cutoff(mean, rule)
        return None if line is None else np.asarray(mean - line)
    first, second = ranking(mean)[:2]
    behind = np.asarray(mean - mean[first])
    behind[first] = mean[first] - mean[second]
    return behind


def is_given(rule: DecisionRule, n: int) -> bool:
    """Whether each of n documents has its role whatever the scores say: all are kept, or there is one to choose from."""
    return not isinstance(rule, ThresholdRule) and n <= (rule.k if isinstance(rule, TopKRule) else 1)


def rivals(scores: Array, rule: DecisionRule) -> Array | None:
    """(n,) the document on which each one's role in the mean of (M, n) depends; None: it depends on the cutoff.

    Budget: the first document outside it, or the last one inside. Pair: the second for the chosen, the last but one for the
    rejected, and for the others the nearer of both ends. Where roles are given, each document itself.
    """
    if isinstance(rule, ThresholdRule):
        return None
    mean, n = scores.mean(axis=0), scores.shape[1]
    if is_given(rule, n):
        return np.arange(n)
    order = ranking(mean)
    rival: Array
    if isinstance(rule, TopKRule):
        rival = np.where(roles(mean, rule) == 1, order[rule.k], order[rule.k - 1])
        return rival
    below, above = scores[:, [order[0]]] - scores, scores - scores[:, [order[-1]]]
    rival = np.where(below.mean(axis=0) <= above.mean(axis=0), order[0], order[-1])
    rival[order[0]], rival[order[-1]] = order[1], order[-2]
    return rival


def margins(scores: Array, rule: DecisionRule) -> Array:
    """By how much each presentation supports the role that the mean gives each document, (M, n).

    Threshold: the distance to the cutoff. Budget and pair: the lead over the document's rival, or how far it is behind.
    """
    mean, n = scores.mean(axis=0), scores.shape[1]
    if isinstance(rule, ThresholdRule):
        return np.where(roles(mean, rule) == 1, scores - rule.cutoff, rule.cutoff - scores)
    if is_given(rule, n):
        return np.ones_like(scores)
    rival, place = rivals(scores, rule), np.argsort(ranking(mean))
    assert rival is not None
    return np.where(place < place[rival], scores - scores[:, rival], scores[:, rival] - scores)


def student_tail(t: Array, freedom: int) -> Array:
    """P(T > t) of Student's distribution for t >= 0, by its finite series (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = np.arctan(np.asarray(t, float) / np.sqrt(freedom))
    cosine = np.cos(angle)
    odd = freedom % 2
    total, term = np.zeros_like(angle), np.ones_like(angle) * (cosine if odd else 1.0)
    for i in range(freedom // 2):
        total = total + term
        term = term * cosine**2 * ((2 * i + 2) / (2 * i + 3) if odd else (2 * i + 1) / (2 * i + 2))
    within = (2 / np.pi) * (angle + np.sin(angle) * total) if odd else np.sin(angle) * total
    return np.asarray(np.clip((1 - within) / 2, 0, 1))


def is_settled(support: Array) -> Array:
    """Which documents keep their role under further permutations, (n,) bool.

    t-test that the mean margin (M, n) is positive, with the error rate shared over documents, and halved because the side was
    read off the same scores. A margin that never moved is settled. Fewer than two presentations settle nothing.
    """
    permutations, n = support.shape
    if permutations < 2:
        return np.zeros(n, bool)
    t = ratio(support.mean(axis=0), support.std(axis=0, ddof=1) / np.sqrt(permutations), undefined=np.inf)
    return np.asarray(student_tail(np.maximum(t, 0), permutations - 1) <= ERROR_RATE / (2 * n))


class PlaceEffects(NamedTuple):
    """What the places of documents do to their scores, were these effects of one size."""

    chance: float
    """That they are of this size, after the scores that were seen."""
    effects: Array
    """(F,)"""
    covariance: Array
    """(F, F)"""
    freedom: float
    """Share of the freedom of the scores that estimating them left."""


def place_effects(scores: Array, places: Array) -> list[PlaceEffects]:
    """Effects of place on the scores (M, n) at places (M, n, F), under each size that they may have.

    Regression of what is left of a score without the means of its document and of its presentation. Effects are normal
    around 0 with a variance of that size, so a few scores move them little; the chances are by restricted likelihood.
    """

    def centre(values: Array) -> Array:
        rows, columns = values.mean(axis=0, keepdims=True), values.mean(axis=1, keepdims=True)
        return np.asarray(values - rows - columns + rows.mean(axis=1, keepdims=True))

    features, freedom = places.shape[-1], (scores.shape[0] - 1) * (scores.shape[1] - 1)
    residual, design = centre(scores).ravel(), centre(places).reshape(-1, features)
    total = float((residual**2).sum())
    if total <= 1e-24 * float((scores**2).sum()) or not design.any():  # nothing moved, or only the last digits of a mean
        return [PlaceEffects(1.0, np.zeros(features), np.zeros((features, features)), 1.0)]
    values, vectors = np.linalg.eigh(design.T @ design)
    values, projection = np.maximum(values, 0), vectors.T @ (design.T @ residual)
    estimates, logs = list[PlaceEffects](), list[float]()
    for size, prior in PLACE_SIZES:
        shrinkage = size / (1 + size * values)
        rest = max(total - float((shrinkage * projection**2).sum()), 1e-12 * total)
        logs.append(float(np.log(prior) - (np.log1p(size * values).sum() + freedom * np.log(rest / total)) / 2))
        covariance = rest / freedom * (vectors * shrinkage) @ vectors.T
        free = 1 - float((shrinkage * values).sum()) / freedom
        estimates.append(PlaceEffects(0.0, vectors @ (shrinkage * projection), covariance, free))
    chances = np.exp(np.array(logs) - max(logs))
    return [each._replace(chance=float(chance)) for each, chance in zip(estimates, chances / chances.sum(), strict=True)]


def change_chances(scores: Array, rule: DecisionRule, count: int, places: Array | None = None) -> Array:
    """(n,) the chance that the mean over `count` presentations gives a document another role than that over these M, (M, n).

    A margin's mean over all of them lies around its mean so far with variance s² (1/M - 1/count). s² is the document's own
    variance, drawn to the mean variance of the pool, since two or three presentations say little of one. Where the places in
    all `count` presentations are known, (count, n, F), what they do is estimated, and a document that has stood better so far
    than it will in all of them is expected to lose.
    """
    seen, n = scores.shape
    if seen >= count:
        return np.zeros(n)
    if seen < 2:
        return np.ones(n)
    everywhere = np.zeros((count, n, 1)) if places is None else places
    mean_place, role = everywhere.mean(axis=0), roles(scores.mean(axis=0), rule)
    change = mean_place - everywhere[:seen].mean(axis=0)
    chances, freedom = np.zeros(n), seen - 1 + OTHERS_WEIGHT
    for estimate in place_effects(scores, everywhere[:seen]):
        forecast = scores + (mean_place - everywhere[:seen]) @ estimate.effects
        support, rival = margins(forecast, rule), rivals(forecast, rule)
        own = support.var(axis=0, ddof=1)
        variance = ((seen - 1) * own + OTHERS_WEIGHT * own.mean()) / freedom / estimate.freedom
        ahead = change if rival is None else change - change[rival]
        of_effects = np.einsum("if,fg,ig->i", ahead, estimate.covariance, ahead)
        t = ratio(support.mean(axis=0), np.sqrt(variance * (1 / seen - 1 / count) + of_effects), undefined=np.inf)
        other = student_tail(np.maximum(t, 0), freedom)
        chances += estimate.chance * np.where(roles(forecast.mean(axis=0), rule) == role, other, 1 - other)
    return chances


def is_decided(scores: Array, rule: DecisionRule, count: int, places: Array | None = None) -> bool:
    """Whether the rest of `count` presentations is expected to change so few roles that it can be left out, scores (M, n)."""
    return bool(change_chances(scores, rule, count, places).mean() <= CHANGED_SHARE)


class Stability(NamedTuple):
    agreement: float
    """Share of permutations that take the same decision as their mean."""
    by_document: Array
    """(n,) share of permutations that give a document the role the mean gives it."""
    overlap: float
    """Mean pairwise Jaccard of the kept sets; NaN for a pair, or one permutation."""
    settled: Array
    """(n,) bool"""


def stability(scores: Array, rule: DecisionRule) -> Stability:
    """How the M single presentations (M, n) agree with the decision their mean takes."""
    each, of_mean = roles(scores, rule), roles(scores.mean(axis=0), rule)
    same = each == of_mean
    shared = np.nan if isinstance(rule, PairRule) else float(overlap(each == 1))
    return Stability(float(same.all(axis=1).mean()), same.mean(axis=0), shared, is_settled(margins(scores, rule)))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a decision comes to; fields that its rule does not have are None."""

    kind: Kind
    kept: list[int] | None = None
    """Best first."""
    chosen: int | None = None
    rejected: int | None = None
    k: int | None = None
    cutoff: float | None = None


def outcome(mean: Array, rule: DecisionRule, ties: Array | None = None) -> Outcome:
    """`ties`: (n,) the documents as equal ones follow each other, where that is not as in the request."""
    first = np.arange(len(mean)) if ties is None else ties
    role = roles(mean[first], rule)
    if isinstance(rule, PairRule):
        return Outcome("pair", chosen=int(first[role == 1][0]), rejected=int(first[role == -1][0]))
    kept = [int(first[i]) for i in ranking(mean[first]) if role[i] == 1]
    return Outcome(rule.kind, kept, k=rule.k if isinstance(rule, TopKRule) else None, cutoff=cutoff(mean, rule))
