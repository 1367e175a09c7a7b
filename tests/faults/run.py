"""`make faults`: inject every fault, or those that are named, print what it cost, and put the rows into the lab (`PAGE`).

Exit 1 where a row was lost, doubled or changed, or where a fault did not end as it must.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.fault import Counts, Fault, Unavailable, all_faults
from tests.faults.processes import run_forked

PAGE = Path(__file__).resolve().parents[2] / "lab" / "findings" / "reliability.md"
BLOCK = re.compile(r"(?<=<!-- written by make faults -->\n).*(?=<!-- end of what make faults wrote -->)", re.DOTALL)
"""What of the page is written here."""
COLUMNS = ("fault", "how it is injected", "times", "rows lost", "rows doubled", "rows wrong", "date")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a fault."""

    name: str
    how: str
    seconds: float
    counts: Counts | None = None
    problem: str = ""
    """Why there are no counts."""
    is_unavailable: bool = False
    """Whether that is this machine's fault."""
    date: str = field(default_factory=lambda: f"{datetime.now(UTC):%Y-%m-%d}")

    @property
    def is_sound(self) -> bool:
        return self.is_unavailable or (self.counts is not None and self.counts.is_sound)

    def cells(self) -> tuple[str, ...]:
        if self.counts is None:
            return self.name, self.how, self.problem, "", "", "", self.date
        return (self.name, self.how, *(f"{count:,}" for count in asdict(self.counts).values()), self.date)


def inject(fault: Fault, times: int) -> Outcome:
    """In a process of its own: no fault sees the threads, limits and mounts of another."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="steadyscore-faults-", ignore_cleanup_errors=True) as top:
        (folder := Path(top) / "work").mkdir()
        try:
            run_forked(_inject_here, fault, times, folder, Path(top) / "outcome.json")
            result = json.loads((Path(top) / "outcome.json").read_text())
        except Exception as failure:
            result = {"problem": f"FAILED: {failure!r}"}
    if "counts" in result:
        result["counts"] = Counts(**result["counts"])
    return Outcome(fault.name, fault.how, round(time.monotonic() - began, 1), **result)


def _inject_here(fault: Fault, times: int, folder: Path, outcome: Path) -> None:
    result: dict[str, Any]
    try:
        counts = fault.inject(folder, times)
        assert counts.times, "it was never injected"
        result = {"counts": asdict(counts)}
    except Unavailable as lack:
        result = {"problem": f"not run: {lack}", "is_unavailable": True}
    except Exception as failure:
        traceback.print_exc()
        result = {"problem": f"FAILED: {failure!r}"[:300]}
    outcome.write_text(json.dumps(result))


def inject_all(faults: Sequence[Fault], *, is_few: bool) -> Iterator[Outcome]:
    for number, fault in enumerate(faults, 1):
        times = fault.few if is_few else fault.times
        print(f"{number} of {len(faults)}: {fault.name}, {times} times ...", file=sys.stderr, flush=True)
        before = _processor_seconds()
        outcome = inject(fault, times)
        took = f"{outcome.seconds:.0f} s, {_processor_seconds() - before:.1f} s of a core"
        print(f"{number} of {len(faults)}: {fault.name}, {took}", file=sys.stderr, flush=True)
        yield outcome


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def markdown(rows: Iterable[Sequence[str]]) -> str:
    table = [COLUMNS, ["---" if column in COLUMNS[:2] else "---:" for column in COLUMNS], *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |\n" for row in table)


def update_page(outcomes: Sequence[Outcome], known: Iterable[str]) -> None:
    """Put rows of zeros into the page, in place of older ones; take out rows that are not zeros, and faults that are gone."""
    text = PAGE.read_text()
    block = BLOCK.search(text)
    assert block, f"{PAGE} has lost the lines between which the table stands"
    rows = {cells[0]: cells for line in block[0].splitlines()[5:] if len(cells := line.strip("| ").split(" | ")) == len(COLUMNS)}
    for outcome in outcomes:
        if outcome.counts is not None and outcome.is_sound:
            rows[outcome.name] = outcome.cells()
        elif not outcome.is_unavailable:  # where this machine cannot inject it, another may have
            rows.pop(outcome.name, None)
    machine = f"{platform.system()} on {platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    table = markdown(rows[name] for name in known if name in rows)
    PAGE.write_text(BLOCK.sub(lambda _: f"\n`make faults`, last on {machine}:\n\n{table}\n", text))


def main(argv: Sequence[str] | None = None) -> int:
    faults = all_faults()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", action="append", choices=sorted(faults), metavar="NAME", help="only this fault; may be repeated"
    )
    parser.add_argument("--few", action="store_true", help="as few times as the test suite injects them, without the page")
    parser.add_argument("--json", action="store_true", help="print the table as JSON")
    parser.add_argument("--list", action="store_true", help="print the names and how each is injected, inject nothing")
    args = parser.parse_args(argv)
    if args.list:
        print("".join(f"{fault.name}: {fault.how}, {fault.times} times\n" for fault in faults.values()), end="")
        return 0
    chosen = [fault for fault in faults.values() if not args.only or fault.name in args.only]
    outcomes = list(inject_all(chosen, is_few=args.few))
    print(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) if args.json else markdown(o.cells() for o in outcomes))
    if not args.few:
        update_page(outcomes, faults)
    is_sound = all(outcome.is_sound for outcome in outcomes)
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
