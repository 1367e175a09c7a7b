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
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the page goes (default: report/ beside the runs)")
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    examples(parser, "steadyscore report runs/first", "steadyscore report runs/planted --cutoff 0.5 --out pages/planted")


def run(args: argparse.Namespace) -> int:
    check_installed("The report page", *PAGE)
    if folders := find_decision_folders(args.runs):
        page = args.out or Path(os.path.commonpath([folder.resolve() for folder in folders])) / "report"
        print(write_decisions_report([load_decisions(folder) for folder in folders], page))
        return 0
    runs = find_runs(args.runs)
    audits = Audits(load_runs(runs, threshold_of(args), args.serving_permutations, reading_from(args.readout, args.ties)))
    shared = Path(os.path.commonpath([r.folder.resolve() for r in runs]))
    print(audits.report(args.out or shared / "report"))
    return 0
