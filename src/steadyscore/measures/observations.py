"""What runs gave on one measure, side by side: grouping, weighted sums on shared queries, levels, leaders. Pure functions.

Tasks are never averaged together, and every collection weighs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ..errors import InputError
from ..terms import Array
from .intervals import Discordance, collection_mean, discordance

K = TypeVar("K", bound=Hashable)
Better = str
"""`higher`, `lower` or `neither`."""


@dataclass(frozen=True)
class Observation:
    """What one run gave on one measure, query by query."""

    system: str
    base: str
    seed: int
    task: str
    collection: str
    query_ids: tuple[str, ...]
    values: Array
    """(Q,), NaN where undefined; one value for a measure that only the whole collection has."""

    @property
    def mean(self) -> float:
        return collection_mean([self.values])


def group_by(observations: Iterable[Observation], key: Callable[[Observation], K]) -> dict[K, list[Observation]]:
    """Observations by variant, base, seed, task, collection or any of these together, in the order they came."""
    groups: dict[K, list[Observation]] = {}
    for observation in observations:
        groups.setdefault(key(observation), []).append(observation)
    return groups


def combine(terms: Sequence[tuple[float, Observation]]) -> Observation:
    """A weighted sum on the queries that all have: a level (one term), a contrast (two), a contrast of contrasts (four)."""
    shared = align([observation for _, observation in terms])
    rows = [weight * observation.values for (weight, _), observation in zip(terms, shared, strict=True)]
    return replace(shared[0], values=np.sum(rows, axis=0))


def align(observations: Sequence[Observation]) -> list[Observation]:
    """The same on the queries that all of them have, in the first one's order; refused where there is none."""
    first = observations[0]
    if any(observation.collection != first.collection for observation in observations):
        raise InputError("runs of different collections cannot be paired: compare runs of the same collection.")
    if all(observation.query_ids == first.query_ids for observation in observations) and first.query_ids:
        return list(observations)
    places = [{query: i for i, query in enumerate(observation.query_ids)} for observation in observations]
    shared = tuple(query for query in first.query_ids if all(query in place for place in places))
    if not shared:
        names = ", ".join(observation.system for observation in observations)
        raise InputError(f"{names} share no query of {first.collection}, so they cannot be paired. Score the same queries.")
    return [
        replace(observation, query_ids=shared, values=observation.values[[place[query] for query in shared]])
        for observation, place in zip(observations, places, strict=True)
    ]


def average_seeds(observations: Sequence[Observation]) -> Observation:
    """The mean over training seeds, query by query."""
    return combine([(1 / len(observations), observation) for observation in observations])


def levels_table(observations: Sequence[Observation], systems: Sequence[str]) -> tuple[list[str], Array]:
    """(S, C) collection means over seeds, and the collections; NaN where a system has none."""
    collections = list(dict.fromkeys(o.collection for o in observations))
    groups = group_by(observations, lambda o: (o.system, o.collection))
    table = [[average_seeds(groups[s, c]).mean if (s, c) in groups else np.nan for c in collections] for s in systems]
    return collections, np.array(table, float).reshape(len(systems), len(collections))


def discordance_of(
    first: Sequence[Observation], second: Sequence[Observation], systems: Sequence[str], better: tuple[Better, Better]
) -> Discordance:
    """Do two measures choose the same system, collection by collection? Any pair of measures, each with its own direction."""
    names, left = levels_table(first, systems)
    others, right = levels_table(second, systems)
    shared = [name for name in names if name in others]
    left, right = left[:, [names.index(n) for n in shared]], right[:, [others.index(n) for n in shared]]
    return discordance(-left if better[0] == "lower" else left, -right if better[1] == "lower" else right)


def leaders(table: Array, systems: Sequence[str], better: Better) -> list[tuple[str, ...]]:
    """Per collection of an (S, C) table of levels, the systems that lead it; several where they share the lead."""
    oriented = -table if better == "lower" else table
    best = np.fmax.reduce(oriented, axis=0)
    return [tuple(name for name, row in zip(systems, oriented, strict=True) if row[c] == best[c]) for c in range(table.shape[1])]
