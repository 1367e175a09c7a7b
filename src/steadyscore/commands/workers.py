"""Flags of the verbs that score: a share of the work for this process, or a Ray cluster for all of it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from ..audits.audit import Additions, list_sources, open_sources
from ..audits.estimate import estimate_audit
from ..collection import Data
from ..engines import EngineOptions
from ..scoring.parts import Share
from ..scoring.ray_launcher import Cluster
from ..scoring.score import AuditConfig, check_apart, check_query_ids
from ..scoring.workers import Work, score_on, score_share
from . import note, note_failed, price, print_json, print_table
from .flags import as_flag, positive, scorers_by_name


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Who scores, where it is not this process alone."""
    group = add_launch(
        parser, "be worker I of N: score its parts into --out, which all see; the same command without --shard collects"
    )
    for gone in ("--hours", "--hourly-price"):
        group.add_argument(gone, type=_divide_yourself, help=argparse.SUPPRESS)


def add_launch(parser: argparse.ArgumentParser, share: str) -> argparse._ArgumentGroup:
    """A share for this process, or a cluster for all."""
    group = parser.add_argument_group("many machines")
    either = group.add_mutually_exclusive_group()
    either.add_argument("--shard", type=as_flag(Share.parse), metavar="I/N", help=share)
    either.add_argument(
        "--on",
        type=as_flag(Cluster.parse),
        metavar="ray|ray:auto|ray://HEAD:PORT",
        help="score on a Ray cluster: a new one here, the one of this machine, or another; then measure here",
    )
    group.add_argument("--actors", type=positive, metavar="N", help="at most this many Ray actors (default: as many as fit)")
    group.add_argument("--actor-cpus", type=positive, default=1, metavar="N", help="processors of an actor (default 1)")
    group.add_argument("--actor-gpus", type=price, default=0.0, metavar="N", help="GPUs of an actor (default 0)")
    return group


def cluster_of(args: argparse.Namespace) -> Cluster:
    """The cluster of --on, with what an actor takes of it."""
    cluster: Cluster = replace(args.on, actors=args.actors, cpus=args.actor_cpus, gpus=args.actor_gpus)
    return cluster


def add_dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="print windows, tokens, time and cost (a few windows are timed)")


def print_estimate(
    args: argparse.Namespace, data: Sequence[Data] | Data, config: AuditConfig, additions: Additions, options: EngineOptions
) -> int:
    """What a verb that scores would cost."""
    scorers = scorers_by_name(args.scorer if isinstance(args.scorer, list) else [args.scorer])
    sources = open_sources(scorers, list_sources(data), additions, is_plan=True)
    check_query_ids(sources, config.cut)
    check_apart(sources, config.cut, additions.apart_from)
    estimates = estimate_audit(scorers.values(), sources, config, additions, options)
    if args.json:
        print_json(estimates.to_json())
    else:
        print(estimates)
    return 0


def _divide_yourself(text: str) -> None:
    raise argparse.ArgumentTypeError("the flag is gone: --dry-run tells the time of one worker, docs/scale.md what many take")


def actor_mistakes(args: argparse.Namespace) -> list[str]:
    """Flags about Ray actors where there are none."""
    asked = {"--actors": args.actors is not None, "--actor-cpus": args.actor_cpus != 1, "--actor-gpus": args.actor_gpus != 0}
    typed = [] if args.on else [flag for flag, is_typed in asked.items() if is_typed]
    return [f"{flag} is about the actors of a Ray cluster: add --on ray, or leave it out." for flag in typed]


def run_workers(args: argparse.Namespace, work: Work) -> int | None:
    """Have workers score, where the flags ask for them. The exit code where that is all; None where the command goes on."""
    if args.shard:
        manifest = score_share(work, args.shard)
        if args.json:
            print_json(manifest.to_json())
        else:
            print_table([f"share {args.shard}", "count"], manifest.counts().items())
        return note_failed(manifest.failed, f"the queries of share {args.shard}")
    if args.on:
        score_on(cluster_of(args), work, note)
    return None
