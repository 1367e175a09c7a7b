"""Engine `hf`: what slot-only projection, batching, the shared prefix and isolated candidates save. One run, ratios.

    python bench/bench_engine.py [--queries 2] [--json]

SmolLM2-135M-Instruct in float32 on the embedded passages, B = 10, three orders per query.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Prompt, PromptStyle
from steadyscore.window import readout
from steadyscore.window.presentation import permutations, windows

WAYS = {
    "slots only": EngineOptions(share_prefix=False, batch_tokens=1),
    "slots, batched": EngineOptions(share_prefix=False),
    "slots, prefix shared": EngineOptions(batch_tokens=1),
    "slots, batched, prefix shared (default)": EngineOptions(),
}


COLUMNS = ("way", "seconds", "speed", "largest difference")


def scores(readings: list[readout.SlotLogits]) -> np.ndarray:
    return np.concatenate([readout.score(readout.grade_distribution(reading.logits)) for reading in readings])


def timed(read: Callable[[], list[readout.SlotLogits]]) -> tuple[float, np.ndarray]:
    began = time.perf_counter()
    found = read()
    return time.perf_counter() - began, scores(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    engine = open_engine("smollm2-135m")
    pools = [instance for instance, _ in zip(open_collection("passages").instances(), range(args.queries), strict=False)]

    def prompts(style: PromptStyle) -> list[list[Prompt]]:
        scorer = Scorer(engine, PASSAGE_RERANKING, Settings(width=10, prompt=style))
        return [
            [
                scorer.prompt(pool, window)
                for order in permutations(len(pool.pool), 3, seed=0, query_id=pool.id)
                for window in windows(order, 10)
            ]
            for pool in pools
        ]

    def read(options: EngineOptions, found: list[list[Prompt]]) -> list[readout.SlotLogits]:
        engine.options = options
        return [reading for row in found for reading in engine.grade_logits(row)]

    printed, isolated = prompts("paper"), prompts("isolated")
    engine.plain_logits(printed[0][0])  # warm up
    base = "plain forward, whole vocabulary"
    plain, expected = timed(lambda: [engine.plain_logits(prompt) for row in printed for prompt in row])
    rows = [(base, plain, 1.0, 0.0)]
    for way, options in WAYS.items():
        seconds, found = timed(lambda options=options: read(options, printed))
        rows.append((way, seconds, plain / seconds, float(np.abs(found - expected).max())))
    whole, expected = timed(lambda: read(WAYS["slots only"], [[prompt] for row in isolated for prompt in row]))
    once, found = timed(lambda: read(EngineOptions(), isolated))
    rows += [
        ("isolated, every window whole", whole, 1.0, 0.0),
        ("isolated, candidates read once (default)", once, whole / once, float(np.abs(found - expected).max())),
    ]
    if args.json:
        print(json.dumps([dict(zip(COLUMNS, row, strict=True)) for row in rows], indent=2))
        return
    count = sum(map(len, printed))
    print(f"{count} windows of {len(printed[0][0])} tokens as printed, {len(isolated[0][0])} isolated")
    for way, seconds, speed, difference in rows:
        print(f"{way:45} {seconds:8.1f} s  {speed:5.2f}x  differs by {difference:.1e}")


if __name__ == "__main__":
    main()
