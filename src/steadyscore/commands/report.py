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
from ..report.decisions import write_decisions_report
from ..runs.folder import find_runs
from . import add_budget, add_reading, add_threshold, examples, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where the page goes (default: report/ in RUN, of several in what they are in)"
    )
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    examples(parser, "steadyscore report runs/first", "steadyscore report runs/planted --cutoff 0.5 --out pages/planted")


def run(args: argparse.Namespace) -> int:
    check_installed("The report page", *PAGE)
    page = Path(os.path.commonpath([folder.resolve() for folder in args.runs])) / "report"
    if folders := find_decision_folders(args.runs):
        print(write_decisions_report([load_decisions(folder) for folder in folders], args.out or page))
        return 0
    runs = find_runs(args.runs)
    audits = Audits(load_runs(runs, threshold_of(args), args.serving_permutations, reading_from(args.readout, args.ties)))
    print(audits.report(args.out or page))
    return 0
