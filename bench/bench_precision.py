"""How far bfloat16 moves scores and decisions, and what it saves: every pool in both precisions, one after the other, in one run.

    python bench/bench_precision.py [--scorers smollm2-135m-set ...] [--data passages] [--queries 12] [--json]

A decision keeps what reaches the cutoff: that of the adapter's card, else the one at which float32 keeps 30 % of the candidates.
Seconds are those of this process on the processor, so that other work on the machine counts little. Ends with exit code 1 where
nDCG@10 moves by more than 0.003 or the kept sets overlap by less than 0.98.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.device import computes_bfloat16
from steadyscore.measures.ranking import ndcg
from steadyscore.measures.retained_sets import overlap, retained
from steadyscore.models.adapter import card_of
from steadyscore.scoring.config import AuditConfig, scorer_for

PRECISIONS = ("float32", "bfloat16")
QUALITY, KEPT = 0.003, 0.98
"""The gate: the largest change of nDCG@10, and the least overlap of kept sets."""


def compare(address: str, data: str, queries: int) -> dict[str, float | str]:
    source = open_collection(data)
    pools = [pool for pool, _ in zip(source.instances(), range(queries), strict=False)]
    backends = [open_engine(address, EngineOptions(dtype=precision)) for precision in PRECISIONS]
    scorers = [scorer_for(backend, source.collection, AuditConfig()) for backend in backends]
    seconds, scores = np.zeros(2), list[np.ndarray]()
    for scorer in scorers:  # examined and warm
        scorer.score(pools[0], list(range(len(pools[0].pool))))
    for pool in pools:
        row = []
        for i, scorer in enumerate(scorers):
            began = time.process_time()
            row.append(scorer.score(pool, list(range(len(pool.pool)))))
            seconds[i] += time.process_time() - began
        scores.append(np.stack(row))
    card = card_of(address)
    cutoff = card.cutoff.value if card and card.cutoff else None
    if cutoff is None:
        cutoff = float(np.quantile(np.concatenate([row[0] for row in scores]), 0.7))
    moved = np.concatenate([np.abs(row[0] - row[1]) for row in scores])
    quality = [
        ndcg(row, [candidate.relevance for candidate in pool.pool])
        for row, pool in zip(scores, pools, strict=True)
        if any(candidate.relevance for candidate in pool.pool)
    ]
    before, after = np.nanmean(quality, axis=0) if quality else (float("nan"),) * 2
    return {
        "scorer": address,
        "data": source.name,
        "queries": len(pools),
        "candidates": len(moved),
        "seconds float32": seconds[0],
        "seconds bfloat16": seconds[1],
        "times as fast": seconds[0] / seconds[1],
        "mean difference": float(moved.mean()),
        "largest difference": float(moved.max()),
        "nDCG@10 float32": float(before),
        "nDCG@10 bfloat16": float(after),
        "cutoff": cutoff,
        "overlap of kept sets": float(np.mean([overlap(retained(row, cutoff)) for row in scores])),
        "decisions that differ": float(np.mean(np.concatenate([np.diff(row >= cutoff, axis=0)[0] for row in scores]))),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scorers", nargs="+", default=["smollm2-135m", "smollm2-135m-oc", "smollm2-135m-set"])
    parser.add_argument("--data", default="passages")
    parser.add_argument("--queries", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [compare(address, args.data, args.queries) for address in args.scorers]
    if args.json:
        print(json.dumps(rows, indent=2))
    else:
        print(f"bfloat16 is {'native' if computes_bfloat16('cpu') else 'emulated'} on this processor")
        for row in rows:
            print(
                "\n".join(f"{name:24} {value if isinstance(value, str) else f'{value:.6g}'}" for name, value in row.items()), "\n"
            )
    moved = [
        abs(row["nDCG@10 bfloat16"] - row["nDCG@10 float32"]) > QUALITY or row["overlap of kept sets"] < KEPT for row in rows
    ]
    return int(any(moved))


if __name__ == "__main__":
    raise SystemExit(main())
