"""`steadyscore check`: everything wrong with a recipe, and what it would cost, before anything is loaded.

`train --dry-run` prints the same, and measures how fast this machine trains the base where it has not trained it yet.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..errors import InputError
from ..machine.extras import TRAINING, absent_modules, install_line
from ..machine.progress import duration, job
from ..models.embedded import fetch_command
from ..training.check import config_mistakes
from ..training.cost import TrainingEstimate, estimate, with_rate
from ..training.recipe import TrainConfig
from ..training.train import read_config
from . import add_json, examples, print_json, print_table
from .flags import positive


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped recipe or a YAML file")
    parser.add_argument("--processes", type=positive, default=1, metavar="N", help="processes the run will have")
    add_json(parser)
    examples(parser, "steadyscore check smollm2_passages", "steadyscore check smollm2_passages --processes 2 --json")


def run(args: argparse.Namespace) -> int:
    config = read_config(args.recipe)
    cost = cost_of(config, args.processes)
    unknown = f"this machine has not trained it yet; train --recipe {args.recipe} --dry-run measures it"
    return print_cost(cost, unknown, args.json)


def dry_run(config: TrainConfig, as_json: bool) -> int:
    """What `check` prints, with a rate measured now where none is remembered."""
    cost, unknown = cost_of(config), ""
    if cost.seconds is None and not (unknown := _obstacle(config)):
        with job(f"measuring how fast {config.base} trains here", unit="", at_once=True):
            from ..training.rate import measure_rate

            rate = measure_rate(config, cost.tokens / (cost.steps * config.batch))
        cost = with_rate(cost, rate, "measured")
    return print_cost(cost, unknown, as_json)


def cost_of(config: TrainConfig, processes: int = 1) -> TrainingEstimate:
    if mistakes := config_mistakes(config, processes):
        raise InputError(mistakes)
    cost = estimate(config, processes)
    if not cost.queries:
        raise InputError(f"no query of {config.data} has a label in {config.labels}. Name labels of the same data.")
    return cost


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
    return f"{duration(cost.seconds)} and evaluation, {sources[cost.rate_from or 'measured']}"
