"""`steadyscore gate`: bounds on a run's figures, for CI."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.audit import audit
from ..audits.gate import gate, parse_bounds
from ..machine.disk import atomic
from ..machine.extras import PAGE, absent_modules
from ..machine.places import parse_place
from .shared import (
    add_allow_missing,
    add_format,
    add_measuring,
    config_of,
    examples,
    measured_by_flags,
    measuring_of,
    note,
    note_next,
    print_result,
    refuse,
)  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, folders that hold some, or score files"
    )
    parser.add_argument("--min", action="append", default=[], metavar="NAME=X", help="the measure must be at least X")
    parser.add_argument("--max", action="append", default=[], metavar="NAME=X", help="the measure must be at most X")
    parser.add_argument(
        "--max-drop",
        action="append",
        default=[],
        metavar="NAME=X",
        help="fail where the measure is worse than the baseline's by more than X, by the interval of the paired difference",
    )
    parser.add_argument("--baseline", type=parse_place, metavar="RUN", help="what --max-drop is measured from: the runs of main")
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write the result as JUnit XML")
    add_allow_missing(parser)
    add_measuring(parser)
    add_format(parser)
    examples(
        parser,
        "steadyscore gate runs/first --max tau_psi=0.6",
        "steadyscore gate runs/first --min ndcg@10=0.05 --max pair_flip=1.0 --junit gate.xml",
        "steadyscore gate runs/planted/responses/synthetic-none --baseline runs/planted/responses/synthetic-slot "
        "--max-drop overlap=0.05 --format markdown",
    )


def run(args: argparse.Namespace) -> int:
    bounds = parse_bounds(args.min, args.max, drops=args.max_drop)
    if bool(args.max_drop) != bool(args.baseline):
        refuse("--max-drop NAME=X and --baseline RUN go together: what may be lost, and against which run.")
    files = [place for place in args.runs if isinstance(place, Path) and place.is_file()]
    if files and len(files) < len(args.runs):
        refuse(f"{files[0]} is a file of scores, and others are runs. Give runs, or score files.")
    checked = gate(
        *([audit(scores=file, config=config_of(args)) for file in files] or args.runs),
        min={bound.measure: bound.number for bound in bounds if bound.least is not None},
        max={bound.measure: bound.number for bound in bounds if bound.least is None and not bound.is_drop},
        max_drop={bound.measure: bound.number for bound in bounds if bound.is_drop},
        baseline=args.baseline, allow_missing=args.allow_missing, **({} if files else measuring_of(args)),
    )  # fmt: skip
    if args.junit:
        with atomic(args.junit) as stream:
            stream.write(checked.to_junit())
    print_result(args, checked)
    for line in checked.examples:
        note(line)
    if len(args.runs) == 1 and not files and not absent_modules(PAGE):
        note_next(args, "report", args.runs[0], *measured_by_flags(args))
    checked.raise_if_failed()
    return 0
