"""From grade logits to scores (§4, score readout). Softmax is always at least float32: bf16 manufactures ties."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..terms import GRADES

_GRADES = np.array(GRADES, dtype=np.float64)


class SlotLogits(NamedTuple):
    """What an engine reads at the B slots of a window."""

    logits: np.ndarray
    """(B, 4) float32, one column per grade."""
    label_mass: np.ndarray | None = None
    """(B,) probability that lay on the four grades before renormalisation; None where it was not asked for."""


def grade_distribution(logits: np.ndarray) -> np.ndarray:
    """Softmax over the four grade logits, (..., 4)."""
    logits = np.asarray(logits, dtype=np.float64)
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    distribution: np.ndarray = weights / weights.sum(axis=-1, keepdims=True)
    return distribution


def expected_grade(distribution: np.ndarray) -> np.ndarray:
    """E[g] = Σ g P(g), from 0 to 3."""
    grade: np.ndarray = distribution @ _GRADES
    return grade


def score(distribution: np.ndarray) -> np.ndarray:
    """The expected grade on [0, 1]: the paper's score."""
    scores: np.ndarray = expected_grade(distribution) / _GRADES[-1]
    return scores


def argmax_grade(distribution: np.ndarray) -> np.ndarray:
    """The likeliest grade; the lower one on a tie."""
    grade: np.ndarray = np.asarray(distribution).argmax(axis=-1)
    return grade


def grade_at_least(distribution: np.ndarray, grade: int = 2) -> np.ndarray:
    """P(g >= grade)."""
    probability: np.ndarray = np.asarray(distribution)[..., grade:].sum(axis=-1)
    return probability


def capcal(distribution: np.ndarray, content_free: np.ndarray) -> np.ndarray:
    """CapCal: move each slot's distribution away from what the slot says about empty documents (docs/protocol.md#mitigations).

    p' = p - α (q - 1/4) with α = entropy(p) in nats, clipped at 1e-8 and renormalised.
    """
    p = np.asarray(distribution, dtype=np.float64)
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), axis=-1, keepdims=True)
    moved = np.clip(p - entropy * (np.asarray(content_free) - 1 / len(GRADES)), 1e-8, None)
    calibrated: np.ndarray = moved / moved.sum(axis=-1, keepdims=True)
    return calibrated
