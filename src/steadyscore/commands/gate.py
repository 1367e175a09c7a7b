"""`steadyscore gate`: bounds on a run's figures, for CI."""

from __future__ import annotations

import argparse
from pathlib import Path
from xml.etree import ElementTree

from ..audits.compare import Bound, bounds
from ..audits.figure import Figure
from ..audits.load import load_run
from ..audits.missing import missing_queries, missing_remark
from ..errors import GateFailed, InputError
from ..machine.disk import atomic
from ..runs.folder import Run, find_runs
from . import add_budget, add_json, add_threshold, examples, print_json, print_table, threshold_of
from .flags import not_negative

Row = tuple[str, Bound, float, bool]
"""(run, bound, value, does it hold)"""
MISSING = "missing queries"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help="the measure must be at least X")
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help="the measure must be at most X")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the result as JUnit XML")
    parser.add_argument(
        "--allow-missing",
        type=not_negative,
        default=0,
        metavar="N",
        help="pass a run in which up to N queries could not be scored or read (default 0)",
    )
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
    missing: dict[str, int] = {}
    for found in find_runs(args.runs):
        audit = load_run(found, threshold_of(args), args.serving_permutations)
        rows += _check(found, wanted, audit.figures)
        absent = missing_queries(found, audit.measured.query_ids, [bound.measure for bound in wanted], args.serving_permutations)
        missing[_name(found)] = len(absent)
        if absent:
            limit = Bound(MISSING, most=args.allow_missing)
            rows.append((_name(found), limit, float(len(absent)), limit.holds(len(absent))))
            told.append(missing_remark(found, absent))
        told += audit.remarks()
    if args.junit:
        with atomic(args.junit) as stream:
            stream.write(_junit(rows))
    if args.json:
        print_json([{"run": r, "bound": str(b), "value": v, "ok": ok, "missing": missing[r]} for r, b, v, ok in rows])
    else:
        print_table(["run", "bound", "value", "result"], [[r, str(b), v, "ok" if ok else "FAILED"] for r, b, v, ok in rows])
        print("", *dict.fromkeys(told), sep="\n")
    if failed := [f"{name}: {_reason(bound, value)}" for name, bound, value, ok in rows if not ok]:
        raise GateFailed("; ".join(failed) + ".")
    return 0


def _check(found: Run, wanted: list[Bound], figures: dict[str, Figure]) -> list[Row]:
    if absent := [bound.measure for bound in wanted if bound.measure not in figures]:
        raise InputError(f"{found.folder} has no {', '.join(absent)}; it has {', '.join(figures)}.")
    name = _name(found)
    return [(name, bound, figures[bound.measure].value, bound.holds(figures[bound.measure].value)) for bound in wanted]


def _name(found: Run) -> str:
    return f"{found.record['name']} on {found.record['collection']}"


def _reason(bound: Bound, value: float) -> str:
    if bound.measure == MISSING:
        return f"{value:.0f} queries are missing. Run the audit again to score them, or accept them with --allow-missing"
    return f"{bound} fails with {value:.4f}"


def _junit(rows: list[Row]) -> bytes:
    suite = ElementTree.Element(
        "testsuite", name="steadyscore gate", tests=str(len(rows)), failures=str(sum(not ok for *_, ok in rows))
    )
    for name, bound, value, ok in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=str(bound))
        if not ok:
            ElementTree.SubElement(case, "failure", message=_reason(bound, value))
    return ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
