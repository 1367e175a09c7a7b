"""`steadyscore adapter`: choose, look at, check, give a cutoff, merge, shrink and share adapters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, get_args

from ..machine.extras import check_installed
from ..machine.names import shorten, slug
from ..machine.places import parse_place
from ..measures.threshold import KEPT
from ..models import adapter
from ..models.card import adapter_address, read_card
from ..models.embedded import shipped_adapters
from ..training.adapters import merge, store_cutoff, verify
from ..training.held_out import DECISION_MEASURES, Point, Rule, copy_selected, evaluated_on, read_points, select
from .flags import add_columns, local_path
from .shared import add_json, cell_text, examples, note, note_next, print_rows, share


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_select(actions.add_parser("select", help="choose a weight and a checkpoint by four rules side by side"))
    for action, about in ACTIONS.items():
        sub = actions.add_parser(action, help=about.summary)
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


def _add_select(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folders", nargs="+", type=local_path, metavar="DIR", help="training folders of one grid")
    parser.add_argument(
        "--decision", choices=DECISION_MEASURES, default="tau_psi", help="measure of the rule `decision` (default tau_psi)"
    )
    parser.add_argument(
        "--rule",
        choices=get_args(Rule),
        default="highest_quality",
        help="whose choice --out takes (default highest_quality, the paper's; quality may abstain)",
    )
    parser.add_argument("--out", type=local_path, metavar="DIR", help="copy the chosen adapter here")
    add_json(parser)
    examples(
        parser,
        "steadyscore adapter select adapters/first adapters/single",
        "steadyscore adapter select adapters/first adapters/single --decision overlap --json",
        "steadyscore adapter select adapters/first adapters/single --rule highest_quality --out adapters/chosen",
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


def run(args: argparse.Namespace) -> int:
    if args.action == "select":
        return _select(args)
    check_installed(f"adapter {args.action}", *ACTIONS[args.action].needs)
    shown = ACTIONS[args.action].run(args)
    print_rows(args, shown, ["adapter", "value"], value_rows(shown))
    if args.action == "cutoff":
        note_next(args, "serve", f"{slug(args.folder.name)}={adapter_address(read_card(args.folder), args.folder)}")
    if args.action == "merge":
        note_next(args, "serve", f"{slug(args.out.name)}=hf:{args.out}")
    return 0


def _select(args: argparse.Namespace) -> int:
    choices = select(read_points(args.folders), args.decision)
    print_rows(
        args,
        [asdict(choice) for choice in choices],
        ["rule", "run", "weight", "step", "quality", "tau_psi", "overlap", "reason"],
        [[choice.rule, *_point_cells(choice.point), choice.reason] for choice in choices],
    )
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
        note_next(args, "adapter", "select", *args.folders, *other, "--rule", rule, "--out", "adapters/selected")
    return 0


def _point_cells(point: Point | None) -> list[object]:
    if point is None:
        return [None] * 6
    return [point.folder, point.weight, point.step, point.quality, point.measures["tau_psi"], point.measures.get("overlap")]


def _halve(args: argparse.Namespace) -> dict[str, object]:
    adapter.halve(args.folder, args.out)
    return {"out": str(args.out)}


def _cutoff(args: argparse.Namespace) -> Mapping[str, Any]:
    how = {"columns": args.columns, "keep": args.match_retention, "quiet": args.quiet}
    return asdict(store_cutoff(args.folder, args.data, run=args.audited, **how))


def _merge(args: argparse.Namespace) -> dict[str, object]:
    difference = merge(args.folder, args.out, args.base, args.allow_base_mismatch)
    return {"out": str(args.out), "largest difference of a probe score": difference}


class Action(NamedTuple):
    """A word after `steadyscore adapter` that takes one adapter."""

    summary: str
    run: Callable[[argparse.Namespace], Mapping[str, Any]]
    """Does it and returns what is printed."""
    needs: tuple[str, ...] = ()
    """Libraries."""


MODEL = ("torch", "transformers", "peft", "safetensors")
ACTIONS = {
    "show": Action("print the card", lambda args: read_card(args.folder).to_json()),
    "verify": Action(
        "open the adapter on its base and check base, prompt, grade tokens and weights",
        lambda args: verify(args.folder, args.base, args.allow_base_mismatch), MODEL,
    ),
    "cutoff": Action("fit the cutoff that a server decides with, and keep it in the card", _cutoff),
    "merge": Action("write base and adapter as one model, if their scores agree", _merge, MODEL),
    "halve": Action("write a copy in half precision", _halve, ("torch", "safetensors")),
    "push": Action(
        "upload the adapter to the hub", lambda args: {"pushed to": adapter.push(args.folder, args.repository)},
        ("huggingface_hub",),
    ),
}  # fmt: skip


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
        rows += [[f"{name} {key}".strip(), shorten(cell_text(part), 100, "...") or "-"] for key, part in parts]
    return rows
