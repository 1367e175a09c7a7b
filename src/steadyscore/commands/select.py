"""`steadyscore select`: the weight and checkpoint that four rules would choose."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import get_args

from ..training.select import DECISION_MEASURES, Rule, copy_selected, evaluated_on, read_points, select
from . import add_json, examples, note, note_next, print_json, print_table
from .flags import local_path


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=local_path, metavar="DIR", help="training folders of one grid")
    parser.add_argument(
        "--decision",
        choices=DECISION_MEASURES,
        default="tau_psi",
        help="measure of the rule `decision` (default tau_psi)",
    )
    parser.add_argument("--rule", choices=get_args(Rule), default="quality", help="whose choice --out takes (default quality)")
    parser.add_argument("--out", type=local_path, metavar="DIR", help="copy the chosen adapter here")
    add_json(parser)
    examples(
        parser,
        "steadyscore select adapters/first adapters/single",
        "steadyscore select adapters/first adapters/single --decision overlap --json",
        "steadyscore select adapters/first adapters/single --rule highest_quality --out adapters/chosen",
    )


def run(args: argparse.Namespace) -> int:
    choices = select(read_points(args.folders), args.decision)
    if args.json:
        print_json([asdict(choice) for choice in choices])
    else:
        rows = [
            [
                c.rule,
                *(
                    (p.folder, p.weight, p.step, p.quality, p.measures["tau_psi"], p.measures.get("overlap"))
                    if (p := c.point)
                    else [None] * 6
                ),
                c.reason,
            ]
            for c in choices
        ]
        print_table(["rule", "run", "weight", "step", "quality", "tau_psi", "overlap", "reason"], rows)
    if args.out:
        chosen = next(choice for choice in choices if choice.rule == args.rule)
        if chosen.point is None:
            advice = " --rule highest_quality takes the best point all the same." if args.rule == "quality" else ""
            note(f"{args.rule} {chosen.reason}; nothing was copied.{advice}")
            return 1
        copy_selected(chosen.point, args.out)
        note_next(args, "adapter", "cutoff", args.out, "--data", evaluated_on(chosen.point))
    elif given := [choice.rule for choice in choices if choice.point and choice.rule in (args.rule, "highest_quality")]:
        rule = args.rule if args.rule in given else given[0]
        other = [] if args.decision == "tau_psi" else ["--decision", args.decision]
        note_next(args, "select", *args.folders, *other, "--rule", rule, "--out", "adapters/selected")
    return 0
