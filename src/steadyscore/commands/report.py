"""`steadyscore report`: the page of one or several runs, drawn from their folders."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from ..audits.decision_run import find_decision_folders
from ..audits.decisions import load_decisions
from ..audits.load import load_runs, reading_from
from ..audits.result import Audits
from ..machine.extras import PAGE, check_installed
from ..machine.mirrors import name_of, parse_place
from ..machine.working_copies import open_folder
from ..report.decisions import write_decisions_report
from ..runs.folder import find_runs
from . import add_budget, add_reading, add_threshold, examples, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--out", type=parse_place, metavar="DIR", help="where the page goes (default: report/ beside the runs)")
    add_threshold(parser)
    add_reading(parser)
    add_budget(parser)
    examples(parser, "steadyscore report runs/first", "steadyscore report runs/planted --cutoff 0.5 --out pages/planted")


def run(args: argparse.Namespace) -> int:
    check_installed("The report page", *PAGE)
    if folders := find_decision_folders(args.runs):
        with open_folder(args.out or _shared_folder(folders) / "report") as page:
            print(name_of(write_decisions_report([load_decisions(folder) for folder in folders], page)))
        return 0
    runs = find_runs(args.runs)
    audits = Audits(load_runs(runs, threshold_of(args), args.serving_permutations, reading_from(args.readout, args.ties)))
    print(name_of(audits.report(args.out or _shared_folder([run.folder for run in runs]) / "report")))
    return 0


def _shared_folder(folders: Sequence[Path]) -> Path:
    """The folder that all of them are in."""
    return Path(os.path.commonpath([folder.resolve() for folder in folders]))
