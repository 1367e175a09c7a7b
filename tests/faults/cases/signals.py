"""Signals that ask a command to end."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

from steadyscore.cli import main
from steadyscore.runs.folder import Run
from tests.faults.audits import CALLS, CONFIG, make_collection, take_time
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import fork, run_forked


def command(data: Path, out: Path, *more: str) -> None:
    """The command line itself, to its exit code."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born without it
    words = ["audit", "--scorer", "python:tests.faults.audits:slow", "--data", str(data), "--permutations", "2", "--no-report"]
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    os._exit(main([*words, "--out", str(out), *more]))


def send(folder: Path, times: int, number: int) -> Counts:
    take_time()
    data, whole, dice = make_collection(folder, 60), folder / "whole", random.Random(number)
    run_forked(command, data, whole)
    counts, tries = Counts(), 0
    while counts.times < times:
        out, calls, tries = folder / f"run-{tries}", folder / f"calls-{tries}", tries + 1
        calls.touch()
        os.environ[CALLS] = str(calls)
        share = ("--shard", "1/1") if tries % 2 else ()
        child = fork(command, data, out, *share)
        while not (begun_run(out) or os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
            time.sleep(0.002)
        time.sleep(dice.uniform(0, 0.3))
        os.kill(child, number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 128 + number), f"exit code {code}"
        if code:
            assert not list(out.rglob("*.tmp*"))
            finished, begun = len(Run.open(begun_run(out)).scored_ids()), calls.stat().st_size / (1 + CONFIG.permutations)
            assert finished == begun, f"{finished} queries are kept of {begun:g}: the one at hand was not finished"
        run_forked(command, data, out)
        counts += Counts(code != 0) + compare_runs(begun_run(out), begun_run(whole))
    return counts


def begun_run(out: Path) -> Path | None:
    """The folder of the one run below `--out`, as soon as it is there."""
    return next((file.parent for file in out.rglob("run.json")), None)


@fault(
    "SIGTERM",
    "at random moments of the command, with and without `--shard`: the query at hand is kept, exit code 143",
    times=4,
    few=1,
    is_slow=True,
)
def terminate(folder: Path, times: int) -> Counts:
    return send(folder, times, signal.SIGTERM)


@fault("SIGINT", "the same with Ctrl-C: exit code 130", times=4, is_slow=True)
def interrupt(folder: Path, times: int) -> Counts:
    return send(folder, times, signal.SIGINT)
