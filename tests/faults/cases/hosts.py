"""Several processes, on one machine or several, in one folder; and a clock that jumps."""

from __future__ import annotations

import os
import random
import sys
import time
from datetime import UTC, datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Any

from steadyscore.errors import InputError
from tests.faults.audits import audit, make_collection, score_share, take_time
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.namespaces import fork_on_host
from tests.faults.processes import fork, run_forked, wait

YEAR = 365 * 24 * 3600.0


@fault(
    "two processes", "a second audit begins in the folder of one at work: it is refused, and the first ends well", times=6, few=1
)
def audit_twice(folder: Path, times: int) -> Counts:
    take_time()
    data, whole, counts = make_collection(folder), folder / "whole", Counts()
    run_forked(audit, data, whole)
    for number in range(times):
        out = folder / f"run-{number}"
        first = fork(audit, data, out)
        while not (out / ".lock").exists() and not (out / "scores.parquet").exists():
            time.sleep(0.002)
        run_forked(_second, data, out)
        wait(first)
        counts += Counts(1) + compare_runs(out, whole)
    return counts


def _second(data: Path, out: Path) -> None:
    """Refused while the first works; where that has just ended, there is nothing left to do."""
    try:
        audit(data, out)
    except InputError as refusal:
        if "another process works in" not in str(refusal):
            raise


@fault("workers and collector together", "three `--shard` workers and the collecting command at the same moment", times=8, few=1)
def work_together(folder: Path, times: int) -> Counts:
    take_time()
    data, whole, counts = make_collection(folder), folder / "whole", Counts()
    run_forked(audit, data, whole)
    for round in range(times):
        out = folder / f"run-{round}"
        workers = [fork(score_share, data, out, number, 3) for number in (1, 2, 3)]
        time.sleep(0.01 * round)
        run_forked(audit, data, out)
        for worker in workers:
            wait(worker)
        run_forked(audit, data, out)
        counts += Counts(1) + compare_runs(out, whole)
    return counts


def _slow_disk() -> None:
    """A disk on which every file is long in writing, so that two writers meet."""
    real = os.fsync

    def fsync(handle: int) -> None:
        time.sleep(0.01)
        real(handle)

    os.fsync = fsync


def _score_all(data: Path, out: Path) -> None:
    _slow_disk()
    score_share(data, out, 1, 1)


@fault(
    "two hosts",
    "two processes with host names and process ids of their own write the same parts of one folder; some are killed at work",
    times=8,
    few=2,
)
def share_folder(folder: Path, times: int) -> Counts:
    take_time()
    data, whole, dice, counts = make_collection(folder), folder / "whole", random.Random(0), Counts()
    run_forked(audit, data, whole)
    for number in range(times):
        out = folder / f"run-{number}"
        one, other = (fork_on_host(name, _score_all, data, out) for name in ("one", "other"))
        if number % 2:
            wait(one, dice.uniform(0, 0.3))
        else:
            wait(one)
        wait(other)
        run_forked(audit, data, out)
        counts += Counts(1) + compare_runs(out, whole)
    return counts


class JumpingClock:
    """The time of day, a year off in one direction or the other, anew at every look."""

    def __init__(self, seed: int):
        self._dice, self._time = random.Random(seed), time.time

    def __call__(self) -> float:
        return self._time() + self._dice.choice((-YEAR, 0, YEAR))

    def install(self) -> None:
        class Jumping(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> Any:
                return datetime.fromtimestamp(self(), tz or UTC)

        time.time, time.time_ns = self, lambda: int(self() * 1e9)  # type: ignore[assignment]
        for module in [m for name, m in sys.modules.items() if name.startswith("steadyscore.")]:
            if getattr(module, "datetime", None) is datetime:
                module.datetime = Jumping  # type: ignore[attr-defined]


def _under_jumps(seed: int, work: Any, *args: Any) -> None:
    JumpingClock(seed).install()
    work(*args)


@fault(
    "clock jump",
    "the time of day jumps by a year, forward or back, at every look at it; two workers, a kill, the collector",
    times=8,
    few=1,
)
def jump(folder: Path, times: int) -> Counts:
    take_time()
    data, whole, dice, counts = make_collection(folder), folder / "whole", random.Random(0), Counts()
    run_forked(audit, data, whole)
    for seed in range(times):
        out = folder / f"run-{seed}"
        begin = partial(_under_jumps, seed)
        workers = [fork(begin, score_share, data, out, number, 2) for number in (1, 2)]
        wait(workers[0], dice.uniform(0, 0.2))
        wait(workers[1])
        run_forked(begin, audit, data, out)
        counts += Counts(1) + compare_runs(out, whole)
    return counts
