"""`steadyscore measures`: every measure, with one line each."""

from __future__ import annotations

import argparse

from ..measures.registry import MEASURES
from . import add_json, examples, print_json, print_table


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_json(actions.add_parser("list", help="name, direction, what it needs and what it says"))
    examples(parser, "steadyscore measures list", "steadyscore measures list --json")


def run(args: argparse.Namespace) -> int:
    rows = [{"name": m.name, "better": m.better, "needs": list(m.needs), "summary": m.summary} for m in MEASURES.values()]
    if args.json:
        print_json(rows)
    else:
        print_table(
            ["name", "better", "needs", "summary"], [[r["name"], r["better"], ", ".join(r["needs"]), r["summary"]] for r in rows]
        )
    return 0
