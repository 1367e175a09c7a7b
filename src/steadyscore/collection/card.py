"""The card of a collection: what one pass over its instances says, beside what its header says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

from ..tasks import TASKS
from ..terms import Collection, Instance
from .catalogue import CATALOGUE
from .responses import chance_level


def collection_card(collection: Collection, instances: Iterable[Instance]) -> dict[str, object]:
    """Sizes, golds, answers, verdicts, the chance level of response collections, and provenance."""
    grades: Counter[str] = Counter()
    verdicts: Counter[str] = Counter()
    queries = candidates = smallest = largest = characters = cut = answered = 0
    levels: list[float] = []
    without_gold = 0
    for instance in instances:
        size = len(instance.pool)
        queries, candidates = queries + 1, candidates + size
        smallest, largest = min(smallest or size, size), max(largest, size)
        grades.update("unjudged" if each.relevance is None else str(each.relevance) for each in instance.pool)
        lengths = [len(" ".join(each.text.split())) for each in instance.pool]
        characters += sum(lengths)
        cut += sum(length > collection.chars for length in lengths) if collection.chars else 0
        answered += bool(instance.answers)
        verdicts.update([instance.verdict] if instance.verdict else [])
        level = float(chance_level([each.relevance or 0 for each in instance.pool]))
        levels += [] if math.isnan(level) else [level]
        without_gold += math.isnan(level)
    known = CATALOGUE.get(collection.name)
    details = collection.details or {}
    made: dict[str, object] = {
        "name": collection.name,
        "task": collection.task,
        "queries": queries,
        "queries_in_paper": known.parts.get(str(details.get("part")), known.queries) if known else None,
        "pool": {"smallest": smallest, "mean": candidates / queries if queries else None, "largest": largest},
        "chars_kept": collection.chars,
        "chars_kept_in_reference_code": known.reference_chars if known else None,
        "mean_chars": characters / candidates if candidates else None,
        "candidates_cut": cut,
        "relevance": dict(sorted(grades.items())),
        "queries_without_relevant_candidate": without_gold,
        "queries_with_answers": answered,
        "verdicts": dict(sorted(verdicts.items())),
    }
    if TASKS[collection.task].quality_cutoff == 1:
        made["chance_ndcg@1"] = sum(levels) / len(levels) if levels else None
    return made | {key: value for key, value in details.items() if key not in made}
