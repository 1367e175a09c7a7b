"""`steadyscore attack`: how far hostile candidate text moves grades and decisions; an audit of injection, with a gate."""

from __future__ import annotations

import argparse

from ..audits.attack import attack, estimate_attack
from ..audits.attack_result import LISTED, is_attack_measure, load_attack
from ..audits.gate import parse_bounds
from ..collection import name_columns
from ..machine.places import parse_place
from ..measures.threshold import Threshold
from ..scoring.attacks import ATTACKS
from ..scoring.score import AuditConfig, Cut
from . import (
    THRESHOLD_FLAGS,
    add_allow_missing,
    add_engine,
    add_json,
    add_presentation,
    add_threshold,
    can_draw_page,
    engine_options,
    examples,
    note_failed,
    print_json,
    refuse,
    settings_of,
    threshold_of,
)
from .flags import add_columns, add_field, mode_mistakes, scorers_by_name

READ_WITH_RUNS = ("runs", "attacks", "min", "max", "allow_missing", "no_report", "json", *THRESHOLD_FLAGS)
"""The flags that say something about a finished attack."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", metavar="[NAME=]ADDRESS", help="what to attack")
    parser.add_argument("--data", metavar="NAME|FILE|FOLDER", help="the collection to score")
    add_columns(parser)
    parser.add_argument(
        "--out", type=parse_place, metavar="DIR", help="where the runs and the page go; the same command resumes them"
    )
    parser.add_argument(
        "--runs", type=parse_place, metavar="DIR", help="instead of scoring: the folder of a finished attack, measured again"
    )
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), metavar="NAME", help=f"only some of {', '.join(ATTACKS)}")
    bound = "the measure must be at {} X under every attack; NAME.ATTACK for one of them"
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help=bound.format("least"))
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help=bound.format("most"))
    add_allow_missing(parser)
    add_field(parser, AuditConfig, "seed", help="seed of who attacks in each query (default: 0)")
    parser.add_argument("--dry-run", action="store_true", help="print windows, tokens, time and cost (a few windows are timed)")
    parser.add_argument("--no-report", action="store_true", help="leave out the HTML page")
    add_json(parser)
    add_presentation(parser)
    add_threshold(parser)
    add_engine(parser)
    examples(
        parser,
        "steadyscore attack --scorer synthetic:companion --data passages --queries 6 --pool 8 --width 4 --match-retention 0.3 "
        "--out runs/attack",
        "steadyscore attack --runs runs/attack --attacks instruction skeleton --max own_gain=0.9 --min companion_overlap=0.1",
    )


def run(args: argparse.Namespace) -> int:
    bounds = parse_bounds(args.min, args.max, is_attack_measure, LISTED) if args.min or args.max else []
    needed = ("scorer", "data") if args.dry_run else ("scorer", "data", "out")
    if args.runs:
        refuse(*mode_mistakes("--runs reads a finished attack", arguments, args, READ_WITH_RUNS))
        found, out = load_attack(args.runs, attacks=args.attacks, threshold=threshold_of(args)), args.runs
    else:
        refuse(*(f"--{name} is missing; or name a finished attack with --runs." for name in needed if not getattr(args, name)))
        config = AuditConfig(
            seed=args.seed, settings=settings_of(args), chars=args.chars, cut=Cut(args.queries, args.pool),
            threshold=threshold_of(args) or Threshold(),
        )  # fmt: skip
        ((name, address),) = scorers_by_name([args.scorer]).items()
        data = name_columns(args.data, args.columns)
        if args.dry_run:
            estimates = estimate_attack(address, data, args.attacks, config, engine_options(args))
            print_json(estimates.to_json()) if args.json else print(estimates)
            return 0
        out = args.out
        found = attack(
            {name: address}, data, attacks=args.attacks, out=out, config=config, options=engine_options(args),
            quiet=args.quiet, command=args.command,
        )  # fmt: skip
    page = None if args.no_report or not can_draw_page(out) else found.report(out / "report")
    gate = found.check(bounds, args.allow_missing)
    if args.json:
        gated = {"gate": gate.to_json()} if bounds else {}
        print_json(found.to_json() | gated | ({"report": str(page)} if page else {}))
    else:
        print(found)
        if bounds:
            print(f"\n{gate}", end="")
        if page:
            print(f"report: {page!s}")
    code = note_failed(found.failed, f"the queries of {found.name}")
    gate.raise_if_failed()
    return 0 if bounds else code  # a gate that holds has accepted what is missing
