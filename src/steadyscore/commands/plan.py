"""`steadyscore plan`: what a margin costs, from a pilot run."""

from __future__ import annotations

import argparse

import numpy as np

from ..audits.load import load_run
from ..errors import InputError
from ..machine.places import parse_place
from ..measures.measurement import pair_values
from ..measures.planning import decide, pilot, required_queries
from ..runs.find import find_run
from . import add_json, add_threshold, examples, print_json, print_table, threshold_of
from .flags import above_zero, finite

PAIRED = ("tau_psi", "overlap", "pair_flip", "selection_flip")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", type=parse_place, metavar="RUN", help="a pilot run with at least 4 permutations")
    parser.add_argument(
        "--measure", choices=[*PAIRED, "ndcg@10", "ndcg@1"], default="overlap", help="what to plan for (default overlap)"
    )
    parser.add_argument("--margin", type=above_zero, default=0.02, help="wanted half-width of the 95 %% interval (default 0.02)")
    parser.add_argument(
        "--is-below", type=finite, metavar="X", help="also ask whether the measure is below X, looking query by query"
    )
    add_threshold(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore plan runs/planted/responses/synthetic-slot --measure pair_flip --margin 0.05",
        "steadyscore plan runs/planted/responses/synthetic-slot --measure pair_flip --is-below 0.9",
    )


def run(args: argparse.Namespace) -> int:
    audit = load_run(find_run(args.run_folder), threshold_of(args))
    measured = audit.measured
    if args.measure not in measured.values:
        raise InputError(f"{args.run_folder} has no {args.measure}; it has {', '.join(measured.values)}.")
    tested, most = ~np.isnan(measured.values[args.measure]), measured.coverage.permutations[-1]
    counted = [(place, query) for place, query in enumerate(audit.queries) if tested[place]]
    whole = [query.query_id for _, query in counted if query.has_every_order and len(query.permuted) < most]
    pairs = [pair_values(q, args.measure, measured.cutoff.of(place)) for place, q in counted if q.query_id not in whole]
    components = pilot(pairs)
    rows = required_queries(components, args.margin)
    is_quality = args.measure.startswith("ndcg")  # planned over permutations, as every other measure; reported in one order
    values = np.array([matrix.diagonal().mean() for matrix in pairs]) if is_quality else measured.values[args.measure]
    answer = decide(values, args.is_below) if args.is_below is not None else None
    if args.json:
        print_json(
            {
                "measure": args.measure,
                "pilot": components._asdict(),
                "margin": args.margin,
                "required": [row._asdict() for row in rows],
                "is_below": None if answer is None else {"bound": args.is_below, **answer._asdict()},
            }
        )
        return 0
    small = f"; {len(whole)} pools of which every order was shown left out" if whole else ""
    size = f"{components.queries} queries, {components.permutations} permutations{small}"
    which = ", mean over the permutations," if is_quality else ""
    print(f"{args.measure}{which} is {components.value:.3f} in the pilot ({size}).")
    print(f"For a half-width of {args.margin:g} it needs one of:\n")
    print_table(["permutations", "queries", "half-width", "scorings"], [list(row) for row in rows])
    if answer is not None:
        words = {"below": "yes", "at_least": "no", "undecided": "not decided"}[answer.answer]
        print(f"\nIs {args.measure} below {args.is_below:g}? {words}, after {answer.queries} queries (error rate 5 %).")
    return 0
