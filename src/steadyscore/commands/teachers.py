"""`steadyscore teachers`: whether steadier labels made better students."""

from __future__ import annotations

import argparse

from ..collection import name_columns
from ..training.teachers import study_teachers
from . import add_json, examples, print_json
from .flags import add_columns


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        required=True,
        metavar=("LABELS", "RUN"),
        help="a label folder, and the run of the student that was trained on it; once for every teacher",
    )
    parser.add_argument("--data", metavar="NAME|FILE|FOLDER", help="the training collection, for the labels' own quality")
    add_columns(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore teachers --pair labels/first runs/first --pair labels/judged runs/first",
        "steadyscore teachers --pair labels/first runs/first --pair labels/judged runs/first --data passages --json",
    )


def run(args: argparse.Namespace) -> int:
    study = study_teachers([(labels, student) for labels, student in args.pair], name_columns(args.data, args.columns))
    if args.json:
        print_json(study.to_json())
    else:
        print(study)
    return 0
