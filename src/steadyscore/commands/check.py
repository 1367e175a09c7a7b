"""`steadyscore check`: everything wrong with a recipe, and what it would cost, before anything is loaded."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from ..errors import InputError
from ..recipe import TrainConfig, estimate, from_mapping, mistakes, read_recipe
from . import add_json, examples, positive, print_json, print_table


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recipe", metavar="RECIPE", help="a shipped recipe or a YAML file")
    parser.add_argument("--processes", type=positive, default=1, metavar="N", help="processes the run will have")
    add_json(parser)
    examples(parser, "steadyscore check smollm2_passages", "steadyscore check smollm2_passages --processes 2 --json")


def run(args: argparse.Namespace) -> int:
    return report(from_mapping(read_recipe(args.recipe)), args.json, args.processes)


def report(config: TrainConfig, as_json: bool, processes: int = 1) -> int:
    if found := mistakes(config, processes):
        raise InputError(found)
    cost = asdict(estimate(config))
    if not cost["queries"]:
        raise InputError(f"no query of {config.data} has a label in {config.labels}. Name labels of the same data.")
    if as_json:
        print_json(cost)
        return 0
    shown = {
        "queries": f"{cost['queries']:,}",
        "windows": f"{cost['windows']:,}",
        "steps": f"{cost['steps']:,}",
        "tokens": f"{cost['tokens']:,}",
        "memory, GB": "unknown: the base is not on this disk" if cost["memory"] is None else f"{cost['memory']:.1f}",
        "time": "unknown: this base was not trained here yet" if cost["seconds"] is None else f"{cost['seconds'] / 60:.0f} min",
    }
    print_table(["estimate", "value"], shown.items())
    return 0
