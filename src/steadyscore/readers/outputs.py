"""What readers made of a run: their outputs, kept beside it, and what these are worth. Reads tables, needs no model.

`outputs.parquet` has a row for each query, permutation and reader: query_id, permutation, reader, output.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..measures import answers as arithmetic
from ..measures.intervals import mean_interval
from ..runs.folder import Run
from ..runs.table import Scored
from ..tasks import TASKS, Task

Array = np.ndarray
Outputs = dict[str, list[str]]
"""query id -> what a reader wrote, in the order of the permutations"""

LABEL = re.compile(r"(?P<address>.*) k=(?P<k>\d+)(?: K=(?P<K>\d+))?")


def reader_label(address: str, k: int, serving_permutations: int = 1) -> str:
    """A reader's name in `outputs.parquet`: the same model at another k or budget is another reader."""
    return f"{address} k={k}" + (f" K={serving_permutations}" if serving_permutations > 1 else "")


def label_parts(label: str) -> tuple[str, int, int]:
    """(address, k, K) of a reader's name."""
    found = LABEL.fullmatch(label)
    assert found is not None
    return found["address"], int(found["k"]), int(found["K"] or 1)


@dataclass(frozen=True)
class Readings:
    """One reader of a run."""

    outputs: Outputs
    values: dict[str, Array]
    """measure -> (Q,) over the run's queries; NaN where the reader gave nothing usable, or nothing is gold."""


def keep_outputs(run: Run, label: str, outputs: Outputs) -> None:
    """Write a reader's outputs beside the run, in place of those it gave before; other readers' rows stay."""
    import pyarrow as pa

    kinds = pa.schema([("query_id", pa.string()), ("permutation", pa.int32()), ("reader", pa.string()), ("output", pa.string())])
    rows = [
        {"query_id": query_id, "permutation": permutation, "reader": reader, "output": output}
        for reader, written in (_kept(run) | {label: outputs}).items()
        for query_id, given in written.items()
        for permutation, output in enumerate(given)
    ]
    run.write("outputs.parquet", pa.Table.from_pylist(rows, schema=kinds))


def _kept(run: Run) -> dict[str, Outputs]:
    found: dict[str, Outputs] = {}
    for row in run.read("outputs.parquet").to_pylist() if run.has("outputs.parquet") else []:
        found.setdefault(row["reader"], {}).setdefault(row["query_id"], []).append(row["output"])
    return found


def outputs_of(run: Run, label: str) -> Outputs:
    """What a reader wrote, by query, in the order of the permutations."""
    if label not in (kept := _kept(run)):
        raise InputError(f"{run.folder} holds no outputs of {label}. Audit it with --reader first.")
    return kept[label]


def readings_of(run: Run, query_ids: Sequence[str], serving_permutations: int | None = None) -> dict[str, Readings]:
    """Every reader of a run (of one serving budget, where given), the first one first, over the queries named."""
    if not (kept := _kept(run)):
        return {}
    gold = {row["query_id"]: row for row in run.read("queries.parquet").to_pylist()}
    task, found = TASKS[run.record["task"]], {}
    for label, outputs in kept.items():
        if serving_permutations in (None, label_parts(label)[2]):
            rows = [worth(task, outputs.get(i), gold[i]["answers"] or (), gold[i]["verdict"]) for i in query_ids]
            values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
            found[label] = Readings(outputs, {name: each for name, each in values.items() if not np.isnan(each).all()})
    return found


def shared_readers(runs: Sequence[Run], serving_permutations: int = 1) -> list[str]:
    """Readers of one serving budget that read every one of some runs: only their figures can be compared."""
    kept = [_kept(run) for run in runs]
    return [r for r in kept[0] if label_parts(r)[2] == serving_permutations and all(r in other for other in kept)]


def worth(task: Task, outputs: Sequence[str] | None, answers: Sequence[str], verdict: Any) -> dict[str, float]:
    """One query's measures: worth averaged over permutations, flips between them (§5).

    NaN without a gold label or answer, and for a query that the reader could not read.
    """
    nan = float("nan")
    assert task.reader is not None
    if task.reader.writes == "verdict":
        if outputs is None:
            return {"verdict_accuracy": nan, "verdict_flip": nan}
        right = nan if verdict is None else arithmetic.verdict_accuracy(outputs, verdict)
        return {"verdict_accuracy": right, "verdict_flip": float(arithmetic.verdict_flip(outputs))}
    if outputs is None:
        return {"answer_em": nan, "answer_f1": nan, "answer_flip": nan}
    return {
        "answer_em": float(np.mean([arithmetic.exact_match(output, answers) for output in outputs])),
        "answer_f1": float(np.mean([arithmetic.token_f1(output, answers) for output in outputs])),
        "answer_flip": float(arithmetic.answer_flip(outputs)),
    }


def control(
    task: Task, before: tuple[Sequence[Scored], Outputs], after: tuple[Sequence[Scored], Outputs], k: int
) -> dict[str, Any]:
    """Flip before minus after where both scorers show the reader the same k candidates under every permutation (§F.3, block c).

    A positive reduction cannot come from other evidence: only the order of the same evidence is left. `share` is that of
    the shared queries with the same evidence; the reduction is None where there is none.
    """
    assert task.reader is not None
    flip = arithmetic.verdict_flip if task.reader.writes == "verdict" else arithmetic.answer_flip
    scored = [{q.query_id: q.permuted for q in queries if q.query_id in read} for queries, read in (before, after)]
    shared = [i for i in scored[0] if i in scored[1] and scored[0][i].shape == scored[1][i].shape]
    if not shared:
        return {"queries": 0, "share": None, "reduction": None, "low": None, "high": None}
    same = np.array([arithmetic.same_evidence(scored[0][i], scored[1][i], k).all() for i in shared])
    flips = [np.array([float(flip(read[i])) for i in shared]) for _, read in (before, after)]
    share, reduction = arithmetic.same_evidence_control(flips[0], flips[1], same)
    found = mean_interval([np.where(same, flips[0] - flips[1], np.nan)], scheme="queries")
    low, high = (found.low, found.high) if found.queries > 1 else (None, None)  # one query has no spread to resample
    return {"queries": len(shared), "share": share, "reduction": reduction if found.queries else None, "low": low, "high": high}
