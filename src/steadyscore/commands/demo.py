"""`steadyscore demo`: the main job on what is embedded, small enough for a laptop's coffee break."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from ..audits.audit import Additions, Output, audit_scorers, write_results
from ..audits.configuration import configure
from ..audits.result import Audit, Audits
from ..scoring.score import AuditConfig
from . import add_engine, can_draw_page, engine_options, examples, name_failed, note, print_audits
from .flags import local_path

SLICES = (
    # (collection, queries, pool, width, permutations)
    ("passages", 8, 10, 10, 6),
    ("responses", 10, None, 6, 6),
)
"""What the demo scores of each embedded collection, so that it ends in minutes on two slow cores.

The width makes every pool one prompt, whatever a scorer's own width is: rows of the table differ by the scorer alone.
"""

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
    for name, queries, pool, _, permutations in SLICES:
        size = f"the first {pool} candidates" if pool else "all candidates"
        note(f"{name}: the first {queries} queries, {size} in one prompt, {permutations} permutations.")
    output = Output(args.out, report=can_draw_page(args.out), command=args.command, say=note)
    audits: list[Audit] = []
    for name, queries, pool, width, permutations in SLICES:
        config = configure(
            AuditConfig(), queries=queries, pool=pool, width=width, permutations=permutations, match_retention=RETENTION
        )
        part = audit_scorers(scorers, [name], config, engine_options(args), Additions(), replace(output, report=False))
        print_audits(part, as_json=False)
        audits += part
    whole = write_results(Audits(audits), args.out, output)
    if whole.page:
        print(f"report: {whole.page}")
    return name_failed(whole)
