"""`steadyscore audit`: score under M permutations, then every measure there is; or measure anybody's score file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..audit import AuditConfig, Cut, keep_scores, noise_floor, score_collection, scorer_for
from ..choice import scoring_address
from ..collection import open_collection
from ..disk import storage, write_parquet, write_record
from ..engines import check_address, open_engine, parse_address
from ..engines.generator import check_reader
from ..errors import InputError, SteadyscoreError
from ..estimate import estimate, remember_speed
from ..library import library_values, parsed
from ..measurement import Measured, Threshold, at_budget, measure
from ..measures import MEASURES
from ..mitigations import MITIGATIONS, mitigated
from ..perturbed import KINDS, score_perturbed
from ..progress import bar, job
from ..reading import EVIDENCE, check_readable, read_run
from ..readings import same_evidence_control
from ..runs import Run
from ..scorer import Scorer
from ..scores import Scored
from ..starts import start_remarks, unwatched
from ..summary import audited, curve, figure, measures_table, served_queries, summary
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
    note,
    note_failed,
    positive,
    print_json,
    print_table,
    refuse,
    settings_of,
    threshold_of,
)
from .dry_run import dry_run

COLUMNS = {
    "passage_reranking": ("ndcg@10", "tau_psi", "order_spread@10", "overlap", "retained_f1", "pair_flip"),
    "multidoc_qa": ("ndcg@10", "tau_psi", "order_spread@10", "overlap", "retained_f1", "pair_flip"),
    "claim_verification": ("ndcg@10", "tau_psi", "order_spread@10", "overlap", "retained_f1", "pair_flip"),
    "response_ranking": ("ndcg@1", "tau_psi", "order_spread@1", "overlap", "pair_flip", "gold_crossing"),
}
"""What the table on the terminal shows of each task; the report and --json show everything."""

ASKED_FOR = tuple(name for name, measure_ in MEASURES.items() if {"reader", "perturbed"} & set(measure_.needs))
"""Measures that only a flag brings: columns of the table where they were measured."""


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
        "--out", type=Path, metavar="DIR", help="where runs, tables and the report go (with --scores it may be left out)"
    )
    parser.add_argument("--permutations", type=positive, default=10, metavar="M", help="random orders to score (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the permutations (default 0)")
    parser.add_argument(
        "--scheme",
        choices=["hashed", "reference", "balanced"],
        default="hashed",
        help="where permutations come from; reference: the released code's global seeds",
    )
    parser.add_argument(
        "--noise-floor",
        action="store_true",
        help="also score one order repeatedly in other batches, and print what that alone moves",
    )
    parser.add_argument(
        "--perturb", nargs="+", default=[], choices=KINDS, help="also change the pool or the markers at a fixed order"
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
    config = config_of(args)
    if args.dry_run:
        _refuse_unusable(args)
        return dry_run(args, config)
    return name_failed(audit(args, config))


def name_failed(runs: list[tuple[Run, Measured, dict[str, Any]]]) -> int:
    """Name what could not be scored, in the runs, beside them and by their readers; the exit code."""
    codes = [0]
    for run_, _, figures in runs:
        name, coverage = run_.record["name"], run_.record["coverage"]
        codes.append(note_failed(coverage["failed"], f"{coverage['queries']} queries of {name}"))
        beside = {f"scored for --{flag}": failed for flag, failed in figures.get("failed", {}).items()}
        read = {f"read by {reader}": told["failed"] for reader, told in figures.get("readers", {}).items()}
        codes += [note_failed(failed, f"the queries of {name}", done) for done, failed in (beside | read).items()]
    return max(codes)


def _too_many(args: argparse.Namespace) -> str:
    asked = f"--serving-permutations {args.serving_permutations}"
    return f"{asked} averages more orders than the {args.permutations} that are scored. Lower it, or raise --permutations."


def _renamed(args: argparse.Namespace) -> bool:
    return bool(args.mitigation) and "markers" in args.perturb


def audit(args: argparse.Namespace, config: AuditConfig) -> list[tuple[Run, Measured, dict[str, Any]]]:
    """Score, measure, write and print; shared with `demo`."""
    _refuse_unusable(args)
    args.no_report = args.no_report or not can_draw_page(args.out)
    many = len(args.scorer) * len(args.data) > 1
    found: list[tuple[Run, Measured, dict[str, Any]]] = []
    for address in args.scorer:
        with job(f"loading {address}", unit=""):
            backend = open_engine(_chosen(args, address, many), engine_options(args))
        for source in args.data:
            collection, _ = open_collection(source)
            scorer = mitigated(scorer_for(backend, collection, config), args.mitigation)
            folder = _folder(args, address, source, many)
            run_ = score_collection(
                scorer,
                source,
                folder,
                config,
                command=args.command,
                progress=bar(f"{address} on {collection.name}", args.json),
                allow_scorer_change=args.allow_scorer_change,
            )
            coverage = run_.record["coverage"]
            if coverage.get("windows") and not args.mitigation:
                whole = estimate(address, source, config)
                remember_speed(address, round(whole.tokens * coverage["windows"] / max(whole.windows, 1)), coverage["seconds"])
            failed = _score_beside(args, config, scorer, run_, source)
            run_.keep(threshold=asdict(config.threshold))
            measured, figures = audited(run_, config.threshold, args.serving_permutations)
            if failed:
                figures["failed"] = failed
            if args.reader:
                _read(args, run_, source, measured, figures, [r for r, *_ in found if r.record["source"] == str(source)])
            if args.ir:
                figures["measures"] |= library_figures(served_queries(run_, args.serving_permutations), args.ir)
            if args.curve:
                figures["curve"] = curve(run_, config.threshold)
            found.append((run_, measured, figures))
    _write(args, found)
    _print(args, found)
    return found


def _score_beside(
    args: argparse.Namespace, config: AuditConfig, scorer: Scorer, run_: Run, source: str
) -> dict[str, list[dict[str, str]]]:
    """Noise floor and perturbations, where asked for, kept beside the run; gives what failed, by flag."""
    failed: dict[str, list[dict[str, str]]] = {}
    if config.noise_floor:
        progress = bar(f"{scorer.name}, noise floor", args.json)
        floor, failed["noise-floor"] = noise_floor(scorer, source, config, run_.noise(), progress)
        if floor:
            run_.keep_noise(floor)
    if args.perturb:
        unmoved = score_perturbed(scorer, run_, source, config, args.perturb, bar(f"{scorer.name}, perturbed", args.json))
        failed |= {f"perturb {kind}": queries for kind, queries in unmoved.items()}
    return {flag: queries for flag, queries in failed.items() if queries}


def _refuse_unusable(args: argparse.Namespace) -> None:
    """Whatever is named and cannot be used, all at once, before anything is opened: scoring may take hours."""
    checks: list[tuple[Callable[[Any], Any], Any]] = [
        *((parse_address if args.dry_run else check_address, address) for address in args.scorer),
        *((check_reader, address) for address in args.reader),
        *((check_address, address) for address in args.reader if not args.dry_run),
        *((_check_source if args.reader else open_collection, source) for source in args.data),
        (parsed, args.ir),
    ]
    mistakes = []
    for check, named in checks:
        try:
            check(named)
        except SteadyscoreError as error:
            mistakes.append(str(error))
    if mistakes:
        raise InputError(list(dict.fromkeys(mistakes)))


def _check_source(source: str) -> None:
    check_readable(open_collection(source)[0].task)


def _chosen(args: argparse.Namespace, address: str, many: bool) -> str:
    """The faster engine for an embedded model on a CPU; a run that has begun keeps its own, and PINE has only `hf`."""
    if "pine" in args.mitigation:
        return address
    chosen, why = scoring_address(address, engine_options(args), [_folder(args, address, source, many) for source in args.data])
    if why:
        note(why)
    return chosen


def _folder(args: argparse.Namespace, address: str, source: str, many: bool) -> Path:
    return args.out / slug(open_collection(source)[0].name) / slug(address) if many else args.out


def _read(
    args: argparse.Namespace, run_: Run, source: str, measured: Measured, figures: dict[str, Any], before: list[Run]
) -> None:
    """What each reader makes of a run. The first one's measures are the run's; all stand under `readers`."""
    figures["readers"] = {}
    for address in args.reader:
        how = {"k": args.reader_k, "serving_permutations": args.serving_permutations, "options": engine_options(args)}
        found = read_run(run_, source, address, progress=bar(f"{address} reads", args.json), **how)
        told = {name: figure([values]) for name, values in found.values.items()}
        if address == args.reader[0]:
            measured.values.update(found.values)
            figures["measures"] |= told
        figures["readers"][address] = {"k": args.reader_k, "measures": told, "asked": found.asked, "failed": found.failed}
        if found.spent:
            figures["readers"][address]["spent"] = found.spent
        if before and args.serving_permutations == 1:  # against the first scorer of the command
            control = same_evidence_control(before[0], run_, address, args.reader_k)
            figures["readers"][address]["same_evidence"] = {"against": before[0].record["name"], **control}


def _write(args: argparse.Namespace, found: list[tuple[Run, Measured, dict[str, Any]]]) -> None:
    with storage(args.out):
        write_parquet(
            args.out / "measures.parquet", measures_table((r.record["name"], r.record["collection"], m) for r, m, _ in found)
        )
        write_record(args.out / "summary.json", _as_json(args, found))
    if not args.no_report:
        from ..report import load_variants, write_report

        variants = load_variants([run_ for run_, *_ in found], serving_permutations=args.serving_permutations)
        args.page = write_report(variants, args.out / "report")


def _as_json(args: argparse.Namespace, found: list[tuple[Run, Measured, dict[str, Any]]]) -> dict[str, Any]:
    rows = [
        {
            "scorer": r.record["name"],
            "data": r.record["collection"],
            "run": str(r.folder),
            **figures,
            "scoring": r.record["coverage"],
            "starts": {"remarks": start_remarks(r.record), "unwatched": unwatched(r.record)},
        }
        for r, _, figures in found
    ]
    single = {k: rows[0][k] for k in ("measures", "coverage", "cutoff")} if len(rows) == 1 else {}
    return {**single, "runs": rows}


def _print(args: argparse.Namespace, found: list[tuple[Run, Measured, dict[str, Any]]]) -> None:
    page = getattr(args, "page", None)
    if args.json:
        print_json(_as_json(args, found) | ({"report": str(page)} if page else {}))
        return
    for task in dict.fromkeys(run_.record["task"] for run_, *_ in found):
        told = [f["measures"] for r, _, f in found if r.record["task"] == task]
        columns = COLUMNS[task] + tuple(m for m in (*ASKED_FOR, *args.ir) if any(m in measures for measures in told))
        rows = [
            [r.record["collection"], r.record["name"], *(interval_text(f["measures"].get(c)) for c in columns)]
            for r, _, f in found
            if r.record["task"] == task
        ]
        print_table(["collection", "scorer", *columns], rows)
        print()
    for run_, _, figures in found:
        for remark in remarks(run_.record["collection"], figures):
            print(remark)
        for remark in start_remarks(run_.record) + unwatched(run_.record):
            note(f"{run_.record['name']} on {run_.record['collection']}: {remark}")
    if page:
        print(f"report: {page}")


def interval_text(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return "-"
    if figure["low"] is None:
        return f"{figure['value']:.3f}"
    floor = f" floor {figure['floor']:.3f}" if "floor" in figure else ""
    return f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]{floor}"


def remarks(collection: str, figures: dict[str, Any]) -> list[str]:
    """What is not in the means, by name."""
    coverage, found = figures["coverage"], []
    if unjudged := coverage["unjudged"]:
        share = f"{len(unjudged)} of {coverage['queries']} queries"
        named = ", ".join(unjudged[:10])
        found.append(f"{collection}: {share} have no judgement and are not in the means that need one: {named}.")
    if missed := coverage["without_relevant"]:
        share, named = f"{len(missed)} of {coverage['queries']} queries", ", ".join(missed[:10])
        found.append(f"{collection}: {share} have judgements but no relevant candidate; their quality counts as 0: {named}.")
    if fewer := coverage["fewer_permutations"]:
        share = f"{len(fewer)} of {coverage['queries']} queries have fewer than {coverage['permutations'][-1]} permutations"
        alone = " A query with one is in no mean that compares them." if 1 in fewer.values() else ""
        named = ", ".join(f"{query} has {count}" for query, count in list(fewer.items())[:10])
        found.append(f"{collection}: {share}: {named}.{alone}")
    cutoff = figures["cutoff"]
    if cutoff["value"] is None:
        found.append(f"{collection}: no cutoff ({cutoff['how']}).")
    elif "fitted_on" in cutoff:
        where = f"fitted on {cutoff['fitted_on']} queries in {cutoff['canonical']}, measured on the other {cutoff['measured_on']}"
        found.append(f"{collection}: cutoff {cutoff['value']:.3f}, {cutoff['how']}, {where}.")
    if (kept := figures["measures"].get("retention")) and kept["value"] > 0.95:
        found.append(
            f"{collection}: the cutoff keeps {kept['value']:.0%} of the pool, so its overlap says little. "
            "Try --match-retention 0.25 or --cutoff."
        )
    return found


def library_figures(queries: list[Scored], names: list[str]) -> dict[str, Any]:
    return {name: figure([values]) for name, values in library_values(queries, names).items()}


def _audit_scores(args: argparse.Namespace) -> int:
    from ..scorefile import read_scores

    refuse(
        *(["--scores measures a file; leave out --scorer and --data."] if args.scorer or args.data else []),
        *(
            f"--{flag.replace('_', '-')} needs a scorer to score with; leave it out."
            for flag in ("noise_floor", "perturb", "reader", "mitigation", "curve", "dry_run", "watch")
            if getattr(args, flag)
        ),
    )
    files, relevance = [Path(f) for f in args.scores], Path(args.relevance) if args.relevance else None
    parsed(args.ir)
    args.no_report = args.no_report or args.out is None or not can_draw_page(args.out)
    queries = read_scores(files, relevance)
    threshold = threshold_of(args) or Threshold()
    run_ = None
    if args.out:
        run_ = keep_scores(queries, [*files, *([relevance] if relevance else [])], args.out, args.command)
        run_.keep(threshold=asdict(threshold))
    if args.serving_permutations > 1:
        queries = [at_budget(query, args.serving_permutations) for query in queries]
    measured = measure(queries, threshold)
    figures = summary(measured)
    if args.ir:
        figures["measures"] |= library_figures(queries, args.ir)
    if run_:
        _write(args, [(run_, measured, figures)])
    page = getattr(args, "page", None)
    if args.json:
        print_json({k: figures[k] for k in ("measures", "coverage", "cutoff")} | ({"report": str(page)} if page else {}))
        return 0
    rows = [
        [name, f["value"], "-" if f["low"] is None else f"[{f['low']:.3f}, {f['high']:.3f}]", f["queries"]]
        for name, f in figures["measures"].items()
    ]
    print_table(["measure", "value", "95 % interval", "queries"], rows)
    print()
    for remark in remarks(files[0].name, figures):
        print(remark)
    if page:
        print(f"report: {page}")
    return 0


def slug(name: str) -> str:
    """A name as a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-80:] or "run"
