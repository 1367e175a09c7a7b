"""Set windows beside causal and isolated ones: tokens read and seconds for one presentation of a pool. One run, a table.

    python bench/bench_set.py [--pools 10 20 50 100] [--profile] [--json]

SmolLM2-135M-Instruct in float32 on embedded passages of 300 characters, pooled over queries; B = 10 where there are windows.
Seconds are those of this process on the processor, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local import windows
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Instance, PromptStyle, Window

LAYOUTS: tuple[tuple[str, PromptStyle, int | None], ...] = (
    ("causal, B = 10", "compact", 10),
    ("isolated, B = 10", "isolated", 10),
    ("set", "set", None),
    ("one by one, B = 1", "compact", 1),
)


class Row(NamedTuple):
    pool: int
    layout: str
    tokens: int
    """Token positions that went through the model, padding included."""
    seconds: float
    ten: float
    """Seconds for ten presentations."""


def pool_of(size: int) -> Instance:
    """The first `size` distinct texts of the embedded passages, under the first query."""
    instances = list(open_collection("passages").instances())
    texts = {candidate.text[:300]: candidate for instance in instances for candidate in instance.pool}
    return Instance("bench", instances[0].query, tuple(list(texts.values())[:size]))


def measured(engine: TransformersEngine, scorer: Scorer, pool: Instance, orders: np.ndarray) -> tuple[int, float]:
    read: list[int] = []
    hook = engine.model.base_model.register_forward_hook(
        lambda _, args, kwargs, out: read.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    began = time.process_time()
    scorer.score_orders(pool, orders, range(len(orders)))
    seconds = time.process_time() - began
    hook.remove()
    return sum(read), seconds


def rows(sizes: list[int], presentations: int) -> Iterator[Row]:
    engine = open_engine("smollm2-135m")
    for style in ("compact", "set"):
        Scorer(engine, PASSAGE_RERANKING, Settings(prompt=style)).score(pool_of(2))  # warm up; a set's probe
    for size in sizes:
        pool = pool_of(size)
        shuffled = np.stack([np.random.default_rng(i).permutation(size) for i in range(presentations)])
        for layout, style, width in LAYOUTS:
            scorer = Scorer(engine, PASSAGE_RERANKING, Settings(width=width, chars=300, prompt=style, label_mass=False))
            tokens, seconds = measured(engine, scorer, pool, shuffled[:1])
            ten = measured(engine, scorer, pool, shuffled)[1] if presentations > 1 and size <= 20 else float("nan")
            yield Row(size, layout, tokens, seconds, ten)


def profile(size: int) -> dict[str, float]:
    """Seconds of one set window, and of its first part, the texts."""
    import torch

    engine = open_engine("smollm2-135m")
    scorer = Scorer(engine, PASSAGE_RERANKING, Settings(chars=300, prompt="set", label_mass=False))
    pool = pool_of(size)
    scorer.score(pool_of(2))
    prompt = scorer.prompt(pool, Window(0, tuple(range(size))))
    began = time.process_time()
    with torch.inference_mode():
        windows.read_blocks(engine.model, prompt, engine.options.batch_tokens)
    texts = time.process_time() - began
    began = time.process_time()
    engine.grade_logits([prompt])
    return {"texts": texts, "whole": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pools", type=int, nargs="+", default=[10, 20, 50, 100])
    parser.add_argument("--presentations", type=int, default=1)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    if args.profile:
        print(json.dumps({size: profile(size) for size in args.pools}, indent=2))
        return
    if args.json:
        print(json.dumps([row._asdict() for row in rows(args.pools, args.presentations)], indent=2))
        return
    print("| pool | layout | tokens | seconds | ten presentations |\n|---:|---|---:|---:|---:|")
    for row in rows(args.pools, args.presentations):
        ten = "" if math.isnan(row.ten) else f"{row.ten:.1f}"
        print(f"| {row.pool} | {row.layout} | {row.tokens:,} | {row.seconds:.1f} | {ten} |", flush=True)


if __name__ == "__main__":
    main()
