"""`steadyscore scorers`: what can be audited, and what to install for the rest."""

from __future__ import annotations

import argparse
import importlib.util

from . import add_json, examples, print_json, print_table

LOCAL = ("torch", "transformers", "peft")
ADDRESSES = (
    ("smollm2-135m", None, "distribution", LOCAL, "local"),
    ("hf:<id|folder|file.gguf>[+adapter]", "off the shelf and every trained variant", "distribution", LOCAL, "local"),
    ("python:<module>:<function>", None, "score", (), ""),
    ("synthetic:<none|slot|companion|ties>[:size]", None, "score", (), ""),
)
"""Address, the paper's name where it has one, what it gives, modules it needs, extra that installs them."""


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_json(actions.add_parser("list", help="every kind of address"))
    examples(parser, "steadyscore scorers list", "steadyscore scorers list --json")


def run(args: argparse.Namespace) -> int:
    rows = [
        {
            "address": address,
            "system": system,
            "gives": gives,
            "installed": all(importlib.util.find_spec(module) is not None for module in modules),
            "install": f"pip install 'steadyscore[{extra}]'" if extra else "",
        }
        for address, system, gives, modules, extra in ADDRESSES
    ]
    if args.json:
        print_json(rows)
    else:
        print_table(list(rows[0]), [["yes" if v is True else "no" if v is False else v for v in row.values()] for row in rows])
    return 0
