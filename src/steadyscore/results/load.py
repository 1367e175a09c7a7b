"""A run folder as an `Audit`: its table is read once, measured once, and its intervals are drawn once. No model is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypedDict

import numpy as np

from ..collection import Source
from ..errors import InputError
from ..measures.answers import EVIDENCE
from ..measures.measurement import (
    EachChanged,
    Measured,
    fewest_permutations,
    find_cutoff,
    fitted_retention,
    measure,
)
from ..measures.registry import MEASURES
from ..measures.threshold import Cutoff, Threshold
from ..measures.views import ScoreView, has_ties, reverse_ties, with_scores
from ..readers.outputs import (
    ReaderResult,
    SameEvidence,
    compare_on_same_evidence,
    has_read,
    reader_label,
    reader_results,
    shared_readers,
)
from ..runs.folder import Run, find_runs
from ..runs.records import RunRecord
from ..runs.table import Scored
from ..scoring.perturbation import perturbed_sample
from ..tasks import TASKS, Task
from ..terms import Failure, Readout, Ties
from .audit import Audit
from .causes import noise_of
from .figure import Floor, mean_figures
from .measured_run import measure_first_stage


def view_of(run: Run, serving_permutations: int = 1, readout: Readout | None = None, ties: Ties | None = None) -> ScoreView:
    """The view that is asked for; with neither readout nor tie rule that of the run's last audit, so that a gate, a comparison
    or a page sees what the audit saw. A mean of several orders has no input position that could break a tie.
    """
    if readout is None and ties is None:
        own = run.record.reading
        readout, ties = own.get("readout"), own.get("ties") if serving_permutations == 1 else "id"
    return ScoreView(readout or "expected", ties or "id", serving_permutations)


class Measuring(TypedDict, total=False):
    """How stored runs are measured, where it is not as they were audited: what `load_runs` is told."""

    threshold: Threshold | None
    serving_permutations: int
    readout: Readout | None
    ties: Ties | None


def load_runs(
    runs: Sequence[Run],
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readout: Readout | None = None,
    ties: Ties | None = None,
) -> list[Audit]:
    """Where readers read the runs, with the figures of the first reader that read all runs of a collection."""
    if unfinished := [run.folder for run in runs if not run.is_complete]:
        raise InputError([f"{folder} is not complete. Run the command that made it again first." for folder in unfinished])
    audits = []
    for run in runs:
        rivals = [other for other in runs if other.record.collection == run.record.collection]
        view = view_of(run, serving_permutations, readout, ties)
        audits.append(load_run(run, threshold, view, shared_readers(rivals, view)))
    return audits


def load_run(
    run: Run,
    threshold: Threshold | None = None,
    view: ScoreView | None = None,
    readers: Sequence[str] | None = None,
    *,
    queries: Sequence[Scored] | None = None,
    source: Source | None = None,
) -> Audit:
    """One run, measured, with the figures of the first of its readers (of `readers`, where given).

    Whoever has just scored it hands over the `queries`, as they are stored, and the `source`, so that neither is read again.
    """
    view = view or view_of(run)
    scored = run.read_queries() if queries is None else queries
    served = view.of_all(scored)
    given = threshold or own_threshold(run)
    by = match_threshold(given, run.record.collection, view)
    read = reader_results(run, [query.query_id for query in served])
    in_this_view = [label for label in read if has_read(label, view)]
    reader = next((label for label in (in_this_view if readers is None else readers) if label in in_this_view), None)
    measured = measure_run(run, served, by, read.get(reader or ""), is_as_scored=view.is_plain)
    # Of single presentations: an average moves less.
    reads = run.read_noise() if view.is_plain else []
    floor = _noise_floor(reads, served, by, measured.cutoff)
    record, task = run.record, TASKS[run.record.task]
    return Audit(
        name=record.name,
        collection=record.collection,
        task=task,
        record=record,
        queries=served,
        measured=measured,
        figures=mean_figures(measured, floor),
        folder=run.folder,
        opened=source,
        threshold=given,
        view=view,
        readers=read,
        reader=reader,
        noise=noise_of(reads),
        first_stage=measure_first_stage(scored, record, by, task, measured),
        ties_reversed=_reverse_ties(served, by, task) if view.ties == "id" else {},
    )


def _reverse_ties(queries: Sequence[Scored], by: Threshold, task: Task) -> dict[str, float]:
    """The task's measures where the larger id goes first of two with equal scores; nothing where no two are equal."""
    if not any(map(has_ties, queries)):
        return {}
    values = measure(EachChanged(queries, reverse_ties), by, task.compared).values
    return {name: float(np.nanmean(by_query)) for name, by_query in values.items()}


ONE_FOR_ALL = "Give one for all: --match-retention SHARE, --keep K|SHARE or --cutoff X|f1."
"""The remedy for audits with different thresholds."""


def check_one_threshold(audits: Sequence[Audit]) -> None:
    """What two thresholds keep cannot be compared."""
    if not share_threshold(audits):
        raise InputError(f"these runs were audited with different thresholds. {ONE_FOR_ALL}")


def share_threshold(audits: Sequence[Audit]) -> bool:
    """Whether the audits of each collection have one: a share that is matched to another run differs between collections."""
    thresholds: dict[str, set[Threshold]] = {}
    for audit in audits:
        thresholds.setdefault(audit.collection, set()).add(audit.threshold)
    return all(len(each) == 1 for each in thresholds.values())


def own_threshold(run: Run) -> Threshold:
    """What the run was last audited with, so that a gate, a comparison or a page decides as the audit did."""
    return Threshold.stored(run.record.threshold)


def match_threshold(by: Threshold, collection: str, view: ScoreView) -> Threshold:
    """A threshold that is matched to another run, as the share that this run's own cutoff keeps; any other as it is."""
    if by.retention_of is None:
        return by
    runs = find_runs([by.retention_of])
    fitting = [run for run in runs if run.record.collection == collection]
    if not fitting:
        known = ", ".join(sorted({run.record.collection for run in runs}))
        raise InputError(f"{by.retention_of} holds no run on {collection} to match the retention of; it has {known}.")
    if len(fitting) > 1:
        named = ", ".join(str(run.folder) for run in fitting)
        raise InputError(f"{by.retention_of} holds {len(fitting)} runs on {collection}. Name the one to match: {named}.")
    (run,) = fitting
    tuned = Threshold(cutoff="f1", protocol=by.protocol, seed=by.seed)
    queries = view.of_all(run.read_queries())
    cutoff = find_cutoff(queries, tuned)
    if cutoff.value is None:
        raise InputError(f"{run.folder} has no cutoff whose retention could be matched: {cutoff.how}.")
    return replace(by, retention_of=None, retention=fitted_retention(queries, cutoff.value, tuned))


def measure_run(
    run: Run, served: Sequence[Scored], by: Threshold, read: ReaderResult | None = None, *, is_as_scored: bool
) -> Measured:
    """Every measure that a run allows: of its scores, of what perturbations moved (single presentations only), of a reader."""
    measured = measure(served, by)
    sample = perturbed_sample(measured.query_ids, run.record.fingerprint.seed or 0)
    beside = run.read_perturbed(measured.query_ids, sample) if is_as_scored else {}
    beside |= read.values if read else {}
    known = {name: values for name, values in beside.items() if not np.isnan(values).all()}
    failed = {failure.query_id: failure.reason for failure in run.record.failed}
    measured = replace(measured, values=measured.values | known, coverage=replace(measured.coverage, failed=failed))
    is_undecided = run.record.gives_ranking and not measured.cutoff.is_per_query
    return _without_threshold(measured, run.record) if is_undecided else measured


def _noise_floor(noise: Sequence[Scored], queries: Sequence[Scored], by: Threshold, cutoff: Cutoff) -> Floor | None:
    """What reading one presentation again gives, beside as many permutations of the same queries at the same cutoff.

    Spreads and variances grow with the number of rows, so both sides have as many. None where nothing was read again.
    """
    read = {query.query_id: query for query in noise}
    again, permuted = [], []
    for query in queries:
        if (other := read.get(query.query_id)) is not None and query.candidate_ids == other.candidate_ids:
            rows = min(len(query.permuted), len(other.scores))
            again.append(replace(with_scores(other, other.scores[:rows]), relevance=query.relevance, ideal=query.ideal))
            permuted.append(with_scores(query, query.permuted[:rows]))
    if not again:
        return None
    frozen = replace(by, cutoff=cutoff.value, retention=None)
    return Floor(*(measure(side, frozen) for side in (again, permuted)))


def _without_threshold(measured: Measured, record: RunRecord) -> Measured:
    """A ranking's numbers are n - rank: no cutoff means the same on two queries."""
    kept = {name: values for name, values in measured.values.items() if "cutoff" not in MEASURES[name].needs}
    why = f"none: {record.name} gives a ranking, and a threshold needs scores; --keep does without"
    return replace(measured, values=kept, cutoff=Cutoff(None, why))


BUDGETS = 10
"""Permutations averaged in the last point of a curve."""


def budget_values(
    run: Run, queries: Sequence[Scored], by: Threshold, view: ScoreView | None = None
) -> dict[int, dict[str, float]]:
    """Every measure at each serving budget K: {K: {measure: mean}}.

    K = 1 is one presentation, so its quality is that of the first-stage order; from 2 on a row is the mean of K random ones,
    as in the paper.
    """
    budgets = range(1, min(BUDGETS, fewest_permutations(queries)) + 1)
    measured = zip(budgets, measure_budgets(run, queries, by, view or ScoreView(), budgets), strict=True)
    return {budget: {name: float(np.nanmean(each)) for name, each in at.values.items()} for budget, at in measured}


def measure_budgets(
    run: Run, queries: Sequence[Scored], by: Threshold, view: ScoreView, budgets: Iterable[int]
) -> Iterator[Measured]:
    """A run as it is served at each budget K, from stored scores; the cutoff is fitted anew at each K."""
    read = reader_results(run, [query.query_id for query in queries])
    for served in map(view.at_budget, budgets):
        reader = next((label for label in read if has_read(label, served)), "")
        matched = match_threshold(by, run.record.collection, served)
        yield measure_run(run, served.of_all(queries), matched, read.get(reader), is_as_scored=served.is_plain)


def same_evidence_control(before: Audit, after: Audit, address: str, k: int = EVIDENCE) -> SameEvidence:
    """Flips of one reader where two scorers showed it the same candidates (§F.3)."""
    label = reader_label(address, k, after.view)
    sides = [(audit.queries, audit.outputs(label)) for audit in (before, after)]
    evidence = compare_on_same_evidence(after.task, sides[0], sides[1], k)
    if not evidence.queries:
        raise InputError(f"{before.name} and {after.name} share no query with equally many permutations.")
    return evidence


def failures(runs: Iterable[Run]) -> tuple[Failure, ...]:
    """What could not be scored in some runs, each query once."""
    failed = [failure for run in runs for failure in run.record.failed]
    return tuple({failure.query_id: failure for failure in failed}.values())
