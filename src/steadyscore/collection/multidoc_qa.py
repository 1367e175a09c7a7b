"""Multi-document QA from public files: HotpotQA distractor, 2WikiMultiHopQA, MuSiQue (§5: ten passages, two supporting).

One function per layout turns a source record into an instance; a record outside the paper's protocol is Dropped by name.
Relevance is 1 for a supporting passage and 0 for a distractor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..terms import Candidate, Instance, JsonObject
from .files import Dropped, field_list, field_value

PASSAGES, SUPPORTING = 10, 2


def hotpotqa(record: JsonObject, number: int, aliases: Mapping[str, Sequence[str]] | None = None) -> Instance:
    """HotpotQA and 2WikiMultiHopQA, which share a layout, as published and as on the hub.

    `context` is [[title, [sentence, ...]], ...] or {"title": [...], "sentences": [...]}; `supporting_facts` likewise. 2Wiki adds
    `answer_id`, which its id_aliases.json turns into further answers.
    """
    id = field_value(record, "_id" if "_id" in record else "id", str)
    supporting = {title for title, _ in _pairs(record, "supporting_facts", "sent_id")}
    passages = [
        (title, " ".join(sentence.strip() for sentence in sentences), title in supporting)
        for title, sentences in _pairs(record, "context", "sentences", "content")
    ]
    if len(passages) != PASSAGES:
        raise Dropped(f"not exactly {PASSAGES} passages")
    answers = [field_value(record, "answer", str), *((aliases or {}).get(str(record.get("answer_id")), ()))]
    return _instance(id, field_value(record, "question", str), passages, answers)


def musique(record: JsonObject, number: int) -> Instance:
    """MuSiQue: questions with two supports, cut to ten passages: the supports and the first distractors, in the file's order."""
    if record.get("answerable") is False:
        raise Dropped("not answerable")
    paragraphs = field_value(record, "paragraphs", list)
    passages = [
        (
            field_value(each, "title", str),
            field_value(each, "paragraph_text", str),
            bool(field_value(each, "is_supporting", bool)),
        )
        for each in paragraphs
    ]
    distractors = [place for place, (_, _, supporting) in enumerate(passages) if not supporting]
    kept = {place for place, passage in enumerate(passages) if passage[2]} | set(distractors[: PASSAGES - SUPPORTING])
    cut = [passage for place, passage in enumerate(passages) if place in kept]
    answers = [field_value(record, "answer", str), *field_list(record, "answer_aliases")]
    return _instance(field_value(record, "id", str), field_value(record, "question", str), cut, answers)


def aliases_of(record: JsonObject) -> tuple[str, list[str]]:
    """A line of 2Wiki's id_aliases.json: entity id and its other names."""
    return field_value(record, "Q_id", str), field_list(record, "aliases") + field_list(record, "demonyms")


def _instance(id: str, question: str, passages: list[tuple[str, str, bool]], answers: list[str]) -> Instance:
    if sum(supporting for _, _, supporting in passages) != SUPPORTING:
        raise Dropped(f"not exactly {SUPPORTING} supporting passages")
    if len(passages) != PASSAGES:
        raise Dropped(f"fewer than {PASSAGES} passages")
    if not all(text.strip() for _, text, _ in passages):
        raise Dropped("an empty passage")
    pool = tuple(
        Candidate(f"{id}-p{place:02d}", text.strip(), title.strip() or None, int(supporting))
        for place, (title, text, supporting) in enumerate(passages, 1)
    )
    distinct = dict.fromkeys(answer.strip() for answer in answers if answer and answer.strip())
    return Instance(id, " ".join(question.split()), pool, answers=tuple(distinct))


def _pairs(record: JsonObject, key: str, *columns: str) -> list[tuple[str, Any]]:
    """(title, second) pairs of a field that is a list of pairs, the hub's columns, or either as a JSON string."""
    pairs = field_value(record, key, (list, dict, str))
    if isinstance(pairs, str):
        try:
            pairs = json.loads(pairs)
        except json.JSONDecodeError:
            raise ValueError(f'"{key}" is a string that is not JSON') from None
    if isinstance(pairs, dict):
        second = next((pairs[column] for column in columns if column in pairs), None)
        if second is None or len(pairs.get("title", ())) != len(second):
            raise ValueError(f'"{key}" needs the columns title and {columns[0]}, of one length')
        return list(zip(pairs["title"], second, strict=True))
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs):
        raise ValueError(f'"{key}" is not a list of [title, {columns[0]}] pairs')
    return [(title, second) for title, second in pairs]
