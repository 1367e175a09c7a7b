"""`steadyscore compare`: runs against a baseline, paired by collection and query."""

from __future__ import annotations

import argparse
from typing import get_args

from ..audits.compare import Bootstrap, compare
from ..audits.decisions import is_measure
from ..machine.extras import PAGE, check_installed
from ..machine.places import parse_place
from ..measures.intervals import Scheme
from . import add_budget, add_json, add_reading, add_threshold, examples, note_gate, print_json, refuse, threshold_of
from .flags import add_field


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--baseline", metavar="SCORER", help="what the others are compared with (default: the first run named)")
    parser.add_argument("--measures", nargs="+", metavar="NAME", help="measures to compare")
    add_field(parser, Bootstrap, "scheme", flag="--bootstrap", choices=[word.replace("_", "-") for word in get_args(Scheme)])
    add_field(parser, Bootstrap, "draws")
    parser.add_argument(
        "--discordance",
        nargs=2,
        action="append",
        metavar=("FIRST", "SECOND"),
        help="say where these two measures have different winners (default: quality and the task's decision); repeat it",
    )
    parser.add_argument(
        "--per-query",
        action="store_true",
        help="also say how quality moves query by query, and how many permutations would reverse the lead",
    )
    parser.add_argument(
        "--report", type=parse_place, metavar="DIR", help="also write a page with the quality-against-decision figure"
    )
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore compare runs/planted",
        "steadyscore compare runs/planted --baseline synthetic:slot:0.2 --measures tau_psi overlap --json",
        "steadyscore compare runs/planted --bootstrap queries --discordance tau_psi overlap --per-query",
    )


def run(args: argparse.Namespace) -> int:
    named = [*(args.measures or ()), *(name for pair in args.discordance or () for name in pair)]
    if unknown := [name for name in named if not is_measure(name)]:
        refuse(f"unknown measure {', '.join(unknown)}; `steadyscore measures list` prints them.")
    if args.report:
        check_installed("--report", *PAGE)
    comparison = compare(
        *args.runs,
        baseline=args.baseline,
        measures=args.measures,
        threshold=threshold_of(args),
        serving_permutations=args.serving_permutations,
        readout=args.readout,
        ties=args.ties,
        bootstrap=args.bootstrap and args.bootstrap.replace("-", "_"),
        draws=args.draws,
        discordance=args.discordance and [(first, second) for first, second in args.discordance],
        per_query=args.per_query,
    )
    page = comparison.report(args.report) if args.report else None
    if args.json:
        print_json(comparison.to_json())
        return 0
    print(comparison)
    if page:
        print(f"report: {page!s}")
    if comparison.audits:
        note_gate(args, comparison.audits, *args.runs)
    return 0
