"""`steadyscore compare`: runs against a baseline, paired by collection and query; or what serves a target most cheaply."""

from __future__ import annotations

import argparse
from typing import get_args

from ..audits.audits import is_measure, unknown_measure
from ..audits.compare import Bootstrap, compare
from ..audits.recommend import recommend
from ..machine.extras import PAGE, check_installed
from ..machine.places import parse_place
from ..measures.intervals import Scheme
from .flags import add_field, mode_mistakes
from .shared import (
    THRESHOLD_FLAGS,
    add_format,
    add_measuring,
    examples,
    form_of,
    measuring_of,
    note_gate,
    print_result,
    refuse,
    threshold_of,
)


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
    parser.add_argument(
        "--target",
        metavar="MEASURE=VALUE",
        help="instead name the cheapest way of serving that reaches it, such as overlap=0.8 or tau_psi=0.1: the first run's "
        "permutations are averaged at every budget K, the others are taken as they are",
    )
    add_measuring(parser)
    add_format(parser)
    examples(
        parser,
        "steadyscore compare runs/planted",
        "steadyscore compare runs/planted --baseline synthetic:slot:0.2 --measures tau_psi overlap --json",
        "steadyscore compare runs/planted --format latex",
        "steadyscore compare runs/planted --bootstrap queries --discordance tau_psi overlap --per-query",
        "steadyscore compare runs/planted/responses/synthetic-slot runs/planted/responses/synthetic-none --target overlap=0.8",
    )


READ_WITH_TARGET = ("runs", "target", "json", "format", *THRESHOLD_FLAGS)
"""The flags that say something about a target."""


def run(args: argparse.Namespace) -> int:
    if args.target:
        refuse(*mode_mistakes("--target asks what reaches a bound", arguments, args, READ_WITH_TARGET))
        recommendation = recommend(*args.runs, target=args.target, threshold=threshold_of(args))
        print_result(args, recommendation)
        return 0
    named = [*(args.measures or ()), *(name for pair in args.discordance or () for name in pair)]
    if unknown := [name for name in named if not is_measure(name)]:
        refuse(*map(unknown_measure, unknown))
    if args.report:
        check_installed("--report", *PAGE)
    comparison = compare(
        *args.runs,
        baseline=args.baseline,
        measures=args.measures,
        bootstrap=args.bootstrap and args.bootstrap.replace("-", "_"),
        draws=args.draws,
        discordance=args.discordance and [(first, second) for first, second in args.discordance],
        per_query=args.per_query,
        **measuring_of(args),
    )
    page = comparison.report(args.report) if args.report else None
    print_result(args, comparison)
    if page and form_of(args) == "table":
        print(f"report: {page!s}")
    if comparison.audits:
        note_gate(args, comparison.audits, *args.runs)
    return 0
