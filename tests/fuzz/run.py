"""`make fuzz N=10000`: N cases of every format, or of those that are named.

Exit 1 where a case ends in anything but a value or a sentence; the case is shrunk, printed, and comes again with the seed that
stands at the head of the table: every call draws another one.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.fuzz.formats import FORMATS, changed, changes, outcome

PHASES = (Phase.generate, Phase.shrink)


def run(name: str, cases: int, chosen_seed: int, folder: Path) -> tuple[Counter[str], list[BaseException]]:
    """What became of the cases, and the distinct failures, each shrunk to a small file."""
    format, counts = FORMATS[name], Counter[str]()

    @seed(chosen_seed)
    @settings(max_examples=cases, database=None, deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
    @given(format.content, changes)
    def case(content: bytes, wanted: list) -> None:
        made = changed(content, wanted)
        try:
            counts[outcome(format, folder, made)] += 1
        except Exception as failure:
            failure.add_note(f"content: {made[:2000]!r}")
            raise

    try:
        case()
    except BaseExceptionGroup as failures:
        return counts, list(failures.exceptions)
    except Exception as failure:
        return counts, [failure]
    return counts, []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", metavar="FORMAT", help=", ".join(FORMATS))
    parser.add_argument("-n", type=int, default=1000, help="cases per format")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    args = parser.parse_args()
    warnings.simplefilter("error")
    failed = False
    print(f"seed {args.seed}\n{'format':<12}{'cases':>8}{'accepted':>10}{'refused':>10}{'uncaught':>10}{'seconds':>9}")
    for name in args.formats or FORMATS:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            counts, failures = run(name, args.n, args.seed, Path(folder))
        took = time.perf_counter() - began
        cases = counts.total() + len(failures)
        print(f"{name:<12}{cases:>8}{counts['accepted']:>10}{counts['refused']:>10}{len(failures):>10}{took:>9.1f}", flush=True)
        for failure in failures:
            failed = True
            print(*traceback.format_tb(failure.__traceback__)[-2:], f"{type(failure).__name__}: {failure}"[:500])
            print("\n".join(note[:1000] for note in getattr(failure, "__notes__", [])[:1]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
