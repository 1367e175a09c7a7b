"""`steadyscore width`: what serving candidates in company changes against serving them alone, and why."""

from __future__ import annotations

import argparse

from ..audits.width_study import load_width_study, study_width
from ..collection import name_columns
from ..machine.places import parse_place
from ..scoring.score import AuditConfig, Cut
from . import add_engine, add_json, add_presentation, engine_options, examples, note_failed, print_json, refuse, settings_of
from .flags import add_columns, add_field, add_fields, mode_mistakes, scorers_by_name


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", metavar="[NAME=]ADDRESS", help="what to study")
    parser.add_argument("--data", metavar="NAME|FILE|FOLDER", help="the collection to score")
    add_columns(parser)
    parser.add_argument("--out", type=parse_place, metavar="DIR", help="where the four runs go; the same command resumes them")
    parser.add_argument(
        "--runs",
        nargs="+",
        type=parse_place,
        metavar="RUN",
        help="instead of scoring: finished runs, one at width 1 and one at another width, or the folder of a study",
    )
    add_field(parser, AuditConfig, "permutations", metavar="M")
    add_fields(parser, AuditConfig, "seed scheme")
    add_json(parser)
    add_presentation(parser)
    add_engine(parser)
    examples(
        parser,
        "steadyscore width --scorer synthetic:slot --data passages --queries 6 --pool 8 --width 4 --permutations 4 --out runs/w",
        "steadyscore width --runs runs/w",
    )


def run(args: argparse.Namespace) -> int:
    needed = ("scorer", "data", "out")
    if args.runs:
        refuse(*mode_mistakes("--runs reads finished runs", arguments, args, ("runs", "json")))
        study = load_width_study(args.runs)
    else:
        refuse(*(f"--{name} is missing; or name finished runs with --runs." for name in needed if not getattr(args, name)))
        config = AuditConfig(
            permutations=args.permutations, seed=args.seed, scheme=args.scheme, settings=settings_of(args), chars=args.chars,
            cut=Cut(args.queries, args.pool),
        )  # fmt: skip
        data = name_columns(args.data, args.columns)
        study = study_width(
            scorers_by_name([args.scorer]), data, out=args.out, config=config, options=engine_options(args),
            quiet=args.quiet, command=args.command,
        )  # fmt: skip
    if args.json:
        print_json(study.to_json())
    else:
        print(study)
    return note_failed(study.failed, f"the queries of {study.scorer}")
