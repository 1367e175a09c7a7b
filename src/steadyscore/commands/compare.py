"""`steadyscore compare`: runs against a baseline, paired by collection and query."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.compare import compare
from ..audits.decisions import is_measure
from ..machine.extras import PAGE, check_installed
from . import add_budget, add_json, add_threshold, examples, print_json, refuse, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--baseline", metavar="SCORER", help="what the others are compared with (default: the first)")
    parser.add_argument("--measures", nargs="+", metavar="NAME", help="measures to compare")
    parser.add_argument("--report", type=Path, metavar="DIR", help="also write a page with the quality-against-decision figure")
    add_threshold(parser)
    add_budget(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore compare runs/planted",
        "steadyscore compare runs/planted --baseline synthetic:slot:0.2 --measures tau_psi overlap --json",
    )


def run(args: argparse.Namespace) -> int:
    if unknown := [name for name in args.measures or () if not is_measure(name)]:
        refuse(f"unknown measure {', '.join(unknown)}; `steadyscore measures list` prints them.")
    if args.report:
        check_installed("--report", *PAGE)
    comparison = compare(
        *args.runs,
        baseline=args.baseline,
        measures=args.measures,
        threshold=threshold_of(args),
        serving_permutations=args.serving_permutations,
    )
    page = comparison.report(args.report) if args.report else None
    if args.json:
        print_json(comparison.to_json())
        return 0
    print(comparison)
    if page:
        print(f"report: {page}")
    return 0
