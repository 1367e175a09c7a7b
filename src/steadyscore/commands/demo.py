"""`steadyscore demo`: the main job on what is embedded, small enough for a laptop's coffee break."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..engines import check_address
from . import add_engine, can_draw_page, examples, note
from .audit import arguments as audit_arguments
from .audit import audit, config_of, name_failed

SLICES = (
    # (collection, queries, pool, permutations, width)
    ("passages", 8, 10, 6, 10),
    ("responses", 10, None, 6, 4),
)
"""What the demo scores of each embedded collection, so that it ends in minutes on two slow cores."""

SCORERS = ("smollm2-135m", "smollm2-135m-single", "smollm2-135m-oc")
"""Off the shelf, distilled in one order, order-consistent."""

RETENTION = 0.3
"""The demo's threshold keeps this share of the pool: an F1-tuned cutoff of an untrained grader would keep everything."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, default=Path("runs/demo"), metavar="DIR", help="where it goes (default runs/demo)")
    parser.add_argument("--scorer", action="append", metavar="ADDRESS", help="audit this instead of the embedded scorers")
    add_engine(parser)
    examples(parser, "steadyscore demo", "steadyscore demo --scorer synthetic:slot --out runs/demo-planted")


def run(args: argparse.Namespace) -> int:
    scorers = args.scorer or SCORERS
    for address in scorers:
        check_address(address)
    draws_page = can_draw_page(args.out)
    for name, queries, pool, permutations, width in SLICES:
        size = f"the first {pool} candidates" if pool else "all candidates"
        note(f"{name}: the first {queries} queries, {size}, {permutations} permutations, {width} per prompt.")
    found = []
    for name, queries, pool, permutations, width in SLICES:
        # The verb's own parser fills in every other flag, so the demo is an audit that a user could type.
        flags = [f"--scorer={address}" for address in scorers] + [f"--data={name}", f"--out={args.out / name}", "--no-report"]
        flags += [f"--queries={queries}", f"--permutations={permutations}", f"--width={width}", f"--match-retention={RETENTION}"]
        flags += [f"--pool={pool}"] if pool else []
        parser = argparse.ArgumentParser()
        audit_arguments(parser)
        engine = {flag: value for flag, value in vars(args).items() if flag not in ("scorer", "out")}
        slice_ = parser.parse_args(flags, argparse.Namespace(**engine))
        found += audit(slice_, config_of(slice_))
    if draws_page:
        from ..report import load_variants, write_report

        print(f"report: {write_report(load_variants([run_ for run_, *_ in found]), args.out / 'report')}")
    return name_failed(found)
