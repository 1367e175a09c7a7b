"""`steadyscore variance`: where the movement of a score comes from, from stored runs."""

from __future__ import annotations

import argparse
from typing import get_args

from ..audits.variance import study_variance
from ..machine.places import parse_place
from ..measures.places import Estimator
from . import add_json, examples, print_json


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=parse_place, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument(
        "--estimator",
        choices=get_args(Estimator),
        default="unbiased",
        help="unbiased: effects fitted on two halves of the permutations; reference: the paper's one OLS fit (default unbiased)",
    )
    add_json(parser)
    examples(
        parser,
        "steadyscore variance runs/planted/responses/synthetic-slot",
        "steadyscore variance runs/planted --estimator reference --json",
    )


def run(args: argparse.Namespace) -> int:
    study = study_variance(*args.runs, estimator=args.estimator)
    if args.json:
        print_json(study.to_json())
    else:
        print(study)
    return 0
