"""`steadyscore audit`: score under M permutations, then every measure there is; or measure anybody's score file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from ..audits.audit import Additions, AuditWork, Output, audit_scorers, audit_scores
from ..audits.load import reading_from
from ..audits.score_arrays import read_any_scores
from ..collection import name_columns
from ..engines.generator import Decoding
from ..machine.disk import is_there
from ..machine.places import parse_place
from ..measures.answers import EVIDENCE
from ..measures.ir_library import parse_measures
from ..measures.reading import Reading
from ..measures.threshold import Threshold
from ..scoring.mitigations import MITIGATIONS
from ..scoring.perturbation import PERTURBATIONS
from ..scoring.score import AuditConfig, Cut
from . import (
    THRESHOLD_FLAGS,
    add_all,
    add_budget,
    add_engine,
    add_json,
    add_presentation,
    add_reading,
    add_scorer_change,
    add_threshold,
    add_watch,
    can_draw_page,
    engine_options,
    examples,
    name_failed,
    note,
    note_after,
    print_audits,
    refuse,
    settings_of,
    threshold_of,
)
from .audit_decisions import READ_WITH_DECISIONS, run_decisions
from .flags import add_columns, add_field, add_fields, mode_mistakes, positive, scorers_by_name
from .workers import actor_mistakes, add_dry_run, add_workers, print_estimate, run_workers

READ_WITH_SCORES = (
    "scores", "relevance", "name", "out", "no_report", "all", "json", "ir", "serving_permutations", "readout", "ties",
    *THRESHOLD_FLAGS,
)  # fmt: skip
"""The flags of an audit that say something about a file of scores."""
QUERY_IDS = "only these queries: ids with commas between them, or a file with one on each line"


def query_ids(text: str) -> tuple[str, ...]:
    """The ids that a file lists, or that stand in the text itself."""
    lines = (
        Path(text).read_text(encoding="utf-8-sig").splitlines() if is_there(text) and Path(text).is_file() else text.split(",")
    )
    ids = tuple(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not ids:
        raise argparse.ArgumentTypeError(f"{text} names no query")
    return ids


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scorer", action="append", default=[], metavar="[NAME=]ADDRESS", help="what to audit; can be repeated")
    parser.add_argument(
        "--data", action="append", default=[], metavar="NAME|FILE|FOLDER", help="collection to score; repeat it for several"
    )
    add_columns(parser)
    parser.add_argument(
        "--scores",
        metavar="FILE",
        nargs="+",
        help="measure this score file (Parquet, CSV, JSONL, or one TREC run per permutation) instead of scoring",
    )
    parser.add_argument("--relevance", metavar="FILE", help="TREC qrels for --scores")
    parser.add_argument("--name", help="what --scores are called (default: what the names of the files begin with)")
    parser.add_argument(
        "--decisions",
        metavar="FILE",
        help="audit a decision model on these states and typed questions (JSONL or JSON; `tickets` is embedded)",
    )
    parser.add_argument(
        "--out", type=parse_place, metavar="DIR", help="where runs, tables and the report go (with --scores it may be left out)"
    )
    add_field(parser, AuditConfig, "permutations", metavar="M")
    add_fields(parser, AuditConfig, "seed scheme noise_floor noise_reads")
    add_field(parser, Cut, "query_ids", type=query_ids, metavar="FILE|ID,...", help=QUERY_IDS)
    parser.add_argument(
        "--perturb",
        nargs="+",
        default=[],
        choices=PERTURBATIONS,
        help="also change the pool, the markers or the first stage's order",
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
        "--reader-decoding",
        choices=get_args(Decoding),
        default="greedy",
        help="how a verdict is read: token by token among the labels (default), or as the label likeliest as a whole",
    )
    parser.add_argument(
        "--ir", nargs="+", default=[], metavar="NAME", help="further ranking measures that ir_measures knows, such as P@5"
    )
    parser.add_argument(
        "--curve",
        action="store_true",
        help="add every measure at serving budgets K = 1..10 to --json; quality at K = 1 is that of the first-stage order",
    )
    parser.add_argument(
        "--apart-from",
        nargs="+",
        default=[],
        metavar="NAME|FILE",
        help="refuse data that shares a query (by id or text) or a candidate (by text) with these, such as what the scorer was "
        "trained on",
    )
    add_dry_run(parser)
    parser.add_argument("--no-report", action="store_true", help="leave out the HTML page")
    add_scorer_change(parser)
    add_workers(parser)
    add_all(parser)
    add_json(parser)
    add_presentation(parser)
    add_threshold(parser)
    add_reading(parser)
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
        cut=Cut(args.queries, args.pool, args.query_ids),
        threshold=threshold_of(args) or Threshold(),
        reading=reading_from(args.readout, args.ties) or Reading(),
        noise_floor=args.noise_floor,
        noise_reads=args.noise_reads,
    )


def run(args: argparse.Namespace) -> int:
    if args.decisions:
        mode = "--decisions asks about the states of a file"
        return run_decisions(args, mode_mistakes(mode, arguments, args, READ_WITH_DECISIONS))
    if args.scores:
        return _audit_scores(args)
    is_renamed = args.mitigation and {"markers", "held-out-markers"} & {*args.perturb}
    refuse(
        *(["--scorer is missing: say what to audit, for example --scorer smollm2-135m."] if not args.scorer else []),
        *(["--data is missing: name a collection or a file; `steadyscore data list` prints the names."] if not args.data else []),
        *(["--out is missing: say where the run goes."] if args.out is None and not args.dry_run else []),
        *(["--relevance judges --scores; the data of a scorer carries its own."] if args.relevance else []),
        *(["--name is that of --scores; name a scorer as --scorer NAME=ADDRESS."] if args.name is not None else []),
        *([TIED] if args.ties == "input" and (args.serving_permutations > 1 or args.curve) else []),
        *([_too_many(args)] if args.serving_permutations > args.permutations else []),
        *(["--perturb markers measures the scorer itself; leave out --mitigation."] if is_renamed else []),
        *actor_mistakes(args),
    )
    scorers, config = scorers_by_name(args.scorer), config_of(args)
    data = [name_columns(one, args.columns) for one in args.data]
    if args.dry_run:
        return print_estimate(args, data, config, additions_of(args), engine_options(args))
    work = AuditWork(scorers, data, config, engine_options(args), additions_of(args), output_of(args))
    if (code := run_workers(args, work)) is not None:
        return code
    audits = audit_scorers(work)
    print_audits(audits, args)
    return name_failed(audits) or note_after(args, audits)


def additions_of(args: argparse.Namespace) -> Additions:
    return Additions(
        mitigations=args.mitigation,
        perturb=args.perturb,
        readers=args.reader,
        reader_k=args.reader_k,
        reader_decoding=args.reader_decoding,
        ir=args.ir,
        serving_permutations=args.serving_permutations,
        curve=args.curve,
        apart_from=args.apart_from,
    )


def output_of(args: argparse.Namespace) -> Output:
    report = args.out is not None and not args.no_report and can_draw_page(args.out)
    return Output(args.out, report, args.quiet, args.command, args.allow_scorer_change, note)


def _too_many(args: argparse.Namespace) -> str:
    asked = f"--serving-permutations {args.serving_permutations}"
    return f"{asked} averages more orders than the {args.permutations} that are scored. Lower it, or raise --permutations."


TIED = "--ties input has no meaning in a mean of several orders: leave it out, or --serving-permutations and --curve."


def _audit_scores(args: argparse.Namespace) -> int:
    refuse(*mode_mistakes("--scores measures a file and scores nothing", arguments, args, READ_WITH_SCORES))
    parse_measures(args.ir)
    threshold = threshold_of(args) or Threshold()
    reading = reading_from(args.readout, args.ties)
    given = read_any_scores(args.scores, args.relevance, args.name)
    audits = audit_scores(given, threshold, additions_of(args), output_of(args), reading)
    print_audits(audits, args, Path(args.scores[0]).name if args.name is None and len(args.scores) == 1 else given.name)
    return note_after(args, audits)
