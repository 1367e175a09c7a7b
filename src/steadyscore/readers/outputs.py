"""What readers made of a run: their outputs in `outputs.parquet`, and the measures of these. Needs no model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..measures import answers as arithmetic
from ..measures.intervals import mean_interval
from ..measures.views import ScoreView, ranked_permuted
from ..runs.folder import Run
from ..runs.layout import OUTPUTS_FILE, QUERIES_FILE, output_schema
from ..runs.table import Scored
from ..tasks import TASKS, Task, reader_kind
from ..terms import Array, Verdict

Outputs = dict[str, list[str]]
"""query id -> what a reader wrote, in the order of the permutations"""

LABEL = re.compile(r"(?P<address>.*) k=(?P<k>\d+)(?: K=(?P<K>\d+))?(?P<likeliest> likeliest)?(?: \[(?P<reading>.*)\])?")


class ReaderName(NamedTuple):
    """A reader's name in `outputs.parquet`, taken apart."""

    address: str
    k: int
    """Candidates that it is shown."""
    serving_permutations: int
    reading: str
    """How the scores behind its evidence were read, in words; empty for the usual way."""
    is_likeliest: bool = False
    """Whether a verdict is the label that was likeliest as a whole, which an earlier version could ask for."""


def reader_label(address: str, k: int, view: ScoreView | None = None) -> str:
    """A reader's name in `outputs.parquet`: the same model at another k or view of the scores is another one."""
    view = view or ScoreView()
    budget = f" K={view.serving_permutations}" if view.serving_permutations > 1 else ""
    return f"{address} k={k}{budget}" + (f" [{words}]" if (words := view.words()) else "")


def label_parts(label: str) -> ReaderName:
    parts = LABEL.fullmatch(label)
    assert parts is not None
    likeliest = parts["likeliest"] is not None
    return ReaderName(parts["address"], int(parts["k"]), int(parts["K"] or 1), parts["reading"] or "", likeliest)


def readable_queries(run: Run) -> set[str]:
    """Ids of the queries that readers of a run read and that its flips count.

    A claim without a verdict, such as a disputed one of Climate-FEVER, is left out (§5). A flip itself needs no gold: where no
    claim of the run has a verdict, all of them count.
    """
    rows = run.read(QUERIES_FILE).select(["query_id", "verdict"]).to_pylist()
    has_verdict = {row["query_id"] for row in rows if row["verdict"] is not None}
    is_claims = reader_kind(TASKS[run.record.task]).writes == "verdict"
    return has_verdict if is_claims and has_verdict else {row["query_id"] for row in rows}


def has_read(label: str, view: ScoreView) -> bool:
    """Whether a reader was shown what this view of the scores puts first."""
    parts = label_parts(label)
    return parts.serving_permutations == view.serving_permutations and parts.reading == view.words()


@dataclass(frozen=True)
class ReaderResult:
    """What one reader made of a run."""

    outputs: Outputs
    values: dict[str, Array]
    """measure -> (Q,) over the run's queries; NaN where the reader gave nothing usable, or nothing is gold."""
    unread: Sequence[str] = ()
    """Queries that should have an output and have none."""


def write_outputs(run: Run, label: str, outputs: Outputs) -> None:
    """Write a reader's outputs beside the run, in place of those it gave before; other readers' rows stay."""
    import pyarrow as pa

    rows = [
        {"query_id": query_id, "permutation": permutation, "reader": reader, "output": output}
        for reader, written in (_read_outputs(run) | {label: outputs}).items()
        for query_id, of_query in written.items()
        for permutation, output in enumerate(of_query)
    ]
    run.write(OUTPUTS_FILE, pa.Table.from_pylist(rows, schema=output_schema()))


def _read_outputs(run: Run) -> dict[str, Outputs]:
    """What every reader of a run wrote, by its name."""
    outputs: dict[str, Outputs] = {}
    for row in run.read(OUTPUTS_FILE).to_pylist() if run.has(OUTPUTS_FILE) else []:
        outputs.setdefault(row["reader"], {}).setdefault(row["query_id"], []).append(row["output"])
    return outputs


def readers_of(run: Run) -> list[str]:
    """Names of the readers whose outputs a run has."""
    return list(_read_outputs(run))


def reader_results(run: Run, query_ids: Sequence[str], first: int | None = None) -> dict[str, ReaderResult]:
    """Every reader of a run over the queries named; of their outputs the first ones."""
    if not (written := _read_outputs(run)):
        return {}
    readable = readable_queries(run)
    gold = {row["query_id"]: row for row in run.read(QUERIES_FILE).to_pylist()}
    task, results = TASKS[run.record.task], {}
    for label, all_outputs in written.items():
        outputs = {query_id: output[:first] for query_id, output in all_outputs.items() if query_id in readable}
        rows = [reader_measures(task, outputs.get(i), gold[i]["answers"] or (), gold[i]["verdict"]) for i in query_ids]
        values = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        defined = {name: each for name, each in values.items() if not np.isnan(each).all()}
        results[label] = ReaderResult(outputs, defined, [i for i in query_ids if i in readable and i not in outputs])
    return results


def shared_readers(runs: Sequence[Run], view: ScoreView | None = None) -> list[str]:
    """Readers of one view that read every one of some runs: only their figures can be compared."""
    written = [_read_outputs(run) for run in runs]
    return [r for r in written[0] if has_read(r, view or ScoreView()) and all(r in other for other in written)]


def reader_measures(
    task: Task, outputs: Sequence[str] | None, answers: Sequence[str], verdict: Verdict | None
) -> dict[str, float]:
    """One query's measures: quality averaged over permutations, flips between them (§5).

    NaN without a gold label or answer, and for a query that the reader could not read.
    """
    kind = reader_kind(task)
    if outputs is None:
        return dict.fromkeys((*kind.quality, kind.flip), float("nan"))
    if kind.writes == "verdict":
        accuracy = float("nan") if verdict is None else arithmetic.verdict_accuracy(outputs, verdict)
        return {"verdict_accuracy": accuracy, "verdict_flip": float(arithmetic.verdict_flip(outputs))}
    return {
        "answer_em": float(np.mean([arithmetic.exact_match(output, answers) for output in outputs])),
        "answer_f1": float(np.mean([arithmetic.token_f1(output, answers) for output in outputs])),
        "answer_flip": float(arithmetic.answer_flip(outputs)),
    }


class SameEvidence(NamedTuple):
    """Flips of a reader of two scorers on the queries whose evidence is the same."""

    queries: int
    """Queries that both scorers have, under equally many permutations."""
    share: float | None
    """Of these, the share with the same evidence."""
    reduction: float | None
    """Mean flip before minus after on them; None where there is none."""
    low: float | None
    high: float | None


def compare_on_same_evidence(
    task: Task, before: tuple[Sequence[Scored], Outputs], after: tuple[Sequence[Scored], Outputs], k: int
) -> SameEvidence:
    """Flip before minus after where both scorers show the reader the same k candidates under every permutation (§F.3, block c).

    A positive reduction cannot come from other evidence: only the order of the same evidence is left.
    """
    flip = arithmetic.verdict_flip if reader_kind(task).writes == "verdict" else arithmetic.answer_flip
    scored = [{q.query_id: ranked_permuted(q) for q in queries if q.query_id in read} for queries, read in (before, after)]
    shared = [i for i in scored[0] if i in scored[1] and scored[0][i].shape == scored[1][i].shape]
    if not shared:
        return SameEvidence(0, None, None, None, None)
    same = np.array([arithmetic.same_evidence(scored[0][i], scored[1][i], k).all() for i in shared])
    flips = [np.array([float(flip(read[i])) for i in shared]) for _, read in (before, after)]
    share, reduction = arithmetic.same_evidence_reduction(flips[0], flips[1], same)
    interval = mean_interval([np.where(same, flips[0] - flips[1], np.nan)], scheme="queries")
    low, high = (interval.low, interval.high) if interval.queries > 1 else (None, None)  # one query has no spread to resample
    return SameEvidence(len(shared), share, reduction if interval.queries else None, low, high)
