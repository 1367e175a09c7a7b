"""`steadyscore label`: teacher labels from a scorer, from judgements, or from other labels."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..collection import name_columns
from ..machine.names import slug
from ..machine.places import parse_place
from ..models.embedded import base_address_mistake
from ..scoring.config import AuditSettings
from ..training.labelling import LabelConfig, LabelWork, label, orders_of
from .flags import add_columns, add_field, add_fields, from_flags, scorers_by_name
from .shared import (
    add_dry_run,
    add_engine,
    add_json,
    add_presentation,
    add_scorer_change,
    add_workers,
    config_of,
    engine_options,
    examples,
    note_failed,
    note_next,
    print_estimate,
    print_rows,
    refuse,
    run_share,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scorer", metavar="[NAME=]ADDRESS", help="the teacher: a scorer address, or `judgements`")
    source.add_argument("--from", dest="start", metavar="DIR", help="derive from these labels instead of scoring")
    parser.add_argument("--data", required=True, metavar="NAME|FILE|FOLDER", help="the training collection")
    add_columns(parser)
    add_field(parser, LabelConfig, "teacher_orders", metavar="T")
    add_fields(parser, LabelConfig, "scale judged_top")
    add_field(parser, LabelConfig, "recalibrate_to", metavar="DIR")
    add_fields(parser, LabelConfig, "control rank_first_stage subset seed")
    parser.add_argument("--out", required=True, metavar="DIR", help="label folder; the same command resumes what was stopped")
    add_dry_run(parser)
    add_scorer_change(parser)
    add_workers(parser)
    add_presentation(parser, shuffles_markers=False)
    add_engine(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore label --scorer smollm2-135m --data passages --queries 2 --pool 4 --width 4 --teacher-orders 2 "
        "--out labels/first",
        "steadyscore label --scorer judgements --data passages --out labels/judged",
    )


DERIVED = "--shard, --on and --dry-run are for a teacher's scoring; labels that are derived need none: leave them out."


def run(args: argparse.Namespace) -> int:
    name, args.scorer = next(iter(scorers_by_name([args.scorer] if args.scorer else []).items()), (args.start, None))
    config, options = from_flags(LabelConfig, args), engine_options(args)
    shown = config_of(args, AuditSettings.__annotations__.keys() - LabelConfig.__dataclass_fields__.keys())
    if (args.start or args.scorer == "judgements") and (args.shard or args.on or args.dry_run):
        refuse(DERIVED)
    data = name_columns(args.data, args.columns)
    if args.dry_run:
        return print_estimate(args, data, orders_of(config, shown), options)
    if args.shard:
        place, allowed = parse_place(args.out), args.allow_scorer_change
        return run_share(args, LabelWork(args.scorer, data, place, config, shown, options, args.quiet, args.command, allowed))
    labelled = label(
        args.scorer,
        data,
        args.out,
        start=args.start,
        config=config,
        shown=shown,
        options=options,
        quiet=args.quiet,
        command=args.command,
        allow_scorer_change=args.allow_scorer_change,
        on=args.on,
    )
    made = labelled.to_json()
    print_rows(args, made, ["label set", "value"], (made | {"failed": len(labelled.failed)}).items())
    if code := note_failed(labelled.failed, f"{labelled.queries} queries of {name}", "labelled"):
        return code
    columns = ",".join(f"{role}={column}" for role, column in args.columns.items()) if args.columns else None
    cut = {"--columns": columns, "--queries": args.queries, "--pool": args.pool}
    same = [str(word) for flag, value in cut.items() if value is not None for word in (flag, value)]
    adapter = f"adapters/{slug(Path(args.out).name)}"
    base = args.scorer if args.scorer and not base_address_mistake(args.scorer) else "smollm2-135m"
    note_next(args, "train", "--base", base, "--data", args.data, *same, "--labels", args.out, "--out", adapter)
    return 0
