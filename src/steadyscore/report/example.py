"""One query twice, as in the paper's Figure 1a: the same candidates in two orders, and what the consumer made of them (§1).

A consumer's decision about one candidate is its state: a threshold keeps it (1) or drops it (0); a preference consumer
chooses it (1), rejects it (-1) or does neither (0).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..machine.names import shorten
from ..measures.ranking import is_relevant, unless_nan
from ..measures.registry import MEASURES
from ..measures.threshold import Cutoff
from ..measures.views import quality_by_permutation
from ..results.audit import Audit
from ..results.causes import FLIPPING, Cause, Explainer, states
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array, Instance
from .sentences import LABELS, OF_READERS, share_changed

WORDS = {"threshold": {1: "kept", 0: "dropped"}, "preference": {1: "chosen", -1: "rejected", 0: "passed over"}}

WIDTH, MOST = 60, 6
"""Characters of a candidate, and candidates, that `flip_lines` shows."""


def most_affected(queries: Sequence[Scored], steadiness: Array, measure: str, cutoff: Cutoff) -> int | None:
    """The query whose decisions agree least; of equals, the one where most candidates change. None where all are steady."""
    if np.isnan(steadiness).all():
        return None
    worst = np.flatnonzero(steadiness == np.nanmin(steadiness)).tolist()
    decisions = (states(queries[i], measure, cutoff.of(i))[1] for i in worst)
    changing = [int((decided != decided[0]).any(axis=0).sum()) for decided in decisions]
    return worst[int(np.argmax(changing))] if max(changing) else None


def two_orders(decided: Array, quality: Array) -> tuple[int, int]:
    """The two permutations that agree least; of equals, those nearest in quality: the ranking measure does not show it."""
    first, second = np.triu_indices(len(decided), 1)
    differing = (decided[first] != decided[second]).sum(axis=1)
    involved = ((decided[first] != 0) | (decided[second] != 0)).sum(axis=1)
    distance = differing / np.maximum(involved, 1)
    apart = np.abs(np.nan_to_num(quality[first] - quality[second]))
    best = np.lexsort((apart, -distance))[0]
    return int(first[best]), int(second[best])


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a candidate under one order."""

    score: float
    at: float
    """Its place on the score axis, in percent."""
    place: int | None
    """Where it was shown, from 1; None where places are unknown."""
    state: int
    word: str


@dataclass(frozen=True, slots=True)
class ShownCandidate:
    """A candidate and its outcome under both orders."""

    number: int
    id: str
    title: str | None
    text: str | None
    gold: int | None
    outcomes: tuple[Outcome, Outcome]
    cause: Cause | None
    """Why orders decide differently about it."""

    @property
    def differs(self) -> bool:
        return self.outcomes[0].state != self.outcomes[1].state

    @property
    def kind(self) -> str:
        return "decided differently" if self.differs else f"{self.outcomes[0].word} both times"


@dataclass(frozen=True, slots=True)
class ShownQuery:
    """What the page shows of a query: two rows of chips, and each candidate with its scores and outcomes under both orders."""

    query_id: str
    query: str | None
    consumer: str
    permutations: tuple[int, int]
    quality: tuple[float | None, float | None]
    cutoff: float | None
    """The place of the cutoff on the score axis, in percent."""
    candidates: tuple[ShownCandidate, ...]
    orders: tuple[tuple[str, ...], ...] | None
    """The candidates as both orders show them; None where places are unknown."""
    k: int
    """Of the quality, nDCG@k."""
    variant: str = ""
    """The scorer, where it is one of several."""
    measure: str = ""
    """What the decisions are measured by, in words."""
    mean: float = np.nan
    """That measure over all pairs of orders of this query."""
    answers: tuple[str, str] | None = None
    """What the reader made of both orders, where its decision is the one shown."""

    def chosen(self, row: int) -> int:
        """How many candidates are kept, or chosen, under one of the orders."""
        return sum(candidate.outcomes[row].state == 1 for candidate in self.candidates)

    @property
    def overlap(self) -> float:
        """The Jaccard index of the two sets."""
        favoured = [[outcome.state == 1 for outcome in candidate.outcomes] for candidate in self.candidates]
        either = sum(map(any, favoured))
        return sum(map(all, favoured)) / either if either else 1.0

    @property
    def differing(self) -> int:
        return sum(candidate.differs for candidate in self.candidates)

    @property
    def groups(self) -> dict[str, list[ShownCandidate]]:
        """Candidates by what became of them, in words: those that differ first, then those always favoured, then the rest."""
        kinds: dict[str, list[ShownCandidate]] = {"decided differently": []}
        for candidate in sorted(self.candidates, key=lambda c: (-c.outcomes[0].state, c.number)):
            kinds.setdefault(candidate.kind, []).append(candidate)
        return {kind: members for kind, members in kinds.items() if members}


def choose_examples(ranked: Sequence[Audit], decision: str | None) -> list[ShownQuery]:
    """A query under the least steady audit, of equals the one given first, and the same query under the steadiest."""
    if decision is None:
        return []
    measure = decision if decision in FLIPPING else "overlap"  # a reader decides on what is kept
    able = sorted(
        (audit for audit in ranked if measure in audit.measured.values), key=lambda audit: -share_changed(audit, decision)
    )
    if not able:
        return []
    worst = able[0]
    index = most_affected(worst.queries, _steadiness(worst, measure), measure, worst.measured.cutoff)
    if index is None:
        return []
    query_id = worst.queries[index].query_id
    shown = (_example(audit, query_id, measure, decision) for audit in [worst, able[-1]][: len(able)])
    return [example for example in shown if example is not None]


def _steadiness(audit: Audit, measure: str) -> Array:
    """(Q,) how steady the decisions of each query are; NaN where nothing is relevant, as nDCG is 0 whatever happens."""
    steadiness: Array = audit.measured.values[measure] * (1 if MEASURES[measure].better == "higher" else -1)
    has_relevant = np.array([q.relevance is not None and is_relevant(q.relevance).any() for q in audit.queries])
    return np.where(has_relevant, steadiness, np.nan) if (has_relevant & ~np.isnan(steadiness)).any() else steadiness


def _example(audit: Audit, query_id: str, measure: str, decision: str) -> ShownQuery | None:
    if query_id not in audit.query_ids:
        return None
    place = audit.query_ids.index(query_id)
    if np.isnan(mean := audit.measured.values[measure][place]):
        return None
    assert audit.explainer is not None  # there is a measure of decisions
    explainer, cutoff = replace(audit.explainer, measure=measure), audit.measured.cutoff.of(place)
    example = make_example(audit.queries[place], audit.instance(query_id), explainer, cutoff, audit.task.quality_cutoff)
    outputs = audit.outputs(audit.reader) if decision in OF_READERS and audit.reader is not None else {}
    first, second = example.permutations
    answers = (outputs[query_id][first], outputs[query_id][second]) if query_id in outputs else None
    return replace(example, variant=audit.name, measure=LABELS[measure], mean=float(mean), answers=answers)


def make_example(query: Scored, instance: Instance | None, explainer: Explainer, cutoff: Cutoff, k: int) -> ShownQuery:
    """A query under the two of its orders that agree least."""
    measure, causes = explainer.measure, explainer.causes(query, cutoff)
    consumer, decided = states(query, measure, cutoff)
    by_order = quality_by_permutation(query, k)
    pair = two_orders(decided, by_order)
    shown = query.orders()
    places = None if shown is None else np.argsort(shown, axis=-1)
    low, high = _range(query.permuted[list(pair)], cutoff.value if consumer == "threshold" else None)

    def percent(score: float) -> float:
        return 100 * (score - low) / (high - low)

    def outcome(row: int, column: int) -> Outcome:
        score, state = float(query.permuted[row, column]), int(decided[row, column])
        place = None if places is None else int(places[row, column]) + 1
        return Outcome(score, percent(score), place, state, WORDS[consumer][state])

    texts = {c.id: c for c in instance.pool} if instance else {}
    candidates = []
    for number, column in enumerate(_numbering(query, instance), 1):
        text = texts.get(query.candidate_ids[column])
        gold = np.nan if query.relevance is None else query.relevance[column]
        candidates.append(
            ShownCandidate(
                number=number,
                id=query.candidate_ids[column],
                title=text.title if text else None,
                text=text.text if text else None,
                gold=None if np.isnan(gold) else int(gold),
                outcomes=(outcome(pair[0], column), outcome(pair[1], column)),
                cause=causes[column],
            )
        )
    drawn = query.permutations[query.permutations != FIRST_STAGE]
    return ShownQuery(
        query_id=query.query_id,
        query=instance.query if instance else None,
        consumer=consumer,
        permutations=(int(drawn[pair[0]]), int(drawn[pair[1]])),
        quality=(unless_nan(by_order[pair[0]]), unless_nan(by_order[pair[1]])),
        cutoff=None if measure != "overlap" or cutoff.value is None else percent(cutoff.value),
        candidates=tuple(candidates),
        orders=None if shown is None else tuple(tuple(query.candidate_ids[c] for c in shown[row]) for row in pair),
        k=k,
    )


def _numbering(query: Scored, instance: Instance | None) -> list[int]:
    """Columns in first-stage order where the collection is there to tell it, else by candidate id."""
    if instance is None:
        return list(range(len(query.candidate_ids)))
    place = {c.id: i for i, c in enumerate(instance.pool)}
    return sorted(range(len(query.candidate_ids)), key=lambda column: place[query.candidate_ids[column]])


def _range(scores: Array, cutoff: float | None) -> tuple[float, float]:
    """The ends of the score axis: everything drawn, with a margin."""
    ends = np.append(scores.ravel(), [] if cutoff is None else [cutoff])
    margin = 0.06 * (np.ptp(ends) or 1.0)
    return float(ends.min() - margin), float(ends.max() + margin)


def flip_lines(audit: Audit) -> list[str]:
    """The query whose decisions agree least, what became of its candidates under two orders, and why."""
    if audit.explainer is None:
        return []
    measure = audit.explainer.measure
    steadiness = audit.measured.values[measure] * (-1 if measure == "pair_flip" else 1)
    index = most_affected(audit.queries, steadiness, measure, audit.measured.cutoff)
    if index is None:
        return []
    query, cutoff = audit.queries[index], audit.measured.cutoff.of(index)
    shown = make_example(query, audit.instance(query.query_id), audit.explainer, cutoff, audit.task.quality_cutoff)
    lines = [f"query {shown.query_id}" + (f": {_short(shown.query)}" if shown.query else "")]
    for row, number in enumerate(shown.permutations):
        if shown.orders is not None:
            lines.append(f"  order {number} shows {', '.join(shown.orders[row])}")
        kept = [candidate.id for candidate in shown.candidates if candidate.outcomes[row].state == 1]
        lines.append(f"  in order {number} it keeps {', '.join(kept) or 'nothing'}")
    differing = [candidate for candidate in shown.candidates if candidate.differs]
    for candidate in differing[:MOST]:
        places = [f" in place {outcome.place}" if outcome.place else "" for outcome in candidate.outcomes]
        words = [f"{o.word} with {o.score:.3f}{place}" for o, place in zip(candidate.outcomes, places, strict=True)]
        text = f": {_short(candidate.text)}" if candidate.text else ""
        lines.append(f"  {candidate.id} is {', then '.join(words)} (cause: {candidate.cause}){text}")
    more = [f"  and {len(differing) - MOST} more candidates"] if len(differing) > MOST else []
    return [*lines, *more, *([str(audit.causes)] if audit.causes else [])]


def _short(text: str) -> str:
    return shorten(" ".join(text.split()), WIDTH)
