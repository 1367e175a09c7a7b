"""`steadyscore train`: an adapter from a base, a collection and labels. The same flags are a recipe's keys."""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import Any, get_args

from ..errors import UsageError
from ..machine.extras import TRAINING, check_installed
from ..machine.progress import job
from ..training.recipe import Objective, TrainConfig, from_mapping, read_recipe, shipped
from . import add_json, examples, print_json, print_table

FLAGS: dict[str, str] = {
    "weight": "weight of the term beside the anchor (default: the paper's for the task)",
    "weight_convention": "the weight's term: `variance` (printed), `pairwise` (released code) or `relative` (to the spread)",
    "ramp": "steps over which the weight grows from 0; below 1, a fraction of the run",
    "anchor": "weight of the relevance anchor",
    "grade_share": "share of the anchor that is cross-entropy to the teacher's grade distribution",
    "views": "views of a window per step, N",
    "shuffle": "permutation augmentation: shuffle inside windows or whole pools",
    "teacher_orders": "stored teacher orders averaged into the target, T",
    "propensity": "DebiasFirst: propensities from judgements or from the teacher's rankings",
    "judged_top": "highest judgement of the collection, which becomes grade 3",
    "steps": "optimizer steps",
    "epochs": "passes over the windows, where --steps is not given",
    "batch": "windows per optimizer step, over all processes",
    "microbatch": "windows per forward pass",
    "learning_rate": "peak of the schedule",
    "warmup": "share of the run with a rising learning rate",
    "clip": "largest gradient norm",
    "rank": "LoRA rank",
    "alpha": "LoRA alpha",
    "dropout": "LoRA dropout",
    "layers": "layers that carry LoRA, FIRST-LAST from 0",
    "initial": "adapter folder to go on from",
    "ema_decay": "decay of the mean teacher",
    "seed": "seed of data order, views, initial weights and dropout",
    "queries": "only the first N queries",
    "pool": "only the first N candidates of each pool",
    "chars": "characters kept of each candidate",
    "instruction": "instruction line, instead of the collection's",
    "markers": "labels of the slots",
    "placeholder": "grade that fills the answer skeleton",
    "prompt": "prompt style",
    "dtype": "precision of the frozen base",
    "device": "cpu, cuda, cuda:1",
    "held_out": "last queries of the collection kept for evaluation",
    "held_out_data": "another collection to evaluate on",
    "held_out_permutations": "shuffles of the stability proxy",
    "evaluate_every": "steps between held-out evaluations",
    "checkpoint_every": "steps between checkpoints",
    "keep": "checkpoints kept: the last N and the N best",
}
"""Fields whose flag is their name, with help."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--recipe", metavar="NAME|FILE", help=f"start from a recipe ({', '.join(shipped())}) or a YAML file; flags override it"
    )
    parser.add_argument("--base", metavar="ADDRESS", help="the model to adapt")
    parser.add_argument("--data", metavar="NAME|FILE", help="the training collection")
    parser.add_argument("--labels", metavar="DIR|judgements", help="label folder, or the human judgements")
    parser.add_argument("--objective", choices=get_args(Objective), help="what is minimised (default: oc_sft)")
    parser.add_argument("--width", type=_widths, metavar="B[,B...]", help="candidates per window; several are mixed")
    parser.add_argument(
        "--projections", type=lambda text: text.split(","), metavar="NAME,...", help="projections that carry LoRA"
    )
    parser.add_argument("--trackers", type=lambda text: text.split(","), metavar="NAME,...", help="tensorboard, wandb, mlflow")
    parser.add_argument("--gradient-checkpointing", action="store_true", default=None, help="trade time for memory")
    parser.add_argument("--out", metavar="DIR", help="adapter folder; the same command goes on where it stopped")
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    kinds = {field.name: str(field.type) for field in fields(TrainConfig)}
    for name, text in FLAGS.items():
        kind = int if kinds[name].startswith("int") else float if kinds[name].startswith("float") else str
        shown = f" (default: {defaults[name]})" if defaults[name] is not None and "default" not in text else ""
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, metavar=kind.__name__.upper(), help=text + shown)
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


def _widths(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a width; write numbers with commas, for example 5 or 1,2,5") from None


def config_from(args: argparse.Namespace) -> TrainConfig:
    """The recipe, then the flags that were typed."""
    names = [*FLAGS, "base", "data", "labels", "objective", "width", "projections", "trackers", "gradient_checkpointing", "out"]
    typed: dict[str, Any] = {name: value for name in names if (value := getattr(args, name)) is not None}
    return from_mapping((read_recipe(args.recipe) if args.recipe else {}) | typed)


def run(args: argparse.Namespace) -> int:
    config = config_from(args)
    if missing := [f"--{name} is missing" for name in ("base", "data", "labels", "out") if not getattr(config, name)]:
        raise UsageError("\n".join(missing))
    if args.dry_run:
        from .check import dry_run

        return dry_run(config, args.json)
    check_installed("Training", *TRAINING)
    with job("loading torch", unit="", hidden=not _is_main_process(), at_once=True):
        from ..training.loop import train

    card = train(config, command=args.command)
    if _is_main_process():
        last = card["held_out"][-1] if card["held_out"] else {}
        found = {"out": config.out, "objective": card["objective"], "weight": card["weight"], "steps": card["steps"], **last}
        if args.json:
            print_json(found)
        else:
            print_table(["adapter", "value"], [[name, value] for name, value in found.items()])
    return 0


def _is_main_process() -> bool:
    import os

    return os.environ.get("RANK", "0") == "0"
