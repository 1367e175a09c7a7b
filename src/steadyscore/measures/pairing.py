"""What runs gave on one measure, paired query by query: weighted sums on shared queries, levels, leaders, gains. Pure functions.

Tasks are never averaged together, and every collection weighs the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

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


class Gains(NamedTuple):
    correlation: float
    """|Pearson| of the gain with the starting instability."""
    improving: float
    """Share of queries whose quality does not fall."""
    regressing: float
    """Share of queries whose quality falls."""


def gains(before: ArrayLike, after: ArrayLike, instability: ArrayLike | None = None) -> Gains:
    """How quality moves query by query, and whether the unstable queries are those that gain."""
    change = np.asarray(after, float) - np.asarray(before, float)
    moved = change[~np.isnan(change)]
    association = float("nan") if instability is None else abs(correlation(change, instability))
    if not len(moved):
        return Gains(association, float("nan"), float("nan"))
    return Gains(association, float((moved >= 0).mean()), float((moved < 0).mean()))


def correlation(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson's, over the places where both have a value; NaN where fewer than three do or one does not vary."""
    pairs = np.array([np.asarray(x, float), np.asarray(y, float)])
    pairs = pairs[:, ~np.isnan(pairs).any(axis=0)]
    if pairs.shape[1] < 3 or (pairs.std(axis=1) == 0).any():
        return float("nan")
    return float(np.corrcoef(pairs)[0, 1])


def leader_reversals(by_permutation: ArrayLike, rival: float) -> int:
    """Permutations whose mean puts the system on the other side of a rival than the mean over permutations does."""
    means = np.asarray(by_permutation, float)
    if not len(means):
        return 0
    return int((np.sign(means - rival) == -np.sign(means.mean() - rival)).sum()) if means.mean() != rival else 0
