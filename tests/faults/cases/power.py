"""Power that is cut between any two changes on disk: of an audit, of labels, of a training run and of a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.faults.audits import audit, make_collection
from tests.faults.changes import CHANGES, Ending
from tests.faults.counting import compare_files, compare_rows, compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import run_forked

HOW = "before every n-th rename, link, removal, new folder, sync or opened file; what was not synced is emptied"


def cut_power(
    folder: Path, times: int, make: Callable[[Path], Any], compare: Callable[[Path, Path], Counts], *, steps: int = 1
) -> Counts:
    """Cut the power before change 1, 1 + `steps`, ... of a command, and again while it resumes; then let it end."""
    whole = folder / "whole"
    run_forked(make, whole)
    counts, n = Counts(), 1
    while counts.times < times:
        out = folder / f"run-{n}"
        killed = [run_forked(Ending(at, names=CHANGES, loses_power=folder).work, make, out) for at in (n, max(n // 2, 1))]
        if not killed[0]:  # it has fewer changes
            break
        run_forked(make, out)
        counts += Counts(sum(killed)) + compare(out, whole)
        n += steps
    return counts


@fault("power cut, audit", HOW, times=30, few=2)
def cut_audit(folder: Path, times: int) -> Counts:
    data = make_collection(folder, 4)
    return cut_power(folder, times, lambda out: audit(data, out, seconds=0.0), compare_runs, steps=1 if times > 10 else 12)


@fault("power cut, labels", HOW, times=30, few=2)
def cut_labels(folder: Path, times: int) -> Counts:
    from steadyscore.training.labelling import label

    data = make_collection(folder, 4)

    def make(out: Path) -> None:
        label("synthetic:none", str(data), out, teacher_orders=2, quiet=True)
        label(start=out, data=str(data), out=out / "derived", teacher_orders=1, quiet=True)

    def compare(out: Path, whole: Path) -> Counts:
        return compare_runs(out, whole) + compare_runs(out / "derived", whole / "derived")

    return cut_power(folder, times, make, compare, steps=1 if times > 10 else 15)


@fault("power cut, report", HOW, times=12, few=1)
def cut_report(folder: Path, times: int) -> Counts:
    from steadyscore.report.page import write_report
    from steadyscore.results.load import load_run
    from steadyscore.runs.folder import Run

    audit(make_collection(folder, 4), folder / "run")
    audits = [load_run(Run.open(folder / "run"))]
    return cut_power(folder, times, lambda out: write_report(audits, out), compare_files)


@fault("power cut, training", HOW, times=6, few=2, is_slow=True)
def cut_training(folder: Path, times: int) -> Counts:
    from steadyscore.training import loop
    from steadyscore.training.recipe import TrainConfig
    from tests.helpers import tiny

    tiny.save(folder / "base", tiny.decoder())
    data = tiny.write_collection(folder / "pools.jsonl", 6, 5, seed=0)

    def make(out: Path) -> None:
        loop.torch.set_num_threads(1)  # a copy of a process has none of its other threads
        tiny.train_adapter(
            TrainConfig(
                base=f"hf:{folder / 'base'}", data=str(data), labels="judgements", out=str(out), widths=(5,), steps=4, batch=2,
                microbatch=2, rank=2, device="cpu", checkpoint_every=1, keep=1, held_out=1, evaluate_every=2,
                objective="mean_teacher",
            )
        )  # fmt: skip

    def compare(out: Path, whole: Path) -> Counts:
        files = [
            compare_files(out, whole, pattern) for pattern in ("*.safetensors", "checkpoints/**/*", "evaluations.json", "*.md")
        ]
        return sum(files, compare_rows(_losses(out), _losses(whole)))

    return cut_power(folder, times, make, compare, steps=3)


def _losses(out: Path) -> list[tuple[int, float]]:
    rows = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"]) for row in rows]
