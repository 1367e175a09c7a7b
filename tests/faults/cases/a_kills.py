"""Processes that are killed."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from tests.faults.audits import audit, make_collection, score_share
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import fork, run_forked, wait


@fault(
    "worker killed", "`--shard` workers, two at a time, `kill -9` at random moments, run again until they end", times=60, few=4
)
def kill_workers(folder: Path, times: int) -> Counts:
    data, whole, dice = make_collection(folder), folder / "whole", random.Random(0)
    began = time.monotonic()
    run_forked(lambda: audit(data, whole))
    undisturbed = time.monotonic() - began
    counts = Counts()
    while counts.times < times:
        out = folder / f"run-{counts.times}"
        while counts.times < times:
            workers = [fork(lambda number=number: score_share(data, out, number, 2)) for number in (1, 2)]
            killed = sum([wait(worker, dice.uniform(0, undisturbed)) for worker in workers])
            counts += Counts(killed)
            if not killed:
                break
        for number in (1, 2):
            run_forked(lambda number=number: score_share(data, out, number, 2))
        run_forked(lambda: audit(data, out))
        counts += compare_runs(out, whole)
    return counts


@fault(
    "killed before the rename",
    "an audit kills itself at its n-th rename or link, for every n: the file is written and has no name",
    times=60,
    few=4,
)
def kill_before_rename(folder: Path, times: int) -> Counts:
    return _kill_at_rename(folder, times, after=False)


@fault(
    "killed after the rename",
    "the same, after its n-th rename or link: the file has its name, nothing else is done",
    times=60,
    few=4,
)
def kill_after_rename(folder: Path, times: int) -> Counts:
    return _kill_at_rename(folder, times, after=True)


def _kill_at_rename(folder: Path, times: int, *, after: bool) -> Counts:
    data, whole = make_collection(folder, 8), folder / "whole"
    run_forked(lambda: audit(data, whole))
    counts, n = Counts(), 0
    while counts.times < times:
        n, out = n + 1, folder / f"run-{counts.times}"
        begin = (lambda: score_share(data, out, 1, 1)) if counts.times % 2 else (lambda: audit(data, out, seconds=0.0))
        killed = run_forked(lambda: _kill_self(begin, n, after=after))
        counts += Counts(killed)
        n *= killed  # from the first rename again where there was no n-th
        run_forked(lambda: audit(data, out))
        counts += compare_runs(out, whole)
    return counts


def _kill_self(work, at: int, *, after: bool) -> None:
    """Work in this process until its `at`-th rename or link."""
    done = 0

    def counted(change):
        def changed(*args, **options):
            nonlocal done
            done += 1
            if done == at and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            result = change(*args, **options)
            if done == at and after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return changed

    for name in ("replace", "rename", "link"):
        setattr(os, name, counted(getattr(os, name)))
    work()
