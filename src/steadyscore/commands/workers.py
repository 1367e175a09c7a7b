"""Flags of the verbs that score: a share of the work for this process, or a Ray cluster for all of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..audits.audit import list_sources, open_sources
from ..audits.estimate import estimate_audit
from ..collection import Data
from ..engines import EngineOptions
from ..errors import UsageError
from ..scoring.config import AuditConfig
from ..scoring.parts import Cluster, Share, Work, score_share
from ..scoring.score import check_apart, check_query_ids
from .flags import as_flag, scorers_by_name
from .shared import form_of, note_failed, print_json, print_table


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Who scores, where it is not this process alone."""
    add_launch(parser, "be worker I of N: score its parts into --out, which all see; the same command without --shard collects")


def add_launch(parser: argparse.ArgumentParser, share: str) -> None:
    """A share for this process, or a cluster for all."""
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
    if form_of(args) == "json":
        print_json(manifest.to_json())
    else:
        print_table([f"share {args.shard}", "count"], manifest.counts().items())
    return note_failed(manifest.failed, f"the queries of share {args.shard}")
