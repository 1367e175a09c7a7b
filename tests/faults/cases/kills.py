"""Processes that are killed."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.faults.audits import audit, make_collection, score_share, take_time
from tests.faults.changes import Ending
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import fork, run_forked, wait


@fault(
    "worker killed", "`--shard` workers, two at a time, `kill -9` at random moments, run again until they end", times=30, few=2
)
def kill_workers(folder: Path, times: int) -> Counts:
    take_time()
    data, whole, dice = make_collection(folder), folder / "whole", random.Random(0)
    undisturbed = min(_seconds_of(audit, data, target) for target in (folder / "timed", whole))
    counts, numbers = Counts(), itertools.count()
    while counts.times < times:
        out = folder / f"run-{next(numbers)}"
        while counts.times < times:
            workers = [fork(score_share, data, out, number, 2) for number in (1, 2)]
            killed = sum([wait(worker, dice.uniform(0, undisturbed)) for worker in workers])
            counts += Counts(killed)
            if not killed:
                break
        for number in (1, 2):
            run_forked(score_share, data, out, number, 2)
        run_forked(audit, data, out)
        counts += compare_runs(out, whole)
    return counts


def _seconds_of(work: Callable[..., Any], *args: Any) -> float:
    began = time.monotonic()
    run_forked(work, *args)
    return time.monotonic() - began


@fault(
    "killed before a rename",
    "an audit or a `--shard` worker kills itself before its n-th rename or link, for every n: what it wrote has no name",
    times=20,
    few=2,
)
def kill_before_rename(folder: Path, times: int) -> Counts:
    return _kill_at_renames(folder, times, after=False)


@fault(
    "killed after a rename",
    "the same after its n-th rename or link: what it wrote has its name, and nothing else is done",
    times=20,
    few=2,
)
def kill_after_rename(folder: Path, times: int) -> Counts:
    return _kill_at_renames(folder, times, after=True)


def _kill_at_renames(folder: Path, times: int, *, after: bool) -> Counts:
    data, whole = make_collection(folder, 8), folder / "whole"
    run_forked(audit, data, whole)
    counts, at = Counts(), [0, 0]
    for number in itertools.count():
        if counts.times >= times:
            break
        which, out = number % 2, folder / f"run-{number}"
        at[which] += 1
        begin = partial(score_share, data, out, 1, 1) if which else partial(audit, data, out, seconds=0.0)
        killed = run_forked(Ending(at[which], after=after).work, begin)
        at[which] *= killed  # from the first rename again where there was no n-th
        run_forked(audit, data, out)
        counts += Counts(killed) + compare_runs(out, whole)
    return counts
