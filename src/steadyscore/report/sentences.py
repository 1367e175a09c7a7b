"""What the audits of a collection show, in words: the sentence a decision-maker needs, and what must be known to read it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..audits.figure import paired_gain
from ..audits.load import ONE_FOR_ALL, share_threshold
from ..audits.remarks import NEARLY_ALL
from ..audits.result import Audit
from ..measures.gains import quality_by_permutation
from ..measures.intervals import Interval
from ..measures.measurement import fewest_permutations
from ..measures.registry import MEASURES
from ..terms import Array
from . import example

CHANGES = {
    "overlap": "{share} of what the threshold keeps in either order is kept in only one of the two",
    "overlap@10": "{share} of what is among the first 10 in either order is there in only one of the two",
    "pair_flip": "the chosen/rejected pair changes {share} of the time",
    "answer_flip": "the reader's answer changes {share} of the time",
    "verdict_flip": "the reader's verdict changes {share} of the time",
}
"""A decision measure as a sentence about the consumer: what two orders make of one pool."""
QUALITY_OF_DECISION = {
    "overlap": "retained_f1", "pair_flip": "gold_crossing", "answer_flip": "answer_em", "verdict_flip": "verdict_accuracy",
}  # fmt: skip
"""How good the decision is, beside how steady it is."""
OF_READERS = ("answer_flip", "verdict_flip")
"""Decisions that a reader makes."""
LABELS = {
    "ndcg@10": "nDCG@10", "ndcg@1": "nDCG@1", "tau_psi": "τ-PSI", "overlap": "overlap", "overlap@10": "overlap@10",
    "retained_f1": "set F1", "pair_flip": "pair flip", "gold_crossing": "gold crossing", "answer_flip": "answer flip",
    "overlap_nonempty": "overlap, not both empty", "chance_overlap": "overlap by chance", "empty_sets": "empty sets",
    "retention": "kept", "verdict_flip": "verdict flip",
    "answer_em": "exact match", "answer_f1": "answer F1", "verdict_accuracy": "accuracy",
}  # fmt: skip
MOSTLY_EMPTY = 0.5
"""A share of empty sets above this: the overlap then says little, as it does where nearly all is kept."""
DIFFERENT_THRESHOLDS = f"These runs were audited with different thresholds, so what they keep is not compared. {ONE_FOR_ALL}"


def decision_measure(audits: Sequence[Audit]) -> str | None:
    """The first of the task's decision measures that every audit has."""
    largest = max(len(q.candidate_ids) for q in audits[0].queries)
    for name in audits[0].task.decisions:
        if name == "overlap@10" and largest <= example.BUDGET:
            continue  # all candidates are among the first 10
        if name == "overlap" and all(map(has_idle_cutoff, audits)):
            continue
        if all(name in audit.measured.values for audit in audits):
            return name
    return None


def share_changed(audit: Audit, decision: str) -> float:
    value = audit.figures[decision].value
    return 1 - value if MEASURES[decision].better == "higher" else value


def has_idle_cutoff(audit: Audit) -> bool:
    """Whether the cutoff keeps nearly all, or mostly nothing: a scorer that cannot tell candidates apart gets such a one."""
    kept, empty = audit.figures.get("retention"), audit.figures.get("empty_sets")
    return kept is not None and (kept.value > NEARLY_ALL or (empty is not None and empty.value > MOSTLY_EMPTY))


def is_comparable(name: str, audits: Sequence[Audit]) -> bool:
    """Whether audits may be ranked by a measure: all have it, and where it depends on a threshold all have the same."""
    has_all = all(name in audit.measured.values for audit in audits)
    return has_all and ("cutoff" not in MEASURES[name].needs or share_threshold(audits))


def idle_note(audit: Audit, decision: str | None) -> str:
    kept, overlap = (audit.figures[name].value for name in ("retention", "overlap"))
    others = " It is left out of the comparison of decisions." if decision == "overlap" else ""
    if kept > NEARLY_ALL:
        keeps, why = f"{100 * kept:.1f} % of the pool", "there is hardly anything to change"
    else:
        keeps, why = f"nothing in {percent(audit.figures['empty_sets'].value)} of the cases", "two empty sets count as equal"
    return f"The threshold of {audit.name} keeps {keeps}, so its overlap of {overlap:.2f} says little: {why}.{others}"


def sentence(audit: Audit, decision: str | None, k: int, named: bool) -> str:
    """What a decision-maker needs to know."""
    sizes = sorted({len(q.candidate_ids) for q in audit.queries})
    count = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    opening = f"If these {count} {audit.task.noun} arrive in another order"
    under = f" under {audit.name}" if named else ""
    if decision is None:
        return f"{opening}, what changes{under} is not known: {_why_unknown(audit)}"
    share = share_changed(audit, decision)
    change = CHANGES[decision].format(share=percent(share))
    figure = f"{LABELS[decision]} {audit.figures[decision].value:.2f}"
    moved = quality_movement(audit, decision, k)
    if np.isnan(moved):
        return f"{opening}, {change}{under} ({figure}). Quality is not known: no query that this is measured on has judgements."
    size = "less than 0.01" if moved < 0.005 else f"{moved:.2f}"
    return f"{opening}, {change}{under} ({figure}), {'while' if moved < share / 4 else 'and'} nDCG@{k} moves by {size}."


def _why_unknown(audit: Audit) -> str:
    if max(len(q.permuted) for q in audit.queries) < 2:
        return "only one permutation was scored, and change needs two."
    return f"the threshold has no cutoff ({audit.measured.cutoff.how.removeprefix('none: ')})."


def quality_by_query(audit: Audit, k: int, counted: Array | None = None) -> Array:
    """(Q, M) nDCG@k by query and permutation, to the fewest permutations any query has; unjudged queries left out.

    `counted` (Q,) says which queries are looked at; otherwise all are.
    """
    chosen = [True] * len(audit.queries) if counted is None else counted
    fewest = fewest_permutations(itertools.compress(audit.queries, chosen))
    # a pool with fewer orders begins with the first again
    rows = [np.resize(quality_by_permutation(query, k), fewest) for query in itertools.compress(audit.queries, chosen)]
    by_query: Array = np.array(rows).reshape(-1, fewest)
    return by_query[~np.isnan(by_query).any(axis=1)]


def quality_movement(audit: Audit, decision: str, k: int) -> float:
    """Mean absolute difference between two permutations of the collection's nDCG@k, over the queries the decision counts."""
    counted = ~np.isnan(audit.measured.values[decision])
    by_query = quality_by_query(audit, k, counted)
    if not by_query.size or by_query.shape[1] < 2:
        return float("nan")
    reported = by_query.mean(axis=0)
    return float(np.mean([abs(a - b) for a, b in itertools.combinations(reported, 2)]))


def notes(audit: Audit, decision: str | None, k: int) -> list[str]:
    """What must be known to read the sentence rightly."""
    if decision is None:
        return []
    remarks = []
    interval = audit.figures[decision]
    basis = f"95 % interval of {LABELS[decision]} {format_number(interval.low)} to {format_number(interval.high)}"
    few = "one query, so without an interval" if interval.low is None else f"{interval.queries} queries; {basis}"
    remarks.append(f"Mean over all pairs of permutations of {few}.")
    if (per_query := audit.figures.get(f"delta_ndcg@{k}")) is not None:
        remarks.append(
            f"nDCG@{k} is the mean of these queries, as a benchmark reports it; one query's nDCG@{k} moves by "
            f"{per_query.value:.2f} between its best and its worst order, on average."
        )
    if (apart := audit.figures.get("tau_psi")) is not None:
        remarks.append(
            f"Two orders disagree on which of two candidates ranks higher for {percent(apart.value)} of the pairs of a pool "
            f"(τ-PSI {apart.value:.2f})."
        )
    if decision == "overlap":
        kept, chance = (audit.figures[name].value for name in ("retention", "chance_overlap"))
        good = f", with an F1 of {audit.figures['retained_f1'].value:.2f}" if "retained_f1" in audit.figures else ""
        remarks.append(
            f"The threshold keeps {percent(kept)} of a pool on average{good}; sets of the same sizes drawn at random would "
            f"overlap by {chance:.2f}."
        )
    if interval.is_above_floor is False:
        remarks.append("This is not above the noise floor: scoring the same order again moves as much.")
    return remarks


def leader(audits: Sequence[Audit], name: str) -> str:
    """Who leads in a measure, and whether the lead over the next is settled."""
    first, second = sorted(audits, key=lambda audit: -merit(audit, name))[:2]
    what = f"Best {LABELS[name]}" if name.startswith("ndcg") else "Steadiest decisions"
    opening = f"{what}: {first.name} ({LABELS[name]} {_value(first, name)})"
    ahead = advantage(first, second, name)
    if ahead is None:
        return f"{opening}, next {second.name} ({_value(second, name)}); there are too few shared queries to tell."
    if ahead.high < 0:  # its mean over all its queries is better, over those that both have it is not
        return (
            f"{opening}; on the queries that both have, {second.name} is ahead by {_span(-ahead.value, -ahead.high, -ahead.low)}."
        )
    if ahead.low == ahead.high == 0:
        return f"{opening}, level with {second.name} on every query that both have."
    verdict = f"ahead of {second.name} by" if ahead.low > 0 else f"not settled against {second.name}:"
    return f"{opening}, {verdict} {_span(ahead.value, ahead.low, ahead.high)}."


def _span(value: float, low: float, high: float) -> str:
    return f"{format_number(value)}, 95 % interval {format_number(low)} to {format_number(high)}"


def merit(audit: Audit, name: str) -> float:
    value = audit.figures[name].value if name in audit.figures else np.nan
    merit = -value if MEASURES[name].better == "lower" else value
    return -np.inf if np.isnan(merit) else merit


def _value(audit: Audit, name: str) -> str:
    return format_number(audit.figures[name].value if name in audit.figures else None)


def advantage(a: Audit, b: Audit, name: str) -> Interval | None:
    """By how much a is better than b, paired by query; None where they share too few measured queries to tell."""
    better, worse = (b, a) if MEASURES[name].better == "lower" else (a, b)
    return paired_gain(name, better.measured, worse.measured)


def format_number(value: float | None, digits: int = 3) -> str:
    """A figure as tables print it; a dash where it is undefined."""
    return "–" if value is None or np.isnan(value) else f"{value:.{digits}f}".replace("-", "−")


def percent(share: float) -> str:
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
