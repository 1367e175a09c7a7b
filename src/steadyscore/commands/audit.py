"""`steadyscore audit`: score under M permutations, then every measure there is; or measure anybody's score file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..audits.audit import Additions, Output, audit_scorers, audit_scores, open_sources
from ..audits.estimate import estimate_audit
from ..audits.result import Audit
from ..audits.table import text_table
from ..collection import Source
from ..measures.answers import EVIDENCE
from ..measures.ir_library import parse_measures
from ..measures.measurement import Threshold
from ..scoring.mitigations import MITIGATIONS
from ..scoring.perturbation import PERTURBATIONS
from ..scoring.score import AuditConfig, Cut
from . import (
    add_budget,
    add_engine,
    add_json,
    add_presentation,
    add_scorer_change,
    add_threshold,
    add_watch,
    can_draw_page,
    check_watch,
    engine_options,
    examples,
    name_failed,
    note,
    page_of,
    print_audits,
    print_below,
    print_json,
    refuse,
    settings_of,
    threshold_of,
)
from .audit_decisions import run_decisions
from .flags import add_field, add_fields, positive


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", action="append", default=[], metavar="ADDRESS", help="what to audit; repeat it to compare")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME|FILE", help="collection to score; repeat it for several"
    )
    parser.add_argument(
        "--scores",
        metavar="FILE",
        nargs="+",
        help="measure this score file (Parquet, CSV, JSONL, or one TREC run per permutation) instead of scoring",
    )
    parser.add_argument("--relevance", metavar="FILE", help="TREC qrels for --scores")
    parser.add_argument(
        "--decisions",
        metavar="FILE",
        help="audit a decision model on these states and typed questions (JSONL or JSON; `tickets` is embedded)",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where runs, tables and the report go (with --scores it may be left out)"
    )
    add_field(parser, AuditConfig, "permutations", metavar="M")
    add_fields(parser, AuditConfig, "seed scheme noise_floor")
    parser.add_argument(
        "--perturb", nargs="+", default=[], choices=PERTURBATIONS, help="also change the pool or the markers at a fixed order"
    )
    parser.add_argument(
        "--mitigation",
        action="append",
        default=[],
        metavar="NAME[:N]",
        help=f"serve the scorer in another way: {', '.join([*MITIGATIONS, 'pine'])}; repeat it, the first is innermost",
    )
    parser.add_argument(
        "--reader", action="append", default=[], metavar="ADDRESS", help="a frozen model that reads the first candidates"
    )
    parser.add_argument(
        "--reader-k", type=positive, default=EVIDENCE, metavar="K", help=f"candidates a reader is shown (default {EVIDENCE})"
    )
    parser.add_argument(
        "--ir", nargs="+", default=[], metavar="NAME", help="further ranking measures that ir_measures knows, such as P@5"
    )
    parser.add_argument("--curve", action="store_true", help="add every measure at serving budgets K = 1..10 to --json")
    parser.add_argument("--dry-run", action="store_true", help="print windows, tokens, time and cost, and stop")
    parser.add_argument("--no-report", action="store_true", help="leave out the HTML page")
    add_scorer_change(parser)
    add_json(parser)
    add_presentation(parser)
    add_threshold(parser)
    add_budget(parser)
    add_engine(parser)
    add_watch(parser)
    examples(
        parser,
        "steadyscore audit --scorer smollm2-135m --data passages --queries 4 --pool 8 --permutations 4 --out runs/first",
        "steadyscore audit --scorer synthetic:slot --scorer synthetic:none --data responses --out runs/planted",
        "steadyscore audit --decisions tickets --scorer systemone:my-model@http://localhost:8000/v1 --dry-run",
    )


def config_of(args: argparse.Namespace) -> AuditConfig:
    return AuditConfig(
        permutations=args.permutations,
        seed=args.seed,
        scheme=args.scheme,
        settings=settings_of(args),
        chars=args.chars,
        cut=Cut(args.queries, args.pool),
        threshold=threshold_of(args) or Threshold(),
        noise_floor=args.noise_floor,
    )


def run(args: argparse.Namespace) -> int:
    if args.decisions:
        return run_decisions(args)
    if args.scores:
        return _audit_scores(args)
    refuse(
        *(["--scorer is missing: say what to audit, for example --scorer smollm2-135m."] if not args.scorer else []),
        *(["--data is missing: name a collection or a file; `steadyscore data list` prints the names."] if not args.data else []),
        *(["--out is missing: say where the run goes."] if args.out is None and not args.dry_run else []),
        *([_too_many(args)] if args.serving_permutations > args.permutations else []),
        *(["--perturb markers measures the scorer itself; leave out --mitigation."] if _renamed(args) else []),
    )
    check_watch(args, *args.scorer)
    scorers, config = {address: address for address in args.scorer}, config_of(args)
    if args.dry_run:
        return _estimate(args, config, open_sources(scorers, args.data, additions_of(args), is_plan=True))
    audits = audit_scorers(scorers, args.data, config, engine_options(args), additions_of(args), output_of(args))
    print_audits(audits, args.json)
    return name_failed(audits)


def _estimate(args: argparse.Namespace, config: AuditConfig, sources: Sequence[Source]) -> int:
    estimates = estimate_audit(args.scorer, sources, config, additions_of(args), engine_options(args).price)
    if args.json:
        print_json(estimates.to_json())
    else:
        print(estimates)
    return 0


def additions_of(args: argparse.Namespace) -> Additions:
    return Additions(
        mitigations=args.mitigation,
        perturb=args.perturb,
        readers=args.reader,
        reader_k=args.reader_k,
        ir=args.ir,
        serving_permutations=args.serving_permutations,
        curve=args.curve,
    )


def output_of(args: argparse.Namespace) -> Output:
    report = args.out is not None and not args.no_report and can_draw_page(args.out)
    return Output(args.out, report, args.json, args.command, args.allow_scorer_change, note)


def _too_many(args: argparse.Namespace) -> str:
    asked = f"--serving-permutations {args.serving_permutations}"
    return f"{asked} averages more orders than the {args.permutations} that are scored. Lower it, or raise --permutations."


def _renamed(args: argparse.Namespace) -> bool:
    return bool(args.mitigation) and "markers" in args.perturb


def _audit_scores(args: argparse.Namespace) -> int:
    refuse(
        *(["--scores measures a file; leave out --scorer and --data."] if args.scorer or args.data else []),
        *(
            f"--{flag.replace('_', '-')} needs a scorer to score with; leave it out."
            for flag in ("noise_floor", "perturb", "reader", "mitigation", "curve", "dry_run", "watch")
            if getattr(args, flag)
        ),
    )
    parse_measures(args.ir)
    threshold = threshold_of(args) or Threshold()
    audits = audit_scores(args.scores, args.relevance, threshold, additions_of(args), output_of(args))
    if args.json:
        whole = audits.to_json()
        print_json({key: whole[key] for key in ("measures", "coverage", "cutoff")} | page_of(audits))
        return 0
    print(_measures_table(audits[0]))
    print_below(audits, Path(args.scores[0]).name)
    return 0


def _measures_table(audit: Audit) -> str:
    rows = [
        [name, f.value, "-" if f.low is None else f"[{f.low:.3f}, {f.high:.3f}]", f.queries] for name, f in audit.figures.items()
    ]
    return text_table(["measure", "value", "95 % interval", "queries"], rows)
