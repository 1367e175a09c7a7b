"""`steadyscore compare`: runs against a baseline, paired by collection and query."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.compare import Contrast, Values, contrasts, disagreement
from ..audits.load import load_runs, own_threshold
from ..audits.missing import missing_queries, missing_remark
from ..audits.result import Audits
from ..errors import InputError
from ..machine.extras import PAGE, check_installed
from ..measures.registry import MEASURES
from ..report.settings import distinct_names
from ..runs.folder import find_runs
from . import add_budget, add_json, add_threshold, examples, print_json, print_table, refuse, threshold_of

DEFAULT = (
    "ndcg@10",
    "ndcg@1",
    "tau_psi",
    "order_spread@10",
    "overlap",
    "retained_f1",
    "f1_spread",
    "pair_flip",
    "gold_crossing",
    "label_accuracy",
    "answer_em",
    "answer_f1",
    "answer_flip",
    "verdict_accuracy",
    "verdict_flip",
)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run folders, or folders that hold some")
    parser.add_argument("--baseline", metavar="SCORER", help="what the others are compared with (default: the first)")
    parser.add_argument("--measures", nargs="+", default=DEFAULT, metavar="NAME", help="measures to compare")
    parser.add_argument("--report", type=Path, metavar="DIR", help="also write a page with the quality-against-decision figure")
    add_threshold(parser)
    add_budget(parser)
    add_json(parser)
    examples(
        parser,
        "steadyscore compare runs/planted",
        "steadyscore compare runs/planted --baseline synthetic:slot:0.2 --measures tau_psi overlap --json",
    )


def run(args: argparse.Namespace) -> int:
    if unknown := [name for name in args.measures if name not in MEASURES]:
        refuse(f"unknown measure {', '.join(unknown)}; `steadyscore measures list` prints them.")
    if args.report:
        check_installed("--report", *PAGE)
    runs = find_runs(args.runs)
    threshold = threshold_of(args)
    if threshold is None and len({own_threshold(found) for found in runs}) > 1:
        raise InputError(
            "these runs were audited with different thresholds. Give one for all: --match-retention SHARE or --cutoff X|f1."
        )
    names = distinct_names([(r.record["name"], r.record["collection"], r.record["fingerprint"]) for r in runs])
    audits = Audits(load_runs(runs, threshold, args.serving_permutations))
    told = [missing_remark(r, absent) for r in runs if (absent := missing_queries(r, ()))]
    values: Values = {}
    for name, audit in zip(names, audits, strict=True):
        values.setdefault(name, {})[audit.collection] = audit.measured
    if len(values) < 2:
        raise InputError(f"only {next(iter(values))} is there to compare. Give a run of another scorer too.")
    baseline = args.baseline or next(iter(values))
    rows = contrasts(values, baseline, args.measures)
    absent = [name for name in args.measures if name not in {row.measure for row in rows}]
    if not rows or (absent and args.measures is not DEFAULT):
        raise InputError(f"no two runs have {', '.join(absent)} to compare. `steadyscore measures list` says what it needs.")
    pairs = (("ndcg@10", "overlap"), ("ndcg@1", "pair_flip"))
    discord = [one for quality, decision in pairs if (one := disagreement(values, quality, decision))]
    if args.report:
        page = audits.report(args.report)
    if args.json:
        print_json({"baseline": baseline, "contrasts": [_as_json(row) for row in rows], "discordance": discord, "missing": told})
        return 0
    print_table(
        ["variant", "measure", "level", f"minus {baseline}", "adjusted p", "wins", "better"], [_cells(row) for row in rows]
    )
    for d in discord:
        count = f"{d['discordant']} of {d['collections']} collections"
        print(f"\nThe best by {d['quality']} is not the best by {d['decision']} on {count}.")
    for remark in told:
        print(f"\n{remark}")
    if args.report:
        print(f"report: {page}")
    return 0


def _cells(row: Contrast) -> list:
    d = row.difference
    return [
        row.variant,
        row.measure,
        row.level,
        f"{d.value:+.3f} [{d.low:+.3f}, {d.high:+.3f}]",
        row.adjusted_p,
        f"{row.wins}/{row.collections}",
        row.better,
    ]


def _as_json(row: Contrast) -> dict:
    return {
        "variant": row.variant,
        "measure": row.measure,
        "level": row.level,
        "difference": {
            "value": row.difference.value,
            "low": row.difference.low,
            "high": row.difference.high,
            "queries": row.difference.queries,
        },
        "adjusted_p": row.adjusted_p,
        "wins": row.wins,
        "collections": row.collections,
        "better": row.better,
    }
