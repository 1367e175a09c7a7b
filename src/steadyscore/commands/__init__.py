"""One module per verb: `arguments(parser)` declares, `run(args)` calls one function of the floors below and prints.

What several verbs share stands here: the presentation flags, tables and JSON on stdout.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ..audits.result import Audits
from ..audits.table import text_table
from ..engines import EngineOptions, Price
from ..errors import UsageError
from ..machine.extras import PAGE, absent_modules, install_line
from ..measures.measurement import Threshold
from ..scoring.scorer import Settings
from ..scoring.starts import start_remarks, unwatched_parts
from ..terms import Failure, PromptStyle

T = TypeVar("T")


def examples(parser: argparse.ArgumentParser, *commands: str) -> None:
    """The commands at the end of a help text; docs and tests run them as printed."""
    parser.epilog = "examples:\n" + "\n".join(f"  {command}" for command in commands)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def add_presentation(parser: argparse.ArgumentParser) -> None:
    """What the scorer sees: the flags that `Settings` and the collection's cut are made of."""
    group = parser.add_argument_group("presentation")
    group.add_argument("--width", type=positive, metavar="B", help="candidates per prompt (default: the task's)")
    group.add_argument(
        "--chars", type=positive, metavar="N", help="characters kept of each candidate (default: the collection's)"
    )
    group.add_argument("--pool", type=positive, metavar="N", help="only the first N candidates of each pool")
    group.add_argument("--queries", type=positive, metavar="N", help="only the first N queries")
    group.add_argument(
        "--partition", choices=["contiguous", "round-robin"], default="contiguous", help="how an order is cut into windows"
    )
    group.add_argument(
        "--markers", choices=["numeric", "letters", "roman", "doc", "random3"], default="numeric", help="labels of the slots"
    )
    group.add_argument(
        "--prompt",
        choices=get_args(PromptStyle),
        help="how a window is worded and read (default: the adapter's, else the paper's)",
    )
    group.add_argument(
        "--placeholder", choices=["0", "1", "2", "3", "?"], default="0", help="grade that fills the answer skeleton"
    )
    group.add_argument(
        "--fit",
        choices=["refuse", "shrink"],
        default="refuse",
        help="a window too long for the model: refuse it, or cut its candidates further",
    )


def add_scorer_change(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-scorer-change",
        action="store_true",
        help="resume a run whose scorer has changed since (its files, its endpoint, its weights); the run says so",
    )


def add_engine(parser: argparse.ArgumentParser) -> None:
    """How a local model runs."""
    group = parser.add_argument_group("engine")
    group.add_argument("--device", help="cpu, cuda, cuda:1 (default: CUDA where there is one)")
    group.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="precision of the weights")
    group.add_argument("--batch-tokens", type=positive, default=4096, metavar="N", help="padded tokens that share a forward pass")
    group.add_argument("--trust-remote-code", action="store_true", help="let a model's repository run its own code")
    group.add_argument("--tensor-parallel", type=positive, default=1, metavar="N", help="GPUs that share one model (vLLM)")
    group.add_argument(
        "--tokenizer", metavar="PATH", help="tokenizer of a served model, where its name is not a folder or hub id"
    )
    group.add_argument(
        "--allow-base-mismatch", action="store_true", help="score with an adapter on a base it was not trained for"
    )
    add_endpoint(parser)


def add_endpoint(parser: argparse.ArgumentParser) -> None:
    """How an endpoint over HTTP is asked."""
    group = parser.add_argument_group("endpoint")
    group.add_argument("--concurrency", type=positive, default=8, metavar="N", help="requests at the same time (default 8)")
    group.add_argument("--rate", type=above_zero, metavar="N", help="most requests a minute (default: no limit)")
    group.add_argument("--retries", type=not_negative, default=5, metavar="N", help="tries after a failed one (default 5)")
    group.add_argument(
        "--timeout",
        type=above_zero,
        default=300.0,
        metavar="SECONDS",
        help="for a whole answer of an endpoint or a program (default 300)",
    )
    group.add_argument("--price", type=price, nargs=2, metavar=("IN", "OUT"), help="cost of a million prompt and written tokens")
    group.add_argument("--no-cache", action="store_true", help="ask again what was answered before")


def add_watch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--watch",
        nargs="+",
        action="extend",
        default=[],
        metavar="FILE",
        help="files behind a python: or command: scorer; a run is not resumed with others",
    )


def check_watch(args: argparse.Namespace, *scorers: str) -> None:
    """Files are watched for scorers that are files themselves; for others the flag would promise something."""
    if args.watch and not any(scorer.startswith(("python:", "command:")) for scorer in scorers):
        refuse("--watch names files behind a python: or command: scorer; leave it out for others.")


def from_flags(kind: Callable[..., T], args: argparse.Namespace, **given: Any) -> T:
    """A dataclass from the flags that are called as its fields are, and from what is given instead."""
    flags = {field.name: getattr(args, field.name) for field in fields(kind) if hasattr(args, field.name)}  # type: ignore[arg-type]
    return kind(**flags | given)


def settings_of(args: argparse.Namespace) -> Settings:
    # How much of a text is kept is a matter of the collection, so --chars goes to the audit's own settings.
    return from_flags(Settings, args, partition=args.partition.replace("-", "_"), chars=Settings().chars)


def engine_options(args: argparse.Namespace) -> EngineOptions:
    """The engine's flags; the endpoint's too, for verbs that have them."""
    price = getattr(args, "price", None)
    cache = not getattr(args, "no_cache", False)
    watch = tuple(getattr(args, "watch", ()))
    return from_flags(EngineOptions, args, price=Price(*price) if price else None, cache=cache, watch=watch)


def add_threshold(parser: argparse.ArgumentParser) -> None:
    """How the threshold consumer gets its cutoff."""
    group = parser.add_argument_group("threshold (default: what the run was audited with; a new one: F1-tuned)")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--cutoff", type=_cutoff, metavar="X|f1", help="a fixed threshold, or the F1-tuned one")
    either.add_argument("--match-retention", type=_share, metavar="SHARE", help="tune it to keep this share of the pool")
    group.add_argument(
        "--threshold-protocol", choices=["midpoints", "reference"], help="how the threshold is tuned (default midpoints)"
    )


def _cutoff(text: str) -> float | Literal["f1"]:
    if text == "f1":
        return "f1"
    if not math.isfinite(value := float(text)):
        raise argparse.ArgumentTypeError(f"{text} is not a number that a score can reach")
    return value


def _share(text: str) -> float:
    if not 0 < (value := float(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number between 0 and 1, for example 0.3")
    return value


def add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--serving-permutations",
        type=positive,
        default=1,
        metavar="K",
        help="measure what a system that averages K permutations would decide (default 1)",
    )


def threshold_of(args: argparse.Namespace) -> Threshold | None:
    """What the flags say; None where they say nothing: each run's own."""
    if (args.cutoff, args.match_retention, args.threshold_protocol) == (None, None, None):
        return None
    cutoff = None if args.cutoff == "f1" else args.cutoff
    return Threshold(cutoff, args.threshold_protocol or "midpoints", retention=args.match_retention)


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive number")
    return value


def not_negative(text: str) -> int:
    if (value := int(text)) < 0:
        raise argparse.ArgumentTypeError(f"{value} is below 0")
    return value


def above_zero(text: str) -> float:
    if not 0 < (value := float(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


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
    print(*words, file=sys.stderr)


def can_draw_page(out: Path) -> bool:
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
    named = ", ".join(f"{failure.query_id} ({failure.reason})" for failure in failed[:10])
    note(f"{len(failed)} of {of} could not be {done}: {named}.")
    return 4


def refuse(*mistakes: str) -> None:
    """Wrong usage that argparse cannot see by itself."""
    if mistakes:
        raise UsageError("\n".join(mistakes))


# -- what audits print


def name_failed(audits: Audits) -> int:
    """Name what could not be scored, in the runs, beside them and by their readers; the exit code."""
    codes = [0]
    for audit in audits:
        scoring = audit.record["coverage"]
        failed = [Failure(**failure) for failure in scoring["failed"]]
        codes.append(note_failed(failed, f"{scoring['queries']} queries of {audit.name}"))
        beside = {f"scored for --{flag}": failures for flag, failures in audit.failed.items()}
        read = {f"read by {reader}": report.failed for reader, report in audit.reader_reports.items()}
        codes += [note_failed(failures, f"the queries of {audit.name}", done) for done, failures in (beside | read).items()]
    return max(codes)


def print_audits(audits: Audits, as_json: bool) -> None:
    """Tables, remarks and the page's address; or one JSON object."""
    if as_json:
        print_json(audits.to_json() | page_of(audits))
        return
    for audit in audits:
        for remark in start_remarks(audit.record) + unwatched_parts(audit.record):
            note(f"{audit.name} on {audit.collection}: {remark}")
    print(audits)
    print()
    print_below(audits)


def print_below(audits: Audits, of: str | None = None) -> None:
    """Remarks on the figures and the address of the page; `of` names scores that belong to no collection."""
    for audit in audits:
        print("".join(f"{remark}\n" for remark in audit.remarks(of)), end="")
    if audits.page:
        print(f"report: {audits.page}")


def page_of(audits: Audits) -> dict[str, str]:
    return {"report": str(audits.page)} if audits.page else {}
