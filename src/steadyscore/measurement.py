"""From a score table to measures: stacks of equally sized queries, the frozen cutoff, coverage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from . import decomposition, instability, metrics
from .consumers import preference, threshold
from .errors import InputError
from .measures import MEASURES, Array, Stack
from .planning import from_permutations
from .scores import CANONICAL, Scored
from .self_consistency import ensembles


@dataclass(frozen=True, slots=True)
class Threshold:
    """How the threshold consumer gets its cutoff."""

    cutoff: float | None = None
    """A fixed cutoff; None fits one to F1 on half of the queries (§5)."""
    protocol: Literal["midpoints", "reference"] = "midpoints"
    """`reference`: the released code's grid, split and canonical presentation (PROTOCOL 3.6)."""
    seed: int = 0
    retention: float | None = None
    """Match this share of the pool instead of maximising F1 (matched retention, §F.1)."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measures of one run, query by query."""

    query_ids: tuple[str, ...]
    values: dict[str, Array]
    """Measure -> (Q,), NaN where undefined."""
    overall: dict[str, float]
    """Measures that only a whole collection has."""
    cutoff: dict[str, Any]
    """The threshold consumer's cutoff and how it was found."""
    coverage: dict[str, Any]
    slot_profile: list[float]
    """ψ(p) by slot, over all candidates; empty where places are unknown."""


def measure(queries: Sequence[Scored], threshold_by: Threshold | None = None) -> Measured:
    """Every measure that the score table allows."""
    if not queries:
        raise InputError("there is no scored query to measure.")
    threshold_by = threshold_by or Threshold()
    cutoff, tested = _cutoff(queries, threshold_by)
    values: dict[str, Array] = defaultdict(lambda: np.full(len(queries), np.nan))
    for members in _equal_shapes(queries):
        stack = _stack([queries[i] for i in members])
        for name, found in _values(stack).items():
            values[name][members] = found
        if cutoff["value"] is not None and stack.scores.shape[1] > 1:
            kept = replace(stack, retained=threshold.retained(stack.scores, cutoff["value"]))
            for name, found in _values(kept, needing="cutoff").items():
                values[name][members] = np.where(tested[members], found, np.nan)
    return Measured(
        query_ids=tuple(q.query_id for q in queries),
        values={name: found for name, found in values.items() if not np.isnan(found).all()},
        overall=_overall(queries),
        cutoff=cutoff,
        coverage=_coverage(queries),
        slot_profile=_slot_profile(queries),
    )


def at_budget(query: Scored, serving_permutations: int) -> Scored:
    """A query as a system that averages K permutations serves it: rows are disjoint ensembles, the first is canonical (§D.4)."""
    return rows_of(query, ensembles(query.permuted, serving_permutations))


def pair_values(query: Scored, name: str, cutoff: float | None) -> Array:
    """(M, M) a measure between every two permutations of a query: what planning needs of a pilot. 1 on the diagonal."""
    rows = query.permuted
    if name.startswith("ndcg"):
        return from_permutations(_stack([rows_of(query, rows)]).quality(int(name.removeprefix("ndcg@")))[0])
    pairs = np.ones((len(rows), len(rows)))
    for i, j in zip(*np.tril_indices(len(rows), -1), strict=True):
        stack = _stack([rows_of(query, rows[[i, j]])])
        if "cutoff" in MEASURES[name].needs:
            stack = replace(stack, retained=threshold.retained(stack.scores, cutoff))  # type: ignore[arg-type]
        pairs[i, j] = pairs[j, i] = MEASURES[name].value(stack)[0]  # type: ignore[misc]
    return pairs


def rows_of(query: Scored, scores: Array) -> Scored:
    """A query with other rows, whose places are not known."""
    return replace(
        query, permutations=np.arange(len(scores)), scores=scores, slots=None, windows=None, grades=None, label_mass=None
    )


def _values(stack: Stack, needing: str | None = None) -> dict[str, Array]:
    """The measures of a stack: those that need the cutoff, or all others its arrays allow."""
    missing = {"reader", "perturbed"} | ({"cutoff"} if needing is None else set())
    if stack.scores.shape[1] < 2:
        missing.add("permutations")
    if np.isnan(stack.ideal).all():
        missing.add("relevance")
    if stack.orders is None:
        missing.add("orders")
    return {
        m.name: np.asarray(m.value(stack), float)
        for m in MEASURES.values()
        if m.value and missing.isdisjoint(m.needs) and (needing is None or needing in m.needs)
    }


def _equal_shapes(queries: Sequence[Scored]) -> list[Array]:
    """Indices of queries that can be stacked."""
    shapes: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for i, q in enumerate(queries):
        shapes[q.permuted.shape, q.canonical is None, q.is_placed].append(i)
    return [np.array(members) for members in shapes.values()]


def _stack(queries: Sequence[Scored]) -> Stack:
    relevance = [q.gold for q in queries]
    ideals = [own if q.ideal is None else q.ideal for q, own in zip(queries, relevance, strict=True)]
    ideal = np.full((len(queries), max(map(len, ideals))), np.nan)
    for row, found in zip(ideal, ideals, strict=True):
        row[: len(found)] = found
    orders = [q.orders() for q in queries]
    return Stack(
        scores=np.stack([q.permuted for q in queries]),
        canonical=None if queries[0].canonical is None else np.stack([q.canonical for q in queries]),  # type: ignore[misc]
        relevance=np.stack(relevance),
        ideal=ideal,
        orders=None if orders[0] is None else np.stack(orders),  # type: ignore[arg-type]
    )


def _cutoff(queries: Sequence[Scored], by: Threshold) -> tuple[dict[str, Any], Array]:
    """The frozen cutoff, and which queries it may be measured on: those it was not fitted on."""
    everyone = np.ones(len(queries), bool)
    if by.cutoff is not None:
        return {"value": by.cutoff, "how": "fixed"}, everyone
    if len(queries) < 2 or (by.retention is None and not any(q.is_judged for q in queries)):
        how = "none: tuning it to F1 needs two queries and judgements; --cutoff or --match-retention do without judgements"
        return {"value": None, "how": how}, ~everyone
    reference = by.protocol == "reference"
    # Without a first-stage row the first permutation is the canonical presentation.
    canonical = [q.permuted[0] if reference or q.canonical is None else q.canonical for q in queries]
    gold = [q.gold for q in queries]
    ids = [q.query_id for q in queries]
    fit_ids, _ = threshold.split(ids, None if reference else by.seed, protocol="reference" if reference else "hashed")
    fitted = np.isin(ids, fit_ids)
    half = [s for s, mine in zip(canonical, fitted, strict=True) if mine]
    grid = canonical if reference else None
    if by.retention is None:
        value = threshold.fit_cutoff(half, [g for g, mine in zip(gold, fitted, strict=True) if mine], by.protocol, grid)
    else:
        value = threshold.match_retention(half, by.retention, by.protocol, grid)
    found = {
        "value": value,
        "how": f"{'F1-tuned' if by.retention is None else 'retention-matched'}, {by.protocol}",
        "canonical": "permutation 0" if reference or queries[0].canonical is None else "first-stage order",
        "fitted_on": int(fitted.sum()),
        "measured_on": int((~fitted).sum()),
        "seed": by.seed,
    }
    return found, ~fitted


def _overall(queries: Sequence[Scored]) -> dict[str, float]:
    found: dict[str, float] = {}
    stacks = [_stack([queries[i] for i in members]) for members in _equal_shapes(queries)]
    judged = [stack for stack in stacks if not np.isnan(stack.ideal).all()]
    permutations = {stack.scores.shape[1] for stack in judged}
    # What a benchmark reports under a permutation is a mean over its queries, so all must have it; their pools may differ.
    if len(permutations) == 1 and min(permutations) > 1:
        first = np.concatenate([stack.quality(1) for stack in judged])
        found["benchmark_range@1"], found["benchmark_sd@1"] = preference.benchmark_range(first), preference.benchmark_sd(first)
        if shown := [(stack, stack.orders) for stack in judged if stack.orders is not None]:
            labels = np.concatenate([instability.buckets(orders, stack.relevance) for stack, orders in shown])
            tenth = np.concatenate([stack.quality(10) for stack, _ in shown])
            found["zeng_psi_corpus@10"] = instability.zeng_psi_corpus(tenth, labels)
    placed = [_places(q) for q in queries if q.is_placed and len(q.permuted) > 1]
    if placed:
        shares = decomposition.collection_shares([decomposition.variance_shares(*arrays) for arrays in placed])
        found |= {"slot_share": shares.slot, "window_share": shares.window, "companion_share": shares.companion}
        found["slot_rms"] = _profile(placed).rms
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}


def _places(query: Scored) -> tuple[Array, Array, Array]:
    keep = query.permutations != CANONICAL
    return query.permuted, query.slots[keep], query.windows[keep]  # type: ignore[index]


def _profile(placed: Sequence[tuple[Array, Array, Array]]) -> decomposition.SlotResidual:
    width = int(max(slots.max() for _, slots, _ in placed)) + 1
    return decomposition.collection_slot_residual([decomposition.slot_residual(s, slots, width) for s, slots, _ in placed])


def _slot_profile(queries: Sequence[Scored]) -> list[float]:
    placed = [_places(q) for q in queries if q.is_placed and len(q.permuted) > 1]
    return [float(p) for p in _profile(placed).profile] if placed else []


def _coverage(queries: Sequence[Scored]) -> dict[str, Any]:
    judged = [q for q in queries if q.is_judged]
    most = max(len(q.permuted) for q in queries)
    return {
        "queries": len(queries),
        "candidates": sum(len(q.candidate_ids) for q in queries),
        "permutations": sorted({len(q.permuted) for q in queries}),
        "fewer_permutations": {q.query_id: len(q.permuted) for q in queries if len(q.permuted) < most},
        "unjudged": [q.query_id for q in queries if not q.is_judged],
        "without_relevant": [q.query_id for q in judged if not metrics.relevant(q.gold).any()],
    }
