"""`steadyscore audit`: score under M permutations, then every measure; or measure a score file, or a decision model."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..audits.audit import ScorerInput, audit, decision_folders
from ..collection import name_columns
from ..decision_models.audit import audit_decisions, plan_decisions
from ..decision_models.result import write_decisions_report
from ..integrations.trackers import LOGS, track
from ..machine.disk import is_there
from ..machine.extras import check_installed
from ..machine.places import parse_place
from ..measures.stopping import Until
from ..scoring.config import AuditConfig, Cut
from ..scoring.mitigations import MITIGATIONS
from ..terms import PERTURBATIONS
from .flags import add_columns, add_field, add_fields, add_settings, as_flag, mode_mistakes, scorers_by_name
from .shared import (
    THRESHOLD_FLAGS,
    add_all,
    add_dry_run,
    add_engine,
    add_format,
    add_measuring,
    add_presentation,
    add_scorer_change,
    add_workers,
    can_draw_page,
    config_of,
    engine_options,
    examples,
    form_of,
    name_failed,
    note_after,
    note_failed,
    note_next,
    print_audits,
    print_estimate,
    print_json,
    refuse,
    run_share,
)

READ_WITH_SCORES = (
    "scores", "relevance", "name", "out", "no_report", "all", "json", "format", "track", "ir", "serving_permutations",
    "readout", "ties", *THRESHOLD_FLAGS,
)  # fmt: skip
"""The flags of an audit that say something about a file of scores."""
QUERY_IDS = "only these queries: ids with commas between them, or a file with one on each line"


def query_ids(text: str) -> tuple[str, ...]:
    """The ids that a file lists, or the text itself."""
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
    add_fields(parser, AuditConfig, "seed noise_floor")
    add_field(parser, Cut, "query_ids", type=query_ids, metavar="FILE|ID,...", help=QUERY_IDS)
    add_field(parser, AuditConfig, "perturb", nargs="+", type=str, choices=PERTURBATIONS)
    add_field(
        parser,
        AuditConfig,
        "mitigations",
        flag="--mitigation",
        dest="mitigations",
        default=None,
        action="append",
        type=str,
        metavar="NAME[:N]",
        help=f"serve the scorer in another way: {', '.join([*MITIGATIONS, 'pine'])}; repeat it, the first is innermost",
    )
    add_field(
        parser,
        AuditConfig,
        "readers",
        flag="--reader",
        dest="readers",
        default=None,
        action="append",
        type=str,
        metavar="ADDRESS",
    )
    add_field(parser, AuditConfig, "until", type=as_flag(Until.parse), metavar="BOUND")
    add_field(parser, AuditConfig, "apart_from", nargs="+", type=str, metavar="NAME|FILE")
    add_dry_run(parser)
    parser.add_argument("--track", choices=LOGS, help="also log every audit with this tracker, below --out and not online")
    parser.add_argument("--no-report", action="store_true", help="leave out the HTML page")
    add_scorer_change(parser)
    add_workers(parser)
    add_all(parser)
    add_format(parser)
    add_presentation(parser)
    add_measuring(parser)
    add_engine(parser)
    add_settings(parser, AuditConfig, "scheme noise_reads reader_k ir curve")
    examples(
        parser,
        "steadyscore audit --scorer smollm2-135m --data passages --queries 4 --pool 8 --permutations 4 --out runs/first",
        "steadyscore audit --scorer synthetic:slot --scorer synthetic:none --data responses --out runs/planted",
        "steadyscore audit --decisions tickets --scorer systemone:my-model@http://localhost:8000/v1 --dry-run",
    )


def run(args: argparse.Namespace) -> int:
    if args.decisions:
        mode = "--decisions asks about the states of a file"
        return run_decisions(args, mode_mistakes(mode, arguments, args, READ_WITH_DECISIONS))
    if args.scores:
        refuse(*mode_mistakes("--scores measures a file and scores nothing", arguments, args, READ_WITH_SCORES))
    else:
        refuse(*_mistakes(args))
    config, options = config_of(args), None if args.scores else engine_options(args)
    scorers, allowed = scorers_by_name(args.scorer), args.allow_scorer_change
    if args.track:
        check_installed(f"--track {args.track}", args.track)
    if args.dry_run or args.shard:
        data = [name_columns(one, args.columns) for one in args.data]
        if args.dry_run:
            return print_estimate(args, data, config, engine_options(args))
        work = ScorerInput(scorers, data, config, engine_options(args), args.out, args.quiet, args.command, allowed)
        return run_share(args, work)
    audits = audit(
        scorers or None,
        args.data or None,
        scores=args.scores,
        relevance=args.relevance,
        name=args.name,
        out=args.out,
        config=config,
        options=options,
        report=args.out is not None and not args.no_report and can_draw_page(args.out),
        quiet=args.quiet,
        command=args.command,
        allow_scorer_change=allowed,
        on=args.on,
        columns=args.columns,
    )
    if args.track:
        track(audits, args.track, args.out or Path())
    if not args.scores:
        print_audits(audits, args)
        return name_failed(audits) or note_after(args, audits)
    print_audits(audits, args, Path(args.scores[0]).name if args.name is None and len(args.scores) == 1 else audits[0].name)
    return note_after(args, audits)


def _mistakes(args: argparse.Namespace) -> list[object]:
    """What is wrong with the flags of an audit that scores; what is false is nothing."""
    is_renamed = args.mitigations and {"markers", "held-out-markers"} & {*(args.perturb or ())}
    return [
        not args.scorer and "--scorer is missing: say what to audit, for example --scorer smollm2-135m.",
        not args.data and "--data is missing: name a collection or a file; `steadyscore data list` prints the names.",
        args.out is None and not args.dry_run and "--out is missing: say where the run goes.",
        args.relevance and "--relevance judges --scores; the data of a scorer carries its own.",
        args.name is not None and "--name is that of --scores; name a scorer as --scorer NAME=ADDRESS.",
        args.ties == "input" and (args.serving_permutations > 1 or args.curve) and TIED,
        args.serving_permutations > args.permutations and _too_many(args),
        is_renamed and "--perturb markers measures the scorer itself; leave out --mitigation.",
        args.until and (args.shard or args.on) and NOT_SHARED,
    ]


def _too_many(args: argparse.Namespace) -> str:
    asked = f"--serving-permutations {args.serving_permutations}"
    return f"{asked} averages more orders than the {args.permutations} that are scored. Lower it, or raise --permutations."


TIED = "ties=input has no meaning in a mean of several orders: leave it out, or --serving-permutations and curve=yes."
NOT_SHARED = "--until decides after every query, and workers score apart: leave out --until, or --shard and --on."


# -- states and typed questions instead of a collection


READ_WITH_DECISIONS = (
    "decisions", "scorer", "out", "dry_run", "no_report", "json", "format", "permutations", "seed", "until",
    "concurrency", "rate", "retries", "timeout", "price", "cache",
)  # fmt: skip
"""The flags of an audit that say something about decisions; identical requests are always asked."""


def run_decisions(args: argparse.Namespace, unread: list[str]) -> int:
    """`unread` are the mistakes in flags that nothing here reads."""
    refuse(
        not args.scorer and "--scorer is missing: say what to audit, for example --scorer systemone:m@http://localhost:8000.",
        args.out is None and not args.dry_run and "--out is missing: say where the run goes.",
        *unread,
    )
    options, scorers = engine_options(args), scorers_by_name(args.scorer)
    if args.dry_run:
        plan = plan_decisions(args.decisions, args.permutations, args.seed, options.price)
        print_json(plan.to_json()) if form_of(args) == "json" else print(plan)
        return 0
    draws_page = not args.no_report and can_draw_page(args.out)
    out = args.out
    audits = [
        audit_decisions(
            address,
            args.decisions,
            folder,
            name=None if name == address else name,
            permutations=args.permutations,
            seed=args.seed,
            options=options,
            quiet=args.quiet,
            until=args.until,
        )
        for (name, address), folder in zip(scorers.items(), decision_folders(out, [*scorers]), strict=True)
    ]
    page = write_decisions_report(audits, out / "report") if draws_page else None
    if (form := form_of(args)) == "json":
        print_json({"audits": [audit.to_json() for audit in audits]} | ({"report": str(page)} if page else {}))
    elif form != "table":
        print("\n".join(audit.to_format(form) for audit in audits), end="")
    else:
        for audit in audits:
            if audit.saved:
                print(f"{audit.name} on {audit.collection}: {audit.saved}")
        print("\n\n".join(map(str, audits)))
        if page:
            print(f"report: {page!s}")
    code = max(note_failed(audit.failed, f"the states of {audit.name}", "answered") for audit in audits)
    if not code:
        several = ("compare", out, "--baseline", audits[0].name)
        note_next(args, *(several if len(audits) > 1 else ("gate", out, "--max", f"{audits[0].compared[0]}=0.1")))
    return code
