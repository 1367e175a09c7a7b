"""Windows on one and two threads, waiting as this package does and as OpenMP does by default, alone and beside busy processes.

    python bench/bench_threads.py [--windows 6] [--busy 0 1 4] [--dtype auto] [--json]

Each way runs in a process of its own, which reads so many windows of ten embedded passages with SmolLM2-135M-Instruct beside each
number of busy processes, and is told as a multiple of its own time without one. The busy processes count; on a machine that does
other things too, the rows say less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steadyscore.engines import Precision

WAYS = {
    "1 thread, passive": (1, "PASSIVE"),
    "1 thread, default": (1, ""),
    "2 threads, passive": (2, "PASSIVE"),
    "2 threads, default": (2, ""),
}


def serve(count: int, dtype: Precision) -> None:
    """Read so many windows for each line on standard input, and say what it took."""
    import torch  # noqa: F401  (before this package, which would have the threads wait passively whatever the environment says)

    from steadyscore.collection import open_collection
    from steadyscore.engines import EngineOptions
    from steadyscore.engines.kinds import open_engine
    from steadyscore.scoring.scorer import Scorer, Settings
    from steadyscore.tasks import PASSAGE_RERANKING
    from steadyscore.terms import Window

    scorer = Scorer(open_engine("smollm2-135m", EngineOptions(dtype=dtype)), PASSAGE_RERANKING, Settings(width=10))
    pool = next(iter(open_collection("passages").instances()))
    shown = [Window(0, tuple((start + i) % len(pool.pool) for i in range(10))) for start in range(count + 1)]
    scorer.read_windows([(pool, shown[0])])
    print("ready", flush=True)
    for _ in sys.stdin:
        wall, processor = time.perf_counter(), time.process_time()
        for window in shown[1:]:
            scorer.read_windows([(pool, window)])
        print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]), flush=True)


@contextmanager
def beside(busy: int) -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def start(threads: int, policy: str, options: list[str]) -> subprocess.Popen[str]:
    own = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} | ({"OMP_WAIT_POLICY": policy} if policy else {})
    others = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    command = [sys.executable, __file__, "--own", *options]
    return subprocess.Popen(command, text=True, env=others | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=6)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 4])
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.own:
        return serve(args.windows, args.dtype)
    processes = {way: start(*how, ["--windows", str(args.windows), "--dtype", args.dtype]) for way, how in WAYS.items()}
    rows = []
    try:
        for process in processes.values():
            process.stdout.readline()
        for busy in args.busy:
            for way, process in processes.items():
                with beside(busy):
                    print(file=process.stdin, flush=True)
                    seconds, processor = json.loads(process.stdout.readline())
                rows.append({"way": way, "busy processes": busy, "seconds": seconds, "processor seconds": processor})
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    alone = {row["way"]: row["seconds"] for row in reversed(rows) if row["busy processes"] == args.busy[0]}
    print("| | busy processes | seconds | processor seconds | of its time alone |\n|---|---:|---:|---:|---:|")
    for row in rows:
        times = f"{row['seconds']:.1f} | {row['processor seconds']:.1f} | {row['seconds'] / alone[row['way']]:.2f}"
        print(f"| {row['way']} | {row['busy processes']} | {times} |")


if __name__ == "__main__":
    main()
