"""Figure 1a for the query that reordering affects most: the same candidates twice, and what the consumer made of them (§1).

A consumer's decision about one candidate is its state: a threshold keeps it (1) or drops it (0); a preference consumer
chooses it (1), rejects it (-1) or does neither (0).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..measures import preference, ranking, threshold
from ..runs.table import FIRST_STAGE, Scored
from ..terms import Array, Instance

WORDS = {"threshold": {1: "kept", 0: "dropped"}, "preference": {1: "chosen", -1: "rejected", 0: "passed over"}}
BUDGET = 10
"""What a budget keeps where no cutoff was fitted (`overlap@10`)."""


def states(query: Scored, measure: str, cutoff: float | None) -> tuple[str, Array]:
    """(consumer, what it decides about every candidate under every permutation, (M, n))."""
    scores = query.permuted
    if measure == "overlap" and cutoff is not None:
        return "threshold", threshold.retained(scores, cutoff).astype(int)
    if measure == f"overlap@{BUDGET}":
        return "threshold", threshold.retained_top_k(scores, BUDGET).astype(int)
    found = np.zeros(scores.shape, int)
    chosen, rejected = preference.pair(scores).T
    rows = np.arange(len(scores))
    found[rows, rejected] = -1
    found[rows, chosen] = 1
    return "preference", found


def most_affected(queries: Sequence[Scored], steadiness: Array, measure: str, cutoff: float | None) -> int | None:
    """The query whose decisions agree least; of equals, the one where most candidates change. None where all are steady."""
    if np.isnan(steadiness).all():
        return None
    worst = np.flatnonzero(steadiness == np.nanmin(steadiness)).tolist()
    changing = [_changing(states(queries[i], measure, cutoff)[1]) for i in worst]
    return worst[int(np.argmax(changing))] if max(changing) else None


def _changing(decided: Array) -> int:
    return int((decided != decided[0]).any(axis=0).sum())


def two_orders(decided: Array, quality: Array) -> tuple[int, int]:
    """The two permutations that agree least; of equals, those nearest in quality: the ranking measure does not show it."""
    first, second = np.triu_indices(len(decided), 1)
    differing = (decided[first] != decided[second]).sum(axis=1)
    involved = ((decided[first] != 0) | (decided[second] != 0)).sum(axis=1)
    distance = differing / np.maximum(involved, 1)
    apart = np.abs(np.nan_to_num(quality[first] - quality[second]))
    best = np.lexsort((apart, -distance))[0]
    return int(first[best]), int(second[best])


def quality(query: Scored, k: int) -> Array:
    """(M,) nDCG@k under every permutation; NaN without judgements."""
    return ranking.ndcg(query.permuted, query.gold, k, judged_gains=query.ideal)


def exhibit(query: Scored, instance: Instance | None, measure: str, cutoff: float | None, k: int) -> dict[str, Any]:
    """What the page shows of a query: two rows of chips, and each candidate with its scores and fates under both orders."""
    consumer, decided = states(query, measure, cutoff)
    words = WORDS[consumer]
    found = quality(query, k)
    pair = two_orders(decided, found)
    a, b = decided[list(pair)]
    columns = _numbering(query, instance)
    shown = _places(query)
    texts = {c.id: c for c in instance.pool} if instance else {}
    low, high = _range(query.permuted[list(pair)], cutoff if consumer == "threshold" else None)

    def fate(row: int, column: int) -> dict[str, Any]:
        score = float(query.permuted[row, column])
        return {
            "score": score,
            "at": 100 * (score - low) / (high - low),
            "place": None if shown is None else int(shown[row, column]) + 1,
            "state": int(decided[row, column]),
            "word": words[int(decided[row, column])],
        }

    candidates = []
    for number, column in enumerate(columns, 1):
        text = texts.get(query.candidate_ids[column])
        gold = np.nan if query.relevance is None else query.relevance[column]
        candidates.append(
            {
                "number": number,
                "id": query.candidate_ids[column],
                "title": text.title if text else None,
                "text": text.text if text else None,
                "gold": None if np.isnan(gold) else int(gold),
                "fates": [fate(row, column) for row in pair],
                "differs": bool(a[column] != b[column]),
            }
        )
    involved = int(((a == 1) | (b == 1)).sum())
    return {
        "query_id": query.query_id,
        "query": instance.query if instance else None,
        "consumer": consumer,
        "words": [word for state, word in words.items() if state],
        "permutations": [int(query.permutations[query.permutations != FIRST_STAGE][row]) for row in pair],
        "quality": [None if np.isnan(found[row]) else float(found[row]) for row in pair],
        "chosen": [int((decided[row] == 1).sum()) for row in pair],
        "overlap": float(((a == 1) & (b == 1)).sum() / involved) if involved else 1.0,
        "differing": int((a != b).sum()),
        "cutoff": None if measure != "overlap" or cutoff is None else 100 * (cutoff - low) / (high - low),
        "candidates": candidates,
        "groups": _groups(candidates),
    }


def _groups(candidates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Candidates by what became of them: those that differ first, then those always favoured, then the rest."""
    kinds: dict[str, list[dict[str, Any]]] = {"decided differently": []}
    for candidate in sorted(candidates, key=lambda c: (-c["fates"][0]["state"], c["number"])):
        kind = "decided differently" if candidate["differs"] else f"{candidate['fates'][0]['word']} both times"
        kinds.setdefault(kind, []).append(candidate)
    return [{"kind": kind, "candidates": members} for kind, members in kinds.items() if members]


def _numbering(query: Scored, instance: Instance | None) -> list[int]:
    """Columns in first-stage order where the collection is there to tell it, else by candidate id."""
    if instance is None:
        return list(range(len(query.candidate_ids)))
    place = {c.id: i for i, c in enumerate(instance.pool)}
    return sorted(range(len(query.candidate_ids)), key=lambda column: place[query.candidate_ids[column]])


def _places(query: Scored) -> Array | None:
    """(M, n) 0-based position of each candidate in each order."""
    orders = query.orders()
    return None if orders is None else np.argsort(orders, axis=-1)


def _range(scores: Array, cutoff: float | None) -> tuple[float, float]:
    """The ends of the score axis: everything drawn, with a margin."""
    ends = np.append(scores.ravel(), [] if cutoff is None else [cutoff])
    margin = 0.06 * (np.ptp(ends) or 1.0)
    return float(ends.min() - margin), float(ends.max() + margin)
