"""`steadyscore reproduce`: the paper's tables and figures, listed, planned, run and shown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..machine.progress import bar, duration
from ..reproduce.artifacts import ARTIFACTS, artifact_of
from ..reproduce.execute import Store, Workshop, do_all
from ..reproduce.gallery import write_gallery
from ..reproduce.index import status_of
from ..reproduce.layout import fill
from ..reproduce.library import Library
from ..reproduce.plan import Plan, PlannedRuns, TrainingSize, plan_of
from ..reproduce.recipe import Artifact
from ..reproduce.render import FORMATS, Shown
from ..reproduce.scale import SCALES, Choices, choices_from
from ..reproduce.sharing import SharedJobs, do_on_ray, independent_groups, jobs_of_share
from . import add_engine, add_json, engine_options, examples, note, print_json, print_table, refuse
from .flags import local_path
from .workers import actor_mistakes, add_launch, cluster_of


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
        else:
            add_json(sub)
        if action == "run":
            add_launch(
                sub, "worker I of N: make its runs in the store, which all see; the same command without --shard does the rest"
            )
        if action in ("plan", "run"):
            add_engine(sub)
    examples(
        parser,
        "steadyscore reproduce plan rr-pairflip --scale tiny --store runs/paper",
        "steadyscore reproduce run rr-pairflip --scale tiny --store runs/paper",
        "steadyscore reproduce show rr-pairflip --scale tiny --store runs/paper --paper",
        "steadyscore reproduce gallery rr-pairflip --scale tiny --store runs/paper --out site/gallery",
    )


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
    own.add_argument("--base", action="append", default=[], metavar="[NAME=]ADDRESS", help="a model for one base, or for all")
    own.add_argument("--collection", action="append", default=[], metavar="NAME=DATA", help="a collection's name or file")
    own.add_argument("--system", action="append", default=[], metavar="NAME=ADDRESS", help="the scorer of a row")
    own.add_argument(
        "--adapter",
        action="append",
        default=[],
        metavar="SYSTEM[/TASK][/BASE[/SEED]]=DIR",
        help="an adapter that is there already",
    )
    own.add_argument("--reader", action="append", default=[], metavar="first|second=ADDRESS", help="a frozen reader")
    own.add_argument(
        "--run",
        dest="finished",  # `run` is what the verb itself does
        action="append",
        default=[],
        metavar="SYSTEM[/BASE/SEED]/COLLECTION=DIR",
        help="a finished run, used as it is",
    )
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
    plan = plan_of(artifacts, choices, store, engine_options(args).price)
    return _plan(args, plan) if args.action == "plan" else _run(args, plan, choices, store)


def choices_of(args: argparse.Namespace) -> Choices:
    everywhere = [text for text in args.base if "=" not in text]
    if len(everywhere) > 1:
        raise InputError(f"--base names {len(everywhere)} models for all bases. Give one, or NAME=ADDRESS for each.")
    return choices_from(
        args.scale,
        args.choices,
        base=everywhere[0] if everywhere else "",
        bases=_pairs("--base", [text for text in args.base if "=" in text]),
        collections=_pairs("--collection", args.collection),
        systems=_pairs("--system", args.system),
        adapters=_pairs("--adapter", args.adapter),
        readers=_pairs("--reader", args.reader),
        runs=_pairs("--run", args.finished),
        seeds=tuple(args.seeds),
    )


def _pairs(flag: str, texts: Sequence[str]) -> dict[str, str]:
    found = dict(text.partition("=")[::2] for text in texts)
    if odd := [name for name, value in found.items() if not value]:
        raise InputError([f"{flag} {name}: write {flag} NAME=VALUE." for name in odd])
    return found


def _list(args: argparse.Namespace, choices: Choices, store: Store) -> int:
    rows = [(artifact, status_of(artifact, choices, store)) for artifact in ARTIFACTS.values()]
    if args.json:
        print_json([{"name": a.name, "label": a.label, "number": a.number, "title": a.title, **s._asdict()} for a, s in rows])
        return 0
    print_table(
        ["name", "number", "status", "runs", "cells", "title", "missing"],
        [[a.name, a.number, s.status, f"{s.done}/{s.runs}", s.cells, a.title, "; ".join(s.missing)] for a, s in rows],
    )
    return 0


def _plan(args: argparse.Namespace, plan: Plan) -> int:
    if args.json:
        print_json(
            {
                "runs": [
                    {"system": r.system, "base": r.base, "runs": r.runs, "done": r.done, "queries": r.size.queries}
                    | {"windows": r.size.windows, "tokens": r.size.tokens, "seconds": r.size.seconds, "cost": r.size.cost}
                    for r in plan.runs
                ],
                "trainings": [
                    {"system": t.system, "base": t.base, "task": t.task, "seed": t.seed, "done": done}
                    | {"label_windows": size.label_windows, "steps": size.steps, "tokens": size.tokens}
                    for t, done, size in plan.trainings
                ],
                "missing": plan.missing,
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
    print(f"\n{len(plan.jobs)} runs, {len(plan.trainings)} adapters; {len(plan.missing)} things are missing on this machine.")
    for sentence in plan.missing:
        print(sentence)
    return 0


def _run_cells(planned: PlannedRuns) -> list[object]:
    size = planned.size
    time = "unknown" if size.seconds is None else duration(size.seconds)
    money = "-" if size.cost is None else f"{size.cost:.2f}"
    counts = [f"{count:,}" for count in (size.queries, size.windows, size.tokens)]
    return [planned.system, planned.base, planned.runs, planned.done, *counts, time, money]


def _training_cells(size: TrainingSize) -> list[str]:
    return [f"{count:,}" for count in (size.label_windows, size.steps, size.tokens)]


def _run(args: argparse.Namespace, plan: Plan, choices: Choices, store: Store) -> int:
    refuse(*actor_mistakes(args))
    options = engine_options(args)
    if args.on:
        shared = SharedJobs(independent_groups(plan.jobs), store, choices, options, args.command)
        do_on_ray(shared, cluster_of(args), note, quiet=args.quiet)
    jobs = jobs_of_share(plan.jobs, args.shard) if args.shard else plan.jobs
    failed = do_all(jobs, Workshop(store, choices, options, args.command, quiet=args.quiet), note)
    done = len(jobs) - len(failed)
    if args.json:
        print_json({"runs": len(jobs), "done": done, "failed": failed})
    else:
        of_share = f" of share {args.shard}" if args.shard else ""
        print(f"{done} of {len(jobs)} runs{of_share} are complete in {store.folder}.")
    for sentence in failed:
        note(sentence)
    return 4 if failed else 0


def _show(args: argparse.Namespace, artifacts: list[Artifact], choices: Choices, store: Store) -> int:
    library = Library(store, choices)
    for artifact in artifacts:
        if artifact.is_diagram:
            note(f"{artifact.number} ({artifact.label}) is a diagram: there is nothing to measure.")
            continue
        print(FORMATS[args.format](fill(artifact, library), Shown(args.paper, args.intervals)), end="")
    return 0


def _gallery(args: argparse.Namespace, artifacts: list[Artifact], choices: Choices, store: Store) -> int:
    made = write_gallery(artifacts, store, choices, args.out, bar("gallery", args.quiet, "artifact"))
    if args.json:
        print_json({"page": str(made.page), "artifacts": [state.as_json() for state in made.states]})
        return 0
    print_table(
        ["name", "number", "cells", "missing"],
        [[s.artifact.name, s.artifact.number, s.words, "; ".join(s.missing)] for s in made.states],
    )
    print(f"\n{made.page}")
    return 0
