"""Finished runs as observations: looked up in the store by what they are, measured once, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..machine.places import Place
from ..measures import decomposition
from ..measures.answers import EVIDENCE
from ..measures.decomposition import silver_beta
from ..measures.intervals import Method
from ..measures.measurement import Measured, fitted_retention, measure
from ..measures.pairing import Observation
from ..measures.registry import MEASURES
from ..measures.threshold import Threshold
from ..models.adapter import other_task
from ..readers.outputs import ReaderResult, reader_label, reader_results
from ..results.load import measure_run, own_threshold
from ..runs.folder import Run, find_run
from ..runs.table import Scored
from ..scoring.rereads import average_reads
from ..scoring.timing import query_seconds, read_timings
from ..terms import Array
from . import studies
from .collate import WHOLE
from .derived import derived_name
from .jobs import Job, Need, job_of, need_of, request_of
from .names import SYSTEMS, task_of
from .recipe import Side
from .scale import Choices, at_scale
from .work import Store, reader_name


class MissingRun(InputError):
    """A run that a cell needs is not there, not complete or not the one that was asked for."""


PER_QUERY: dict[str, Callable[[Scored], float]] = {
    "first_stage_ndcg@10": studies.first_stage_quality,
    "first_stage_tau": lambda query: studies.first_stage_correlation(query).forward,
    "first_stage_tau_random": lambda query: studies.first_stage_correlation(query).random,
    "grade_agreement": studies.grade_agreement,
}
"""Measures that only a study has, query by query."""


def _share(part: str) -> Callable[[Sequence[Scored]], float]:
    def share(queries: Sequence[Scored]) -> float:
        components = decomposition.variance_components(queries)
        return float(getattr(components, part)) / components.total if components.total > 0 else float("nan")

    return share


PER_COLLECTION: dict[str, Callable[[Sequence[Scored]], float]] = {
    "slot_share_ols": _share("slot"),
    "window_share_ols": _share("window"),
    "companion_share_ols": _share("companion"),
    "residual_variance": lambda queries: decomposition.variance_components(queries).companion,
    "slot_rms_all": lambda queries: decomposition.slot_profile(queries).rms,
    "slot_rms_gold": lambda queries: decomposition.slot_profile(queries, gold=True).rms,
    "flips_on_crossing": studies.flips_on_crossing,
    "silver_beta": lambda queries: silver_beta([3 * query.permuted for query in queries]).beta,
}
"""Measures that only a study has, one value per collection. Shares are the paper's OLS; an audit prints the unbiased ones."""

BETTER = {
    "first_stage_ndcg@10": "higher",
    **dict.fromkeys(("residual_variance", "slot_rms_all", "slot_rms_gold", "silver_beta", "flips_on_crossing"), "lower"),
}


def better_of(name: str) -> str:
    return MEASURES[name].better if name in MEASURES else BETTER.get(name, "neither")


def needs_cutoff(name: str) -> bool:
    known = MEASURES.get(name.removeprefix("floor:"))
    return known is not None and "cutoff" in known.needs


class Library:
    """What the store holds, for the cells of a scale."""

    def __init__(self, store: Store, choices: Choices, method: Method | None = "percentile"):
        self.store, self.choices, self.method = store, choices, method
        self.run = cache(self._run)
        self._opened: dict[Place, Run] = {}
        self._queries_of = cache(self._read)
        self._measured_of: dict[tuple[Place, Side], Measured] = {}

    def side(self, side: Side) -> Side:
        return at_scale(side, self.choices)

    def job(self, side: Side, base: str, seed: int, collection: str) -> Job:
        return job_of(request_of(side, base, seed, collection), frozenset({need_of(side)}), self.choices)

    def _run(self, side: Side, base: str, seed: int, collection: str) -> Run:
        """The complete run of a side, of the store or of the user."""
        job = self.job(side, base, seed, collection)
        given = self.choices.run(side.system, base, seed, collection)
        stored = (self.store.find_run(job.content, need, self.choices) for need in (job.need, Need(side.permutations)))
        run = fitting_run(Path(given), self._expected(job)) if given else next(filter(None, stored), None)
        if run is None:
            raise MissingRun(f"{_name(side, base, seed, collection)} is not scored yet.")
        if other := other_task(run.record.fingerprint.keys):
            raise MissingRun(f"{run.folder} was scored by {other}. Name a run or an adapter of this task.")
        return self._opened.setdefault(run.folder, run)

    def _expected(self, job: Job) -> str:
        value = job.data.value
        is_derived = value["part"] is not None or value["arrangement"] != "first-stage"
        return derived_name(job.data) if is_derived else str(value["collection"])

    def queries(self, side: Side, base: str, seed: int, collection: str) -> list[Scored]:
        """A run's queries under the first M permutations, read out as the side says, each as its K-ensembles."""
        return self._queries_of(self.run(side, base, seed, collection), replace(side, collections=""))

    def _read(self, run: Run, side: Side) -> list[Scored]:
        if side.is_reread:
            return self._average_reads(run)
        stored = [studies.first_permutations(query, side.permutations) for query in run.read_queries()]
        return list(side.view.of_all(stored))

    def _average_reads(self, run: Run) -> list[Scored]:
        """The mean of the reads of every query, judged as in the run."""
        repeats = {query.query_id: query for query in run.read_noise()}
        if not repeats:
            raise MissingRun(f"{run.record.name} on {run.record.collection} was not read repeatedly yet.")
        own = (query for query in run.read_queries() if query.query_id in repeats)
        return [average_reads(replace(repeats[query.query_id], ideal=query.ideal)) for query in own]

    def threshold(self, side: Side, base: str, seed: int, collection: str) -> Threshold:
        """Tuned to F1, or to the share that another system's tuned cutoff keeps on its fitting half, at the same budget."""
        own = replace(own_threshold(self.run(side, base, seed, collection)), retention=None, half=True)
        if not side.matched_to:
            return own
        other = self.side(replace(side, system=side.matched_to, matched_to=""))
        place = (other, base, other.seeds[0], collection)
        cutoff = self.measured(*place).cutoff.value
        if cutoff is None:
            raise MissingRun(f"{side.matched_to} on {collection} has no tuned cutoff to match.")
        return replace(own, cutoff=None, retention=fitted_retention(self.queries(*place), cutoff, own))

    def measured(self, side: Side, base: str, seed: int, collection: str) -> Measured:
        """Every measure of the scores, of what perturbations moved, and of the side's reader.

        A run that is used for several of the paper's collections is measured once; a matched cutoff may differ between them.
        """
        place = (side, base, seed, collection)
        run = self.run(*place)
        key = (run.folder, side if side.matched_to else replace(side, collections=""))
        if key not in self._measured_of:
            read = self.readings(*place) if side.reader else None
            is_as_scored = side.view.is_plain
            threshold = self.threshold(*place)
            self._measured_of[key] = measure_run(run, self.queries(*place), threshold, read, is_as_scored=is_as_scored)
        return self._measured_of[key]

    def readings(self, side: Side, base: str, seed: int, collection: str) -> ReaderResult:
        run, queries = self.run(side, base, seed, collection), self.queries(side, base, seed, collection)
        label = reader_label(reader_name(side.reader, self.choices), EVIDENCE, side.view)
        results = reader_results(run, [query.query_id for query in queries], first=side.permutations // side.serving)
        if label not in results:
            raise MissingRun(f"{_name(side, base, seed, collection)} was not read by the {side.reader} reader yet.")
        return results[label]

    def seconds(self, side: Side, base: str, seed: int, collection: str, way: int) -> Array:
        """(Q,) seconds of every query at one of the widths that were timed with the run."""
        seconds = query_seconds(read_timings(self.run(side, base, seed, collection)), way)
        if not len(seconds):
            raise MissingRun(f"{_name(side, base, seed, collection)} was not timed yet.")
        return seconds

    def noise(self, side: Side, base: str, seed: int, collection: str) -> list[Scored]:
        """One presentation of every query that was scored repeatedly."""
        if not (repeats := self.run(side, base, seed, collection).read_noise()):
            raise MissingRun(f"{_name(side, base, seed, collection)} has no noise floor yet.")
        return repeats

    def measured_noise(self, side: Side, base: str, seed: int, collection: str) -> Measured:
        """Measures of the repeated scores, at the cutoff of the run."""
        by, cutoff = self.threshold(side, base, seed, collection), self.measured(side, base, seed, collection).cutoff.value
        return measure(self.noise(side, base, seed, collection), by if cutoff is None else Threshold(cutoff=cutoff))

    def observation(self, side: Side, base: str, seed: int, collection: str, name: str) -> Observation:
        """One measure of one run, query by query; one value where only the whole collection has it."""
        place = (side, base, seed, collection)
        if needs_cutoff(name) and self.run(*place).record.gives_ranking:
            raise MissingRun(f"{_name(*place)} gives a ranking, and {name} needs scores that a cutoff can be set on.")
        plain = name.removeprefix("floor:")
        values: Array | None
        if plain in PER_QUERY:
            queries = self.queries(*place) if plain == name else self.noise(*place)
            ids, values = tuple(q.query_id for q in queries), np.array([PER_QUERY[plain](q) for q in queries])
        elif plain != name:
            noise = self.measured_noise(*place)
            ids, values = noise.query_ids, noise.values.get(plain)
        elif name in PER_COLLECTION:
            ids, values = WHOLE, np.array([PER_COLLECTION[name](self.queries(*place))])
        else:
            measured = self.measured(*place)
            whole = measured.overall.get(name)
            ids, values = (measured.query_ids, measured.values.get(name)) if whole is None else (WHOLE, np.array([whole]))
        if values is None and name in MEASURES and MEASURES[name].value is not None:
            values = np.full(len(ids), np.nan)  # it was measured, and is undefined for every query
        if values is None:
            raise MissingRun(f"{_name(*place)} has no {name}: `steadyscore list measures` says what it needs.")
        return Observation(side.system, base, seed, task_of(collection), collection, ids, values)


def fitting_run(folder: Path, collection: str) -> Run:
    """A finished run of the user, where it scored the collection that is asked for."""
    run = find_run(folder)
    if not run.is_complete:
        raise MissingRun(f"{folder} is not complete. Run the command that made it again first.")
    names = {run.record.collection, run.record.source}
    if collection not in names and Path(collection).stem not in names:
        raise MissingRun(f"{folder} scored {run.record.collection}, not {collection}. Name a run of {collection}.")
    return run


def _name(side: Side, base: str, seed: int, collection: str) -> str:
    """`oc-sft of qwen3-4b, seed 42, on dl19`."""
    system = SYSTEMS[side.system]
    of = "" if system.is_external else f" of {base}"
    by = f", seed {seed}," if system.training else ""
    return f"{side.system}{of}{by} on {collection}"
