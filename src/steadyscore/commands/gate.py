"""`steadyscore gate`: bounds on a run's figures, for CI."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ..compare import Bound, bounds
from ..disk import atomic
from ..errors import GateFailed, InputError
from ..runs import Run, find_runs
from ..summary import audited
from . import add_budget, add_json, add_threshold, examples, print_json, print_table, threshold_of
from .audit import remarks

Row = tuple[str, Bound, float, bool]
"""(run, bound, value, does it hold)"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help="the measure must be at least X")
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help="the measure must be at most X")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the result as JUnit XML")
    add_threshold(parser)
    add_budget(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore gate runs/first --max tau_psi=0.6",
        "steadyscore gate runs/first --min ndcg@10=0.05 --max pair_flip=1.0 --junit gate.xml",
    )


def run(args: argparse.Namespace) -> int:
    wanted = bounds(args.min, args.max)
    rows: list[Row] = []
    told: list[str] = []
    for found in find_runs(args.runs):
        figures = audited(found, threshold_of(args), args.serving_permutations)[1]
        rows += _check(found, wanted, figures["measures"])
        told += remarks(found.record["collection"], figures)
    if args.junit:
        with atomic(args.junit) as stream:
            stream.write(_junit(rows))
    if args.json:
        print_json([{"run": run_, "bound": str(bound), "value": value, "ok": ok} for run_, bound, value, ok in rows])
    else:
        print_table(["run", "bound", "value", "result"], [[r, str(b), v, "ok" if ok else "FAILED"] for r, b, v, ok in rows])
        print("", *dict.fromkeys(told), sep="\n")
    if failed := [f"{name}: {bound} fails with {value:.4f}" for name, bound, value, ok in rows if not ok]:
        raise GateFailed("; ".join(failed) + ".")
    return 0


def _check(found: Run, wanted: list[Bound], figures: dict[str, Any]) -> list[Row]:
    if absent := [bound.measure for bound in wanted if bound.measure not in figures]:
        raise InputError(f"{found.folder} has no {', '.join(absent)}; it has {', '.join(figures)}.")
    name = f"{found.record['name']} on {found.record['collection']}"
    return [(name, bound, figures[bound.measure]["value"], bound.holds(figures[bound.measure]["value"])) for bound in wanted]


def _junit(rows: list[Row]) -> bytes:
    suite = ElementTree.Element(
        "testsuite", name="steadyscore gate", tests=str(len(rows)), failures=str(sum(not ok for *_, ok in rows))
    )
    for name, bound, value, ok in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=str(bound))
        if not ok:
            ElementTree.SubElement(case, "failure", message=f"{bound} fails with {value:.4f}")
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
