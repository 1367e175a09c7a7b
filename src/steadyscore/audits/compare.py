"""`steadyscore.compare`: audits against a baseline, paired by collection and query. Tasks are never averaged together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Unpack, get_args

import numpy as np

from ..errors import InputError
from ..machine.bounds import Positive
from ..measures.intervals import DRAWS, Interval, Scheme, benjamini_hochberg, collection_mean, mean_interval, wins
from ..measures.measurement import fewest_permutations
from ..measures.pairing import Gains, Observation, align, discordance_of, gains, leader_reversals, leaders, levels_table
from ..measures.ranking import unless_nan
from ..measures.registry import MEASURES
from ..measures.views import quality_by_permutation
from ..results.audit import Audit, presentation_remarks, shared_remark, with_distinct_names
from ..results.figure import ByQuery
from ..results.load import Measuring, check_one_threshold
from ..results.notes import failed_remarks
from ..runs.table import Scored
from ..tasks import TASKS
from ..terms import Array
from .audits import Audits, Given, OtherAudit, collect_audits, is_measure, split_audits, unknown_measure
from .comparison import Comparison, Contrast, Disagreement, Gain, label_of

COMPARED = (
    "ndcg@10", "ndcg@1", "tau_psi", "order_spread@10", "overlap", "retained_f1", "f1_spread", "pair_flip", "gold_crossing",
    "label_accuracy", "answer_em", "answer_f1", "answer_flip", "verdict_accuracy", "verdict_flip",
)  # fmt: skip
"""Measures that are compared where none is named and both sides have them."""

Values = dict[str, dict[str, ByQuery]]
"""variant -> collection -> measures, of one task"""
ByTask = dict[str, Values]
DECISIONS = "decisions"
"""In place of a task: answers to typed questions."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How the intervals of a comparison are drawn."""

    scheme: Scheme | None = None
    """What is drawn anew: collections and then their queries, collections whole, or queries of these collections only
    (default: collections then queries; queries where there is one collection)."""
    draws: Positive = DRAWS
    """Samples of a bootstrap."""

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise InputError(f"draws is {self.draws}: give a whole number, 1 or more.")
        if self.scheme is not None and self.scheme not in get_args(Scheme):
            raise InputError(f"unknown bootstrap {self.scheme!r}: choose {', '.join(get_args(Scheme))}.")

    def interval(self, differences: Sequence[Array], task: str) -> Interval:
        if len(differences) == 1 and self.scheme not in (None, "queries"):
            raise InputError(
                f"there is one collection of {task}, and one cannot be drawn anew. Use --bootstrap queries, or add collections."
            )
        scheme = self.scheme or ("collections_then_queries" if len(differences) > 1 else "queries")
        return mean_interval(differences, scheme=scheme, draws=self.draws)


def compare(
    *audits: Given,
    baseline: str | None = None,
    measures: Sequence[str] | None = None,
    bootstrap: Scheme | None = None,
    draws: int = DRAWS,
    discordance: Sequence[tuple[str, str]] | None = None,
    per_query: bool = False,
    **how: Unpack[Measuring],
) -> Comparison:
    """Compare audits, or run folders, with a baseline: differences paired by query, with intervals and adjusted p-values.

    Every task has its own means, in which each of its collections weighs the same.

    baseline     name of a scorer; the first audit's, where none is given
    measures     what to compare; otherwise the measures of the paper's tables that the audits have
    bootstrap    `collections_then_queries`, `collections` or `queries`; `draws` samples of it
    discordance  pairs of measures whose winners are held against each other; otherwise quality and the task's decision; audits
                 of decisions have no quality beside the decision, so it says nothing to them
    per_query    also say how quality moves query by query, and which permutations would reverse the lead
    how          threshold, serving_permutations, readout, ties: how folders are measured; audits stay as they were measured
    """
    asked = dict.fromkeys([*(measures or ()), *(name for pair in discordance or () for name in pair)])
    if unknown := [name for name in asked if not is_measure(name)]:
        raise InputError([unknown_measure(name) for name in unknown])
    sideless = dict.fromkeys(name for pair in discordance or () for name in pair if better_end(name) == "neither")
    if sideless:
        raise InputError([f"{name} has no better side, so no winner; compare winners by other measures." for name in sideless])
    drawn = Bootstrap(bootstrap, draws)

    decided, scored = split_audits(audits)
    if decided and scored:
        raise InputError("audits of decisions and audits of scores have no measure in common. Compare them apart.")
    loaded = collect_audits(scored, **how)
    if not decided:
        check_comparable(loaded)
    named = Audits(with_distinct_names(loaded))
    by_task = _by_task([*named, *decided])
    names = list(dict.fromkeys(name for values in by_task.values() for name in values))
    if len(names) < 2:
        another = "an audit of another model on the same file" if decided else "a run of another scorer"
        raise InputError(f"only {names[0]} is there to compare. Give {another} too.")
    against = baseline or names[0]
    wanted = measures or list(dict.fromkeys(name for audit in decided for name in audit.compared)) or COMPARED
    rows = contrasts(by_task, against, wanted, drawn)
    absent = [name for name in wanted if name not in {row.measure for row in rows}]
    if not rows or (absent and measures):
        needs = "" if decided else " `steadyscore list measures` says what it needs."
        kind = "audits" if decided else "runs"
        raise InputError([f"no two {kind} have {', '.join(absent)} to compare.{needs}", *presentation_remarks(named)])
    disagreements = [one for task in by_task if task in TASKS for one in _disagreements(by_task[task], task, discordance)]
    shown = {(one.quality, one.decision) for one in disagreements}
    if lost := [pair for pair in map(tuple, discordance or ()) if pair not in shown and not decided]:
        raise InputError([f"no two runs have {first} and {second} on one collection." for first, second in lost])
    missing = _missing_scores(named, by_task, against) + _missing_decisions(decided, by_task, against)
    moved = tuple(_gains(named, against)) if per_query else ()
    return Comparison(against, tuple(rows), tuple(disagreements), moved, tuple(missing), named)


def _by_task(audits: Sequence[Audit | OtherAudit]) -> ByTask:
    by_task: ByTask = {}
    for audit in audits:
        task = audit.record.task if isinstance(audit, Audit) else DECISIONS
        runs = by_task.setdefault(task, {}).setdefault(audit.name, {})
        if audit.collection in runs:
            raise InputError(f"{audit.name} on {audit.collection} is given more than once. Name each audit once.")
        runs[audit.collection] = audit
    return by_task


def _missing_scores(audits: Sequence[Audit], by_task: ByTask, against: str) -> list[str]:
    """What could not be scored, how the runs differ from the baseline's, and tasks that nothing is compared on."""
    failed = [f"{audit.collection}: {sentence}" for audit in audits for sentence in failed_remarks(audit)]
    apart = presentation_remarks(sorted(audits, key=lambda audit: audit.name != against))
    without = [task for task, values in by_task.items() if task in TASKS and against not in values]
    lost = [f"{TASKS[task].label}: there is no run of {against}, so nothing is compared there." for task in without]
    return [*failed, *apart, *lost]


def _missing_decisions(audits: Sequence[OtherAudit], by_task: ByTask, against: str) -> list[str]:
    """States that are in no mean, what must be known to read the figures, and states that the baseline does not share."""
    failed = [f"{audit.name}: {len(audit.failed)} states are in no mean." for audit in audits if audit.failed]
    base = by_task.get(DECISIONS, {}).get(against, {})
    shared = [
        shared_remark(against, base[one.collection].query_ids, one.name, one.query_ids, f"states of {one.collection}")
        for one in audits
        if one.name != against and one.collection in base
    ]
    return [*failed, *(remark for audit in audits for remark in audit.remarks), *chain(*shared)]


def better_end(measure: str) -> str:
    """Which way a measure is better; of decisions, less is, but for accuracy."""
    return MEASURES[measure].better if measure in MEASURES else "higher" if measure.startswith("accuracy.") else "lower"


def _drawn(audit: Audit) -> tuple[Any, ...]:
    """How the orders of a run came about."""
    return audit.record.fingerprint.seed, audit.record.fingerprint.scheme


def check_comparable(audits: Sequence[Audit]) -> None:
    """Decisions can be paired only where one threshold and one reader made them."""
    if not audits:
        raise InputError("there is nothing to compare. Give audits of two scorers, or their run folders.")
    check_one_threshold(audits)
    if len({audit.view.words() for audit in audits}) > 1:
        raise InputError("these runs were audited with different readouts or tie rules. Give one readout and one ties for all.")
    for collection in dict.fromkeys(audit.collection for audit in audits):
        readers = {audit.reader for audit in audits if audit.collection == collection} - {None}
        if len(readers) > 1:
            raise InputError(
                f"the audits on {collection} were read by different readers: {', '.join(sorted(map(str, readers)))}."
            )


def contrasts(by_task: ByTask, baseline: str, measures: Sequence[str], bootstrap: Bootstrap | None = None) -> list[Contrast]:
    """Every variant against the baseline on every measure, over the collections and queries of a task both have (§5)."""
    variants = list(dict.fromkeys(name for values in by_task.values() for name in values))
    if baseline not in variants:
        raise InputError(f"no run of {baseline!r} was given to compare with. Runs: {', '.join(variants)}.")
    rows: list[Contrast] = []
    for variant in variants:
        if variant == baseline:
            continue
        shared = {
            task: [collection for collection in values.get(baseline, {}) if collection in values.get(variant, {})]
            for task, values in by_task.items()
        }
        if not any(shared.values()):
            raise InputError(f"{variant} and {baseline} share no collection, so they cannot be paired.")
        for task, collections in shared.items():
            rows += _contrasts_of_task(by_task[task], (task, variant, baseline), collections, measures, bootstrap or Bootstrap())
    rows.sort(key=lambda row: list(by_task).index(row.task))
    adjusted = benjamini_hochberg([row.difference.p_value for row in rows])
    return [replace(row, adjusted_p=float(p)) for row, p in zip(rows, adjusted, strict=True)]


def _contrasts_of_task(
    values: Values, about: tuple[str, str, str], collections: Sequence[str], measures: Sequence[str], bootstrap: Bootstrap
) -> Iterator[Contrast]:
    task, variant, baseline = about
    for name in measures:
        pairs = []
        for collection in collections:
            both = [_observed(side, collection, values[side][collection], name) for side in (variant, baseline)]
            if {*both[0].query_ids} & {*both[1].query_ids}:
                a, b = align(both)
                pairs += [] if np.isnan(a.values - b.values).all() else [(a, b)]
        if not pairs:
            continue
        # 0 times a value leaves out the queries that the other side has none for: both levels stand on the same queries.
        own, theirs = [a.values + 0 * b.values for a, b in pairs], [0 * a.values + b.values for a, b in pairs]
        better = better_end(name)
        won = wins(theirs, own) if better == "lower" else wins(own, theirs)
        difference = bootstrap.interval([a - b for a, b in zip(own, theirs, strict=True)], label_of(task))
        levels = collection_mean(own), collection_mean(theirs)
        yield Contrast(task, variant, name, *levels, difference, float("nan"), won.wins, len(pairs), better)


def _observed(name: str, collection: str, measured: ByQuery, measure: str) -> Observation:
    """A measure of a run; of no query where it was not measured."""
    values = measured.values.get(measure)
    ids = tuple(measured.query_ids) if values is not None else ()
    return Observation(name, "", 0, "", collection, ids, np.empty(0) if values is None else values)


def disagreement(values: Values, quality: str, decision: str, task: str = "") -> Disagreement | None:
    """Whether two measures have the same winner, on every collection on which two variants or more have both; None without."""
    systems, better = list(values), (MEASURES[quality].better, MEASURES[decision].better)
    first, second = (_on_shared_queries(values, name, {quality, decision}) for name in (quality, decision))
    shared = {one.collection for one in first} & {one.collection for one in second}
    if not shared:
        return None
    first, second = ([one for one in side if one.collection in shared] for side in (first, second))
    disagreeing = discordance_of(first, second, systems, better)
    (collections, levels), (_, others) = (levels_table(side, systems) for side in (first, second))
    named = zip(collections, leaders(levels, systems, better[0]), leaders(others, systems, better[1]), strict=True)
    winners = {name: (" and ".join(one), " and ".join(other)) for name, one, other in named if set(one).isdisjoint(other)}
    return Disagreement(task, quality, decision, disagreeing.discordant, disagreeing.collections, disagreeing.median, winners)


def _on_shared_queries(values: Values, measure: str, needed: set[str]) -> list[Observation]:
    """A measure of every collection on which two variants or more have all that is needed, on the queries that all of these
    have it for.
    """
    shared: list[Observation] = []
    for collection in dict.fromkeys(collection for runs in values.values() for collection in runs):
        able = {name: runs[collection] for name, runs in values.items() if collection in runs}
        members = [_observed(name, collection, one, measure) for name, one in able.items() if needed <= one.values.keys()]
        if len(members) > 1 and set(members[0].query_ids).intersection(*(one.query_ids for one in members)):
            aligned = align(members)
            is_defined = ~np.isnan([one.values for one in aligned]).any(axis=0)
            if is_defined.any():
                shared += [replace(one, values=np.where(is_defined, one.values, np.nan)) for one in aligned]
    return shared


def _disagreements(values: Values, task: str, pairs: Sequence[tuple[str, str]] | None) -> list[Disagreement]:
    """By the pairs asked for; else by the task's quality and the first of its decisions that there is."""
    chosen = [(TASKS[task].quality, name) for name in TASKS[task].decisions] if pairs is None else pairs
    disagreements = [one for pair in chosen if (one := disagreement(values, *pair, task=task))]
    return disagreements[:1] if pairs is None else disagreements


def _gains(audits: Sequence[Audit], baseline: str) -> Iterator[Gain]:
    """Every variant against the baseline on the quality of its task, query by query."""
    own = {(audit.record.task, audit.collection): audit for audit in audits if audit.name == baseline}
    pairs: dict[tuple[str, str], list[tuple[Audit, Audit]]] = {}
    for audit in audits:
        place = audit.record.task, audit.collection
        if audit.name != baseline and place in own:
            pairs.setdefault((place[0], audit.name), []).append((own[place], audit))
    for (task, variant), members in pairs.items():
        quality, k = TASKS[task].quality, TASKS[task].quality_cutoff
        moves = [moved for before, after in members if (moved := _gain(before, after, quality)) is not None]
        if not moves:
            continue
        by, improving, regressing = (collection_mean([[value] for value in column]) for column in zip(*moves, strict=True))
        means = [_quality_differences(before, after, k) for before, after in members]
        reversals = sum(leader_reversals(differences, 0.0) for differences in means)
        yield Gain(task, variant, quality, improving, regressing, unless_nan(by), reversals, sum(map(len, means)))


def _gain(before: Audit, after: Audit, measure: str) -> Gains | None:
    """Of one collection, on the queries that both have; None where no query has a quality in both."""
    old, new = (_observed(audit.name, audit.collection, audit, measure) for audit in (before, after))
    if not {*old.query_ids} & {*new.query_ids}:
        return None
    shaky = _observed(before.name, before.collection, before, "tau_psi")
    known = [old, new, *([shaky] if shaky.query_ids else [])]
    moved = gains(*(one.values for one in align(known)))
    return None if np.isnan(moved.improving) else moved


def _quality_differences(before: Audit, after: Audit, k: int) -> Array:
    """(M,) mean quality of the variant minus the baseline's under each permutation both have; empty where there is none."""
    place = {query_id: i for i, query_id in enumerate(before.measured.query_ids)}

    def both() -> Iterator[tuple[Scored, Scored]]:
        return ((before.queries[place[new.query_id]], new) for new in after.queries if new.query_id in place and new.is_judged)

    shared = fewest_permutations(query for pair in both() for query in pair)
    if not shared or _drawn(before) != _drawn(after) or None in _drawn(before):  # orders that nobody stated may be any
        return np.empty(0)
    total, count = np.zeros(shared), 0
    for start, new in both():
        total += np.subtract(*(np.resize(quality_by_permutation(query, k), shared) for query in (new, start)))
        count += 1
    return total / count
