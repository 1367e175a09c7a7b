"""`steadyscore gate`: bounds on a run's figures, for CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.gate import gate, parse_bounds
from ..machine.disk import atomic
from ..machine.extras import PAGE, absent_modules
from ..machine.places import parse_place
from . import (
    add_allow_missing,
    add_budget,
    add_json,
    add_reading,
    add_threshold,
    examples,
    measured_by_flags,
    note_next,
    print_json,
    threshold_of,
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help="the measure must be at least X")
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help="the measure must be at most X")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the result as JUnit XML")
    add_allow_missing(parser)
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore gate runs/first --max tau_psi=0.6",
        "steadyscore gate runs/first --min ndcg@10=0.05 --max pair_flip=1.0 --junit gate.xml",
    )


def run(args: argparse.Namespace) -> int:
    bounds = parse_bounds(args.min, args.max)
    checked = gate(
        *args.runs, min={bound.measure: bound.number for bound in bounds if bound.least is not None},
        max={bound.measure: bound.number for bound in bounds if bound.least is None}, allow_missing=args.allow_missing,
        threshold=threshold_of(args), serving_permutations=args.serving_permutations, readout=args.readout, ties=args.ties,
    )  # fmt: skip
    if args.junit:
        with atomic(args.junit) as stream:
            stream.write(checked.to_junit())
    if args.json:
        print_json(checked.to_json())
    else:
        print(checked)
    checked.raise_if_failed()
    if len(args.runs) == 1 and not absent_modules(PAGE):
        note_next(args, "report", args.runs[0], *measured_by_flags(args))
    return 0
