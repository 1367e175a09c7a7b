"""`steadyscore check`: everything wrong with a recipe, and what it would cost, before anything is loaded.

`train --dry-run` prints the same, and measures how fast this machine trains the base where it has not trained it yet.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..machine.extras import TRAINING, absent_modules, install_line
from ..machine.progress import duration, job
from ..models.embedded import fetch_command
from ..training.check import checked_data
from ..training.cost import TrainingEstimate, estimate
from ..training.recipe import TrainConfig, recipe_text
from ..training.train import read_config
from . import add_json, examples, print_json, print_table
from .flags import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped recipe or a YAML file")
    parser.add_argument("--print", action="store_true", help="print the recipe itself, to be edited in a file of your own")
    parser.add_argument("--processes", type=positive, default=1, metavar="N", help="processes the run will have")
    add_json(parser)
    examples(
        parser,
        "steadyscore check smollm2_passages",
        "steadyscore check smollm2_passages --processes 2 --json",
        "steadyscore check smollm2_passages --print",
    )


def run(args: argparse.Namespace) -> int:
    if args.print:
        print(recipe_text(args.recipe)[1], end="")
        return 0
    config = read_config(args.recipe)
    cost = estimate(checked_data(config, args.processes), args.processes)
    unknown = f"this machine has not trained it yet; train --recipe {args.recipe} --dry-run measures it"
    return print_cost(cost, unknown, args.json)


def dry_run(config: TrainConfig, as_json: bool) -> int:
    """What `check` prints, after all that the run would refuse; with rates measured now where none are remembered."""
    data = checked_data(config)
    cost = estimate(data)
    if not (unknown := _obstacle(config)):
        with job(f"opening {config.base} as the run would", unit="", at_once=True):
            from ..training.loop import rehearse

            cost = rehearse(data, cost)
    return print_cost(cost, unknown, as_json)


def _obstacle(config: TrainConfig) -> str:
    """Why the rate cannot be measured here, and what to do about it."""
    if missing := absent_modules(TRAINING):
        return f"measuring it needs {', '.join(missing)}: {install_line(missing)}"
    command = fetch_command(config.base)
    return f"{config.base} is not on this disk: {command}" if command else ""


def print_cost(cost: TrainingEstimate, unknown: str, as_json: bool) -> int:
    if as_json:
        print_json(asdict(cost) | ({"unknown": unknown} if cost.seconds is None else {}))
        return 0
    shown = {
        "queries": f"{cost.queries:,}",
        "windows": f"{cost.windows:,}",
        "steps": f"{cost.steps:,}",
        "tokens": f"{cost.tokens:,}",
        "held-out evaluation": f"{cost.evaluations:,} times, {cost.evaluated_windows:,} windows" if cost.evaluations else "none",
        "memory, GB": "unknown: the base is not on this disk" if cost.memory is None else f"{cost.memory:.1f}",
        "time": _time(cost, unknown),
    }
    print_table(["estimate", "value"], shown.items())
    return 0


def _time(cost: TrainingEstimate, unknown: str) -> str:
    if cost.seconds is None:
        return f"unknown: {unknown}"
    sources = {
        "remembered": "by the rate of earlier training steps on this machine",
        "measured": "by the rate of a few microbatches that were trained just now",
    }
    evaluation = f"{duration(cost.evaluation_seconds or 0)} of it" if cost.evaluations else "no"
    return f"{duration(cost.seconds)}, {evaluation} held-out evaluation, {sources[cost.rate_from or 'measured']}"
