"""Seconds per query: a warm scorer, one request at a time, several ways of serving in rotating order, several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import InputError
from ..runs.folder import Run
from ..runs.layout import TIMINGS_FILE, timing_schema
from ..terms import Array, Instance
from .scorer import PoolScorer

ROUNDS = 3


class Timing(NamedTuple):
    """One request."""

    way: int
    """Key of the scorer that was timed, such as its width."""
    query_id: str
    round: int
    seconds: float


def time_requests(
    ways: Mapping[int, PoolScorer],
    instances: Sequence[Instance],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time every query, in first-stage order, under several ways of serving it: in each round another way comes first.

    Before anything is timed, each way scores one query, so that nothing is loaded, compiled or allocated on the clock.
    """
    if not instances:
        raise InputError("there is no query to time.")
    for scorer in ways.values():
        scorer.score(instances[0])
    timings = []
    keys = list(ways)
    for number in range(rounds):
        turn = number % len(keys)
        for way in keys[turn:] + keys[:turn]:
            for instance in instances:
                began = clock()
                ways[way].score(instance)
                timings.append(Timing(way, instance.id, number, clock() - began))
    return timings


def query_seconds(timings: Sequence[Timing], way: int) -> Array:
    """(Q,) the median over rounds for every query of one way."""
    by_query: dict[str, list[float]] = {}
    for timing in timings:
        if timing.way == way:
            by_query.setdefault(timing.query_id, []).append(timing.seconds)
    return np.array([np.median(seconds) for seconds in by_query.values()])


def read_timings(run: Run) -> list[Timing]:
    """What was timed beside a run; empty where nothing was."""
    return [Timing(**row) for row in run.read(TIMINGS_FILE).to_pylist()] if run.has(TIMINGS_FILE) else []


def write_timings(run: Run, timings: Sequence[Timing]) -> None:
    import pyarrow as pa

    run.write(TIMINGS_FILE, pa.Table.from_pylist([timing._asdict() for timing in timings], schema=timing_schema()))
