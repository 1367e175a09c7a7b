"""Peak memory of `audit`, `report` and `compare` by the number of queries: `make memory`, or `make memory SIZES="5000 100000"`.

Each verb is a process of its own on a generated collection of five candidates a query and two permutations; its peak is what the
operating system counts (ru_maxrss). What a query costs is the slope between the smallest and the largest size: what is
imported and what one page needs is the same at any size.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

CANDIDATES, PERMUTATIONS = 5, 2
VERBS = ("audit", "report", "compare")
SIZES = (5_000, 20_000)
LIMIT = 2_500
"""Bytes a query that no verb may exceed."""
WORDS = ("order", "candidates", "window", "scorer", "threshold", "passage", "measure", "decision", "interval", "query")


class Peak(NamedTuple):
    """What one verb took at one size."""

    verb: str
    queries: int
    bytes: int
    seconds: float


def write_collection(file: Path, queries: int) -> None:
    """A collection with one or two relevant candidates a query, the same at every call."""
    draw = random.Random(queries)
    with file.open("w") as stream:
        print(json.dumps({"collection": {"name": f"generated-{queries}", "task": "passage_reranking"}}), file=stream)
        for number in range(queries):
            gold = draw.sample(range(CANDIDATES), 1 + number % 2)
            pool = [
                {"id": f"q{number}-{c}", "text": " ".join(draw.choices(WORDS, k=8)), "relevance": 2 * (c in gold)}
                for c in range(CANDIDATES)
            ]
            query = " ".join(draw.choices(WORDS, k=4))
            print(json.dumps({"id": f"q{number}", "query": query, "candidates": pool}), file=stream)


def run(verb: str, *words: str) -> tuple[int, float]:
    """Peak bytes and seconds of one command in a process of its own."""
    began = time.monotonic()
    child = os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "steadyscore", verb, *words],
        dict(os.environ),
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"steadyscore {verb} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss * 1024, time.monotonic() - began


def copy_run(out: Path, other: Path) -> None:
    """The run of a folder as that of another scorer: what is compared takes the same memory whatever its scores are."""
    from steadyscore.runs.folder import find_run

    find_run(shutil.copytree(out, other, dirs_exist_ok=True)).update_record(name="another")


def measure(queries: int, folder: Path) -> list[Peak]:
    """Every verb at one size."""
    data, out, other = folder / f"{queries}.jsonl", folder / f"slot-{queries}", folder / f"other-{queries}"
    write_collection(data, queries)
    how = ("--permutations", str(PERMUTATIONS), "--match-retention", "0.3", "--no-report")
    audit = run("audit", "--scorer", "synthetic:slot", "--data", str(data), *how, "--out", str(out))
    report = run("report", str(out), "--out", str(folder / f"page-{queries}"))
    copy_run(out, other)
    compare = run("compare", str(out), str(other))
    return [Peak(verb, queries, *took) for verb, took in zip(VERBS, (audit, report, compare), strict=True)]


def slopes(peaks: list[Peak]) -> dict[str, float]:
    """Verb -> bytes that a query adds, between the smallest and the largest size."""
    found = {}
    for verb in VERBS:
        few, *_, many = sorted((peak for peak in peaks if peak.verb == verb), key=lambda peak: peak.queries)
        found[verb] = (many.bytes - few.bytes) / (many.queries - few.queries)
    return found


def draw(measured: dict[str, list[Peak]], file: Path) -> None:
    """Peak memory against queries, a panel for each verb and a line for each version that was measured."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    panels = figure.subplots(1, len(VERBS), sharey=True)
    for panel, verb in zip(panels, VERBS, strict=True):
        for (version, peaks), style in zip(measured.items(), ("o--", "s-"), strict=False):
            own = sorted((peak.queries, peak.bytes / 1e6) for peak in peaks if peak.verb == verb)
            panel.plot(*zip(*own, strict=True), style, label=version, color="#666666" if style == "o--" else "#0072b2")
        panel.set_title(verb, loc="left")
        panel.set_xlabel("queries")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("peak memory, MB")
    panels[0].set_ylim(0, 1.1 * max(peak.bytes / 1e6 for peaks in measured.values() for peak in peaks))
    panels[0].legend(frameon=False, loc="lower right")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=list(SIZES), metavar="QUERIES")
    parser.add_argument("--folder", type=Path, metavar="DIR", help="work here and keep it; an audit that was stopped goes on")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--draw", nargs=2, type=Path, metavar=("FIGURES", "SVG"), help="only draw figures: {version: peaks}")
    args = parser.parse_args()
    if args.draw:
        measured = json.loads(args.draw[0].read_text())
        draw({version: [Peak(*peak) for peak in peaks] for version, peaks in measured.items()}, args.draw[1])
        return
    peaks = []
    with tempfile.TemporaryDirectory(prefix="steadyscore-memory-") as scratch:
        for queries in args.sizes:
            for peak in measure(queries, args.folder or Path(scratch)):
                peaks.append(peak)
                print(f"{peak.verb:8}{peak.queries:9,} queries {peak.bytes / 1e6:7.0f} MB {peak.seconds:7.1f} s", flush=True)
    if args.json:
        args.json.write_text(json.dumps(peaks))
    if len(args.sizes) < 2:
        return
    found = slopes(peaks)
    for verb, each in found.items():
        print(f"{verb:8}{each:9,.0f} bytes a query")
    if too_much := [verb for verb, each in found.items() if each > LIMIT]:
        raise SystemExit(f"{', '.join(too_much)}: more than {LIMIT:,} bytes a query")


if __name__ == "__main__":
    main()
