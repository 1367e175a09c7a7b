"""`steadyscore recommend`: the cheapest measured way of serving that reaches a target."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.missing import missing_queries, missing_remark
from ..audits.recommend import cheapest, options, parse_target
from ..runs.folder import Run
from ..tasks import TASKS
from . import add_json, add_threshold, examples, print_json, print_table, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pilot", type=Path, metavar="RUN", help="a pilot run: its permutations are averaged at every budget K")
    parser.add_argument("others", type=Path, nargs="*", metavar="OTHER", help="runs of other scorers or mitigations, as they are")
    parser.add_argument(
        "--target", required=True, metavar="MEASURE=VALUE", help="what must be reached, for example overlap=0.8 or tau_psi=0.1"
    )
    add_threshold(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore recommend runs/planted/responses/synthetic-slot --target tau_psi=0.2",
        "steadyscore recommend runs/planted/responses/synthetic-slot runs/planted/responses/synthetic-none --target overlap=0.8",
    )


def run(args: argparse.Namespace) -> int:
    target = parse_target(args.target)
    pilot, *others = runs = [Run.open(folder) for folder in (args.pilot, *args.others)]
    found = options(pilot, others, target, threshold_of(args))
    told = [missing_remark(r, absent) for r in runs if (absent := missing_queries(r, ()))]
    best = cheapest(found)
    if args.json:
        print_json(
            {
                "target": {"measure": target.measure, "value": target.bound},
                "recommended": None if best is None else best.to_json(),
                "options": [option.to_json() for option in found],
                "missing": told,
            }
        )
        return 0
    reached = {None: "not measured", False: "no", True: "yes"}
    rows = [
        [
            option.scorer,
            option.serving_permutations,
            f"{option.windows:.1f}",
            option.value,
            "-" if option.low is None else f"[{option.low:.3f}, {option.high:.3f}]",
            option.quality,
            "yes, whole interval" if option.is_certain and option.is_reached else reached[option.is_reached],
        ]
        for option in found
    ]
    quality = TASKS[pilot.record["task"]].quality
    print_table(["scorer", "K", "windows/query", target.measure, "95 % interval", quality, "reached"], rows)
    print("", *told, sep="\n")
    if best is None:
        most = max(option.serving_permutations for option in found)
        print(f"{target}: not reached by any run, nor by averaging up to K = {most} permutations of the pilot.")
    else:
        way = f"averaging K = {best.serving_permutations} permutations" if best.serving_permutations > 1 else "one permutation"
        print(f"{target}: {best.scorer}, {way}, {best.windows:.1f} windows a query.")
    return 0
