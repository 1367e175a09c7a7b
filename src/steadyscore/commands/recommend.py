"""`steadyscore recommend`: the cheapest measured way of serving that reaches a target."""

from __future__ import annotations

import argparse

from ..audits.recommend import recommend
from ..machine.places import parse_place
from . import add_json, add_threshold, examples, print_json, threshold_of


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pilot", type=parse_place, metavar="RUN", help="a pilot run: its permutations are averaged at every budget K"
    )
    parser.add_argument(
        "others", type=parse_place, nargs="*", metavar="OTHER", help="runs of other scorers or mitigations, as they are"
    )
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
    recommendation = recommend(args.pilot, *args.others, target=args.target, threshold=threshold_of(args))
    if args.json:
        print_json(recommendation.to_json())
    else:
        print(recommendation)
    return 0
