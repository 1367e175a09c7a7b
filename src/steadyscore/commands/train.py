"""`steadyscore train`: an adapter from a base, a collection and labels. The same flags are a recipe's keys."""

from __future__ import annotations

import argparse
import os
from typing import get_args

from ..errors import InputError, UsageError
from ..machine.names import slug
from ..training.check import REQUIRED, config_mistakes
from ..training.launcher import Launch, launch_command
from ..training.objectives import OBJECTIVES
from ..training.recipe import FIELDS, TrainConfig, recipe_names
from ..training.train import Trained, read_config, train
from . import add_json, examples, note_next, print_json, print_table
from .flags import add_columns, add_field, positive

METAVARS = {
    "base": "ADDRESS",
    "data": "NAME|FILE|FOLDER",
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
        elif name == "apart_from":
            add_field(parser, TrainConfig, name, is_unset=True, nargs="+", type=str, metavar="NAME|FILE")
        elif name == "objective":
            meant = "; ".join(f"{objective.name}: {objective.summary}" for objective in OBJECTIVES.values())
            add_field(parser, TrainConfig, name, is_unset=True, help=f"what is minimised (default: oc_sft). {meant}")
        else:
            add_field(parser, TrainConfig, name, is_unset=True, **how)
    add_columns(parser)
    parser.add_argument(
        "--dry-run", action="store_true", help="check everything, print steps, tokens, memory and measured time, and stop"
    )
    add_launch(parser)
    add_json(parser)
    small = "--width 4 --queries 3 --pool 4 --chars 200 --held-out 1 --evaluate-every 1 --steps 2 --batch 1 --seed 42"
    start = "steadyscore train --base smollm2-135m --data passages --labels judgements"
    examples(
        parser,
        f"{start} --objective oc_sft --weight 4 --views 2 {small} --out adapters/first",
        f"{start} --objective single_order {small} --out adapters/single",
        "steadyscore train --recipe smollm2_passages --out adapters/many --print-launch ddp --processes 4",
    )


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Flags of the command that starts a run on several processes."""
    group = parser.add_argument_group("several processes")
    group.add_argument(
        "--print-launch",
        choices=get_args(Launch),
        help="print the command that starts this run on --processes, each with the whole model (ddp) or a shard of it (fsdp)",
    )
    group.add_argument("--processes", type=positive, metavar="N", help="processes in all, one per device")
    group.add_argument("--machines", type=positive, metavar="N", help="machines they run on (default: 1)")
    group.add_argument("--host", metavar="NAME", help="the machine at which several machines meet")


def _widths(text: str) -> tuple[int, ...]:
    try:
        return tuple(positive(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a width; write numbers with commas, for example 5 or 1,2,5") from None


def config_of(args: argparse.Namespace) -> TrainConfig:
    """The recipe, then the flags that were typed."""
    typed = {name: value for name in FIELDS if (value := getattr(args, name)) is not None}
    return read_config(args.recipe, typed, args.columns)


def run(args: argparse.Namespace) -> int:
    config = config_of(args)
    if missing := [f"--{name} is missing" for name in REQUIRED if not getattr(config, name)]:
        raise UsageError("\n".join(missing))
    if any((args.print_launch, args.processes, args.machines, args.host)):
        return _print_launch(args, config)
    if args.dry_run:
        from .check import dry_run

        return dry_run(config, args.json)
    is_main = os.environ.get("RANK", "0") == "0"
    trained = train(config, command=args.command, quiet=not is_main)
    if is_main and args.json:
        print_json(trained.to_json())
    elif is_main:
        print_table(["adapter", "value"], [[name, value] for name, value in trained.to_json().items()])
        _note_next(args, config, trained)
    return 0


def _note_next(args: argparse.Namespace, config: TrainConfig, trained: Trained) -> None:
    """The checkpoint with the best held-out quality; where none was evaluated, the base and the adapter in one audit."""
    if trained.card["held_out"]:
        note_next(args, "select", config.out, "--rule", "highest_quality", "--out", f"{config.out}-selected")
        return
    cut = [word for name in ("queries", "pool") if (value := getattr(config, name)) for word in (f"--{name}", value)]
    scorers = ["--scorer", config.base, "--scorer", trained.address]
    note_next(args, "audit", *scorers, "--data", config.data, *cut, "--out", f"runs/{slug(trained.folder.name)}")


def _print_launch(args: argparse.Namespace, config: TrainConfig) -> int:
    if not (args.print_launch and args.processes):
        raise UsageError("--print-launch ddp or fsdp and --processes N belong together; --machines and --host go with them.")
    if mistakes := config_mistakes(config, args.processes):
        raise InputError(mistakes)
    own = argparse.ArgumentParser(add_help=False)
    add_launch(own)
    _, words = own.parse_known_args(args.command[2:])  # what was typed behind `steadyscore train`, without these flags
    words = [word for word in words if word != "--json"]  # of this printing, not of the run
    command = launch_command(args.print_launch, words, args.processes, args.machines or 1, args.host)
    if args.json:
        print_json({"command": command})
    else:
        print(command)
    return 0
