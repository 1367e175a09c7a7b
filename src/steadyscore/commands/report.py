"""`steadyscore report`: the page of one or several runs, drawn from their folders; or their tables, printed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..audits.audits import Audits
from ..decision_models.result import load_decisions, write_decisions_report
from ..integrations.ir_metadata import IR_METADATA, ir_metadata
from ..machine.extras import PAGE, check_installed
from ..machine.places import is_address, parse_place
from ..results.load import load_runs
from ..runs.folder import find_decision_folders, find_runs
from .shared import (
    FORMATS,
    add_all,
    add_measuring,
    examples,
    measuring_of,
    print_audits,
    print_result,
    refuse,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "--out",
        type=parse_place,
        metavar="DIR",
        help="where the page goes (default: report/ in RUN, of several in what they are in)",
    )
    forms = "print the tables in this form instead of drawing the page; ir_metadata: how one run was made, as campaigns ask"
    parser.add_argument("--format", choices=(*FORMATS, IR_METADATA), help=forms)
    add_all(parser)
    add_measuring(parser)
    examples(
        parser,
        "steadyscore report runs/first",
        "steadyscore report runs/planted --cutoff 0.5 --out pages/planted",
        "steadyscore report runs/first --format markdown",
    )


def run(args: argparse.Namespace) -> int:
    if args.format:
        return _print(args)
    if args.all:
        refuse("--all is for what --format prints; the page has every measure.")
    check_installed("The report page", *PAGE)
    if args.out is None and len(args.runs) > 1 and any(map(is_address, args.runs)):
        refuse("--out is missing: several runs of which some are in a store have no folder in common.")
    runs = args.runs
    page = args.out or (runs[0] if len(runs) == 1 else Path(os.path.commonpath([run.resolve() for run in runs]))) / "report"
    if folders := find_decision_folders(runs):
        print(write_decisions_report([load_decisions(folder) for folder in folders], page))
    else:
        print(str(_load(args).report(page)))
    return 0


def _load(args: argparse.Namespace) -> Audits:
    return Audits(load_runs(find_runs(args.runs), **measuring_of(args)))


def _print(args: argparse.Namespace) -> int:
    if args.out is not None:
        refuse("--out is where the page goes; --format prints tables and draws none.")
    if args.format == IR_METADATA:
        print(ir_metadata(_load(args)), end="")
    elif folders := find_decision_folders(args.runs):
        for folder in folders:
            print_result(args, load_decisions(folder))
    else:
        print_audits(_load(args), args)
    return 0
