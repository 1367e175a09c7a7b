"""Scoring pools of passages: ours beside other ways of reading the same pools with the same weights. One run, one table.

    python bench/bench_scoring.py [--pools 20] [--orders 1] [--rounds 2] [--threads 1] [--only NAME ...] [--json FILE]

`contenders.py` says who they are. Each has a process of its own, and they take turns; figures are medians over the rounds.
What reads the same prompts must give the same scores, or the run ends with exit code 1 and no table. Ours is compared with a
plain pass over each window too; llama.cpp at the last slot of each. "As fast" is in processor seconds: what reads one candidate
a prompt beside `rerankers`, the other readings beside plain transformers in causal windows. What reads something else, or with
other weights, is a row of its times only. The share of the peak is what the model's matrices take, of what the faster product
of two matrices reaches in the same run in the same precision, on one thread. What is not installed is a row that says so; what
has a Python of its own is named: --python vLLM=/path/python. With --orders every pool is read in so many orders, as an audit
reads it, and once by what has no order.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contenders import BASE, CONTENDERS, EMBEDDED_MODEL, Case, Contender
from turns import Row, add_options, read, run, write

PEAK = "product of matrices"
BASES = {"pointwise": Contender("rerankers", "float32", "pointwise")}
"""With what a layout is compared in time, where that is not `BASE`."""


def speed(row: Row, rows: Sequence[Row]) -> float | None:
    """How many times as fast as the plain way of reading; None where the scores were compared with nobody's."""
    base = BASES.get(row.contender.layout, BASE)
    same = [other for other in rows if other.contender == base and other.case == row.case and other.readings]
    return same[0].median("processor") / row.median("processor") if row.difference is not None and same else None


def table(rows: Sequence[Row]) -> str:
    done = [row for row in rows if not row.reason]
    products = [row for row in done if row.contender.way.startswith(PEAK)]
    peaks: dict[str, float] = {}
    for row in products:
        peaks[row.contender.precision] = max(pace(row), peaks.get(row.contender.precision, 0.0))
    lines = [
        "| pool | | precision | seconds | processor | as fast | of the peak | memory, MB | differs by |",
        "|---:|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        contender = row.contender
        title = f"{contender.way}, {contender.layout}" if contender.layout else contender.way
        if row.case is None:
            lines.append(f"| | {title} | {contender.precision} | not run: {row.reason} | | | | | |")
        elif row not in products:
            times = speed(row, done)
            cells = [
                f"{row.median('seconds'):.2f}",
                f"{row.median('processor'):.2f}",
                "" if times is None else f"{times:.2f}x",
                f"{pace(row) / peaks[contender.precision]:.0%}" if pace(row) and contender.precision in peaks else "",
                f"{row.median('peak_mb'):,.0f}",
                f"time only: {contender.time_only}" if row.difference is None else f"{row.difference:.1e}",
            ]
            lines.append(f"| {row.case.pool} | {title} | {contender.precision} | {' | '.join(cells)} |")
    lines += ["", *(f"A {row.contender.name}: {pace(row) / 1e9:.0f} GFLOP per second." for row in products)]
    return "\n".join(lines)


def pace(row: Row) -> float:
    return row.median("work") / row.median("processor")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pools", type=int, nargs="+", default=[20])
    parser.add_argument("--orders", type=int, default=1)
    known = "; ".join(contender.name for contender in CONTENDERS)
    parser.add_argument("--only", nargs="+", default=[""], metavar="NAME", help=f"those whose name begins so: {known}")
    parser.add_argument("--python", nargs="+", default=[], metavar="WAY=FILE", help="a contender's own Python")
    add_options(parser, rounds=2, plot="a plot of the first pool, as SVG")
    args = parser.parse_args()
    if args.known:
        return tell(read(args.known), args.draw)
    chosen = [contender for contender in CONTENDERS if contender.name.startswith(tuple(args.only))]
    cases = [Case(pool=size, orders=args.orders) for size in args.pools]
    pythons = dict(pair.split("=", 1) for pair in args.python)
    record = run(chosen, cases, cases, EMBEDDED_MODEL, args.rounds, args.threads, pythons)
    write(record, args.json)
    tell(record, args.draw)


def tell(record: dict[str, Any], file: Path | None) -> None:
    if file:
        draw(record["rows"], file)
    print(table(record["rows"]))
    print(said(record))


def draw(rows: Sequence[Row], file: Path) -> None:
    """Processor seconds of the first pool: a full circle where the scores were compared, else an open one."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "scoring"
    done = [row for row in rows if row.case is not None and not row.contender.way.startswith(PEAK)]
    first = [row for row in reversed(done) if row.case == done[0].case]
    figure = Figure(figsize=(8, 0.32 * len(first) + 0.9), layout="constrained")
    panel = figure.subplots()
    for row in first:
        colour = "#0072b2" if row.contender.way == "ours" else "#666666"
        filled = "none" if row.difference is None else colour
        panel.scatter(row.median("processor"), row.contender.name, facecolors=filled, edgecolors=colour)
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.set_xlabel("processor seconds (logarithmic); an open circle is a time only")
    panel.grid(alpha=0.3)
    figure.savefig(file, metadata={"Date": None})


def said(record: dict[str, Any]) -> str:
    """What the figures are of, in a line."""
    about = {name: value for name, value in record.items() if name not in ("rows", "load", "exponents", "grid")}
    before, after = record["load"]
    return f"Load {before:.1f} at the start, {after:.1f} at the end; {json.dumps(about)}"


if __name__ == "__main__":
    main()
