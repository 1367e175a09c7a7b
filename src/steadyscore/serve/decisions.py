"""Decisions and how settled they are: arrays in, arrays out. Columns are documents in the order of the request.

With one presentation the decision is taken on its scores; with several, on their mean over presentations, the estimate
of the order-marginal (§3). Ties go to the document that stands first in the request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from ..errors import InputError
from ..measures.preference import pair
from ..measures.ranking import ranking, ratio
from ..measures.threshold import overlap, retained, retained_top_k
from ..terms import Array

ERROR = 0.05
"""Probability, over all documents and looks of a request, that adaptive stopping calls a document settled wrongly."""


@dataclass(frozen=True, slots=True)
class Decision:
    kind: Literal["threshold", "top_k", "pair"]
    value: float | None = None
    """The cutoff, or k."""


def refuse_impossible(decision: Decision, n: int) -> None:
    if decision.kind == "pair" and n < 2:
        raise InputError("a pair needs at least two documents.")


def roles(scores: Array, decision: Decision) -> Array:
    """What each presentation makes of each document, (..., n): 1 kept or chosen, -1 rejected, 0 neither."""
    scores = np.asarray(scores, float)
    if decision.kind == "threshold":
        return retained(scores, float(decision.value)).astype(np.int8)  # type: ignore[arg-type]
    if decision.kind == "top_k":
        return retained_top_k(scores, int(decision.value)).astype(np.int8)  # type: ignore[arg-type]
    found = np.zeros(scores.shape, np.int8)
    ends = pair(scores)
    np.put_along_axis(found, ends[..., 1:], -1, axis=-1)
    np.put_along_axis(found, ends[..., :1], 1, axis=-1)
    return found


def cutoff(mean: Array, decision: Decision) -> float | None:
    """Where the line lies that separates kept from not: midway between the two scores it runs between for a budget.

    None where it separates nothing: a budget of the whole pool, or a pair, whose line is its runner-up.
    """
    if decision.kind == "threshold":
        return float(decision.value)  # type: ignore[arg-type]
    if decision.kind == "pair" or decision.value >= len(mean):  # type: ignore[operator]
        return None
    best_first = np.sort(mean)[::-1]
    k = int(decision.value)  # type: ignore[arg-type]
    return float((best_first[k - 1] + best_first[k]) / 2)


def distances(mean: Array, decision: Decision) -> Array | None:
    """How far each document is from the cutoff, (n,), positive where it is kept.

    A pair has no cutoff: the chosen document's lead over the best of the others, and how far each other one is behind.
    """
    if decision.kind != "pair":
        line = cutoff(mean, decision)
        return None if line is None else mean - line
    first, second = ranking(mean)[:2]
    found = mean - mean[first]
    found[first] = mean[first] - mean[second]
    return found


def margins(scores: Array, decision: Decision) -> Array:
    """By how much each presentation supports the role that the mean gives each document, (M, n).

    Threshold: the distance to the cutoff. Budget: the lead over the first document outside it, or the gap to the last
    one inside. Pair: the lead of the chosen, the trail of the rejected, and for the others the nearer of both ends.
    """
    mean, n = scores.mean(axis=0), scores.shape[1]
    role = roles(mean, decision)
    if decision.kind == "threshold":
        line = float(decision.value)  # type: ignore[arg-type]
        return np.where(role == 1, scores - line, line - scores)
    ranked = ranking(mean)
    if decision.kind == "top_k":
        k = int(decision.value)  # type: ignore[arg-type]
        if k >= n:
            return np.ones_like(scores)  # the whole pool is kept whatever the scores say
        return np.where(role == 1, scores - scores[:, [ranked[k]]], scores[:, [ranked[k - 1]]] - scores)
    below, above = scores[:, [ranked[0]]] - scores, scores - scores[:, [ranked[-1]]]
    found = np.where(below.mean(axis=0) <= above.mean(axis=0), below, above)
    found[:, ranked[0]] = scores[:, ranked[0]] - scores[:, ranked[1]]
    found[:, ranked[-1]] = scores[:, ranked[-2]] - scores[:, ranked[-1]]
    return found


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
    return np.clip((1 - within) / 2, 0, 1)


def settled(support: Array, looks: int) -> Array:
    """Which documents keep their role under further permutations, (n,) bool.

    t-test that the mean margin (M, n) is positive, with the error shared over documents and looks, and halved because the
    side was read off the same scores. A margin that never moved is settled. Fewer than two presentations settle nothing.
    """
    permutations, n = support.shape
    if permutations < 2:
        return np.zeros(n, bool)
    t = ratio(support.mean(axis=0), support.std(axis=0, ddof=1) / np.sqrt(permutations), undefined=np.inf)
    return student_tail(np.maximum(t, 0), permutations - 1) <= ERROR / (2 * n * looks)


def looks(permutations: int) -> list[int]:
    """After how many permutations adaptive stopping looks: 3, then half as many again, and at last all."""
    found = [min(3, permutations)]
    while found[-1] < permutations:
        found.append(min(permutations, found[-1] + -(-found[-1] // 2)))
    return found


class Stability(NamedTuple):
    agreement: float
    """Share of permutations that take the same decision as their mean."""
    by_document: Array
    """(n,) share of permutations that give a document the role the mean gives it."""
    overlap: float
    """Mean pairwise Jaccard of the kept sets; NaN for a pair, or one permutation."""
    settled: Array
    """(n,) bool"""


def stability(scores: Array, decision: Decision, looked: int = 1) -> Stability:
    """How the M single presentations (M, n) agree with the decision their mean takes."""
    each, whole = roles(scores, decision), roles(scores.mean(axis=0), decision)
    same = each == whole
    shared = np.nan if decision.kind == "pair" else float(overlap(each == 1))
    return Stability(float(same.all(axis=1).mean()), same.mean(axis=0), shared, settled(margins(scores, decision), looked))


def outcome(mean: Array, decision: Decision) -> dict[str, Any]:
    """The decision as JSON has it."""
    role = roles(mean, decision)
    if decision.kind == "pair":
        chosen, rejected = int(np.flatnonzero(role == 1)[0]), int(np.flatnonzero(role == -1)[0])
        return {"kind": "pair", "chosen": chosen, "rejected": rejected}
    kept = [int(i) for i in ranking(mean) if role[i] == 1]
    found: dict[str, Any] = {"kind": decision.kind, "kept": kept}
    if decision.kind == "top_k":
        found["k"] = int(decision.value)  # type: ignore[arg-type]
    if (line := cutoff(mean, decision)) is not None:
        found["cutoff"] = line
    return found
