"""One module per verb: `arguments(parser)` declares, `run(args)` calls one function of the floors below and prints.

What several verbs share stands here: the presentation flags, tables and JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from ..audits.remarks import failed_remark, failed_remarks
from ..audits.result import Audits
from ..audits.table import by_collection, first_decision, screen_measures, text_table
from ..engines import EngineOptions, Price
from ..errors import UsageError
from ..machine.bounds import parse_number
from ..machine.console import say
from ..machine.extras import PAGE, absent_modules, install_line
from ..machine.names import slug
from ..machine.places import Place, is_address
from ..measures.reading import Reading
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..scoring.score import AuditConfig, Cut
from ..scoring.scorer import Settings
from ..scoring.starts import start_remarks
from ..terms import Failure, Partition
from .flags import add_field, add_fields, from_flags, not_negative, positive


def examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """The commands at the end of a help text; docs and tests run them as printed."""
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def add_all(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="print every measure and every note, not only a first look")


def add_presentation(parser: argparse.ArgumentParser) -> None:
    """What the scorer sees: the flags that `Settings` and the collection's cut are made of."""
    group = parser.add_argument_group("presentation")
    add_field(group, Settings, "width", metavar="B")
    add_field(group, AuditConfig, "chars")
    add_fields(group, Cut, "pool queries")
    add_field(group, Settings, "partition", choices=[word.replace("_", "-") for word in get_args(Partition)])
    add_fields(group, Settings, "markers marker_seed prompt placeholder fit")


def add_scorer_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-scorer-change",
        action="store_true",
        help="resume a run whose scorer has changed since (its files, its endpoint, its weights); the run says so",
    )


def add_engine(parser: argparse.ArgumentParser, *, keeps_answers: bool = True) -> None:
    """How a local model runs, and how an endpoint is asked; what serves asks anew each time."""
    group = parser.add_argument_group("engine")
    add_fields(group, EngineOptions, "device dtype batch_tokens trust_remote_code tensor_parallel")
    add_field(group, EngineOptions, "tokenizer", metavar="PATH")
    add_field(group, EngineOptions, "allow_base_mismatch")
    add_endpoint(parser, keeps_answers)


def add_endpoint(parser: argparse.ArgumentParser, keeps_answers: bool) -> None:
    """How an endpoint over HTTP is asked."""
    group = parser.add_argument_group("endpoint")
    add_field(group, EngineOptions, "concurrency")
    add_field(group, EngineOptions, "rate", metavar="N")
    add_field(group, EngineOptions, "retries")
    add_field(group, EngineOptions, "timeout", metavar="SECONDS")
    add_field(group, EngineOptions, "price", type=price, nargs=2, metavar=("IN", "OUT"))
    if keeps_answers:
        add_field(group, EngineOptions, "cache", help="ask again what was answered before")


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="files behind a python: or command: scorer; a run is not resumed with others",
    )


def settings_of(args: argparse.Namespace) -> Settings:
    # How much of a text is kept is a matter of the collection, so --chars goes to the audit's own settings.
    return from_flags(Settings, args, partition=args.partition.replace("-", "_"), chars=Settings().chars)


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """The engine's flags; the endpoint's too, for verbs that have them."""
    price = getattr(args, "price", None)
    return from_flags(EngineOptions, args, price=Price(*price) if price else None, watch=tuple(getattr(args, "watch", ())))


THRESHOLD_FLAGS = ("cutoff", "match_retention", "keep_first", "keep_share", "threshold_protocol")


def add_threshold(parser: argparse.ArgumentParser) -> None:
    """How the threshold consumer gets its cutoff."""
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
    add_field(either, Threshold, "keep_first", metavar="K")
    add_field(either, Threshold, "keep_share", type=share, metavar="SHARE")
    add_field(group, Threshold, "protocol", flag="--threshold-protocol", is_unset=True)


def _cutoff(text: str) -> float | Literal["f1"]:
    if text != "f1" and math.isnan(parse_number(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a score: give a number, or f1")
    return "f1" if text == "f1" else parse_number(text)


def share(text: str) -> float:
    if not 0 < (value := parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number between 0 and 1, for example 0.3")
    return value


def _share_or_run(text: str) -> float | str:
    if is_address(text) or Path(text).is_dir():
        return text
    if not 0 < (value := parse_number(text)) < 1:
        raise argparse.ArgumentTypeError(
            f"{text} is not a share and not a run folder: give a number between 0 and 1, for example 0.3, or a run"
        )
    return value


def add_reading(parser: argparse.ArgumentParser) -> None:
    """What is made of stored grades and of ties."""
    group = parser.add_argument_group("reading (default: what the run was audited with; a new one: expected grade, ties by id)")
    add_fields(group, Reading, "readout ties", is_unset=True)


def add_budget(parser: argparse.ArgumentParser) -> None:
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
    if all(getattr(args, flag) is None for flag in THRESHOLD_FLAGS):
        return None
    share, run = (None, args.match_retention) if isinstance(args.match_retention, str) else (args.match_retention, None)
    return Threshold(
        cutoff=args.cutoff,
        protocol=args.threshold_protocol or "midpoints",
        retention=share,
        retention_of=run,
        keep_first=args.keep_first,
        keep_share=args.keep_share,
    )


def price(text: str) -> float:
    if not 0 <= (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a price: give a number, 0 or more")
    return value


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    print(text_table(header, rows), end="")


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


def refuse(*mistakes: str) -> None:
    """Wrong usage that argparse cannot see by itself."""
    if mistakes:
        raise UsageError("\n".join(mistakes))


# -- the command that usually follows


def note_next(args: argparse.Namespace, *words: object) -> None:
    """One line with a command that runs as printed; nothing where a program reads the answer."""
    if not getattr(args, "json", False):
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
    given = {name: vars(args).get(name) for name in (*THRESHOLD_FLAGS, "readout", "ties", "serving_permutations")}
    given |= {"serving_permutations": None} if given["serving_permutations"] == 1 else {}
    return [word for name, value in given.items() if value is not None for word in (f"--{name.replace('_', '-')}", str(value))]


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
    if getattr(args, "json", False):
        print_json(audits.to_json() | ({"report": str(audits.page)} if audits.page else {}))
        return
    for audit in audits:
        for remark in start_remarks(audit.record):
            note(f"{audit.name} on {audit.collection}: {remark}")
    ways = ["--all", *(["--json"] if "json" in args else []), *(["the report"] if audits.page else [])]
    more = " or ".join([", ".join(ways[:-1])] * (len(ways) > 1) + ways[-1:])
    print(audits.to_text(everything=args.all, of=of, more=more))
    if audits.page:
        print(f"report: {audits.page!s}")
