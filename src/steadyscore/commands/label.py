"""`steadyscore label`: teacher labels from a scorer, from judgements, or from other labels."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..collection import open_collection
from ..errors import InputError
from ..machine.progress import bar
from ..runs.folder import Run
from ..scoring.score import AuditConfig, Cut, cut_instances, open_scorer
from ..scoring.starts import start_remarks, unwatched_parts
from ..tasks import TASKS
from ..terms import Failure
from ..training.labels import (
    Label,
    control,
    from_judgements,
    label_collection,
    label_quality,
    lowered,
    nested,
    read_labels,
    recalibrated,
    write_labels,
)
from . import (
    add_engine,
    add_json,
    add_presentation,
    add_scorer_change,
    add_watch,
    check_watch,
    engine_options,
    examples,
    note,
    note_failed,
    positive,
    print_json,
    print_table,
    settings_of,
)


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
    add_scorer_change(parser)
    add_presentation(parser)
    add_engine(parser)
    add_watch(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore label --scorer smollm2-135m --data passages --queries 2 --pool 4 --width 4 --teacher-orders 2 "
        "--out labels/first",
        "steadyscore label --scorer judgements --data passages --out labels/judged",
    )


def run(args: argparse.Namespace) -> int:
    check_watch(args, args.scorer or "")
    out, source = Path(args.out), args.start or args.scorer
    is_derived = args.start or args.scorer == "judgements"
    labels, failed = (derived(args), []) if is_derived else scored(args, out)
    changed, unmatched = changed_labels(args, labels)
    if is_derived or changed is not labels:
        asked = {"from": source, "teacher_orders": args.teacher_orders, "control": args.control, "subset": args.subset}
        write_labels(out, changed, asked | {"recalibrated_to": args.recalibrate_to, "seed": args.seed, "command": args.command})
    task = TASKS[open_collection(args.data).collection.task]
    missing = failed + unmatched
    found = label_quality(changed, args.data, task.quality_cutoff) | {
        "failed": [failure.to_json() for failure in missing],
        "out": str(out),
    }
    if args.json:
        print_json(found)
    else:
        print_table(["label set", "value"], (found | {"failed": len(missing)}).items())
    return note_failed(missing, f"{len(labels) + len(failed)} queries of {source}", "labelled")


def scored(args: argparse.Namespace, out: Path) -> tuple[list[Label], list[Failure]]:
    """Labels, and the queries that the teacher failed on."""
    collection = open_collection(args.data).collection
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
    labels = label_collection(
        scorer,
        args.data,
        out,
        config,
        scale=args.scale,
        command=args.command,
        progress=bar(f"labels of {args.scorer} for {collection.name}", args.json),
        allow_scorer_change=args.allow_scorer_change,
    )
    record = Run.open(out).record
    for remark in start_remarks(record) + unwatched_parts(record):
        note(f"{scorer.name}: {remark}")
    return labels, [Failure(**failure) for failure in record["coverage"]["failed"]]


def derived(args: argparse.Namespace) -> list[Label]:
    if args.start:
        return [lowered(label, args.teacher_orders) for label in read_labels(Path(args.start))]
    instances = open_collection(args.data).instances
    cut = cut_instances(instances(), Cut(args.queries, args.pool))
    found = {instance.id: from_judgements(instance, args.judged_top) for instance in cut}
    labels = [label for label in found.values() if label is not None]
    if not labels:
        raise InputError(f"no query of {args.data} has a judged candidate. Name a scorer to label with: --scorer ADDRESS.")
    if unjudged := [query_id for query_id, label in found.items() if label is None]:
        share = f"{len(unjudged)} of {len(found)} queries"
        note(f"{share} have no judged candidate and get no label: {', '.join(unjudged[:10])}.")
    return labels


def changed_labels(args: argparse.Namespace, labels: list[Label]) -> tuple[list[Label], list[Failure]]:
    """The labels that were asked for, and the queries that the labels to recalibrate to do not have."""
    unmatched: list[Failure] = []
    if args.recalibrate_to:
        reference = {label.query_id: label for label in read_labels(Path(args.recalibrate_to))}
        reason = f"no label in {args.recalibrate_to}"
        unmatched = [Failure(label.query_id, reason) for label in labels if label.query_id not in reference]
        labels = [recalibrated(label, reference[label.query_id]) for label in labels if label.query_id in reference]
        if not labels:
            raise InputError(
                f"no query of {args.start or args.scorer} has a label in {args.recalibrate_to}. Name labels of the same data."
            )
    if args.control:
        labels = [control(label, args.control, args.seed) for label in labels]
    return nested(labels, args.subset, args.seed) if args.subset else labels, unmatched
