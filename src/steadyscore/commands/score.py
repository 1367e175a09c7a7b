"""`steadyscore score`: one presentation, as a TREC run, JSON lines or a table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from ..collection import Data, name_columns, open_collection
from ..collection.trec import falling_scores
from ..errors import InputError
from ..machine.disk import atomic
from ..machine.places import parse_place
from ..models.embedded import DEFAULT, FIRST_STAGE_SHARE
from ..scoring.config import Cut
from ..scoring.parts import score_on
from ..scoring.rerank import Place, Rankings, RankingWork, rank_collection
from ..scoring.score import cut_instances
from ..scoring.starts import start_remarks
from .flags import add_columns, positive, scorers_by_name
from .shared import (
    add_dry_run,
    add_engine,
    add_json,
    add_presentation,
    add_scorer_change,
    add_workers,
    config_of,
    engine_options,
    examples,
    note,
    note_failed,
    print_estimate,
    print_json,
    print_table,
    refuse,
    run_share,
)

TREC_FILES = (".run", ".trec")
"""How the names of files end that hold a TREC run."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", default=DEFAULT, metavar="[NAME=]ADDRESS", help=f"what scores (default {DEFAULT})")
    parser.add_argument("--data", required=True, metavar="NAME|FILE|FOLDER", help="collection to score")
    add_columns(parser)
    parser.add_argument(
        "--format",
        choices=["table", "trec", "jsonl"],
        help="what is printed or written (default: a table; in a file jsonl, and trec in one that ends in .run or .trec)",
    )
    parser.add_argument(
        "--out",
        type=parse_place,
        metavar="FILE",
        help="write here instead of stdout; until it is whole, scores are kept in FILE.parts",
    )
    parser.add_argument("--top", type=positive, metavar="K", help="only the first K of each query")
    parser.add_argument(
        "--mitigation",
        action="append",
        dest="served",
        metavar="NAME[:N]",
        help="serve the scorer in another way, as in `audit`; none: by itself "
        f"(default: first-stage:{FIRST_STAGE_SHARE} with {DEFAULT} where a first stage ranked the pools, else none)",
    )
    add_dry_run(parser)
    add_scorer_change(parser)
    add_workers(parser)
    add_json(parser)
    add_presentation(parser)
    add_engine(parser)
    examples(
        parser,
        "steadyscore score --data passages --queries 1 --pool 5",
        "steadyscore score --scorer synthetic:none --data passages --format trec --out passages.run",
    )


def run(args: argparse.Namespace) -> int:
    ((name, address),) = scorers_by_name([args.scorer]).items()
    if (args.shard or args.on) and args.out is None and not args.dry_run:
        refuse("--out is missing: workers keep their parts beside the file that all of them see.")
    config = config_of(args)
    data = name_columns(args.data, args.columns)
    if args.format is None:
        args.format = "trec" if args.out is not None and args.out.suffix in TREC_FILES else "table"
    if args.format == "trec":
        _check_ids(data, config.cut)
    folder = None if args.out is None else args.out.with_name(f"{args.out.name}.parts")
    asked = args.served if args.served is None else [name for name in args.served if name != "none"]
    work = RankingWork(
        address, data, folder, config, engine_options(args), args.quiet, args.command, args.allow_scorer_change, asked
    )
    if args.dry_run:
        return print_estimate(args, work.data, replace(work.one_order, mitigations=tuple(asked or ())), work.options)
    if args.shard:
        return run_share(args, work)
    if cluster := args.on:
        score_on(cluster, work, note)
    with rank_collection(work, args.top) as rankings:
        if asked is None and rankings.to_json()["mitigations"]:
            note(f"{FIRST_STAGE_SHARE} % of each score is the first stage's rank; --mitigation none leaves it out.")
        for remark in start_remarks(rankings.run.record):
            note(f"{name}: {remark}")
        _write(args, rankings)
        return note_failed(rankings.failed, f"{rankings.queries} queries of {name}")


def _check_ids(data: Data, cut: Cut) -> None:
    """Refuse ids that would be several columns of a TREC run, before anything is scored."""
    source = open_collection(data)
    instances = cut_instances(source.instances(), cut)
    ids = (id for instance in instances for id in (instance.id, *(candidate.id for candidate in instance.pool)))
    if (odd := next((id for id in ids if id.split() != [id]), None)) is not None:
        raise InputError(
            f"{source.name}: the id {odd!r} holds a blank, which a TREC run cannot. Choose --format jsonl, or ids without blanks."
        )


def _write(args: argparse.Namespace, rankings: Rankings) -> None:
    if args.out is not None:
        with atomic(args.out) as stream:
            stream.writelines(f"{line}\n".encode() for line in _lines(args.format, rankings))
    if args.json:
        places = {"ranking": [place._asdict() for place in rankings]} if args.out is None else {"out": str(args.out)}
        print_json(rankings.to_json() | places)
    elif args.out is not None:
        print(args.out)
    elif args.format == "table":
        print_table(["query", "rank", "candidate", "score"], rankings)
    else:
        for line in _lines(args.format, rankings):
            print(line)


def _lines(style: str, rankings: Iterable[Place]) -> Iterator[str]:
    if style != "trec":
        order = ("query_id", "candidate_id", "rank", "score")
        yield from (json.dumps({name: getattr(place, name) for name in order}) for place in rankings)
        return
    for _, group in groupby(rankings, lambda place: place.query_id):
        places = list(group)
        for place, score in zip(places, falling_scores([place.score for place in places]), strict=True):
            yield f"{place.query_id} Q0 {place.candidate_id} {place.rank} {score!r} steadyscore"
