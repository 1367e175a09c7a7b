"""Which teacher, by human grades: every member of `members.py`, their means, and a mixture fitted to pairs of candidates.

    python lab/study.py OUT/long.jsonl OUT/tune.jsonl

Fits on the graded pools of the first file, measures on the second, and prints one table. Web pools are left out: nobody graded
them.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from members import CHARS, MEMBERS, pools
from scipy.optimize import minimize

from steadyscore.intervals import Interval, mean_interval, paired_interval
from steadyscore.metrics import ndcg

Features = dict[str, list[tuple[np.ndarray, np.ndarray]]]
"""Source -> for each query, raw scores of the members (n, members) and human grades (n,)."""

L2 = 0.01
"""Per unit of the squared weights of standardised scores; keeps members that agree from taking each other's place."""


def features(path: Path) -> Features:
    found: Features = defaultdict(list)
    for pool in pools(path):
        grades = [c.get("relevance") for c in pool["candidates"]]
        if None in grades or len(set(grades)) == 1:
            continue
        texts = [c["text"][:CHARS] for c in pool["candidates"]]
        scores = np.stack([member(pool["query"], texts) for member in MEMBERS.values()], axis=1)
        found[pool["id"].split("-")[0]].append((scores, np.array(grades, float)))
    return dict(found)


def spreads(found: Features) -> np.ndarray:
    """(members,) mean standard deviation of each member's scores within a query."""
    return np.mean([scores.std(axis=0) for queries in found.values() for scores, _ in queries], axis=0)


def fit(found: Features, used: list[int]) -> np.ndarray:
    """(members,) weights, none negative, under which the better of two candidates scores higher; sources count alike."""
    scale, differences, weights = spreads(found), [], []
    for queries in found.values():
        for scores, grades in queries:
            better, worse = np.nonzero(grades[:, None] > grades[None, :])
            differences.append(((scores[better] - scores[worse]) / scale)[:, used])
            weights.append(np.full(len(better), 1 / len(better) / len(queries) / len(found)))
    x, w = np.concatenate(differences), np.concatenate(weights)

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        margin = x @ v
        return (
            float(w @ np.logaddexp(0, -margin) + L2 * v @ v),
            -(w / (1 + np.exp(margin))) @ x + 2 * L2 * v,
        )

    solved = minimize(loss, np.ones(len(used)), jac=True, bounds=[(0, None)] * len(used), method="L-BFGS-B").x
    weights_of_all = np.zeros(len(scale))
    weights_of_all[used] = solved / scale[used]
    return weights_of_all


def quality(found: Features, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Source -> nDCG@10 of each query, equal scores by place in the pool."""
    return {s: np.array([float(ndcg((x @ weights)[None], g, 10)[0]) for x, g in q]) for s, q in found.items()}


def candidates(train: Features) -> dict[str, np.ndarray]:
    names, unit = list(MEMBERS), np.eye(len(MEMBERS))
    standard = 1 / spreads(train)
    both = [names.index("minilm"), names.index("mpnet")]
    rows = dict(zip(names, unit, strict=True))
    rows["mean of encoders"] = unit[both].sum(axis=0)
    rows["mean of all, standardised"] = standard
    rows["encoders, fitted"] = fit(train, both)
    rows["without cross, fitted"] = fit(train, [i for i, name in enumerate(names) if name != "cross"])
    rows["without bm25, fitted"] = fit(train, [i for i, name in enumerate(names) if name != "bm25"])
    rows["all, fitted"] = fit(train, list(range(len(names))))
    return rows


def interval(found: Interval) -> str:
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def main() -> None:
    train, tune = (features(Path(file)) for file in sys.argv[1:3])
    print("fit:", {s: len(q) for s, q in train.items()}, "\nmeasured:", {s: len(q) for s, q in tune.items()})
    sources, reference = list(tune), None
    print("| nDCG@10 | " + " | ".join(sources) + " | mean | minus MiniLM |")
    print("|---|" + "---:|" * (len(sources) + 2))
    first = {s: np.array([float(ndcg(-np.arange(len(g))[None], g, 10)[0]) for _, g in q]) for s, q in tune.items()}
    for name, found in {"order of the pool": first} | {n: quality(tune, w) for n, w in candidates(train).items()}.items():
        rows = [found[s] for s in sources]
        reference = rows if name == "minilm" else reference
        gap = "" if reference is None else interval(paired_interval(rows, reference, scheme="queries"))
        middle = mean_interval(rows, scheme="queries").value
        print(f"| {name} | " + " | ".join(f"{r.mean():.3f}" for r in rows) + f" | {middle:.3f} | {gap} |")
    weights = {name: dict(zip(MEMBERS, w.round(3).tolist(), strict=True)) for name, w in candidates(train).items()}
    print("\nweights of raw scores:", json.dumps(weights))
    print("\nleave one source out, fitted on the others, nDCG@10 on the one (train pools):")
    for left in train:
        rest = {s: q for s, q in train.items() if s != left}
        rows = {n: quality({left: train[left]}, w)[left].mean() for n, w in candidates(rest).items()}
        print(left, {n: round(float(v), 3) for n, v in rows.items()})


if __name__ == "__main__":
    main()
