"""Hierarchical bootstrap draws against a plain resampling loop, in the same run: `python bench/bench_intervals.py [--json]`."""

from __future__ import annotations

import argparse
import json
import resource
import time

import numpy as np

from steadyscore.measures.intervals import DRAWS, bootstrap_means

SIZES = (43, 54, 53, 76, 82, 49, 648, 323, 1406, 1535, 50, 400, 300, 97, 57, 249, 467, 113)  # queries of 18 collections
LOOP_DRAWS = 500  # timed, then scaled to DRAWS


def studies(rng: np.random.Generator) -> list[np.ndarray]:
    return [np.clip(rng.normal(rng.normal(0.7, 0.08), 0.25, size), 0, 1) for size in SIZES]


def plain_loop(values: list[np.ndarray], draws: int, seed: int) -> np.ndarray:
    """Collections with replacement, then queries inside each, as one would write it down."""
    rng = np.random.default_rng(seed)
    means = []
    for _ in range(draws):
        drawn = rng.integers(0, len(values), len(values))
        means.append(np.mean([values[c][rng.integers(0, len(values[c]), len(values[c]))].mean() for c in drawn]))
    return np.array(means)


def seconds(call, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measure() -> dict[str, float]:
    values = studies(np.random.default_rng(0))
    fast = seconds(lambda: bootstrap_means(values), repeats=5)
    loop = seconds(lambda: plain_loop(values, LOOP_DRAWS, 1), repeats=3) * DRAWS / LOOP_DRAWS
    ours, theirs = bootstrap_means(values), plain_loop(values, 4000, 1)
    return {
        "collections": len(SIZES),
        "queries": sum(SIZES),
        "draws": DRAWS,
        "steadyscore_seconds": fast,
        "loop_seconds": loop,
        "ratio": loop / fast,
        "steadyscore_sd": float(ours.std()),
        "loop_sd": float(theirs.std()),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object instead of the table")
    figures = measure()
    if parser.parse_args(argv).json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:22s} {figure:>12,.4g}" if isinstance(figure, float) else f"{name:22s} {figure:>12,}")


if __name__ == "__main__":
    main()
