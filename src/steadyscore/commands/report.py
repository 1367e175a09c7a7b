"""`steadyscore report`: the page of one or several runs, drawn from their folders."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..audits.decision_run import find_decision_folders
from ..audits.decisions import load_decisions
from ..audits.load import load_runs, reading_from
from ..audits.result import Audits
from ..machine.extras import PAGE, check_installed
from ..machine.places import is_address, parse_place
from ..report.decisions import write_decisions_report
from ..runs.find import find_runs
from . import add_budget, add_reading, add_threshold, examples, refuse, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "--out",
        type=parse_place,
        metavar="DIR",
        help="where the page goes (default: report/ in RUN, of several in what they are in)",
    )
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    examples(parser, "steadyscore report runs/first", "steadyscore report runs/planted --cutoff 0.5 --out pages/planted")


def run(args: argparse.Namespace) -> int:
    check_installed("The report page", *PAGE)
    if args.out is None and len(args.runs) > 1 and any(map(is_address, args.runs)):
        refuse("--out is missing: several runs of which some are in a store have no folder in common.")
    places = args.runs
    is_one = len(places) == 1
    page = (places[0] if is_one else Path(os.path.commonpath([folder.resolve() for folder in places]))) / "report"
    if folders := find_decision_folders(places):
        print(write_decisions_report([load_decisions(folder) for folder in folders], args.out or page))
        return 0
    runs = find_runs(places)
    audits = Audits(load_runs(runs, threshold_of(args), args.serving_permutations, reading_from(args.readout, args.ties)))
    print(str(audits.report(args.out or page)))
    return 0
