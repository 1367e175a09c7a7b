"""`steadyscore train`: an adapter from a base, a collection and labels. The same flags are a recipe's keys."""

from __future__ import annotations

import argparse
import os
from dataclasses import asdict
from typing import get_args

from ..errors import InputError, UsageError
from ..machine.console import duration, job
from ..machine.extras import TRAINING, absent_modules, install_line
from ..machine.names import slug
from ..models.embedded import fetch_command
from ..training.check import REQUIRED, checked_data, config_mistakes
from ..training.cost import TrainingEstimate, estimate
from ..training.objectives import OBJECTIVES
from ..training.recipe import FIELDS, TrainConfig, recipe_names
from ..training.train import Launch, Trained, launch_command, read_config, train
from .flags import add_columns, add_field, positive
from .shared import add_json, examples, note_next, print_json, print_rows

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
        "steadyscore train --recipe smollm2_passages --dry-run",
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
    group.add_argument("--processes", type=positive, metavar="N", help="processes in all, one per device; also of --dry-run")
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
    if args.dry_run and not (args.print_launch or args.machines or args.host):
        return dry_run(args, config)
    if any((args.print_launch, args.processes, args.machines, args.host)):
        return _print_launch(args, config)
    is_main = os.environ.get("RANK", "0") == "0"
    trained = train(config, command=args.command, quiet=not is_main)
    if is_main:
        print_rows(args, trained.to_json(), ["adapter", "value"], trained.to_json().items())
        _note_next(args, config, trained)
    return 0


def _note_next(args: argparse.Namespace, config: TrainConfig, trained: Trained) -> None:
    """The checkpoint with the best held-out quality; where none was evaluated, the base and the adapter in one audit."""
    if trained.card.held_out:
        note_next(args, "adapter", "select", config.out, "--rule", "highest_quality", "--out", f"{config.out}-selected")
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
    print_json({"command": command}) if args.json else print(command)
    return 0


# -- what a run would cost


def dry_run(args: argparse.Namespace, config: TrainConfig) -> int:
    """Print the cost of a run after all that it would refuse; with rates measured now where none are remembered."""
    processes = args.processes or 1
    data = checked_data(config, processes)
    cost = estimate(data, processes)
    if not (unknown := _obstacle(config, processes)):
        with job(f"opening {config.base} as the run would", unit="", at_once=True):
            from ..training.loop import rehearse

            cost = rehearse(data, cost)
    value = asdict(cost) | ({"unknown": unknown} if cost.seconds is None else {})
    print_rows(args, value, ["estimate", "value"], _cost_rows(cost, unknown).items())
    return 0


def _obstacle(config: TrainConfig, processes: int) -> str:
    """Why the rate cannot be measured here, and what to do about it."""
    if processes > 1:
        return "a dry run is one process; the rate of several is remembered from a run"
    if missing := absent_modules(TRAINING):
        return f"measuring it needs {', '.join(missing)}: {install_line(missing)}"
    command = fetch_command(config.base)
    return f"{config.base} is not on this disk: {command}" if command else ""


def _cost_rows(cost: TrainingEstimate, unknown: str) -> dict[str, str]:
    return {
        "queries": f"{cost.queries:,}",
        "windows": f"{cost.windows:,}",
        "steps": f"{cost.steps:,}",
        "tokens": f"{cost.tokens:,}",
        "held-out evaluation": f"{cost.evaluations:,} times, {cost.evaluated_windows:,} windows" if cost.evaluations else "none",
        "memory, GB": "unknown: the base is not on this disk" if cost.memory is None else f"{cost.memory:.1f}",
        "time": _time(cost, unknown),
    }


def _time(cost: TrainingEstimate, unknown: str) -> str:
    if cost.seconds is None:
        return f"unknown: {unknown}"
    sources = {
        "remembered": "by the rate of earlier training steps on this machine",
        "measured": "by the rate of a few microbatches that were trained just now",
    }
    evaluation = f"{duration(cost.evaluation_seconds or 0)} of it" if cost.evaluations else "no"
    return f"{duration(cost.seconds)}, {evaluation} held-out evaluation, {sources[cost.rate_from or 'measured']}"
