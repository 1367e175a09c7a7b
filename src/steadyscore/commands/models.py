"""`steadyscore models`: the embedded language models."""

from __future__ import annotations

import argparse

from ..machine.extras import check_installed
from ..models.embedded import CONVERSION, EMBEDDED, is_present, model_path
from . import add_json, examples, note, print_json, print_table


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add_json(actions.add_parser("list", help="every embedded model and whether it is in the cache"))
    for action, summary in (
        ("get", "fetch, check and convert a model"),
        ("path", "print the folder of a model, fetching it if needed"),
    ):
        actions.add_parser(action, help=summary).add_argument("name", metavar="NAME", help="a name that `models list` prints")
    examples(parser, "steadyscore models list", "steadyscore models path smollm2-135m")


def run(args: argparse.Namespace) -> int:
    if args.action == "list":
        rows = [
            {
                "name": m.name,
                "present": is_present(m),
                "licence": m.licence,
                "source": f"{m.distribution} {m.version}",
                "summary": m.summary,
            }
            for m in EMBEDDED.values()
        ]
        if args.json:
            print_json(rows)
        else:
            print_table(list(rows[0]), [list(row.values()) for row in rows])
        return 0
    if args.name in EMBEDDED and not is_present(EMBEDDED[args.name]):
        check_installed(f"Fetching {args.name}", *CONVERSION)
        note(f"Fetching {args.name} and keeping it as safetensors; later loads take seconds.")
    folder = model_path(args.name)
    print(folder if args.action == "path" else f"{args.name} is in {folder}")
    return 0
