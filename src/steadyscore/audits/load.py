"""A run folder as an `Audit`: its table is read once, measured once, and its intervals are drawn once. No model is needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from ..collection import Source
from ..engines.generator import Decoding
from ..errors import InputError
from ..machine.places import Place
from ..measures.answers import EVIDENCE
from ..measures.measurement import (
    EachChanged,
    Measured,
    average_permutations,
    fewest_permutations,
    fitted_retention,
    measure,
    with_scores,
)
from ..measures.reading import Reading, has_ties, reverse_ties
from ..measures.registry import MEASURES
from ..measures.threshold import Cutoff, Threshold
from ..readers.outputs import (
    ReaderResult,
    SameEvidence,
    compare_on_same_evidence,
    has_read,
    reader_label,
    reader_results,
    shared_readers,
)
from ..runs.compact import CompactQueries
from ..runs.find import find_runs
from ..runs.folder import Run
from ..runs.layout import RunRecord
from ..runs.table import Scored
from ..scoring.perturbation import perturbed_sample
from ..tasks import TASKS, Task
from ..terms import Readout, Ties
from .figure import Floor, mean_figures
from .first_stage import measure_first_stage
from .result import Audit, Audits


def load(
    folder: str | Place,
    *more: str | Place,
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readout: Readout | None = None,
    ties: Ties | None = None,
) -> Audits:
    """The audits of complete runs in and below some folders, in the order of the folders, each measured as it was audited
    (threshold, readout, ties) unless something else is given.
    """
    runs = find_runs([folder, *more])
    return Audits(load_runs(runs, threshold, serving_permutations, reading_from(readout, ties)))


def reading_from(readout: Readout | None, ties: Ties | None) -> Reading | None:
    """What was asked for; None where nothing was: each run's own."""
    return None if readout is None and ties is None else Reading(readout or "expected", ties or "id")


def load_runs(
    runs: Sequence[Run],
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    reading: Reading | None = None,
) -> list[Audit]:
    """Where readers read the runs, with the figures of the first reader that read all runs of a collection."""
    if unfinished := [run.folder for run in runs if not run.is_complete]:
        raise InputError([f"{folder} is not complete. Run the command that made it again first." for folder in unfinished])
    audits = []
    for run in runs:
        rivals = [other for other in runs if other.record["collection"] == run.record["collection"]]
        readers = shared_readers(rivals, serving_permutations, reading or own_reading(run))
        audits.append(load_run(run, threshold, serving_permutations, readers, reading=reading))
    return audits


Given = Audits | Audit | str | Place
"""What `compare` and `gate` take: audits, or folders that hold runs."""


def collect_audits(
    given: Sequence[Given], load: Callable[[Sequence[Run]], list[Audit]], *, is_measured_anew: bool
) -> list[Audit]:
    """Audits as they are, and those of the runs in and below folders, loaded together and measured as was asked."""
    given = [one for part in given for one in (part if isinstance(part, list | tuple) else [part])]
    if odd := [one for one in given if not isinstance(one, Audits | Audit | str | Place)]:
        raise InputError(f"a {type(odd[0]).__name__} is not an audit and not a folder of runs. Give audits or folders.")
    runs = {place: find_runs([one]) for place, one in enumerate(given) if isinstance(one, str | Place)}
    if len(runs) < len(given) and is_measured_anew:
        raise InputError(
            "a threshold, serving permutations, a readout and a tie rule are for run folders; "
            "audits in memory are measured already."
        )
    loaded = iter(load([run for found in runs.values() for run in found]) if runs else [])
    audits: list[Audit] = []
    for place, one in enumerate(given):  # in the order they were named: the first is a baseline
        if isinstance(one, Audit):
            audits.append(one)
        else:
            audits += islice(loaded, len(runs[place])) if place in runs else one  # type: ignore[arg-type]
    return audits


def load_run(
    run: Run,
    threshold: Threshold | None = None,
    serving_permutations: int = 1,
    readers: Sequence[str] | None = None,
    *,
    reading: Reading | None = None,
    queries: Sequence[Scored] | None = None,
    source: Source | None = None,
) -> Audit:
    """One run, measured, with the figures of the first of its readers (of `readers`, where given).

    Whoever has just scored it hands over the `queries`, as they are stored, and the `source`, so that neither is read again.
    """
    how = _possible_reading(reading, run, serving_permutations)
    scored = run.read_queries() if queries is None else queries
    served = serve_ensembles(read_queries(scored, how), serving_permutations)
    given = threshold or own_threshold(run)
    by = match_threshold(given, run.record["collection"], serving_permutations, how)
    read = reader_results(run, [query.query_id for query in served])
    at_this_budget = [label for label in read if has_read(label, serving_permutations, how)]
    reader = next((label for label in (at_this_budget if readers is None else readers) if label in at_this_budget), None)
    is_as_scored = serving_permutations == 1 and how.is_plain
    measured = measure_run(run, served, by, read.get(reader or ""), is_as_scored=is_as_scored)
    # Of single presentations: an average moves less.
    floor = _noise_floor(run.read_noise(), served, by, measured.cutoff) if is_as_scored else None
    record, task = run.record, TASKS[run.record["task"]]
    return Audit(
        name=record["name"],
        collection=record["collection"],
        task=task,
        record=record,
        queries=served,
        measured=measured,
        figures=mean_figures(measured, floor),
        folder=run.folder,
        opened=source,
        threshold=given,
        serving_permutations=serving_permutations,
        reading=how,
        readers=read,
        reader=reader,
        first_stage=measure_first_stage(scored, record, by, task, measured),
        ties_reversed=_reverse_ties(served, by, task) if how.ties == "id" else {},
    )


def _reverse_ties(queries: Sequence[Scored], by: Threshold, task: Task) -> dict[str, float]:
    """The task's measures where the larger id goes first of two with equal scores; nothing where no two are equal."""
    if not any(map(has_ties, queries)):
        return {}
    values = measure(EachChanged(queries, reverse_ties), by, task.compared).values
    return {name: float(np.nanmean(found)) for name, found in values.items()}


ONE_FOR_ALL = "Give one for all: --match-retention SHARE, --keep-share SHARE, --keep-first K or --cutoff X|f1."
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
    return Threshold.stored(run.record.get("threshold", {}))


def match_threshold(by: Threshold, collection: str, serving_permutations: int, reading: Reading) -> Threshold:
    """A threshold that is matched to another run, as the share that this run's own cutoff keeps; any other as it is."""
    if by.retention_of is None:
        return by
    runs = find_runs([by.retention_of])
    fitting = [run for run in runs if run.record["collection"] == collection]
    if not fitting:
        known = ", ".join(sorted({run.record["collection"] for run in runs}))
        raise InputError(f"{by.retention_of} holds no run on {collection} to match the retention of; it has {known}.")
    if len(fitting) > 1:
        named = ", ".join(str(run.folder) for run in fitting)
        raise InputError(f"{by.retention_of} holds {len(fitting)} runs on {collection}. Name the one to match: {named}.")
    (run,) = fitting
    tuned = Threshold(cutoff="f1", protocol=by.protocol, seed=by.seed)
    queries = serve_ensembles(read_queries(run.read_queries(), reading), serving_permutations)
    cutoff = measure(queries, tuned).cutoff
    if cutoff.value is None:
        raise InputError(f"{run.folder} has no cutoff whose retention could be matched: {cutoff.how}.")
    return replace(by, retention_of=None, retention=fitted_retention(queries, cutoff.value, tuned))


def own_reading(run: Run) -> Reading:
    """How the run was last read, so that a gate, a comparison or a page sees what the audit saw."""
    return Reading(**run.record.get("reading", {}))


def _possible_reading(asked: Reading | None, run: Run, serving_permutations: int) -> Reading:
    """The reading asked for, or the run's own. A mean of several orders has no input position that could break a tie."""
    if asked is None:
        own = own_reading(run)
        return own if serving_permutations == 1 else replace(own, ties="id")
    if asked.ties == "input" and serving_permutations > 1:
        raise InputError(
            f"ties cannot be broken by input position in a mean of {serving_permutations} orders, which has none. "
            "Leave out --ties input or --serving-permutations."
        )
    return asked


def read_queries(queries: Sequence[Scored], reading: Reading) -> Sequence[Scored]:
    """Queries as they are, or read in another way."""
    return queries if reading.is_plain else CompactQueries(map(reading.read, queries))


def serve_ensembles(queries: Sequence[Scored], serving_permutations: int = 1) -> Sequence[Scored]:
    """Queries as they are, or as the disjoint ensembles of K permutations that batched self-consistency would serve (§D.4)."""
    if serving_permutations == 1:
        return queries
    return CompactQueries(average_permutations(query, serving_permutations) for query in queries)


def measure_run(
    run: Run, served: Sequence[Scored], by: Threshold, read: ReaderResult | None = None, *, is_as_scored: bool
) -> Measured:
    """Every measure that a run allows: of its scores, of what perturbations moved (single presentations only), of a reader."""
    measured = measure(served, by)
    sample = perturbed_sample(measured.query_ids, run.record["fingerprint"].get("seed", 0))
    beside = run.read_perturbed(measured.query_ids, sample) if is_as_scored else {}
    beside |= read.values if read else {}
    known = {name: values for name, values in beside.items() if not np.isnan(values).all()}
    failed = {failure["query_id"]: failure["reason"] for failure in run.record.get("coverage", {}).get("failed", [])}
    measured = replace(measured, values=measured.values | known, coverage=replace(measured.coverage, failed=failed))
    is_undecided = is_ranking(run.record) and not measured.cutoff.is_per_query
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


def is_ranking(record: RunRecord) -> bool:
    return bool(record.get("capabilities", {}).get("gives") == "ranking")


def _without_threshold(measured: Measured, record: RunRecord) -> Measured:
    """A ranking's numbers are n - rank: no cutoff means the same on two queries."""
    kept = {name: values for name, values in measured.values.items() if "cutoff" not in MEASURES[name].needs}
    why = f"none: {record['name']} gives a ranking, and a threshold needs scores; --keep-first and --keep-share do without"
    return replace(measured, values=kept, cutoff=Cutoff(None, why))


def budget_values(
    run: Run, queries: Sequence[Scored], by: Threshold, most: int = 10, reading: Reading | None = None
) -> dict[int, dict[str, float]]:
    """Every measure at each serving budget K, from stored scores: {K: {measure: mean}}. The cutoff is fitted anew at each K.

    K = 1 is one presentation, so its quality is that of the first-stage order; from 2 on a row is the mean of K random ones,
    as in the paper.
    """
    how = reading or Reading()
    queries = read_queries(queries, how)
    budgets = range(1, min(most, fewest_permutations(queries)) + 1)
    read = reader_results(run, [query.query_id for query in queries])
    by_budget = {}
    for budget in budgets:
        reader = next((label for label in read if has_read(label, budget, how)), "")
        is_as_scored = budget == 1 and how.is_plain
        matched = match_threshold(by, run.record["collection"], budget, how)
        values = measure_run(run, serve_ensembles(queries, budget), matched, read.get(reader), is_as_scored=is_as_scored).values
        by_budget[budget] = {name: float(np.nanmean(each)) for name, each in values.items()}
    return by_budget


def same_evidence_control(
    before: Audit, after: Audit, address: str, k: int = EVIDENCE, decoding: Decoding = "greedy"
) -> SameEvidence:
    """Flips of one reader where two scorers showed it the same candidates (§F.3)."""
    label = reader_label(address, k, reading=after.reading, decoding=decoding)
    sides = [(audit.queries, audit.outputs(label)) for audit in (before, after)]
    found = compare_on_same_evidence(after.task, sides[0], sides[1], k)
    if not found.queries:
        raise InputError(f"{before.name} and {after.name} share no query with equally many permutations.")
    return found
