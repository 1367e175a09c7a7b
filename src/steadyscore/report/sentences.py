"""What the audits of a collection show, in words: the verdict a decision-maker needs, and what must be known to read it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ..measures.intervals import FEWEST, Interval
from ..measures.measurement import fewest_permutations
from ..measures.registry import MEASURES
from ..results.audit import Audit
from ..results.causes import BUDGET
from ..results.figure import paired_gain
from ..results.load import ONE_FOR_ALL, share_threshold
from ..results.notes import NEARLY_ALL
from ..terms import Array

CHANGES = {
    "overlap": "{share} of what the threshold keeps in either order",
    "overlap@10": "{share} of what is among the first 10 in either order",
    "pair_flip": "the chosen/rejected pair {share} of the time",
    "answer_flip": "the reader's answer {share} of the time",
    "verdict_flip": "the reader's verdict {share} of the time",
}
"""What another order changes, by the measure of the decision."""
MEANINGS = {
    "overlap": "Of what the threshold keeps in either of two orders, the share that is kept in only one of them (1 − overlap)",
    "overlap@10": "Of what is among the first 10 in either of two orders, the share that is in only one of them (1 − overlap@10)",
    "pair_flip": "The share of pairs of orders that choose or reject another response (pair flip)",
    "answer_flip": "The share of pairs of orders after which the reader gives another answer (answer flip)",
    "verdict_flip": "The share of pairs of orders after which the reader gives another verdict (verdict flip)",
}
"""What that share is a share of."""
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
"""Above this share of empty sets an overlap says little, as it does where nearly all is kept."""
DIFFERENT_THRESHOLDS = f"These runs were audited with different thresholds, so what they keep is not compared. {ONE_FOR_ALL}"


def decision_measure(audits: Sequence[Audit]) -> str | None:
    """The first of the task's decision measures that every audit has."""
    for name in audits[0].task.decisions:
        if name == "overlap@10" and audits[0].pool_sizes[-1] <= BUDGET:
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


def idle_note(audit: Audit) -> str:
    kept, empty = (audit.figures[name].value for name in ("retention", "empty_sets"))
    keeps = f"{100 * kept:.1f} % of the pool" if kept > NEARLY_ALL else f"nothing in {percent(empty)} of the cases"
    return f"What {audit.name} keeps is not compared: its threshold keeps {keeps}."


def verdict(ranked: Sequence[Audit], decision: str | None) -> str:
    """The one line on top: what another order changes under the steadiest of the audits, and whether that is settled.

    `ranked` has the steadiest first. Of several that are audited alike it is told against the next one.
    """
    first, *others = ranked
    if decision is None or not others:
        return sentence(first, decision)
    if not is_comparable(decision, ranked):
        return f"{_opening(first, decision)}. {_opening(ranked[-1], decision)}. {DIFFERENT_THRESHOLDS}"
    second, change = others[0], _change(first, decision)
    ahead = advantage(first, second, decision)
    if ahead is not None and ahead.low == ahead.high == 0:
        return f"{first.name} and {second.name} are level on every query that both have: another order changes {change}."
    against = f"against {percent(share_changed(second, decision))} for {second.name}"
    return f"Steadiest: {first.name}. Another order changes {change}, {against}. {_lead_settled(ahead)}"


def _lead_settled(ahead: Interval | None) -> str:
    """Whether one audit decides steadier than another, by the interval over the queries that both have."""
    if ahead is None:
        return "Not settled: they share too few queries to tell."
    points, low, high = (f"{100 * value:.0f}".replace("-", "−") for value in (ahead.value, ahead.low, ahead.high))
    return f"{'Settled' if ahead.low > 0 else 'Not settled'}: a difference of {points} points, 95 % interval {low} to {high}."


def sentence(audit: Audit, decision: str | None) -> str:
    """What another order changes under one scorer, how far quality moves meanwhile, and whether the change is settled."""
    if decision is None:
        return f"{audit.name}: what another order changes is not known: {_why_unknown(audit)}"
    return f"{_opening(audit, decision)}, while {movement(audit, decision)}. {_settled(audit, decision)}"


def _opening(audit: Audit, decision: str) -> str:
    figure = f"{LABELS[decision]} {audit.figures[decision].value:.2f}"
    return f"{audit.name}: another order changes {_change(audit, decision)} ({figure})"


def _change(audit: Audit, decision: str) -> str:
    return CHANGES[decision].format(share=percent(share_changed(audit, decision)))


def movement(audit: Audit, decision: str) -> str:
    """How far the collection's quality moves between two orders, beside what is decided."""
    moved = quality_movement(audit, decision)
    if np.isnan(moved):
        return "quality is not known, as no query that this is measured on has judgements"
    return f"nDCG@{audit.task.quality_cutoff} moves by {'less than 0.01' if moved < 0.005 else f'{moved:.2f}'}"


def _settled(audit: Audit, decision: str) -> str:
    """Whether it is settled that orders change anything, by the interval and by the noise floor where one was measured."""
    figure, interval = audit.figures[decision], share_interval(audit, decision)
    if interval is None or figure.queries < FEWEST:
        return f"Not settled: {figure.queries} {'query is' if figure.queries == 1 else 'queries are'} too few to tell."
    if share_changed(audit, decision) == 0:
        return f"No order changed a decision on any of {figure.queries} queries."
    said = f"95 % interval {percents(*interval)}, {figure.queries} queries"
    if figure.is_above_floor is False:
        return f"Not settled: {said}, and this is not above the noise floor: scoring the same order again moves as much."
    return f"{'Settled' if interval[0] > 0 else 'Not settled'}: {said}."


def share_interval(audit: Audit, decision: str) -> tuple[float, float] | None:
    """The 95 % interval of the share that changes; None where there is none."""
    low, high = audit.figures[decision].low, audit.figures[decision].high
    if low is None or high is None:
        return None
    return (1 - high, 1 - low) if MEASURES[decision].better == "higher" else (low, high)


def _why_unknown(audit: Audit) -> str:
    if audit.measured.coverage.permutations[-1] < 2:
        return "only one permutation was scored, and change needs two."
    return f"the threshold has no cutoff ({audit.measured.cutoff.how.removeprefix('none: ')})."


def quality_by_query(audit: Audit, counted: Array | None = None) -> Array:
    """(Q, M) nDCG at the task's k by query and permutation, to the fewest permutations any query has; unjudged queries left out.

    `counted` (Q,) says which queries are looked at; otherwise all are.
    """
    chosen = np.ones(len(audit.queries), bool) if counted is None else counted
    rows = list(itertools.compress(audit.qualities, chosen))
    fewest = len(rows[0]) if rows else 0
    if len({len(row) for row in rows}) > 1:
        fewest = fewest_permutations(itertools.compress(audit.queries, chosen))
        rows = [np.resize(row, fewest) for row in rows]  # a pool with fewer orders begins with the first again
    by_query: Array = np.array(rows).reshape(-1, fewest)
    return by_query[~np.isnan(by_query).any(axis=1)]


def quality_movement(audit: Audit, decision: str) -> float:
    """Mean absolute difference between two permutations of the collection's nDCG@k, over the queries the decision counts."""
    counted = ~np.isnan(audit.measured.values[decision])
    by_query = quality_by_query(audit, counted)
    if not by_query.size or by_query.shape[1] < 2:
        return float("nan")
    reported = by_query.mean(axis=0)
    return float(np.mean([abs(a - b) for a, b in itertools.combinations(reported, 2)]))


def leader(audits: Sequence[Audit], name: str) -> str:
    """Who leads in a measure of quality, and whether the lead over the next is settled."""
    first, second = sorted(audits, key=lambda audit: -merit(audit, name))[:2]
    opening = f"Best {LABELS[name]}: {first.name} ({LABELS[name]} {_value(first, name)})"
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


def percents(low: float, high: float) -> str:
    return f"{100 * low:.0f} to {100 * high:.0f} %"
