"""`steadyscore adapter`: look at, check, give a cutoff, merge, shrink and share adapters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..machine.extras import check_installed
from ..machine.names import slug
from ..machine.places import parse_place
from ..measures.threshold import KEPT
from ..models import adapter
from ..models.card import adapter_address, read_card
from ..models.embedded import shipped_adapters
from ..training import merge
from ..training.cutoff import store_cutoff
from . import add_json, examples, note_next, print_json, print_table, share
from .flags import add_columns, local_path


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in (
        ("show", "print the card"),
        ("verify", "open the adapter on its base and check base, prompt, grade tokens and weights"),
        ("cutoff", "fit the cutoff that a server decides with, and keep it in the card"),
        ("merge", "write base and adapter as one model, if their scores agree"),
        ("halve", "write a copy in half precision"),
        ("push", "upload the adapter to the hub"),
    ):
        sub = actions.add_parser(action, help=summary)
        sub.add_argument("folder", type=_folder, metavar="NAME|DIR", help="adapter folder, or the name of a shipped adapter")
        if action in ("verify", "merge"):
            sub.add_argument("--base", metavar="ADDRESS", help="the base, where the card's is elsewhere")
            sub.add_argument("--allow-base-mismatch", action="store_true", help="continue although base or prompt differ")
        if action == "cutoff":
            _add_cutoff(sub)
        if action in ("merge", "halve"):
            sub.add_argument("--out", type=local_path, required=True, metavar="DIR", help="folder to write")
        if action == "push":
            sub.add_argument("repository", metavar="OWNER/NAME", help="repository on the hub")
        add_json(sub)
    examples(
        parser,
        "steadyscore adapter show adapters/first",
        "steadyscore adapter verify adapters/first",
        "steadyscore adapter cutoff adapters/first --data passages",
    )


def _add_cutoff(parser: argparse.ArgumentParser) -> None:
    fitted_on = parser.add_mutually_exclusive_group(required=True)
    fitted_on.add_argument(
        "--data", metavar="NAME|FILE|FOLDER", help="queries like those that will be served; the adapter scores them"
    )
    fitted_on.add_argument(
        "--run", dest="audited", type=parse_place, metavar="RUN", help="an audit of the adapter; its scores are used as they are"
    )
    add_columns(parser)
    parser.add_argument(
        "--match-retention", type=share, default=KEPT, metavar="SHARE", help=f"share of the pool to keep (default {KEPT:g})"
    )


NEEDS = {
    "show": (),
    "verify": ("torch", "transformers", "peft", "safetensors"),
    "cutoff": (),
    "merge": ("torch", "transformers", "peft", "safetensors"),
    "halve": ("torch", "safetensors"),
    "push": ("huggingface_hub",),
}
"""Action -> libraries."""


def run(args: argparse.Namespace) -> int:
    check_installed(f"adapter {args.action}", *NEEDS[args.action])
    shown = ACTIONS[args.action](args)
    if args.json:
        print_json(shown)
    else:
        print_table(["adapter", "value"], value_rows(shown))
    if args.action == "cutoff":
        note_next(args, "serve", f"{slug(args.folder.name)}={adapter_address(read_card(args.folder), args.folder)}")
    if args.action == "merge":
        note_next(args, "serve", f"{slug(args.out.name)}=hf:{args.out}")
    return 0


def _halve(args: argparse.Namespace) -> dict[str, Any]:
    adapter.halve(args.folder, args.out)
    return {"out": str(args.out)}


def _cutoff(args: argparse.Namespace) -> Mapping[str, Any]:
    how = {"columns": args.columns, "keep": args.match_retention, "quiet": args.quiet}
    return store_cutoff(args.folder, args.data, run=args.audited, **how)


def _merge(args: argparse.Namespace) -> dict[str, Any]:
    difference = merge.merge(args.folder, args.out, args.base, args.allow_base_mismatch)
    return {"out": str(args.out), "largest difference of a probe score": difference}


ACTIONS: dict[str, Callable[[argparse.Namespace], Mapping[str, Any]]] = {
    "show": lambda args: read_card(args.folder),
    "verify": lambda args: merge.verify(args.folder, args.base, args.allow_base_mismatch),
    "cutoff": _cutoff,
    "merge": _merge,
    "halve": _halve,
    "push": lambda args: {"pushed to": adapter.push(args.folder, args.repository)},
}
"""Action -> what it does and returns, to be printed."""


def _folder(text: str) -> Path:
    return shipped_adapters().get(text, Path(text))


def value_rows(values: Mapping[str, Any]) -> list[list[str]]:
    """A card as rows of a table: the parts of a nested value have a row each."""
    rows = []
    for name, value in values.items():
        if name == "findings":
            rows += [[f"{'helps' if f['helps'] else 'does not help'} on {f['collection']}", f["sentence"]] for f in value or []]
            continue
        if isinstance(value, list) and all(isinstance(part, dict) for part in value):  # the held-out curve
            value = dict(enumerate(value, 1))
        parts = value.items() if isinstance(value, dict) and value else [("", value)]
        rows += [[f"{name} {key}".strip(), _short(_text(part)) or "-"] for key, part in parts]
    return rows


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:97] + "..."
