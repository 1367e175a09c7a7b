"""`steadyscore score`: one presentation, as a TREC run, JSON lines or a table."""

from __future__ import annotations

import argparse
import json

import numpy as np

from ..collection import open_collection
from ..machine.disk import atomic
from ..machine.progress import bar
from ..models.embedded import DEFAULT
from ..scoring.score import AuditConfig, Cut, cut_instances, naming_failures, open_scorer, refuse_none_scored
from ..terms import Failure, Instance
from . import (
    add_engine,
    add_presentation,
    add_watch,
    check_watch,
    engine_options,
    examples,
    note_failed,
    print_table,
    settings_of,
)
from .flags import local_path, positive


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", default=DEFAULT, metavar="ADDRESS", help=f"what scores (default {DEFAULT})")
    parser.add_argument("--data", required=True, metavar="NAME|FILE", help="collection to score")
    parser.add_argument("--format", choices=["table", "trec", "jsonl"], default="table", help="what is printed or written")
    parser.add_argument("--out", type=local_path, metavar="FILE", help="write here instead of stdout")
    parser.add_argument("--top", type=positive, metavar="K", help="only the first K of each query")
    add_presentation(parser)
    add_engine(parser)
    add_watch(parser)
    examples(
        parser,
        "steadyscore score --data passages --queries 1 --pool 5",
        "steadyscore score --scorer synthetic:none --data passages --format trec --out passages.run",
    )


def run(args: argparse.Namespace) -> int:
    check_watch(args, args.scorer)
    config = AuditConfig(settings=settings_of(args), chars=args.chars, cut=Cut(args.queries, args.pool))
    source = open_collection(args.data)
    collection, instances = source.collection, source.instances
    scorer = open_scorer(args.scorer, collection, config, engine_options(args))
    todo = bar(args.scorer)(cut_instances(instances(), config.cut), args.queries or collection.queries)
    ranked: list[tuple[Instance, int, int, float]] = []
    failed: list[Failure] = []
    queries = 0
    for instance in todo:
        queries += 1
        with naming_failures(failed, instance.id):
            ranked += [(instance, *row) for row in _rank(instance, scorer.score(instance), args.top)]
    refuse_none_scored(scorer.name, failed, queries)
    _write(args, ranked)
    return note_failed(failed, f"{queries} queries of {scorer.name}")


def _write(args: argparse.Namespace, ranked: list[tuple[Instance, int, int, float]]) -> None:
    if args.format == "table" and args.out is None:
        print_table(["query", "rank", "candidate", "score"], [[q.id, rank, q.pool[i].id, score] for q, rank, i, score in ranked])
        return
    lines = [_line(args.format, *row) for row in ranked]
    if args.out is None:
        print("\n".join(lines))
        return
    with atomic(args.out) as stream:
        stream.write(("\n".join(lines) + "\n").encode())
    print(args.out)


def _rank(instance: Instance, scores: np.ndarray, top: int | None) -> list[tuple[int, int, float]]:
    """(rank, place in the pool, score), ties by candidate id."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], instance.pool[i].id))[:top]
    return [(rank, i, float(scores[i])) for rank, i in enumerate(order, 1)]


def _line(style: str, instance: Instance, rank: int, i: int, score: float) -> str:
    if style == "trec":
        return f"{instance.id} Q0 {instance.pool[i].id} {rank} {score:.8f} steadyscore"
    return json.dumps({"query_id": instance.id, "candidate_id": instance.pool[i].id, "rank": rank, "score": score})
