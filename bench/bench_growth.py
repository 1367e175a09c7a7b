"""How the time of our three kinds of windows grows: fitted exponents of window size, orders, pool, document length and queries.

    python bench/bench_growth.py [--model tiny] [--pool 32] [--width 8] [--points 5] [--rounds 5] [--json FILE] [--draw FILE]

From one case (a pool of --pool texts of 240 characters in windows of --width, one order, one query) one size at a time is
doubled --points - 1 times; the kinds of windows take turns, each in a process of its own. The exponent is the slope of a straight
line through logarithms, fitted to the median processor seconds of each size by least squares, with the 95 % interval of Student's
t on the points less two: it covers noise and a line that is not straight alike. The exponent of the tokens that went through the
model has neither load nor noise. `tiny` is a small model of the embedded one's class with random weights, which shows what this
package adds to a pass; --model smollm2-135m is the embedded one, --precision bfloat16 halves its time. At the smallest size
of each axis the scores must be those of a plain pass over each window, or the run ends with exit code 1 and no table.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_scoring import said
from contenders import EMBEDDED_MODEL, OURS, TINY_MODEL, Case
from turns import Row, add_options, read, run, write

AXES = {"width": "window size B", "orders": "orders M", "pool": "pool", "chars": "document length", "queries": "queries"}
KINDS = ("causal", "isolated", "set")


class Growth(NamedTuple):
    """cost = c * size ** exponent."""

    exponent: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.exponent:.2f} [{self.low:.2f}, {self.high:.2f}]"


def fit(sizes: Sequence[float], costs: Sequence[float]) -> Growth:
    """The exponent by least squares on logarithms, with its 95 % interval."""
    from scipy.stats import t

    x, y = np.log(sizes) - np.mean(np.log(sizes)), np.log(costs) - np.mean(np.log(costs))
    exponent = float(x @ y / (x @ x))
    residual = y - exponent * x
    margin = float(t.ppf(0.975, len(x) - 2) * np.sqrt(residual @ residual / (len(x) - 2) / (x @ x)))
    return Growth(exponent, exponent - margin, exponent + margin)


def grids(pool: int, width: int, points: int) -> dict[str, list[Case]]:
    """Axis -> its cases, smallest first. All but the window size grow from below; it grows up to the pool."""
    base = Case(pool=pool, width=width)
    first = {"width": pool // 2 ** (points - 1), "orders": 1, "pool": width, "chars": 120, "queries": 1}
    return {axis: [base._replace(**{axis: first[axis] * 2**step}) for step in range(points)] for axis in AXES}


def exponents(rows: Sequence[Row], grid: dict[str, list[Case]], field: str) -> dict[tuple[str, str], Growth]:
    """(axis, kind) -> how that field of its readings grows. A set has no window size."""
    costs = {(row.contender.layout, row.case): row.median(field) for row in rows if row.readings}
    return {
        (axis, kind): fit([getattr(case, axis) for case in cases], [costs[kind, case] for case in cases])
        for axis, cases in grid.items()
        for kind in KINDS
        if (kind, cases[0]) in costs and (axis, kind) != ("width", "set")
    }


def table(rows: Sequence[Row], grid: dict[str, list[Case]]) -> str:
    seconds, tokens = (exponents(rows, grid, field) for field in ("processor", "tokens"))
    kinds = [kind for kind in KINDS if any(known == kind for _, known in seconds)]
    lines = [
        f"| grows | from, to | {' | '.join(kinds)} | tokens: {', '.join(kinds)} |",
        f"|---|---|{'---|' * (len(kinds) + 1)}",
    ]
    for axis, cases in grid.items():
        cells = [str(seconds.get((axis, kind), "")) for kind in kinds]
        counted = ", ".join(f"{tokens[axis, kind].exponent:.2f}" if (axis, kind) in tokens else "-" for kind in kinds)
        ends = f"{getattr(cases[0], axis)}, {getattr(cases[-1], axis)}"
        lines.append(f"| {AXES[axis]} | {ends} | {' | '.join(cells)} | {counted} |")
    return "\n".join(lines)


def draw(rows: Sequence[Row], grid: dict[str, list[Case]], file: Path) -> None:
    """Processor seconds against each size, both in logarithms; a panel an axis, a line a kind of windows."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullFormatter

    matplotlib.rcParams["svg.fonttype"] = "none"
    matplotlib.rcParams["svg.hashsalt"] = "growth"
    costs = {(row.contender.layout, row.case): row.median("processor") for row in rows if row.readings}
    figure = Figure(figsize=(11, 2.8), layout="constrained")
    panels = figure.subplots(1, len(grid), sharey=True)
    for panel, (axis, cases) in zip(panels, grid.items(), strict=True):
        sizes = [getattr(case, axis) for case in cases]
        for kind, style, colour in zip(KINDS, ("o-", "s--", "^:"), ("#0072b2", "#d55e00", "#009e73"), strict=True):
            if (axis, kind) == ("width", "set"):
                panel.plot([], [], style, color=colour, label=kind)  # for the legend
            else:
                panel.plot(sizes, [costs[kind, case] for case in cases], style, color=colour, label=kind)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter(NullFormatter())
        panel.set_title(AXES[axis], loc="left")
        panel.set_xticks(sizes, [str(size) for size in sizes])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("processor seconds")
    panels[0].legend(frameon=False, loc="upper left")
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=(TINY_MODEL, EMBEDDED_MODEL), default=TINY_MODEL)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--pool", type=int, default=32)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--points", type=int, default=5)
    add_options(parser, rounds=5, plot="a plot, as SVG")
    args = parser.parse_args()
    if args.known:
        record = read(args.known)
        return tell(record, grids(**record["grid"]), args.draw)
    if args.points < 3:
        parser.error("--points must be at least 3: a line through two points has no interval")
    if args.pool < 2 ** (args.points - 1):
        parser.error(
            f"--pool must be at least {2 ** (args.points - 1)}, so that its windows can be halved {args.points - 1} times"
        )
    grid = grids(args.pool, args.width, args.points)
    cases = list(dict.fromkeys(case for same in grid.values() for case in same))
    checked = list(dict.fromkeys(same[0] for same in grid.values()))
    chosen = [contender for contender in OURS if contender.precision == args.precision]
    record = run(chosen, cases, checked, args.model, args.rounds, args.threads)
    fitted = {field: exponents(record["rows"], grid, field) for field in ("processor", "tokens")}
    record |= {"grid": {"pool": args.pool, "width": args.width, "points": args.points}, "exponents": to_json(fitted)}
    write(record, args.json)
    tell(record, grid, args.draw)


def tell(record: dict[str, Any], grid: dict[str, list[Case]], file: Path | None) -> None:
    if file:
        draw(record["rows"], grid, file)
    print(table(record["rows"], grid))
    print(said(record))


def to_json(fitted: dict[str, dict[tuple[str, str], Growth]]) -> list[dict[str, Any]]:
    return [
        {"of": field, "axis": axis, "windows": kind} | growth._asdict()
        for field, growths in fitted.items()
        for (axis, kind), growth in growths.items()
    ]


if __name__ == "__main__":
    main()
