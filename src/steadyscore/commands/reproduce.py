"""`steadyscore reproduce`: the paper's tables and figures, listed, planned, run and shown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import get_args

from ..errors import InputError
from ..machine.console import bar, duration
from ..paper.artifacts import ARTIFACTS, artifact_of
from ..paper.gallery import status_of, write_gallery
from ..paper.layout import fill
from ..paper.library import Library
from ..paper.plan import FLOPS, HOUR, WORKERS, Fleet, Plan, PlannedRuns, TrainingSize, disk_of, fleet_of, plan_of
from ..paper.recipe import Artifact
from ..paper.render import FORMATS, Shown
from ..paper.scale import SCALES, Choices, choices_from
from ..paper.work import Stage, Store, Workshop, do_on_ray, do_pieces, in_order, pieces_of_share
from ..training.train import Launch
from .flags import local_path, positive
from .shared import (
    add_engine,
    add_json,
    add_workers,
    engine_options,
    examples,
    note,
    price,
    print_json,
    print_rows,
    print_table,
    refuse,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for action, summary in (
        ("list", "every table and figure, and how much of it the store holds"),
        ("plan", "what is scored and trained, windows, tokens, time, and what is missing here"),
        ("run", "score and train what is not in the store yet"),
        ("show", "print a table or figure from finished runs"),
        ("gallery", "write every table and figure from finished runs as one static site"),
    ):
        sub = actions.add_parser(action, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if action == "gallery":
            sub.add_argument("names", nargs="*", metavar="NAME", help="tables and figures, as `list` prints them (default all)")
            sub.add_argument(
                "--out",
                type=local_path,
                default=Path("site/gallery"),
                metavar="DIR",
                help="folder of the site (default site/gallery)",
            )
        elif action != "list":
            sub.add_argument("names", nargs="+", metavar="NAME", help="tables and figures, as `list` prints them; or `all`")
        _add_choices(sub)
        if action == "show":
            sub.add_argument("--format", choices=list(FORMATS), default="text", help="how it is printed (default text)")
            sub.add_argument("--paper", action="store_true", help="put the paper's own values beside ours")
            sub.add_argument("--intervals", action="store_true", help="print the 95 %% interval of every cell that has one")
            sub.add_argument(
                "--expanded", action="store_true", help="intervals as `audit` makes them, not the paper's percentiles"
            )
        else:
            add_json(sub)
        if action == "run":
            sub.add_argument(
                "--stage",
                choices=get_args(Stage),
                help="make labels, adapters or runs only (default: all three, one after the other)",
            )
            add_workers(
                sub,
                "worker I of N: make its part of a stage in the store, which all see; without --shard, what is left",
            )
            many = sub.add_argument_group("several GPUs for one adapter")
            many.add_argument("--processes", type=positive, metavar="N", help="processes, one per GPU, that train it together")
            many.add_argument(
                "--launch",
                choices=get_args(Launch),
                default="ddp",
                help="each with the whole model (ddp, default) or a part of it (fsdp)",
            )
        if action == "plan":
            sub.add_argument("--gpu-hour", type=price, default=HOUR, metavar="PRICE", help=f"of one GPU (default {HOUR})")
        if action in ("plan", "run"):
            add_engine(sub)
            sub.set_defaults(dtype=None)  # the scale's
    examples(
        parser,
        "steadyscore reproduce plan rr-pairflip --scale tiny --store runs/paper",
        "steadyscore reproduce run rr-pairflip --scale tiny --store runs/paper",
        "steadyscore reproduce show rr-pairflip --scale tiny --store runs/paper --paper",
        "steadyscore reproduce gallery rr-pairflip --scale tiny --store runs/paper --out site/gallery",
    )


PAIRS = {
    "--base": ("bases", "[NAME=]ADDRESS", "a model for one base, or for all"),
    "--collection": ("collections", "NAME=DATA", "a collection's name or file"),
    "--system": ("systems", "NAME=ADDRESS", "the scorer of a row"),
    "--adapter": ("adapters", "SYSTEM[/TASK][/BASE[/SEED]]=DIR", "an adapter that is there already"),
    "--reader": ("readers", "first|second=ADDRESS", "a frozen reader"),
    "--run": ("runs", "SYSTEM[/BASE/SEED]/COLLECTION=DIR", "a finished run, used as it is"),
}
"""Flag, which can be repeated -> the field of `Choices` that it fills, what it takes and says."""


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scale", choices=list(SCALES), default="tiny", help="; ".join(f"{s.name}: {s.summary}" for s in SCALES.values())
    )
    parser.add_argument(
        "--store",
        type=local_path,
        default=Path("runs/paper"),
        metavar="DIR",
        help="runs, labels and adapters (default runs/paper)",
    )
    own = parser.add_argument_group("in place of the paper's")
    own.add_argument("--choices", type=local_path, metavar="FILE", help="a TOML file with the tables below; flags add to it")
    for flag, (field, pair, what) in PAIRS.items():
        own.add_argument(flag, dest=field, action="append", default=[], metavar=pair, help=what)
    own.add_argument(
        "--weights",
        type=float,
        nargs="+",
        default=[],
        metavar="X",
        help="train OC-SFT with each and score the best held-out one",
    )
    own.add_argument("--engine", default="", metavar="vllm", help="what scores local models; they are trained by transformers")
    own.add_argument("--seeds", type=int, nargs="+", default=[], metavar="N", help="training seeds (default 42 43 44)")


def run(args: argparse.Namespace) -> int:
    choices, store = choices_of(args), Store(args.store)
    if args.action == "list":
        return _list(args, choices, store)
    artifacts = list(ARTIFACTS.values()) if args.names in ([], ["all"]) else [artifact_of(name) for name in args.names]
    if args.action == "show":
        return _show(args, artifacts, choices, store)
    if args.action == "gallery":
        return _gallery(args, artifacts, choices, store)
    args.dtype = args.dtype or choices.scale.dtype
    plan = plan_of(artifacts, choices, store, engine_options(args).price)
    return _plan(args, plan) if args.action == "plan" else _run(args, plan, choices, store)


def choices_of(args: argparse.Namespace) -> Choices:
    everywhere = [text for text in args.bases if "=" not in text]
    if len(everywhere) > 1:
        raise InputError(f"--base names {len(everywhere)} models for all bases. Give one, or NAME=ADDRESS for each.")
    typed = vars(args) | {"bases": [text for text in args.bases if "=" in text]}
    pairs = {field: _pairs(flag, typed[field]) for flag, (field, _, _) in PAIRS.items()}
    lists = {"seeds": tuple(args.seeds), "weights": tuple(args.weights)}
    return choices_from(args.scale, args.choices, base="".join(everywhere), engine=args.engine, **pairs, **lists)


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    values = dict(text.partition("=")[::2] for text in texts)
    if odd := [name for name, value in values.items() if not value]:
        raise InputError([f"{flag} {name}: write {flag} NAME=VALUE." for name in odd])
    return values


def _list(args: argparse.Namespace, choices: Choices, store: Store) -> int:
    rows = [(artifact, status_of(artifact, choices, store)) for artifact in ARTIFACTS.values()]
    print_rows(
        args,
        [{"name": a.name, "label": a.label, "number": a.number, "title": a.title, **s._asdict()} for a, s in rows],
        ["name", "number", "status", "runs", "cells", "title", "missing"],
        [[a.name, a.number, s.status, f"{s.done}/{s.runs}", s.cells, a.title, "; ".join(s.missing)] for a, s in rows],
    )
    return 0


def _plan(args: argparse.Namespace, plan: Plan) -> int:
    if args.json:
        print_json(
            {
                "runs": [
                    {"system": r.system, "base": r.base, "runs": r.runs, "done": r.done} | asdict(r.size) for r in plan.runs
                ],
                "trainings": [
                    {"system": t.system, "base": t.base, "task": t.task, "seed": t.seed, "done": done}
                    | {"label_windows": size.label_windows, "steps": size.steps, "tokens": size.tokens}
                    for t, done, size in plan.trainings
                ],
                "missing": plan.missing,
                "gpus": [fleet_of(plan.pieces, count, args.gpu_hour).as_json() for count in WORKERS],
                "disk_gb": {name: round(size, 3) for name, size in _disk(plan).items()},
            }
        )
        return 0
    print_table(
        ["system", "base", "runs", "done", "queries", "windows", "tokens (about)", "time (about)", "cost (about)"],
        [_run_cells(planned) for planned in plan.runs],
    )
    if plan.trainings:
        print()
        print_table(
            ["adapter", "base", "task", "seed", "windows to label", "steps", "tokens (about)", "done"],
            [
                [t.system, t.base, t.task, t.seed, *_training_cells(size), "yes" if done else "no"]
                for t, done, size in plan.trainings
            ],
        )
    _print_gpus(args, plan)
    print(f"\n{len(plan.jobs)} runs, {len(plan.trainings)} adapters; {len(plan.missing)} things are missing on this machine.")
    for sentence in plan.missing:
        print(sentence)
    return 0


def _disk(plan: Plan) -> dict[str, float]:
    return disk_of(plan.jobs, [training for training, _, _ in plan.trainings])


def _print_gpus(args: argparse.Namespace, plan: Plan) -> None:
    """Hours and money of the three stages; nothing where no model scores."""
    if not plan.pieces or any("planted" in job.scoring.value for job in plan.jobs):
        return
    print()
    fleets = [fleet_of(plan.pieces, count, args.gpu_hour) for count in WORKERS]
    print_table(
        ["GPUs", "labels (h)", "training (h)", "scoring (h)", "all (h)", "GPU hours of work", "busiest / mean", "cost"],
        [_fleet_cells(fleet) for fleet in fleets],
    )
    disk = ", ".join(f"{name} {size:,.1f} GB" for name, size in _disk(plan).items())
    print(
        f"\nAt the measured speed of a scorer that ran here, else {FLOPS / 1e12:,.0f} TFLOP/s a GPU, as stated; "
        f"{args.gpu_hour:g} a GPU hour. Hosted scorers are in the first table. Disk: {disk}."
    )


def _fleet_cells(fleet: Fleet) -> list[object]:
    hours = [f"{hours:,.1f}" for hours in (*fleet.hours.values(), fleet.wall)]
    return [fleet.gpus, *hours, f"{fleet.gpu_hours:,.0f}", f"{fleet.balance:.2f}", f"{fleet.cost:,.0f}"]


def _run_cells(planned: PlannedRuns) -> list[object]:
    size = planned.size
    time = "unknown" if size.seconds is None else duration(size.seconds)
    money = "-" if size.cost is None else f"{size.cost:.2f}"
    counts = [f"{count:,}" for count in (size.queries, size.windows, size.tokens)]
    return [planned.system, planned.base, planned.runs, planned.done, *counts, time, money]


def _training_cells(size: TrainingSize) -> list[str]:
    return [f"{count:,}" for count in (size.label_windows, size.steps, size.tokens)]


def _run(args: argparse.Namespace, plan: Plan, choices: Choices, store: Store) -> int:
    is_trained = bool(plan.trainings) and any(not is_done for _, is_done, _ in plan.trainings)
    if args.shard and is_trained and not args.stage:
        refuse("--shard is a part of one stage, and there are adapters to train: add --stage labels, train or score.")
    options, stages = engine_options(args), [args.stage] if args.stage else list(get_args(Stage))
    launch = (args.launch, args.processes) if args.processes else None
    workshop = Workshop(store, choices, options, args.command, quiet=args.quiet, stage=args.stage, launch=launch)
    cluster, failed, ended = args.on, list[str](), list[bool]()
    for stage in stages:
        pieces = [piece for piece in plan.pieces if piece.stage == stage]
        if cluster and pieces:
            do_on_ray(pieces, workshop, cluster, note)
        mine = pieces_of_share(pieces, args.shard) if args.shard else in_order(pieces)
        sentences = [do_pieces([piece], workshop, note, args.shard) for piece in mine]
        failed += chain.from_iterable(sentences)
        ended = [not said for said in sentences]  # of the last stage, which is told
    failed = list(dict.fromkeys(failed))
    if args.json:
        print_json({"runs": len(ended), "done": sum(ended), "failed": failed} | ({"stage": args.stage} if args.stage else {}))
    else:
        of_share = f" of share {args.shard}" if args.shard else ""
        what = {"labels": "label sets", "train": "adapters"}.get(args.stage, "runs")
        print(f"{sum(ended)} of {len(ended)} {what}{of_share} are complete in {store.folder}.")
    for sentence in failed:
        note(sentence)
    return 4 if failed else 0


def _show(args: argparse.Namespace, artifacts: list[Artifact], choices: Choices, store: Store) -> int:
    library = Library(store, choices, None if args.expanded else "percentile")
    for artifact in artifacts:
        if artifact.is_diagram:
            note(f"{artifact.number} ({artifact.label}) is a diagram: there is nothing to measure.")
            continue
        print(FORMATS[args.format](fill(artifact, library), Shown(args.paper, args.intervals)), end="")
    return 0


def _gallery(args: argparse.Namespace, artifacts: list[Artifact], choices: Choices, store: Store) -> int:
    states = write_gallery(artifacts, store, choices, args.out, bar("gallery", args.quiet, "artifact"))
    page = args.out / "index.html"
    print_rows(
        args,
        {"page": str(page), "artifacts": [state.as_json() for state in states]},
        ["name", "number", "cells", "missing"],
        [[s.artifact.name, s.artifact.number, s.words, "; ".join(s.missing)] for s in states],
    )
    if not args.json:
        print(f"\n{page}")
    return 0
