"""`steadyscore validate`: the instrument on planted order effects."""

from __future__ import annotations

import argparse

from ..measures.validation import validate
from . import add_json, examples, print_json, print_table


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulation (default 0)")
    add_json(parser)
    examples(parser, "steadyscore validate", "steadyscore validate --seed 7 --json")


def run(args: argparse.Namespace) -> int:
    rows = validate(args.seed)
    if args.json:
        print_json([row._asdict() for row in rows])
    else:
        print_table(["check", "planted", "recovered", "tolerance", "ok"], [[*row[:4], "yes" if row.ok else "NO"] for row in rows])
        print(f"\n{sum(row.ok for row in rows)} of {len(rows)} planted quantities recovered.")
    return 0 if all(row.ok for row in rows) else 3
