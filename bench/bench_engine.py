"""Engine `hf`: what slot-only projection, batching and the shared prefix save, against a plain forward. One run, ratios.

    python bench/bench_engine.py [--queries 2] [--json]

SmolLM2-135M-Instruct in float32 on the embedded passages, B = 10, three orders per query.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

from steadyscore import readout
from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, open_engine
from steadyscore.parity import plain_reading
from steadyscore.presentation import permutations, windows
from steadyscore.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING

WAYS = {
    "slots only": EngineOptions(share_prefix=False, batch_tokens=1),
    "slots, batched": EngineOptions(share_prefix=False),
    "slots, prefix shared": EngineOptions(batch_tokens=1),
    "slots, batched, prefix shared (default)": EngineOptions(),
}


def scores(readings: list[readout.Reading]) -> np.ndarray:
    return np.concatenate([readout.score(readout.grade_distribution(reading.logits)) for reading in readings])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engine = open_engine("smollm2-135m")
    scorer = Scorer(engine, PASSAGE_RERANKING, Settings(width=10))
    pools = [instance for instance, _ in zip(open_collection("passages")[1](), range(args.queries), strict=False)]
    prompts = [
        [
            scorer.prompt(pool, window)
            for order in permutations(len(pool.pool), 3, seed=0, query_id=pool.id)
            for window in windows(order, 10)
        ]
        for pool in pools
    ]
    plain_reading(engine, prompts[0][0])  # warm up
    began = time.perf_counter()
    expected = scores([plain_reading(engine, prompt) for row in prompts for prompt in row])
    plain = time.perf_counter() - began
    rows = [{"way": "plain forward, whole vocabulary", "seconds": plain, "speed": 1.0, "largest difference": 0.0}]
    for way, options in WAYS.items():
        engine.options = options
        began = time.perf_counter()
        found = scores([reading for row in prompts for reading in engine.grade_logits(row)])
        seconds = time.perf_counter() - began
        rows.append(
            {
                "way": way,
                "seconds": seconds,
                "speed": plain / seconds,
                "largest difference": float(np.abs(found - expected).max()),
            }
        )
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    print(f"{sum(map(len, prompts))} windows of {len(prompts[0][0])} tokens")
    for row in rows:
        print(f"{row['way']:45} {row['seconds']:8.1f} s  {row['speed']:5.2f}x  differs by {row['largest difference']:.1e}")


if __name__ == "__main__":
    main()
