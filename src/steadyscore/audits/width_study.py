"""`study_width`: what serving in company changes against serving alone, and why; scored under four conditions, or from runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from ..collection import Data
from ..engines import EngineOptions, Recording
from ..errors import InputError
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..machine.progress import bar
from ..measures.decomposition import width_decomposition, width_effect
from ..measures.gains import quality_of
from ..measures.ranking import unless_nan
from ..runs.find import find_runs
from ..runs.folder import Run
from ..runs.table import Scored
from ..scoring.conditions import CONDITIONS, Condition, has_fixed_answer, under_condition
from ..scoring.score import AuditConfig, score_collection, scorer_for
from ..tasks import TASKS
from ..terms import Failure
from .audit import Output, open_backend, open_one, working_folder
from .configuration import AuditSettings, configure
from .figure import Figure, mean_figure
from .missing import failures
from .table import text_table

BASES = ("first-stage order", "mean of the permutations")
"""What quality is read off: the scores in first-stage order, or their mean over all permutations."""


@dataclass(frozen=True)
class WidthStudy:
    """The width effect of one scorer on one collection. Prints as a table."""

    scorer: str
    collection: str
    measure: str
    width: int | None
    levels: dict[str, dict[str, Figure]]
    """Basis -> condition -> quality."""
    terms: dict[str, dict[str, Figure]]
    """Basis -> width, and where all conditions were scored content, length_slot and skeleton, which add up to it."""
    score_effect: float
    """Mean |μ_B - μ_1| over the pooled SD of the scores."""
    failed: tuple[Failure, ...] = ()
    """Queries that some condition could not be scored on: in no figure."""

    def to_json(self) -> dict[str, Any]:
        about = {"scorer": self.scorer, "collection": self.collection, "measure": self.measure, "width": self.width}
        figures = {
            name: {basis: {key: figure.to_json() for key, figure in of.items()} for basis, of in bases.items()}
            for name, bases in (("levels", self.levels), ("terms", self.terms))
        }
        effect = unless_nan(self.score_effect)
        return about | figures | {"score_effect": effect, "failed": [failure.to_json() for failure in self.failed]}

    def __str__(self) -> str:
        tables = []
        for name, bases in ((self.measure, self.levels), (f"effect on {self.measure}", self.terms)):
            columns = list(next(iter(bases.values())))
            header = [name, *(column.replace("_", " and ") for column in columns)]
            tables.append(text_table(header, [[basis, *(str(of[column]) for column in columns)] for basis, of in bases.items()]))
        words = (
            f"Mean |change of a score| from width 1 to {self.width or 'the pool'}, over the pooled SD: {self.score_effect:.3f}"
        )
        return "\n".join([f"{self.scorer} on {self.collection}", *tables, words])

    def __repr__(self) -> str:
        return short_repr(self, f"{self.scorer} on {self.collection}: scores move by {self.score_effect:.3f} SD")


def study_width(
    scorer: Any,
    data: Data,
    *,
    out: str | Place | None = None,
    config: AuditConfig | None = None,
    options: EngineOptions | None = None,
    quiet: bool = False,
    command: Sequence[str] = (),
    **settings: Unpack[AuditSettings],
) -> WidthStudy:
    """Score a collection under the four conditions and take the width effect apart.

    Each condition is a run in a folder of its own below `out`; the same call resumes what was stopped. Without `out`
    nothing is kept. Settings are those of `audit`.

    >>> print(steadyscore.study_width("smollm2-135m", "passages", queries=4, pool=6, width=3, permutations=2))
    """
    how = configure(config or AuditConfig(), **settings)
    name, one, source = open_one(scorer, data, how, options, "a width study")
    output = Output(None if out is None else parse_place(out), command=command)
    with working_folder(output) as folder:
        backend = open_backend(name, one, options or EngineOptions())
        if isinstance(backend, Recording):
            raise InputError(f"{backend.name} holds scores of one width. Name what gave them, or read finished runs with --runs.")
        plain = scorer_for(backend, source.collection, how)
        if plain.width == 1:
            raise InputError("a width study compares a width with 1. Give --width 2 or more.")
        runs: dict[Condition, Run] = {}
        for condition in CONDITIONS:
            if condition != "skeleton" or has_fixed_answer(plain):
                runs[condition] = score_collection(
                    under_condition(plain, condition, source), source, folder / condition, how,
                    command=list(command), progress=bar(f"{name} on {source.collection.name}, {condition}", quiet),
                )  # fmt: skip
        return width_study(runs)


def load_width_study(folders: Sequence[str | Place]) -> WidthStudy:
    """The width study of finished runs: of one at width 1 and one at another width, better of all four conditions."""
    found: dict[Condition, Run] = {}
    for run in find_runs(folders):
        condition = condition_of(run)
        if condition in found:
            raise InputError(
                f"{found[condition].folder} and {run.folder} were both scored under the condition {condition}. Name one of them."
            )
        found[condition] = run
    return width_study(found)


def condition_of(run: Run) -> Condition:
    fingerprint = run.record["fingerprint"]
    known: Condition | None = fingerprint.get("condition")
    return known or ("alone" if fingerprint.get("width") == 1 else "companions")


def width_study(runs: Mapping[Condition, Run]) -> WidthStudy:
    """The width effect on quality and on scores, on the queries that all runs have; taken apart where fillers were scored."""
    mistakes = [f"there is no run under the condition {c}." for c in ("alone", "companions") if c not in runs]
    mistakes += [f"{run.folder} is not complete. Run the command that made it again first." for run in _incomplete(runs)]
    if len({run.record["collection"] for run in runs.values()}) > 1:
        mistakes.append("the runs are of different collections. Name runs of one.")
    if len({json.dumps(run.record["fingerprint"].get("scorer"), sort_keys=True) for run in runs.values()}) > 1:
        mistakes.append("the runs are of different scorers. Name runs of one.")
    if mistakes:
        raise InputError(mistakes)
    record = runs["companions"].record
    by_id = {condition: {query.query_id: query for query in run.read_queries()} for condition, run in runs.items()}
    ids = [id for id in by_id["companions"] if all(id in queries for queries in by_id.values())]
    if not ids:
        raise InputError("the runs share no query. Score the same queries under every condition.")
    by_condition = {condition: [queries[id] for id in ids] for condition, queries in by_id.items()}
    if any(len({queries[id].candidate_ids for queries in by_id.values()}) > 1 for id in ids):
        raise InputError("the runs scored different candidates of the same queries. Score them with one --pool.")
    k = TASKS[record["task"]].quality_cutoff
    has_first_stage = all(query.first_stage is not None for queries in by_condition.values() for query in queries)
    bases = BASES if has_first_stage else BASES[1:]
    qualities = {basis: {c: _qualities(queries, k, basis) for c, queries in by_condition.items()} for basis in bases}
    return WidthStudy(
        scorer=record["name"],
        collection=record["collection"],
        measure=f"ndcg@{k}",
        width=record["fingerprint"].get("width"),
        levels={basis: {c: mean_figure(of[c]) for c in CONDITIONS if c in of} for basis, of in qualities.items()},
        terms={basis: _terms(of) for basis, of in qualities.items()},
        score_effect=score_width_effect(by_condition["companions"], by_condition["alone"]),
        failed=failures(runs.values()),
    )


def score_width_effect(wide: Sequence[Scored], alone: Sequence[Scored]) -> float:
    """Mean |μ_B - μ_1| over the pooled SD of a collection, from a run at width B and one at width 1 (same queries)."""
    other = {query.query_id: query for query in alone}
    pairs = [(query, other[query.query_id]) for query in wide if query.query_id in other]
    if not pairs:
        raise InputError("the two widths share no query, so they cannot be compared. Score the same queries at both.")
    at_width = [query.permuted.mean(axis=0) for query, _ in pairs]
    by_itself = [one.scores.mean(axis=0) for _, one in pairs]
    return width_effect(np.concatenate(at_width)[None], np.concatenate(by_itself))


def _terms(quality: Mapping[Condition, np.ndarray]) -> dict[str, Figure]:
    if "fillers" not in quality:
        return {"width": mean_figure(quality["companions"] - quality["alone"])}
    # A scorer without a fixed answer has no condition `skeleton`: it is the same as alone.
    found = width_decomposition(
        quality["alone"], quality["companions"], quality["fillers"], quality.get("skeleton", quality["alone"])
    )
    return {name: mean_figure(getattr(found, name)) for name in ("width", "content", "length_slot", "skeleton")}


def _qualities(queries: Sequence[Scored], k: int, basis: str) -> np.ndarray:
    """(Q,) nDCG@k; NaN for a query without judgements."""
    found = []
    for query in queries:
        scores = query.first_stage if basis == BASES[0] else query.permuted.mean(axis=0)
        assert scores is not None  # a basis that some query lacks is left out
        found.append(float(quality_of(query, scores[None], k)[0]))
    return np.array(found)


def _incomplete(runs: Mapping[Condition, Run]) -> list[Run]:
    return [run for run in runs.values() if not run.is_complete]
