"""`steadyscore label`: teacher labels from a scorer, from judgements, or from other labels."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..audit import AuditConfig, Cut, bar, cut_instances, open_scorer
from ..collection import open_collection
from ..errors import UsageError
from ..tasks import TASKS
from ..teacher import (
    Label,
    control,
    from_judgements,
    label_collection,
    label_quality,
    nested,
    read_labels,
    recalibrated,
    write_labels,
)
from . import add_engine, add_json, add_presentation, engine_options, examples, positive, print_json, print_table, settings_of


def arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--scorer", metavar="ADDRESS", help="the teacher: a scorer address, or `judgements`")
    source.add_argument("--from", dest="start", metavar="DIR", help="derive from these labels instead of scoring")
    parser.add_argument("--data", required=True, metavar="NAME|FILE", help="the training collection")
    parser.add_argument(
        "--teacher-orders",
        type=positive,
        metavar="T",
        help="orders the teacher scores, or keeps of stored ones (default: 1, all stored)",
    )
    parser.add_argument(
        "--scale", choices=["unit", "sigmoid", "rank"], default="unit", help="how a teacher without grades gets onto 0 to 1"
    )
    parser.add_argument(
        "--judged-top", type=positive, default=3, metavar="N", help="highest judgement of the collection, which becomes grade 3"
    )
    parser.add_argument(
        "--recalibrate-to", metavar="DIR", help="give each query the values of these labels in its own rank order"
    )
    parser.add_argument(
        "--control", choices=["random", "shuffled"], help="negative control: random labels, or shuffled within a query"
    )
    parser.add_argument(
        "--rank-first-stage", action="store_true", help="also score the first-stage order, which `--propensity rankings` reads"
    )
    parser.add_argument("--subset", type=positive, metavar="N", help="a nested subset of N queries")
    parser.add_argument("--seed", type=int, default=0, help="seed of orders, controls and subsets")
    parser.add_argument("--out", required=True, metavar="DIR", help="label folder; the same command goes on where it stopped")
    add_presentation(parser)
    add_engine(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore label --scorer smollm2-135m --data passages --queries 2 --pool 4 --width 4 --teacher-orders 2 "
        "--out labels/first",
        "steadyscore label --scorer judgements --data passages --out labels/judged",
    )


def run(args: argparse.Namespace) -> int:
    out = Path(args.out)
    labels = derived(args) if args.start or args.scorer == "judgements" else scored(args, out)
    changed = changed_labels(args, labels)
    if args.start or args.scorer == "judgements" or changed is not labels:
        asked = {
            "from": args.start or args.scorer,
            "teacher_orders": args.teacher_orders,
            "control": args.control,
            "subset": args.subset,
        }
        write_labels(out, changed, asked | {"recalibrated_to": args.recalibrate_to, "seed": args.seed, "command": args.command})
    task = TASKS[open_collection(args.data)[0].task]
    found = label_quality(changed, args.data, task.quality_cutoff) | {"out": str(out)}
    if args.json:
        print_json(found)
    else:
        print_table(["label set", "value"], [[name, value] for name, value in found.items()])
    return 0


def scored(args: argparse.Namespace, out: Path) -> list[Label]:
    collection, _ = open_collection(args.data)
    settings = replace(settings_of(args), label_mass=False)
    config = AuditConfig(
        canonical=args.rank_first_stage,
        permutations=args.teacher_orders or 1,
        seed=args.seed,
        settings=settings,
        chars=args.chars,
        cut=Cut(args.queries, args.pool),
    )
    scorer = open_scorer(args.scorer, collection, config, engine_options(args))
    return label_collection(
        scorer, args.data, out, config, scale=args.scale, command=args.command, progress=bar("labels", args.json)
    )


def derived(args: argparse.Namespace) -> list[Label]:
    if args.start:
        labels = read_labels(Path(args.start))
        if args.teacher_orders:
            labels = [lowered(label, args.teacher_orders) for label in labels]
        return labels
    _, instances = open_collection(args.data)
    found = [from_judgements(instance, args.judged_top) for instance in cut_instances(instances(), Cut(args.queries, args.pool))]
    labels = [label for label in found if label is not None]
    if not labels:
        raise UsageError(f"no query of {args.data} has a judged candidate.")
    return labels


def lowered(label: Label, teacher_orders: int) -> Label:
    """Fewer teacher orders from the stored vectors; the averaged distribution belongs to all of them and goes."""
    if teacher_orders > len(label.vectors):
        raise UsageError(
            f"query {label.query_id} has {len(label.vectors)} stored teacher orders, {teacher_orders} were asked for."
        )
    return replace(
        label, vectors=label.vectors[:teacher_orders], grades=label.grades if teacher_orders == len(label.vectors) else None
    )


def changed_labels(args: argparse.Namespace, labels: list[Label]) -> list[Label]:
    if args.recalibrate_to:
        reference = {label.query_id: label for label in read_labels(Path(args.recalibrate_to))}
        labels = [recalibrated(label, reference[label.query_id]) for label in labels if label.query_id in reference]
    if args.control:
        labels = [control(label, args.control, args.seed) for label in labels]
    return nested(labels, args.subset, args.seed) if args.subset else labels
