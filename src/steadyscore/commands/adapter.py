"""`steadyscore adapter`: look at, check, merge, shrink and share adapters."""

from __future__ import annotations

import argparse
from pathlib import Path

from .. import adapter, merge
from . import add_json, examples, print_json, print_table


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in (
        ("show", "print the card"),
        ("verify", "open the adapter on its base and check base, prompt, grade tokens and weights"),
        ("merge", "write base and adapter as one model, if their scores agree"),
        ("halve", "write a copy in half precision"),
        ("push", "upload the adapter to the hub"),
    ):
        sub = actions.add_parser(action, help=summary)
        sub.add_argument("folder", type=Path, metavar="DIR", help="adapter folder")
        if action in ("verify", "merge"):
            sub.add_argument("--base", metavar="ADDRESS", help="the base, where the card's is elsewhere")
            sub.add_argument("--allow-base-mismatch", action="store_true", help="go on although base or prompt differ")
        if action in ("merge", "halve"):
            sub.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write")
        if action == "push":
            sub.add_argument("repository", metavar="OWNER/NAME", help="repository on the hub")
        add_json(sub)
    examples(parser, "steadyscore adapter show adapters/first", "steadyscore adapter verify adapters/first")


def run(args: argparse.Namespace) -> int:
    if args.action == "show":
        found = adapter.read_card(args.folder)
    elif args.action == "verify":
        found = merge.verify(args.folder, args.base, args.allow_base_mismatch)
    elif args.action == "merge":
        found = {
            "out": str(args.out),
            "largest difference of a probe score": merge.merge(args.folder, args.out, args.base, args.allow_base_mismatch),
        }
    elif args.action == "halve":
        adapter.halve(args.folder, args.out)
        found = {"out": str(args.out)}
    else:
        found = {"pushed to": adapter.push(args.folder, args.repository)}
    if args.json:
        print_json(found)
    else:
        print_table(["adapter", "value"], [[name, _short(value)] for name, value in found.items()])
    return 0


def _short(value: object) -> object:
    text = str(value)
    return value if isinstance(value, float | int) else text if len(text) <= 100 else text[:97] + "..."
