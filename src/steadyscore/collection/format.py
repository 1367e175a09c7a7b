"""One JSON line, one instance: what a line may hold, what is wrong with it, and the way to and from terms.

`schema.json` beside this file states the same rules for other languages. What it cannot state is checked here only: ids that
occur twice, ranks that occur twice or for some candidates only, a judged document that is in the pool as well, and NaN.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_args

from ..terms import Candidate, Collection, Instance, TaskName, Verdict

TASKS: tuple[str, ...] = get_args(TaskName)
VERDICTS: tuple[str, ...] = get_args(Verdict)

Rule = tuple[Callable[[Any], bool], str]  # a test, and what the value must be


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_count(value: Any, least: int = 0) -> bool:
    """An integer as JSON Schema sees it: 2 and 2.0, not true."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and value == int(value) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


TEXT: Rule = (_is_text, "a string that is not blank")
GRADE: Rule = (_is_count, "an integer of 0 or more")
CANDIDATE_RULES: dict[str, Rule] = {
    "id": TEXT,
    "text": TEXT,
    "title": (lambda value: isinstance(value, str), "a string"),
    "relevance": GRADE,
    "rank": (lambda value: _is_count(value, 1), "an integer of 1 or more"),
    "score": (_is_number, "a finite number"),
}
INSTANCE_RULES: dict[str, Rule] = {
    "id": TEXT,
    "query": TEXT,
    "candidates": (lambda value: isinstance(value, list) and len(value) > 0, "a list with at least one candidate"),
    "answers": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of strings, none blank"),
    "verdict": (lambda value: value in VERDICTS, f"one of {', '.join(VERDICTS)}"),
    "judged": (
        lambda value: isinstance(value, dict) and all(map(_is_text, value)) and all(map(_is_count, value.values())),
        "an object of document id to an integer of 0 or more",
    ),
}
HEADER_RULES: dict[str, Rule] = {
    "name": TEXT,
    "task": (lambda value: value in TASKS, f"one of {', '.join(TASKS)}"),
    "instruction": TEXT,
    "chars": (lambda value: _is_count(value, 1), "an integer of 1 or more"),
    "queries": (_is_count, "an integer of 0 or more"),
    "depth": (lambda value: _is_count(value, 1), "an integer of 1 or more"),
    "sha256": (lambda value: isinstance(value, str), "a string"),
}


def _mistakes(record: Any, rules: dict[str, Rule], required: Iterable[str], *, closed: bool = True) -> list[str]:
    """Every broken rule; null stands for an absent optional key; a closed record has no key beside its rules."""
    if not isinstance(record, dict):
        return [f"{_shown(record)} is not a JSON object"]
    found = [f'"{key}" is missing' for key in required if record.get(key) is None]
    found += [
        f'"{key}" is {_shown(value)}, not {must_be}'
        for key, (holds, must_be) in rules.items()
        if (value := record.get(key)) is not None and not holds(value)
    ]
    if closed:
        found += [f'"{key}" is not a key of the format ({", ".join(rules)})' for key in record if key not in rules]
    return found


def _shown(value: Any) -> str:
    """A value as a message shows it: short enough for one line."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _twice(values: Iterable[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


def header_mistakes(header: Any) -> list[str]:
    return [f"header: {mistake}" for mistake in _mistakes(header, HEADER_RULES, ("name", "task"), closed=False)]


def instance_mistakes(record: Any) -> list[str]:
    """Every mistake of one line, in the order of its keys."""
    found = _mistakes(record, INSTANCE_RULES, ("id", "query", "candidates"))
    candidates = record.get("candidates") if isinstance(record, dict) else None
    if not isinstance(candidates, list):
        return found
    for place, candidate in enumerate(candidates, 1):
        where = f"candidate {place}"
        if isinstance(candidate, dict) and _is_text(candidate.get("id")):
            where += f" ({candidate['id']})"
        found += [f"{where}: {mistake}" for mistake in _mistakes(candidate, CANDIDATE_RULES, ("id", "text"))]
    fields = [candidate for candidate in candidates if isinstance(candidate, dict)]
    ids = [candidate["id"] for candidate in fields if isinstance(candidate.get("id"), str)]
    ranks = [rank for candidate in fields if _is_count(rank := candidate.get("rank"), 1)]
    found += [f"candidate id {id!r} occurs more than once in the pool" for id in _twice(ids)]
    found += [f"rank {rank} occurs more than once in the pool" for rank in _twice(ranks)]
    if 0 < len(ranks) < len(candidates):
        found.append(f"{len(ranks)} of {len(candidates)} candidates have a rank; give it to all or to none")
    if isinstance(judged := record.get("judged"), dict):
        both = [id for id in dict.fromkeys(ids) if id in judged]
        found += [f'"judged" repeats {id!r}, which is in the pool; give its relevance there only' for id in both]
    return found


def collection_from(header: dict[str, Any]) -> Collection:
    """The header's own keys become fields, all others details. Without "chars" the default of terms holds; null keeps all."""
    own = ("name", "task", "instruction", "chars", "queries")
    return Collection(
        **{key: header[key] for key in own if key in header},
        details={key: value for key, value in header.items() if key not in own} or None,
    )


def instance_from(record: dict[str, Any]) -> Instance:
    """A line without mistakes as a value; where ranks are given the pool is put in their order."""
    pool = [
        Candidate(
            id=candidate["id"],
            text=candidate["text"],
            title=candidate.get("title"),
            relevance=None if candidate.get("relevance") is None else int(candidate["relevance"]),
            rank=None if candidate.get("rank") is None else int(candidate["rank"]),
            score=candidate.get("score"),
        )
        for candidate in record["candidates"]
    ]
    judged = record.get("judged")
    return Instance(
        id=record["id"],
        query=record["query"],
        pool=tuple(sorted(pool, key=lambda candidate: candidate.rank or 0)),
        answers=tuple(record.get("answers") or ()),
        verdict=record.get("verdict"),
        judged={id: int(grade) for id, grade in judged.items()} if judged else None,
    )


def header_record(collection: Collection) -> dict[str, Any]:
    own = {"name": collection.name, "task": collection.task, "instruction": collection.instruction}
    counted = {"queries": collection.queries} if collection.queries is not None else {}
    kept = {key: value for key, value in own.items() if value is not None} | {"chars": collection.chars} | counted
    return {"collection": kept | {key: value for key, value in (collection.details or {}).items() if key not in kept}}


def instance_record(instance: Instance) -> dict[str, Any]:
    """The line of an instance: absent fields are left out."""
    pool = [
        {key: value for key in CANDIDATE_RULES if (value := getattr(candidate, key)) is not None} for candidate in instance.pool
    ]
    record: dict[str, Any] = {"id": instance.id, "query": instance.query, "candidates": pool}
    rest = {"answers": list(instance.answers), "verdict": instance.verdict, "judged": instance.judged}
    return record | {key: value for key, value in rest.items() if value}
