"""`study_width`: what serving in company changes against serving alone, and why; scored under four conditions, or from runs.

The conditions tell apart why width changes a score (§G.2). `alone`: one text, one line to answer. `skeleton`: one text, marked
as in its window, under the whole answer of that window. `fillers`: the window, its companions replaced by texts of like length
from other queries. `companions`: the window as it is. From one to the next only one thing changes: the answer, the prompt's
length and the place in it, the companions' content.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, get_args

import numpy as np

from ..audits.audit import ScorerInput, name_scorers, working_folder
from ..collection import Data, open_collection
from ..engines import EngineOptions, Grader
from ..errors import InputError
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..measures.decomposition import width_decomposition, width_effect
from ..measures.ranking import unless_nan
from ..measures.views import quality_of
from ..results.figure import Figure, mean_figure
from ..results.load import failures
from ..results.render import Printed
from ..results.table import Cell, Column, Note, Row, Table
from ..runs.folder import Run, find_runs
from ..runs.table import Scored
from ..scoring.config import AuditConfig, PermutationSettings, configure
from ..scoring.presented import Presented, WindowReading
from ..scoring.scorer import PoolScorer, Scorer, Settings, WrappedScorer
from ..tasks import TASKS
from ..terms import Candidate, Failure, Instance, Window
from ..window.presentation import windows
from ..window.prompt import shown
from .study import Variant, open_one, run_variants

Condition = Literal["companions", "fillers", "skeleton", "alone"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
MOST_FILLERS = 20_000
"""Texts that are held to fill with; of a larger collection those with the smallest hashes."""
BASES = ("first-stage order", "mean of the permutations")
"""What quality is read off: the scores in first-stage order, or their mean over all permutations."""


@dataclass(frozen=True)
class WidthStudy(Printed):
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

    def to_json(self) -> dict[str, object]:
        about = {"scorer": self.scorer, "collection": self.collection, "measure": self.measure, "width": self.width}
        figures = {
            name: {basis: {key: figure.to_json() for key, figure in of.items()} for basis, of in bases.items()}
            for name, bases in (("levels", self.levels), ("terms", self.terms))
        }
        effect = unless_nan(self.score_effect)
        return about | figures | {"score_effect": effect, "failed": [failure.to_json() for failure in self.failed]}

    def tables(self) -> list[Table]:
        changed = (
            f"Mean |change of a score| from width 1 to {self.width or 'the pool'}, over the pooled SD: {self.score_effect:.3f}"
        )
        title = f"{self.scorer} on {self.collection}"
        return [_table(self.levels, title, corner=self.measure), _table(self.terms, f"effect on {self.measure}", note=changed)]

    def __repr__(self) -> str:
        return short_repr(self, f"{self.scorer} on {self.collection}: scores move by {self.score_effect:.3f} SD")


def _table(figures: Mapping[str, Mapping[str, Figure]], title: str, corner: str = "", note: str = "") -> Table:
    columns = tuple(Column(name, name.replace("_", " and ")) for name in next(iter(figures.values())))
    rows = tuple(Row(basis, tuple(Cell(of[column.key]) for column in columns)) for basis, of in figures.items())
    return Table(columns, rows, title, corner, notes=(Note(note),) if note else ())


def study_width(
    scorer: Any,
    data: Data,
    *,
    out: str | Place | None = None,
    config: AuditConfig | None = None,
    options: EngineOptions | None = None,
    quiet: bool = False,
    command: Sequence[str] = (),
    **settings: Unpack[PermutationSettings],
) -> WidthStudy:
    """Score a collection under the four conditions and take the width effect apart.

    Each condition is a run in a folder of its own below `out`; the same call resumes what was stopped. Without `out`
    nothing is kept. Settings are those of `audit`.

    >>> print(steadyscore.study_width("smollm2-135m", "passages", queries=4, pool=6, width=3, permutations=2))
    """
    how = configure(config or AuditConfig(), settings, PermutationSettings, "study_width")
    place = None if out is None else parse_place(out)
    given = ScorerInput(name_scorers(scorer), [data], how, options or EngineOptions(), place, quiet, command)
    source = open_one(given, "a width study")

    def variants(plain: PoolScorer) -> dict[Condition, Variant]:
        if plain.width == 1:
            raise InputError("a width study compares a width with 1. Give --width 2 or more.")
        asked = [condition for condition in CONDITIONS if condition != "skeleton" or has_fixed_answer(plain)]
        return {c: Variant(under_condition(plain, c, source), source) for c in asked}

    with working_folder(place) as folder:
        return width_study(dict(run_variants(given, source, variants, folder)))


def load_width_study(folders: Sequence[str | Place]) -> WidthStudy:
    """The width study of finished runs: of one at width 1 and one at another width, better of all four conditions."""
    by_condition: dict[Condition, Run] = {}
    for run in find_runs(folders):
        condition = condition_of(run)
        if condition in by_condition:
            raise InputError(
                f"{by_condition[condition].folder} and {run.folder} were both scored under the condition {condition}. "
                "Name one of them."
            )
        by_condition[condition] = run
    return width_study(by_condition)


def condition_of(run: Run) -> Condition:
    fingerprint = run.record.fingerprint
    known = next((condition for condition in CONDITIONS if condition == fingerprint.condition), None)
    return known or ("alone" if fingerprint.width == 1 else "companions")


def width_study(runs: Mapping[Condition, Run]) -> WidthStudy:
    """The width effect on quality and on scores, on the queries that all runs have; taken apart where fillers were scored."""
    mistakes = [f"there is no run under the condition {c}." for c in ("alone", "companions") if c not in runs]
    mistakes += [f"{run.folder} is not complete. Run the command that made it again first." for run in _incomplete(runs)]
    if len({run.record.collection for run in runs.values()}) > 1:
        mistakes.append("the runs are of different collections. Name runs of one.")
    if len({json.dumps(run.record.fingerprint.scorer, sort_keys=True) for run in runs.values()}) > 1:
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
    k = TASKS[record.task].quality_cutoff
    has_first_stage = all(query.first_stage is not None for queries in by_condition.values() for query in queries)
    bases = BASES if has_first_stage else BASES[1:]
    qualities = {basis: {c: _qualities(queries, k, basis) for c, queries in by_condition.items()} for basis in bases}
    return WidthStudy(
        scorer=record.name,
        collection=record.collection,
        measure=f"ndcg@{k}",
        width=record.fingerprint.width,
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
    parts = width_decomposition(
        quality["alone"], quality["companions"], quality["fillers"], quality.get("skeleton", quality["alone"])
    )
    return {name: mean_figure(getattr(parts, name)) for name in ("width", "content", "length_slot", "skeleton")}


def _qualities(queries: Sequence[Scored], k: int, basis: str) -> np.ndarray:
    """(Q,) nDCG@k; NaN for a query without judgements."""
    qualities = []
    for query in queries:
        scores = query.first_stage if basis == BASES[0] else query.permuted.mean(axis=0)
        assert scores is not None  # a basis that some query lacks is left out
        qualities.append(float(quality_of(query, scores[None], k)[0]))
    return np.array(qualities)


def _incomplete(runs: Mapping[Condition, Run]) -> list[Run]:
    return [run for run in runs.values() if not run.is_complete]


# -- the conditions


def under_condition(scorer: PoolScorer, condition: Condition, data: Data) -> PoolScorer:
    """The scorer as it is under one of the four conditions; fillers come from the whole collection, whatever part is scored."""
    if condition == "companions":
        return scorer
    if condition == "alone":
        return scorer.with_settings(replace(scorer.settings, width=1))
    if not isinstance(scorer, Scorer):
        raise InputError(
            f"{scorer.name} is served under a mitigation; the width study takes the scorer itself apart. Leave it out."
        )
    if scorer.settings.prompt in ("isolated", "set"):
        raise InputError(
            f"--prompt {scorer.settings.prompt} has no answer that the candidates share, so there is nothing to take apart. "
            "Use --prompt paper or compact."
        )
    if condition == "skeleton" and not has_fixed_answer(scorer):
        return under_condition(scorer, "alone", data)  # a scorer without a fixed answer has nothing that could be longer
    fillers = Fillers(open_collection(data).instances(), scorer.settings.chars) if condition == "fillers" else None
    return ConditionScorer(scorer, fillers)


def has_fixed_answer(scorer: PoolScorer) -> bool:
    """Whether grades are read at the lines of a fixed answer, rather than written or given as scores."""
    return isinstance(scorer.backend, Grader) and scorer.backend.reads_skeleton


class Fillers:
    """Texts of a collection by their length, to fill the windows of other queries with."""

    def __init__(self, instances: Iterable[Instance], chars: int | None):
        self.chars = chars
        self._queries: dict[str, set[str]] = {}
        """Text -> the queries that have it as a candidate, scored or not."""
        for instance in instances:
            for candidate in instance.pool:
                self._queries.setdefault(shown(candidate, chars), set()).add(instance.id)
        kept = sorted((_hash(text), text) for text in self._queries if text)[:MOST_FILLERS]
        self._texts = sorted((len(text), key, text) for key, text in kept)

    def fill(self, instance: Instance) -> tuple[Candidate, ...]:
        """For every candidate of a pool the text of nearest length that the query does not have itself; each used once."""
        used = {shown(candidate, self.chars) for candidate in instance.pool}
        fillers: list[Candidate] = []
        for candidate in instance.pool:
            near = self._nearest(len(shown(candidate, self.chars)))
            text = next((text for text in near if text not in used and instance.id not in self._queries[text]), None)
            if text is None:
                raise InputError(
                    f"the other queries hold too few texts to fill the windows of query {instance.id} with: "
                    f"{len(fillers)} for a pool of {len(instance.pool)}. Use a collection of more queries."
                )
            used.add(text)
            fillers.append(Candidate(f"filler of {candidate.id}", text))
        return tuple(fillers)

    def _nearest(self, length: int) -> Iterator[str]:
        """Every text, nearest in length first; of two that are equally near the shorter one."""
        right = bisect.bisect_left(self._texts, (length,))
        left = right - 1
        while left >= 0 or right < len(self._texts):
            is_left = right == len(self._texts) or (left >= 0 and length - self._texts[left][0] <= self._texts[right][0] - length)
            yield self._texts[left if is_left else right][-1]
            left, right = (left - 1, right) if is_left else (left, right + 1)


class ConditionScorer(WrappedScorer):
    """A scorer that shows every candidate in the slot that it has in its window, without its companions.

    With fillers they take the companions' places; without, the candidate is alone under the window's answer.
    """

    scorer: Scorer
    shows_one_by_one = True

    def __init__(self, scorer: Scorer, fillers: Fillers | None):
        super().__init__(scorer)
        self.fillers = fillers

    @property
    def condition(self) -> Condition:
        return "fillers" if self.fillers else "skeleton"

    @property
    def name(self) -> str:
        return f"{self.scorer.name} ({self.condition})"

    def identity(self) -> dict[str, object]:
        return self.scorer.identity() | {"condition": self.condition}

    def with_settings(self, settings: Settings) -> ConditionScorer:
        return ConditionScorer(self.scorer.with_settings(settings), self.fillers)

    def score_orders(self, instance: Instance, orders: np.ndarray, permutations: Sequence[int]) -> Presented:
        n = len(instance.pool)
        cuts = [windows(order, self.width or n, self.settings.partition) for order in orders]
        filled = replace(instance, pool=(*instance.pool, *self.fillers.fill(instance))) if self.fillers else instance
        targets = [(window, slot) for cut in cuts for window in cut for slot in range(len(window.candidates))]
        readings, cost = self.scorer.read_windows([(filled, self._around(window, slot, n)) for window, slot in targets])
        lines = iter([_line(reading, slot) for reading, (_, slot) in zip(readings, targets, strict=True)])
        rows = [[_join([next(lines) for _ in window.candidates]) for window in cut] for cut in cuts]
        return self.scorer.present(instance, cuts, rows, permutations, cost)

    def _around(self, window: Window, slot: int, n: int) -> Window:
        """What a slot's candidate is shown in: the fillers of its companions, which come after the pool of n, or nothing."""
        own = window.candidates[slot]
        if self.fillers is None:
            return Window(window.index, (own,), first=slot, lines=len(window.candidates))
        return Window(window.index, tuple(i if i == own else n + i for i in window.candidates))


def _line(reading: WindowReading, at: int) -> WindowReading:
    return WindowReading(*(None if values is None else values[at : at + 1] for values in reading))  # type: ignore[arg-type]


def _join(parts: Sequence[WindowReading]) -> WindowReading:
    columns = zip(*parts, strict=True)
    return WindowReading(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
