"""Flags of the verbs that score: a share of the work for this process, or a Ray cluster for all of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..errors import InputError
from ..scoring.parts import Share
from ..scoring.workers import Cluster, Work, score_on_ray, score_share
from . import note, note_failed, price, print_json, print_table
from .flags import positive

T = TypeVar("T")


def as_flag(parse: Callable[[str], T]) -> Callable[[str], T]:
    """A reader of values whose refusal is wrong usage."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except InputError as mistake:
            raise argparse.ArgumentTypeError(str(mistake)) from mistake

    return read


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Who scores, where it is not this process alone."""
    group = parser.add_argument_group("many machines (docs/scale.md)")
    either = group.add_mutually_exclusive_group()
    either.add_argument(
        "--shard",
        type=as_flag(Share.parse),
        metavar="I/N",
        help="be worker I of N: score its parts into --out, which all see; the same command without --shard collects",
    )
    either.add_argument(
        "--on",
        type=as_flag(Cluster.parse),
        metavar="ray|ray:auto|ray://HEAD:PORT",
        help="score on a Ray cluster: a new one here, the one of this machine, or another; then measure here",
    )
    group.add_argument("--actors", type=positive, metavar="N", help="at most this many Ray actors (default: as many as fit)")
    group.add_argument("--actor-cpus", type=positive, default=1, metavar="N", help="processors of an actor (default 1)")
    group.add_argument("--actor-gpus", type=price, default=0.0, metavar="N", help="GPUs of an actor (default 0)")


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
        cluster = replace(args.on, actors=args.actors, cpus=args.actor_cpus, gpus=args.actor_gpus)
        for sentence in score_on_ray(work, cluster).lost:
            note(f"{sentence}. It is scored here now.")
    return None
