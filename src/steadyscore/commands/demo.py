"""`steadyscore demo`: the main job on what is embedded, small enough for a laptop's coffee break."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.audit import audit
from ..collection import open_collection
from ..engines import EngineOptions
from ..scoring.rerank import Ranker
from .flags import local_path, scorers_by_name
from .shared import add_all, add_engine, can_draw_page, engine_options, examples, name_failed, note, note_after, print_audits

QUERIES, POOL, PERMUTATIONS = 12, 10, 6
"""Of the embedded passages, so that the demo ends in minutes on two slow cores and every figure has an interval.

The whole pool is one prompt, whatever a scorer's own width is: rows of the table differ by the scorer alone.
"""
KEPT = 0.3
"""The share of every pool that is kept: no cutoff that a few queries would have to be enough for, and no set is empty."""
SCORERS = ("off the shelf=smollm2-135m", "order-consistent=smollm2-135m-oc", "as a set=smollm2-135m-set")
"""One model in three states: as it is, trained to hold still, and without an order at all."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=local_path, default=Path("runs/demo"), metavar="DIR", help="where it goes (default runs/demo)"
    )
    parser.add_argument("--scorer", action="append", metavar="[NAME=]ADDRESS", help="audit this instead of the embedded scorers")
    add_all(parser)
    add_engine(parser)
    examples(parser, "steadyscore demo", "steadyscore demo --scorer synthetic:slot --out runs/demo-planted")


def show_example(name: str, scorer: str, options: EngineOptions) -> None:
    """What a scorer keeps of one pool in two orders: something to read while the rest is scored."""
    instance = next(iter(open_collection("passages").instances()))
    pool, count = [candidate.text for candidate in instance.pool[:POOL]], round(KEPT * POOL)
    ranker = Ranker(scorer, width=POOL, options=options)
    one = {place for place, _ in ranker.rank(instance.query, pool, count)}
    other = {POOL - 1 - place for place, _ in ranker.rank(instance.query, pool[::-1], count)}
    first, second = (", ".join(str(place + 1) for place in sorted(places)) for places in (one, other))
    note(
        f"for example, {instance.query!r}: {name} keeps passages {first}, and of the same passages in reverse order {second} "
        f"({len(one & other)} of {count} alike). How often that happens is counted now, in a few minutes."
    )


def run(args: argparse.Namespace) -> int:
    kept = f"the best {round(KEPT * POOL)} are kept"
    note(f"passages: the first {QUERIES} queries, {POOL} candidates in one prompt, {PERMUTATIONS} random orders; {kept}.")
    if not args.scorer and not args.out.exists():
        show_example(*next(iter(scorers_by_name(SCORERS).items())), engine_options(args))
    audits = audit(
        scorers_by_name(args.scorer or SCORERS), "passages", out=args.out, options=engine_options(args), command=args.command,
        report=can_draw_page(args.out), queries=QUERIES, pool=POOL, width=POOL, permutations=PERMUTATIONS, keep_share=KEPT,
    )  # fmt: skip
    print_audits(audits, args)
    return name_failed(audits) or note_after(args, audits)
