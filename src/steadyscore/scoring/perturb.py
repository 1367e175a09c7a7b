"""Perturbations of order and pool, as index arithmetic: forced position, pool drop and replace, first-stage jitter (§C.1).

A pool stands in first-stage order 0..n-1. Every function returns orders: position -> index into the pool. What a query
gets depends on (seed, query id, tag) alone, through a hash, never on which other queries are scored; where a function
takes random numbers, `presentation.generator(seed, query_id, tag)` makes them so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

Order = NDArray[np.int_]
Place = Literal["top", "middle", "bottom"]


def strongest(relevance: ArrayLike, ids: Sequence[str]) -> int | None:
    """Pool index of the candidate with the highest positive relevance, smallest id among equals; None without a positive."""
    relevance = np.asarray(relevance, float)
    positive = np.flatnonzero(relevance > 0).tolist()
    return min(positive, key=lambda i: (-relevance[i], ids[i])) if positive else None


def forced_position(n: int, candidate: int, place: Place) -> Order:
    """First-stage order with one candidate moved to position 0, n // 2 or n - 1."""
    rest = np.delete(np.arange(n), candidate)
    return np.insert(rest, {"top": 0, "middle": n // 2, "bottom": n - 1}[place], candidate)


def placement(order: ArrayLike, candidate: int | None) -> Place:
    """The third of the order that holds the candidate; "middle" when there is none."""
    if candidate is None:
        return "middle"
    order = np.asarray(order)
    position, n = int(np.flatnonzero(order == candidate)[0]), len(order)
    return "top" if 3 * position < n else "middle" if 3 * position < 2 * n else "bottom"


def perturbed_rank(depth: int, *, seed: int, query_id: str) -> int:
    """The 0-based rank a pool perturbation removes, uniform over the pool."""
    return int.from_bytes(_digest(seed, query_id, "pool")[:16], "big") % depth


def pool_drop(depth: int, rank: int) -> Order:
    """The pool without the candidate at `rank`: depth - 1 candidates, which close the gap."""
    return np.delete(np.arange(_inside(depth, rank)), rank)


def pool_replace(depth: int, rank: int, *, in_place: bool = False) -> Order:
    """The candidate at `rank` leaves and the next of the first stage, index `depth`, joins at the end.

    Survivors behind the gap move up by one slot, so one crosses each later window boundary. `in_place` puts the newcomer
    into the gap instead: only the companions of one window change (docs/protocol.md#perturbations).
    """
    order = np.arange(_inside(depth, rank))
    if in_place:
        order[rank] = depth
        return order
    return np.append(np.delete(order, rank), depth)


def sampled_queries(query_ids: Sequence[str], count: int, *, seed: int) -> list[str]:
    """Up to `count` queries in the order of their hash: a sample that grows without changing as `count` does."""
    return sorted(query_ids, key=lambda query_id: _digest(seed, query_id, "sample"))[:count]


def neighbour_swaps(n: int, swaps: int, rng: np.random.Generator) -> Order:
    """First-stage order after `swaps` exchanges of random neighbours, one after the other: a retriever that wavers a little."""
    order = np.arange(n)
    for i in rng.integers(0, n - 1, swaps) if n > 1 else ():
        order[[i, i + 1]] = order[[i + 1, i]]
    return order


def score_noise(first_stage_scores: ArrayLike, scale: float, rng: np.random.Generator) -> Order:
    """The order of first-stage scores (n,) after normal noise of `scale` times their SD; equal scores keep first-stage order."""
    scores = np.asarray(first_stage_scores, float)
    return np.argsort(-(scores + scale * scores.std() * rng.standard_normal(len(scores))), kind="stable")


def _inside(depth: int, rank: int) -> int:
    if not 0 <= rank < depth:
        raise InputError(f"rank {rank} is outside a pool of {depth}: pass a rank from 0 to {depth - 1}.")
    return depth


def _digest(seed: int, query_id: str, tag: str) -> bytes:
    return hashlib.sha256(f"{seed}\x1f{query_id}\x1f{tag}".encode()).digest()
