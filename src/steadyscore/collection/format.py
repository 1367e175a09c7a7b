"""One JSON line, one instance: what a line may hold, what is wrong with it, and the way to and from terms.

`schema.json` beside this file states the same rules for other languages. What it cannot state is checked here only: ids that
occur twice, ranks that occur twice or for some candidates only, a judged document that is in the pool as well, NaN, and an id
written as 7.0, which a schema cannot tell from 7.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, get_args

from ..machine.names import shorten
from ..tasks import TASKS
from ..terms import Candidate, Collection, Instance, JsonObject, Verdict

VERDICTS: tuple[str, ...] = get_args(Verdict)

LARGEST = 2**31 - 1
"""Grades, ranks and counts are stored in 32 bits."""
LARGEST_ID = 2**63 - 1
"""A number that stands for an id has at most 64 bits, as a column of a table has."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Characters that no id holds: they would break a line of a run or steer a terminal. Texts may hold them."""
ID_RULE = "a string that is not blank and has no control character, or a whole number"

Rule = tuple[Callable[[Any], bool], str]  # a test, and what the value must be


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def is_id(value: Any) -> bool:
    """Text of one line; a whole number stands for its digits."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= LARGEST_ID
    return _is_text(value) and not CONTROL.search(value)


def is_encodable(text: str) -> bool:
    """Whether a text can be written as UTF-8; one with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _is_count(value: Any, least: int = 0) -> bool:
    """An integer of 32 bits, as JSON Schema sees integers: 2 and 2.0, not true."""
    return _is_number(value) and least <= value <= LARGEST and value == int(value)


TEXT: Rule = (_is_text, "a string that is not blank")
ID: Rule = (is_id, ID_RULE)
COUNT: Rule = (_is_count, f"an integer from 0 to {LARGEST}")
FROM_ONE: Rule = (lambda value: _is_count(value, 1), f"an integer from 1 to {LARGEST}")
CANDIDATE_RULES: dict[str, Rule] = {
    "id": ID,
    "text": TEXT,
    "title": (lambda value: isinstance(value, str), "a string"),
    "relevance": COUNT,
    "rank": FROM_ONE,
    "score": (_is_number, "a finite number"),
}
INSTANCE_RULES: dict[str, Rule] = {
    "id": ID,
    "query": TEXT,
    "candidates": (lambda value: isinstance(value, list) and len(value) > 0, "a list with at least one candidate"),
    "answers": (lambda value: isinstance(value, list) and all(map(_is_text, value)), "a list of strings, none blank"),
    "verdict": (lambda value: value in VERDICTS, f"one of {', '.join(VERDICTS)}"),
    "judged": (
        lambda value: isinstance(value, dict) and all(map(is_id, value)) and all(map(_is_count, value.values())),
        f"an object of document id to an integer from 0 to {LARGEST}",
    ),
}
HEADER_RULES: dict[str, Rule] = {
    "name": TEXT,
    "task": (lambda value: value in TASKS, f"one of {', '.join(TASKS)}"),
    "instruction": TEXT,
    "chars": FROM_ONE,
    "queries": COUNT,
    "depth": FROM_ONE,
    "sha256": (lambda value: isinstance(value, str), "a string"),
}


def rule_mistakes(record: Any, rules: dict[str, Rule], required: Iterable[str], *, closed: bool = True) -> list[str]:
    """Every broken rule; null stands for an absent optional key; a closed record has no key beside its rules."""
    if not isinstance(record, dict):
        return [f"{show_value(record)} is not a JSON object"]
    mistakes = [f'"{key}" is missing' for key in required if record.get(key) is None]
    mistakes += [
        f'"{key}" is {show_value(value)}, not {must_be}'
        for key, (holds, must_be) in rules.items()
        if (value := record.get(key)) is not None and not holds(value)
    ]
    if closed:
        mistakes += [f'"{key}" is not a key of the format ({", ".join(rules)})' for key in record if key not in rules]
    return mistakes


def show_value(value: Any) -> str:
    """A value as a message shows it: short enough for one line."""
    if isinstance(value, list | dict):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = json.dumps(value, ensure_ascii=False, default=str)  # in memory a value may be of any kind
    return shorten(text, 60, "...")


def _repeated(values: Iterable[Any]) -> list[Any]:
    return [value for value, times in Counter(values).items() if times > 1]


def repeated_id(id: str) -> str:
    return f"candidate id {id!r} occurs more than once in the pool"


def header_mistakes(header: Any) -> list[str]:
    return [f"header: {mistake}" for mistake in rule_mistakes(header, HEADER_RULES, ("name", "task"), closed=False)]


def instance_mistakes(record: Any) -> list[str]:
    """Every mistake of one line, in the order of its keys."""
    mistakes = rule_mistakes(record, INSTANCE_RULES, ("id", "query", "candidates"))
    candidates = record.get("candidates") if isinstance(record, dict) else None
    if not isinstance(candidates, list):
        return mistakes
    for place, candidate in enumerate(candidates, 1):
        where = f"candidate {place}"
        if isinstance(candidate, dict) and is_id(candidate.get("id")):
            where += f" ({candidate['id']})"
        mistakes += [f"{where}: {mistake}" for mistake in rule_mistakes(candidate, CANDIDATE_RULES, ("id", "text"))]
    fields = [candidate for candidate in candidates if isinstance(candidate, dict)]
    ids = [str(candidate["id"]) for candidate in fields if is_id(candidate.get("id"))]
    ranks = [rank for candidate in fields if _is_count(rank := candidate.get("rank"), 1)]
    mistakes += [repeated_id(id) for id in _repeated(ids)]
    mistakes += [f"rank {rank} occurs more than once in the pool" for rank in _repeated(ranks)]
    if 0 < len(ranks) < len(candidates):
        mistakes.append(f"{len(ranks)} of {len(candidates)} candidates have a rank; give it to all or to none")
    if isinstance(judged := record.get("judged"), dict):
        both = [id for id in dict.fromkeys(ids) if id in judged]
        mistakes += [f'"judged" repeats {id!r}, which is in the pool; give its relevance there only' for id in both]
    return mistakes


def id_of(record: Any) -> str | None:
    """The id of a line as text, where it has one that can be used."""
    id = record.get("id") if isinstance(record, dict) else None
    return str(id) if is_id(id) else None


def collection_from(header: JsonObject) -> Collection:
    """The header's own keys become fields, all others details. Without "chars" the default of terms holds; null keeps all."""
    own = ("name", "task", "instruction", "chars", "queries")
    values = _values({key: header[key] for key in own if key in header}, HEADER_RULES)
    return Collection(**values, details={key: value for key, value in header.items() if key not in own} or None)


def _values(record: dict[str, Any], rules: dict[str, Rule]) -> dict[str, Any]:
    """Values without mistakes as ours: an id is text, a count an int, also where it was written 5.0."""
    made: dict[str, Any] = {}
    for key, value in record.items():
        rule = rules[key]
        is_count = rule is COUNT or rule is FROM_ONE
        made[key] = value if value is None else str(value) if rule is ID else int(value) if is_count else value
    return made


def instance_from(record: dict[str, Any]) -> Instance:
    """A line without mistakes as a value; where ranks are given the pool is put in their order."""
    values = _values(record, INSTANCE_RULES)
    pool = [Candidate(**_values(candidate, CANDIDATE_RULES)) for candidate in values.pop("candidates")]
    values["pool"] = tuple(sorted(pool, key=lambda candidate: candidate.rank or 0))
    values["answers"] = tuple(values.get("answers") or ())
    values["judged"] = {str(id): int(grade) for id, grade in (values.get("judged") or {}).items()} or None
    return Instance(**values)


def header_record(collection: Collection) -> dict[str, object]:
    own = {"name": collection.name, "task": collection.task, "instruction": collection.instruction}
    counted = {"queries": collection.queries} if collection.queries is not None else {}
    kept = {key: value for key, value in own.items() if value is not None} | {"chars": collection.chars} | counted
    return {"collection": kept | {key: value for key, value in (collection.details or {}).items() if key not in kept}}


def instance_record(instance: Instance) -> dict[str, object]:
    """The line of an instance: absent fields are left out."""
    pool = [
        {key: value for key in CANDIDATE_RULES if (value := getattr(candidate, key)) is not None} for candidate in instance.pool
    ]
    record: dict[str, object] = {"id": instance.id, "query": instance.query, "candidates": pool}
    rest = {"answers": list(instance.answers), "verdict": instance.verdict, "judged": instance.judged}
    return record | {key: value for key, value in rest.items() if value}
