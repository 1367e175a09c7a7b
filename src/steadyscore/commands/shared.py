"""What several verbs share: groups of flags and what they say, results on stdout, a share of the work, the next command."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from ..audits.audit import list_sources, open_sources
from ..audits.audits import Audits
from ..audits.estimate import estimate_audit
from ..collection import Data
from ..engines import EngineOptions, Price
from ..errors import InputError, UsageError
from ..machine.bounds import parse_number
from ..machine.console import say
from ..machine.extras import PAGE, absent_modules, install_line
from ..machine.names import slug
from ..machine.places import Place, is_address
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..measures.views import ScoreView
from ..results.load import Measuring
from ..results.notes import failed_remark, failed_remarks
from ..results.render import Printed, to_text
from ..results.screen import by_collection, first_decision, screen_measures
from ..results.table import table_of
from ..scoring.config import AuditConfig, AuditSettings, Cut, configure
from ..scoring.parts import Cluster, Share, Work, score_share
from ..scoring.score import check_apart, check_query_ids
from ..scoring.scorer import Settings
from ..scoring.starts import start_remarks
from ..terms import Failure, Partition
from .flags import add_field, add_fields, add_settings, as_flag, from_flags, not_negative, positive, scorers_by_name


def examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """The commands at the end of a help text; docs and tests run them as printed."""
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


FORMATS = ("table", "markdown", "latex", "csv", "json")
"""The forms in which a verb prints its result."""


def add_format(parser: argparse.ArgumentParser) -> None:
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--format", choices=FORMATS, default="table", help="how the result is printed (default: table)")
    either.add_argument("--json", action="store_true", help="print one JSON object, as --format json does")


def form_of(args: argparse.Namespace) -> str:
    """What `add_format` was told."""
    return "json" if getattr(args, "json", False) else str(getattr(args, "format", "table"))


def print_result(args: argparse.Namespace, result: Printed) -> None:
    """A result in the form that was asked for."""
    form = form_of(args)
    if form == "json":
        print_json(result.to_json())
    else:
        print(result if form == "table" else result.to_format(form), end="\n" if form == "table" else "")


def add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="print every measure and every note, not only a first look")


def add_presentation(parser: argparse.ArgumentParser, *, shuffles_markers: bool = True) -> None:
    """What the scorer sees: the flags that `Settings` and the collection's cut are made of; a teacher's markers stay in order."""
    group = parser.add_argument_group("presentation")
    add_field(group, Settings, "width", metavar="B")
    add_field(group, AuditConfig, "chars")
    add_fields(group, Cut, "pool queries")
    add_fields(group, Settings, "prompt fit")
    add_settings(parser, Settings, "partition", type=lambda word: word.replace("-", "_"), choices=get_args(Partition))
    add_settings(parser, Settings, "markers marker_seed placeholder" if shuffles_markers else "markers placeholder")


def add_scorer_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-scorer-change",
        action="store_true",
        help="resume a run whose scorer has changed since (its files, its endpoint, its weights); the run says so",
    )


def add_engine(parser: argparse.ArgumentParser, *, keeps_answers: bool = True) -> None:
    """How a local model runs, and how an endpoint is asked; what serves asks anew each time."""
    group = parser.add_argument_group("engine")
    add_fields(group, EngineOptions, "device concurrency")
    add_settings(parser, EngineOptions, "dtype batch_tokens trust_remote_code tensor_parallel")
    add_settings(parser, EngineOptions, "tokenizer", metavar="PATH")
    add_settings(parser, EngineOptions, "allow_base_mismatch rate retries")
    add_settings(parser, EngineOptions, "timeout", metavar="SECONDS")
    add_settings(parser, EngineOptions, "price", type=_prices, metavar="IN,OUT")
    if keeps_answers:
        add_settings(parser, EngineOptions, "cache")
        add_settings(parser, EngineOptions, "watch", metavar="FILE,...")


def engine_options(args: argparse.Namespace) -> EngineOptions:
    return from_flags(EngineOptions, args)


def config_of(args: argparse.Namespace, names: Iterable[str] = AuditSettings.__annotations__) -> AuditConfig:
    """The configuration that these flags of a verb say; what does not go together is wrong usage."""
    given = {name: getattr(args, name, None) for name in ("keep", *names)}
    keep = given.pop("keep")
    given["keep_first" if isinstance(keep, int) else "keep_share"] = keep
    try:
        return configure(AuditConfig(), {name: value for name, value in given.items() if value is not None})
    except InputError as mistake:
        raise UsageError(str(mistake)) from mistake


THRESHOLD_FLAGS = ("cutoff", "match_retention", "keep", "threshold_protocol")


def add_threshold(parser: argparse.ArgumentParser, *, offers_protocol: bool = True) -> None:
    """How the threshold consumer gets its cutoff; an attack has no shuffled orders, which the other protocol is fitted on."""
    group = parser.add_argument_group(
        "threshold (default: what the run was audited with; a new one: a cutoff fitted on other queries to keep 30 % of the pool)"
    )
    either = group.add_mutually_exclusive_group()
    add_field(either, Threshold, "cutoff", type=_cutoff, metavar="X|f1")
    add_field(
        either,
        Threshold,
        "retention",
        flag="--match-retention",
        type=_share_or_run,
        metavar="SHARE|RUN",
        help="fit it to keep this share of the pool, or the share that the F1-tuned cutoff of a run keeps on each collection",
    )
    rule = "no cutoff: keep exactly the first K candidates of every pool, or this share of it, rounded, at least one"
    either.add_argument("--keep", type=_first_or_share, metavar="K|SHARE", help=rule)
    if offers_protocol:
        add_settings(parser, Threshold, "protocol", called="threshold_protocol", is_unset=True)


def _cutoff(text: str) -> float | Literal["f1"]:
    if text != "f1" and math.isnan(parse_number(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a score: give a number, or f1")
    return "f1" if text == "f1" else parse_number(text)


def share(text: str) -> float:
    if not 0 < (value := parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number between 0 and 1, for example 0.3")
    return value


def _first_or_share(text: str) -> int | float:
    return int(text) if text.isdecimal() and int(text) else share(text)


def _share_or_run(text: str) -> float | str:
    if is_address(text) or Path(text).is_dir():
        return text
    if not 0 < (value := parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a share and not a run folder: give a number between 0 and 1, for example 0.3, or a run"
        )
    return value


def add_measuring(parser: argparse.ArgumentParser) -> None:
    """How stored scores are measured: by a threshold, a readout and a tie rule, by default as the run was audited."""
    add_threshold(parser)
    add_settings(parser, ScoreView, "readout ties", is_unset=True)
    parser.add_argument(
        "--serving-permutations",
        type=positive,
        default=1,
        metavar="K",
        help="measure what a system that averages K permutations would decide (default 1)",
    )


def add_allow_missing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-missing",
        type=not_negative,
        default=0,
        metavar="N",
        help="pass a run in which up to N queries could not be scored or read (default 0)",
    )


def threshold_of(args: argparse.Namespace) -> Threshold | None:
    """What the flags say; None where they say nothing: each run's own."""
    if all(vars(args).get(flag) is None for flag in THRESHOLD_FLAGS):
        return None
    return config_of(args, THRESHOLD_FLAGS).threshold


def measuring_of(args: argparse.Namespace) -> Measuring:
    """What `add_measuring` was told."""
    read: Measuring = {"readout": args.readout, "ties": args.ties, "serving_permutations": args.serving_permutations}
    return {"threshold": threshold_of(args), **read}


def price(text: str) -> float:
    if not (value := parse_number(text)) >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not a price: give a number, 0 or more")
    return value


def _prices(text: str) -> Price:
    prices = tuple(map(price, text.split(",")))
    if len(prices) != 2:
        raise argparse.ArgumentTypeError(f"{text} is not the price of a million prompt and written tokens, such as 0.15,0.6")
    return Price(*prices)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print(to_text([table_of(header, list(rows))]), end="")


def print_rows(args: argparse.Namespace, value: Any, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """A value as JSON where that was asked for, else its rows."""
    if form_of(args) == "json":
        print_json(value)
    else:
        print_table(header, rows)


def cell_text(value: Any) -> str:
    """A value of a card, however deep, as the text of one cell."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {cell_text(part)}" for key, part in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(cell_text, value))
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    return f"{value:g}" if isinstance(value, float) else " ".join(str(value).split())


def note(*words: object) -> None:
    """A remark for the person at the terminal: never on stdout."""
    say(" ".join(map(str, words)))


def can_draw_page(out: Place) -> bool:
    """Whether a report page can be drawn; where not, that is said, so ask before the work begins."""
    if missing := absent_modules(PAGE):
        verb = "is" if len(missing) == 1 else "are"
        later = f"{install_line(missing)} and then: steadyscore report {out}"
        note(f"No report page will be written, as {' and '.join(missing)} {verb} not installed. To have one: {later}")
    return not missing


def note_failed(failed: Sequence[Failure], of: str, done: str = "scored") -> int:
    """Name the queries that somebody's code failed on; the exit code of a command that finished without them."""
    if not failed:
        return 0
    note(failed_remark(failed, of, done))
    return 4


def refuse(*mistakes: object) -> None:
    """Wrong usage that argparse cannot see by itself; what is false is none, so that `condition and sentence` may be given."""
    if told := [str(mistake) for mistake in mistakes if mistake]:
        raise UsageError("\n".join(told))


# -- the command that usually follows


def note_next(args: argparse.Namespace, *words: object) -> None:
    """One line with a command that runs as printed; nothing where a program reads the answer."""
    if form_of(args) not in FORMATS[1:]:
        sys.stdout.flush()  # where both go into one file, this line is the last
        note(f"next: {shlex.join(['steadyscore', *map(str, words)])}")


def note_gate(args: argparse.Namespace, audits: Audits, *runs: Place) -> None:
    """A gate on the first decision that every table of the audits shows, or on their rankings."""
    shown = set.intersection(*(set(screen_measures(members)) for members in by_collection(audits)))
    if (name := first_decision(audits, shown) or "tau_psi") in shown:
        bound = ("--min", f"{name}=0.8") if MEASURES[name].better == "higher" else ("--max", f"{name}=0.2")
        note_next(args, "gate", *runs, *bound, *measured_by_flags(args))


def note_after(args: argparse.Namespace, audits: Audits) -> int:
    """Several scorers are compared with the first one, one is held to a bound; scores that nothing has kept are kept first."""
    if args.out is None:
        note_next(args, *args.command[1:], "--out", f"runs/{slug(audits[0].collection)}")
    elif len({audit.name for audit in audits}) > 1:
        note_next(args, "compare", args.out, "--baseline", audits[0].name, *measured_by_flags(args))
    else:
        note_gate(args, audits, args.out)
    return 0


def measured_by_flags(args: argparse.Namespace) -> list[str]:
    """The flags that say how stored scores were measured, for another command that is to measure them alike."""
    given = {name: vars(args).get(name) for name in ("cutoff", "match_retention", "keep", "serving_permutations")}
    given |= {"serving_permutations": None} if given["serving_permutations"] == 1 else {}
    read = [f"{name}={vars(args).get(name)}" for name in ("threshold_protocol", "readout", "ties") if vars(args).get(name)]
    words = [word for name, value in given.items() if value is not None for word in (f"--{name.replace('_', '-')}", str(value))]
    return [*words, *(word for setting in read for word in ("--set", setting))]


# -- what audits print


def name_failed(audits: Audits) -> int:
    """Name what could not be scored, in the runs, beside them and by their readers; the exit code."""
    failed = [sentence for audit in audits for sentence in failed_remarks(audit)]
    for sentence in failed:
        note(sentence)
    return 4 if failed else 0


def print_audits(audits: Audits, args: argparse.Namespace, of: str | None = None) -> None:
    """A first look, or with --all everything, and the page's address; or one JSON object.

    `of` names scores that belong to no collection.
    """
    if (form := form_of(args)) == "json":
        print_json(audits.to_json() | ({"report": str(audits.page)} if audits.page else {}))
        return
    if form != "table":
        print(audits.to_format(form, everything=args.all, of=of), end="")
        return
    for audit in audits:
        for remark in start_remarks(audit.record):
            note(f"{audit.name} on {audit.collection}: {remark}")
    ways = ["--all", *(["--json"] if "json" in args else []), *(["the report"] if audits.page else [])]
    more = " or ".join([", ".join(ways[:-1])] * (len(ways) > 1) + ways[-1:])
    print(audits.to_text(everything=args.all, of=of, more=more))
    if audits.page:
        print(f"report: {audits.page!s}")


# -- a share of the work, and what it will cost


ONE_OF_MANY = "be worker I of N: score its parts into --out, which all see; the same command without --shard collects"


def add_workers(parser: argparse.ArgumentParser, share: str = ONE_OF_MANY) -> None:
    """Who scores, where it is not this process alone: a share for this process, or a cluster for all."""
    either = parser.add_argument_group("many machines").add_mutually_exclusive_group()
    either.add_argument("--shard", type=as_flag(Share.parse), metavar="I/N", help=share)
    either.add_argument(
        "--on",
        type=as_flag(Cluster.parse),
        metavar="CLUSTER",
        help="score on Ray, then measure here: ray (a new one here), ray:auto (of this machine) or ray://HEAD:PORT; "
        "behind it ,actors=N (at most so many), ,cpus=N and ,gpus=N (of an actor)",
    )


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print windows, tokens, time and cost (a few windows are timed)")


def print_estimate(args: argparse.Namespace, data: Sequence[Data] | Data, config: AuditConfig, options: EngineOptions) -> int:
    """What a verb that scores would cost."""
    scorers = scorers_by_name(args.scorer if isinstance(args.scorer, list) else [args.scorer])
    sources = open_sources(scorers, list_sources(data), config, is_plan=True)
    check_query_ids(sources, config.cut)
    check_apart(sources, config.cut, config.apart_from)
    estimates = estimate_audit(scorers.values(), sources, config, options)
    if (form := form_of(args)) not in ("table", "json"):
        raise UsageError(f"--dry-run prints a table or JSON, and no {form}.")
    print_json(estimates.to_json()) if form == "json" else print(estimates)
    return 0


def run_share(args: argparse.Namespace, work: Work) -> int:
    """Score the parts of one worker, and print what it did."""
    manifest = score_share(work, args.shard)
    print_rows(args, manifest.to_json(), [f"share {args.shard}", "count"], manifest.counts().items())
    return note_failed(manifest.failed, f"the queries of share {args.shard}")
