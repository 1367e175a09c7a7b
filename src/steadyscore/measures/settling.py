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


def margins(scores: Array, rule: DecisionRule) -> Array:
    """By how much each presentation supports the role that the mean gives each document, (M, n).

    Threshold: the distance to the cutoff. Budget: the lead over the first document outside it, or the gap to the last
    one inside. Pair: the lead of the chosen, the trail of the rejected, and for the others the nearer of both ends.
    """
    mean, n = scores.mean(axis=0), scores.shape[1]
    role = roles(mean, rule)
    if isinstance(rule, ThresholdRule):
        return np.where(role == 1, scores - rule.cutoff, rule.cutoff - scores)
    order = ranking(mean)
    if isinstance(rule, TopKRule):
        if rule.k >= n:
            return np.ones_like(scores)  # the whole pool is kept whatever the scores say
        return np.where(role == 1, scores - scores[:, [order[rule.k]]], scores[:, [order[rule.k - 1]]] - scores)
    below, above = scores[:, [order[0]]] - scores, scores - scores[:, [order[-1]]]
    support = np.where(below.mean(axis=0) <= above.mean(axis=0), below, above)
    support[:, order[0]] = scores[:, order[0]] - scores[:, order[1]]
    support[:, order[-1]] = scores[:, order[-2]] - scores[:, order[-1]]
    return support


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


def change_chances(scores: Array, rule: DecisionRule, count: int) -> Array:
    """(n,) the chance that the mean over `count` presentations gives a document another role than that over these M, (M, n).

    A margin's mean over all of them lies around its mean so far with variance s² (1/M - 1/count). s² is the document's own
    variance, drawn to the mean variance of the pool, since two or three presentations say little of one.
    """
    seen, n = scores.shape
    if seen >= count:
        return np.zeros(n)
    if seen < 2:
        return np.ones(n)
    support = margins(scores, rule)
    own = support.var(axis=0, ddof=1)
    freedom = seen - 1 + OTHERS_WEIGHT
    variance = ((seen - 1) * own + OTHERS_WEIGHT * own.mean()) / freedom
    t = ratio(support.mean(axis=0), np.sqrt(variance * (1 / seen - 1 / count)), undefined=np.inf)
    return student_tail(np.maximum(t, 0), freedom)


def is_decided(scores: Array, rule: DecisionRule, count: int) -> bool:
    """Whether the rest of `count` presentations is expected to change so few roles that it can be left out, scores (M, n)."""
    return bool(change_chances(scores, rule, count).mean() <= CHANGED_SHARE)


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
