"""`steadyscore train`: an adapter from a base, a collection and labels. The same flags are a recipe's keys."""

from __future__ import annotations

import argparse
import os

from ..errors import UsageError
from ..training.check import REQUIRED
from ..training.recipe import FIELDS, TrainConfig, recipe_names
from ..training.train import read_config, train
from . import add_json, examples, print_json, print_table
from .flags import add_field, positive

METAVARS = {
    "base": "ADDRESS",
    "data": "NAME|FILE",
    "labels": "DIR|judgements",
    "out": "DIR",
    "layers": "FIRST-LAST",
    "initial": "DIR",
    "held_out_data": "NAME|FILE",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe",
        metavar="NAME|FILE",
        help=f"start from a recipe ({', '.join(recipe_names())}) or a YAML file; flags override it",
    )
    for name in FIELDS:
        how = {"metavar": METAVARS[name]} if name in METAVARS else {}
        if name == "widths":
            add_field(parser, TrainConfig, name, flag="--width", is_unset=True, dest=name, type=_widths, metavar="B[,B...]")
        else:
            add_field(parser, TrainConfig, name, is_unset=True, **how)
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print steps, tokens, memory and measured time, and stop"
    )
    add_json(parser)
    small = "--width 4 --queries 3 --pool 4 --chars 200 --held-out 1 --evaluate-every 1 --steps 2 --batch 1 --seed 42"
    start = "steadyscore train --base smollm2-135m --data passages --labels judgements"
    examples(
        parser,
        f"{start} --objective oc_sft --weight 4 --views 2 {small} --out adapters/first",
        f"{start} --objective single_order {small} --out adapters/single",
    )


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(positive(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a width; write numbers with commas, for example 5 or 1,2,5") from None


def config_of(args: argparse.Namespace) -> TrainConfig:
    """The recipe, then the flags that were typed."""
    return read_config(args.recipe, {name: value for name in FIELDS if (value := getattr(args, name)) is not None})


def run(args: argparse.Namespace) -> int:
    config = config_of(args)
    if missing := [f"--{name} is missing" for name in REQUIRED if not getattr(config, name)]:
        raise UsageError("\n".join(missing))
    if args.dry_run:
        from .check import dry_run

        return dry_run(config, args.json)
    is_main = os.environ.get("RANK", "0") == "0"
    trained = train(config, command=args.command, is_hidden=not is_main)
    if is_main and args.json:
        print_json(trained.to_json())
    elif is_main:
        print_table(["adapter", "value"], [[name, value] for name, value in trained.to_json().items()])
    return 0
