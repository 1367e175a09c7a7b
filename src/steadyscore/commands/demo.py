"""`steadyscore demo`: the main job on what is embedded, small enough for a laptop's coffee break."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.audit import Additions, Output, audit_scorers
from ..audits.configuration import configure
from ..audits.result import Audit, Audits
from ..scoring.score import AuditConfig
from . import add_engine, can_draw_page, engine_options, examples, name_failed, note, print_audits
from .flags import local_path

SLICES = (
    # (collection, queries, pool, permutations)
    ("passages", 8, 10, 6),
    ("responses", 10, None, 6),
)
"""What the demo scores of each embedded collection, so that it ends in minutes on two slow cores; a pool is one prompt."""

SCORERS = ("smollm2-135m", "smollm2-135m-single", "smollm2-135m-oc", "smollm2-135m-set")
"""Off the shelf, distilled in one order, order-consistent, without an order."""

RETENTION = 0.3
"""The demo's threshold keeps this share of the pool: an F1-tuned cutoff of an untrained grader would keep everything."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=local_path, default=Path("runs/demo"), metavar="DIR", help="where it goes (default runs/demo)"
    )
    parser.add_argument("--scorer", action="append", metavar="ADDRESS", help="audit this instead of the embedded scorers")
    add_engine(parser)
    examples(parser, "steadyscore demo", "steadyscore demo --scorer synthetic:slot --out runs/demo-planted")


def run(args: argparse.Namespace) -> int:
    scorers = {address: address for address in args.scorer or SCORERS}
    for name, queries, pool, permutations in SLICES:
        size = f"the first {pool} candidates" if pool else "all candidates"
        note(f"{name}: the first {queries} queries, {size} in one prompt, {permutations} permutations.")
    can_draw = can_draw_page(args.out)
    audits: list[Audit] = []
    for name, queries, pool, permutations in SLICES:
        config = configure(AuditConfig(), queries=queries, pool=pool, permutations=permutations, match_retention=RETENTION)
        output = Output(args.out / name, report=False, command=args.command, say=note)
        part = audit_scorers(scorers, [name], config, engine_options(args), Additions(), output)
        print_audits(part, as_json=False)
        audits += part
    whole = Audits(audits)
    if can_draw:
        print(f"report: {whole.report(args.out / 'report')}")
    return name_failed(whole)
