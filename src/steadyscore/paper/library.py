"""Finished runs as observations: looked up in the store by what they are, measured once, refused where they do not fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

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
from ..measures.views import quality_by_permutation
from ..models.adapter import other_task
from ..readers.outputs import ReaderResult, reader_label, reader_results
from ..results.load import measure_run, own_threshold
from ..runs.folder import Run, find_run
from ..runs.table import Scored
from ..scoring.estimate import query_seconds, read_timings
from ..scoring.perturbation import average_reads
from ..tasks import TASKS
from ..terms import Array
from .collate import WHOLE, first_permutations, first_stage_correlation, first_stage_quality, flips_on_crossing, grade_agreement
from .data import derived_name, is_derived
from .jobs import Need, job_of, need_of, request_of
from .names import SYSTEMS, bases_in, task_of
from .recipe import Cell, Side
from .scale import Choices, at_scale
from .work import Store


class MissingRun(InputError):
    """A run that a cell needs is not there, not complete or not the one that was asked for."""


PER_QUERY: dict[str, Callable[[Scored], float]] = {
    "first_stage_ndcg@10": first_stage_quality,
    "first_stage_tau": partial(first_stage_correlation, is_permuted=False),
    "first_stage_tau_random": partial(first_stage_correlation, is_permuted=True),
    "grade_agreement": grade_agreement,
}
"""Measures that only a study has, query by query."""


def _share(queries: Sequence[Scored], part: str) -> float:
    components = decomposition.variance_components(queries)
    return float(getattr(components, part)) / components.total if components.total > 0 else float("nan")


PER_COLLECTION: dict[str, Callable[[Sequence[Scored]], float]] = {
    "slot_share_ols": partial(_share, part="slot"),
    "window_share_ols": partial(_share, part="window"),
    "companion_share_ols": partial(_share, part="companion"),
    "residual_variance": lambda queries: decomposition.variance_components(queries).companion,
    "slot_rms_all": lambda queries: decomposition.slot_profile(queries).rms,
    "slot_rms_gold": lambda queries: decomposition.slot_profile(queries, gold=True).rms,
    "flips_on_crossing": flips_on_crossing,
    "silver_beta": lambda queries: silver_beta([3 * query.permuted for query in queries]).beta,
}
"""Measures that only a study has, one value per collection. Shares are the paper's OLS; an audit prints the unbiased ones."""

BETTER = {
    "first_stage_ndcg@10": "higher",
    **dict.fromkeys(("residual_variance", "slot_rms_all", "slot_rms_gold", "silver_beta", "flips_on_crossing"), "lower"),
}


def better_of(name: str) -> str:
    return MEASURES[name].better if name in MEASURES else BETTER.get(name, "neither")


class At(NamedTuple):
    """One run that a side of a cell looks at."""

    side: Side
    base: str
    seed: int
    collection: str

    def __str__(self) -> str:
        """`oc-sft of qwen3-4b, seed 42, on dl19`."""
        system = SYSTEMS[self.side.system]
        of = "" if system.is_external else f" of {self.base}"
        by = f", seed {self.seed}," if system.training else ""
        return f"{self.side.system}{of}{by} on {self.collection}"


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

    def places(self, cell: Cell, side: Side | None = None) -> list[At]:
        """Every run of a side of a cell; of the cell itself, where none is named."""
        side = self.side(side or cell.side())
        return [
            At(replace(side, collections=collection, seeds=()), base, seed, collection)
            for base in bases_in(cell.base)
            for seed in side.seeds
            for collection in self.choices.members(cell.collections)
        ]

    def _run(self, at: At) -> Run:
        """The complete run of a side, of the store or of the user."""
        job = job_of(request_of(*at), frozenset({need_of(at.side)}), self.choices)
        run: Run | None
        if given := self.choices.run(at.side.system, *at[1:]):
            run = fitting_run(Path(given), derived_name(job.data) if is_derived(job.data) else str(job.data.value["collection"]))
        else:
            needs = (job.need, Need(at.side.permutations))
            run = next(filter(None, (self.store.find_run(job.content, need, self.choices) for need in needs)), None)
        if run is None:
            raise MissingRun(f"{at} is not scored yet.")
        if other := other_task(run.record.fingerprint.keys):
            raise MissingRun(f"{run.folder} was scored by {other}. Name a run or an adapter of this task.")
        return self._opened.setdefault(run.folder, run)

    def queries(self, at: At) -> list[Scored]:
        """A run's queries under the first M permutations, read out as the side says, each as its K-ensembles."""
        return self._queries_of(self.run(at), replace(at.side, collections=""))

    def _read(self, run: Run, side: Side) -> list[Scored]:
        if not side.is_reread:
            return list(side.view.of_all([first_permutations(query, side.permutations) for query in run.read_queries()]))
        repeats = {query.query_id: query for query in run.read_noise()}
        if not repeats:
            raise MissingRun(f"{run.record.name} on {run.record.collection} was not read repeatedly yet.")
        own = (query for query in run.read_queries() if query.query_id in repeats)
        return [average_reads(replace(repeats[query.query_id], ideal=query.ideal)) for query in own]  # judged as in the run

    def threshold(self, at: At) -> Threshold:
        """Tuned to F1, or to the share that another system's tuned cutoff keeps on its fitting half, at the same budget."""
        own = replace(own_threshold(self.run(at)), retention=None, half=True)
        if not at.side.matched_to:
            return own
        other = self.side(replace(at.side, system=at.side.matched_to, matched_to=""))
        matched = At(other, at.base, other.seeds[0], at.collection)
        cutoff = self.measured(matched).cutoff.value
        if cutoff is None:
            raise MissingRun(f"{other.system} on {at.collection} has no tuned cutoff to match.")
        return replace(own, cutoff=None, retention=fitted_retention(self.queries(matched), cutoff, own))

    def measured(self, at: At) -> Measured:
        """Every measure of the scores, of what perturbations moved, and of the side's reader.

        A run that is used for several of the paper's collections is measured once; a matched cutoff may differ between them.
        """
        run, side = self.run(at), at.side
        key = (run.folder, side if side.matched_to else replace(side, collections=""))
        if key not in self._measured_of:
            read = self.readings(at) if side.reader else None
            given = (self.queries(at), self.threshold(at), read)
            self._measured_of[key] = measure_run(run, *given, is_as_scored=side.view.is_plain)
        return self._measured_of[key]

    def readings(self, at: At) -> ReaderResult:
        run, queries = self.run(at), self.queries(at)
        label = reader_label(self.choices.reader_address(at.side.reader), EVIDENCE, at.side.view)
        results = reader_results(run, [query.query_id for query in queries], first=at.side.permutations // at.side.serving)
        if label not in results:
            raise MissingRun(f"{at} was not read by the {at.side.reader} reader yet.")
        return results[label]

    def seconds(self, at: At, way: int) -> Array:
        """(Q,) seconds of every query at one of the widths that were timed with the run."""
        seconds = query_seconds(read_timings(self.run(at)), way)
        if not len(seconds):
            raise MissingRun(f"{at} was not timed yet.")
        return seconds

    def quality(self, at: At) -> Array:
        """(Q, M) ranking quality of every query under every permutation."""
        k = TASKS[task_of(at.collection)].quality_cutoff
        return np.array([quality_by_permutation(query, k) for query in self.queries(at)])

    def noise(self, at: At) -> list[Scored]:
        """One presentation of every query that was scored repeatedly."""
        if not (repeats := self.run(at).read_noise()):
            raise MissingRun(f"{at} has no noise floor yet.")
        return repeats

    def observation(self, at: At, name: str) -> Observation:
        """One measure of one run, query by query; one value where only the whole collection has it."""
        plain = name.removeprefix("floor:")
        if plain in MEASURES and "cutoff" in MEASURES[plain].needs and self.run(at).record.gives_ranking:
            raise MissingRun(f"{at} gives a ranking, and {name} needs scores that a cutoff can be set on.")
        values: Array | None
        if plain in PER_QUERY:
            queries = self.queries(at) if plain == name else self.noise(at)
            ids, values = tuple(q.query_id for q in queries), np.array([PER_QUERY[plain](q) for q in queries])
        elif plain != name:
            cutoff = self.measured(at).cutoff.value  # of the run, for its repeated scores too
            by = self.threshold(at) if cutoff is None else Threshold(cutoff=cutoff)
            noise = measure(self.noise(at), by)
            ids, values = noise.query_ids, noise.values.get(plain)
        elif name in PER_COLLECTION:
            ids, values = WHOLE, np.array([PER_COLLECTION[name](self.queries(at))])
        else:
            measured = self.measured(at)
            whole = measured.overall.get(name)
            ids, values = (measured.query_ids, measured.values.get(name)) if whole is None else (WHOLE, np.array([whole]))
        if values is None and name in MEASURES and MEASURES[name].value is not None:
            values = np.full(len(ids), np.nan)  # it was measured, and is undefined for every query
        if values is None:
            raise MissingRun(f"{at} has no {name}: `steadyscore list measures` says what it needs.")
        return Observation(at.side.system, at.base, at.seed, task_of(at.collection), at.collection, ids, values)


def fitting_run(folder: Path, collection: str) -> Run:
    """A finished run of the user, where it scored the collection that is asked for."""
    run = find_run(folder)
    if not run.is_complete:
        raise MissingRun(f"{folder} is not complete. Run the command that made it again first.")
    names = {run.record.collection, run.record.source}
    if collection not in names and Path(collection).stem not in names:
        raise MissingRun(f"{folder} scored {run.record.collection}, not {collection}. Name a run of {collection}.")
    return run
