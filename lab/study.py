"""Which teacher, by human grades: members of `members.py`, and mixtures fitted to pairs of candidates of which one is better.

    python lab/study.py minilm,mpnet,cross,bm25 OUT/tune.jsonl OUT/tune.jsonl
    python lab/study.py minilm,cross,bm25 OUT/long.jsonl OUT/tune.jsonl

Fits on the first file and prints nDCG@10 on the second. Given one file twice, a mixture is fitted without the source it is
measured on. Web pools are left out: nobody graded them.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import numpy as np
from members import CHARS, MEMBERS, pools
from scipy.optimize import minimize

from steadyscore.measures.intervals import collection_mean, paired_interval
from steadyscore.measures.ranking import ndcg

Features = dict[str, list[tuple[np.ndarray, np.ndarray]]]
"""Source -> for each query, raw scores of the members (n, members) and human grades (n,)."""

L2 = 0.01
"""Per unit of the squared weights of standardised scores; keeps members that agree from taking each other's place."""


def features(path: Path, names: list[str]) -> Features:
    found: Features = defaultdict(list)
    for pool in pools(path):
        grades = [c.get("relevance") for c in pool["candidates"]]
        if None in grades or len(set(grades)) == 1:
            continue
        texts = [c["text"][:CHARS] for c in pool["candidates"]]
        scores = np.stack([MEMBERS[name](pool["query"], texts) for name in names], axis=1)
        found[pool["id"].split("-")[0]].append((scores, np.array(grades, float)))
    return dict(found)


def spreads(found: Features) -> np.ndarray:
    """(members,) mean standard deviation of each member's scores within a query."""
    return np.mean([scores.std(axis=0) for queries in found.values() for scores, _ in queries], axis=0)


def fit(found: Features, used: tuple[int, ...]) -> np.ndarray:
    """(members,) weights, none negative, under which the better of two candidates scores higher; sources count alike."""
    scale, differences, weights = spreads(found)[list(used)], [], []
    for queries in found.values():
        for scores, grades in queries:
            better, worse = np.nonzero(grades[:, None] > grades[None, :])
            differences.append((scores[better] - scores[worse])[:, used] / scale)
            weights.append(np.full(len(better), 1 / len(better) / len(queries) / len(found)))
    x, w = np.concatenate(differences), np.concatenate(weights)

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = x @ v
        return float(w @ np.logaddexp(0, -margin) + L2 * v @ v), -(w / (1 + np.exp(margin))) @ x + 2 * L2 * v

    found_weights = np.zeros(len(spreads(found)))
    found_weights[list(used)] = (
        minimize(loss, np.ones(len(used)), jac=True, bounds=[(0, None)] * len(used), method="L-BFGS-B").x / scale
    )
    return found_weights


def quality(queries: list[tuple[np.ndarray, np.ndarray]], weights: np.ndarray) -> np.ndarray:
    """(queries,) nDCG@10, equal scores by place in the pool."""
    return np.array([float(ndcg((scores @ weights)[None], grades, 10)[0]) for scores, grades in queries])


def main() -> None:
    names, (fitted_on, measured_on) = sys.argv[1].split(","), map(Path, sys.argv[2:4])
    train, tune = features(fitted_on, names), features(measured_on, names)
    sources = sorted(tune)
    print("fitted on", {s: len(train[s]) for s in sorted(train)}, "measured on", {s: len(tune[s]) for s in sources})

    def row(name: str, values: list[np.ndarray], note: str = "") -> None:
        gap = paired_interval(values, reference, scheme="queries")
        means = " | ".join(f"{v.mean():.3f}" for v in values)
        against = f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]"
        print(f"| {name} | {means} | {collection_mean(values):.3f} | {against} | {note} |")

    def fitted(used: tuple[int, ...]) -> list[np.ndarray]:
        rest = [{s: q for s, q in train.items() if fitted_on != measured_on or s != left} for left in sources]
        return [quality(tune[s], fit(others, used)) for s, others in zip(sources, rest, strict=True)]

    singles = [[quality(tune[s], unit) for s in sources] for unit in np.eye(len(names))]
    reference = singles[names.index("minilm")]
    print(f"| nDCG@10 | {' | '.join(sources)} | mean | minus MiniLM | weights of raw scores |")
    print("|---|" + "---:|" * (len(sources) + 2) + "---|")
    row("order of the pool", [np.array([float(ndcg(-np.arange(len(g))[None], g, 10)[0]) for _, g in tune[s]]) for s in sources])
    for name, values in zip(names, singles, strict=True):
        row(name, values)
    if "mpnet" in names:
        both = np.isin(names, ("minilm", "mpnet")).astype(float)
        row("mean of minilm and mpnet", [quality(tune[s], both) for s in sources])
    row("mean of all, standardised", [quality(tune[s], 1 / spreads(train)) for s in sources])
    for used in (some for size in range(2, len(names) + 1) for some in combinations(range(len(names)), size)):
        weights = fit(train, used)
        row("fitted: " + ", ".join(names[i] for i in used), fitted(used), ", ".join(f"{weights[i]:.2f}" for i in used))


if __name__ == "__main__":
    main()
