"""Which column of somebody's table is what: the names that people use, and the roles they have here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from ..errors import InputError
from ..terms import TaskName

OF_QUERY = {
    "query": ("query", "question", "prompt", "claim", "query_text", "question_text", "user_query", "instruction", "anchor"),
    "query_id": ("query_id", "qid", "question_id", "prompt_id", "claim_id"),
    "answers": ("answers",),
    "verdict": ("verdict",),
    "judged": ("judged",),
}
WINNERS = ("winner", "preference", "preferred")
OF_CANDIDATE = {
    "text": (
        *("text", "document", "doc", "passage", "candidate", "response", "completion", "context", "content"),
        *("document_text", "doc_text", "passage_text", "page_content", "chunk", "generation"),
    ),
    "doc_id": ("doc_id", "candidate_id", "document_id", "passage_id", "response_id", "pid", "docno", "id"),
    "title": ("title",),
    "relevance": ("relevance", "label", "grade", "rel", "judgement", "judgment", "rating", "is_relevant", *WINNERS),
    "rank": ("rank", "position"),
    "score": ("score", "relevance_score", "similarity"),
}
"""A role -> the names it goes by, the best first; case, plural and what stands between words do not matter."""
BETTER = re.compile(r"(chosen|positive|pos?)(passage|document|doc|response)?")
WORSE = re.compile(r"(rejected|negative|neg)(passage|document|doc|response)?[0-9]{0,3}")
"""Columns that say by their name how good a candidate is, or a list of them."""
RESPONSES = ("response", "answer", "completion", "output", "generation", "conversation")
SIDE = re.compile(rf"({'|'.join(RESPONSES)}|candidate|document|doc|passage|text)([a-h]|[0-9]{{1,3}})")
"""A column that holds one candidate of several in a row, as `response_a` or `doc2`."""
OURS = {*OF_QUERY, *OF_CANDIDATE, "id", "candidates", "candidate_id"}
"""Names that need no recognition."""


class Columns(NamedTuple):
    """What the columns of a table are: a role -> its column, the task they speak of, and those that have no role."""

    roles: dict[str, str]
    task: TaskName
    ignored: list[str]

    def __str__(self) -> str:
        ignored = f"; ignored: {', '.join(self.ignored)}" if self.ignored else ""
        return ", ".join(f"{role}={column}" for role, column in self.roles.items()) + ignored


def plain_word(name: str) -> str:
    """A name as it is compared: `Doc-IDs` is `docid`, and so is `passages.doc_id`."""
    return re.sub(r"[^a-z0-9]", "", name.casefold().rpartition(".")[2]).removesuffix("s")


TEXTS = set(map(plain_word, OF_CANDIDATE["text"]))


def is_known(name: str) -> bool:
    """Whether a column may be called so."""
    word, names = plain_word(name), (OF_QUERY | OF_CANDIDATE).values()
    return any(side.fullmatch(word) for side in (SIDE, BETTER, WORSE)) or word in map(plain_word, chain(*names))


def parse_columns(text: str) -> dict[str, str]:
    """`query=question,text=body`: a name of ours -> the column that goes by it."""
    pairs = [[part.strip() for part in pair.partition("=")] for pair in text.split(",")]
    if not all(name and column for name, _, column in pairs):
        raise InputError(f"{text!r} does not say which column is what. Write it as query=question,text=body.")
    return {name: column for name, _, column in pairs}


def column_words(names: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """Column -> what it goes by, those that were given first."""
    words = {name: plain_word(ours) for ours, column in given.items() for name in names if f".{name}".endswith(f".{column}")}
    return words | {name: plain_word(name) for name in names if name not in words}


def queries_of(words: Mapping[str, str]) -> list[str]:
    """The columns that go by a name of the query."""
    return [column for column, word in words.items() if word in map(plain_word, OF_QUERY["query"])]


def sides_of(words: Mapping[str, str]) -> dict[str, str]:
    """`a`, `b`, `chosen` and so on -> column, where candidates stand side by side in a row; else empty."""
    stems: dict[str, dict[str, str]] = {}
    for column, word in words.items():
        side = SIDE.fullmatch(word)
        if side or BETTER.fullmatch(word) or WORSE.fullmatch(word):
            stems.setdefault(side[1] if side else "", {})[side[2] if side else word] = column
    sides = next((sides for stem, sides in stems.items() if len(sides) > 1 and (stem or any(map(BETTER.fullmatch, sides)))), {})
    return dict(sorted(sides.items(), key=lambda side: (len(side[0]), side)))  # 2 before 10


def recognise(words: Mapping[str, str], items: Collection[str] | None, given: Collection[str]) -> Columns:
    """The roles of columns by what they go by.

    items  where a row is a whole query, the columns of which each candidate has a value; None where a row is a candidate
    given  columns whose name was given: they come before others
    """
    roles: dict[str, str] = {}
    for role, names in (OF_QUERY | OF_CANDIDATE).items():
        known = [plain_word(name) for name in (*names, *(["id"] if role == "query_id" and items is not None else []))]
        free = [column for column in words if words[column] in known and column not in roles.values()]
        free = [column for column in free if items is None or (column in items) == (role in OF_CANDIDATE)]
        if free:
            roles[role] = min(free, key=lambda column: (column not in given, known.index(words[column])))
    texts = roles.get("text", "")
    is_response = any(word.startswith(RESPONSES) for word in (words.get(texts, ""), plain_word(texts.partition(".")[0])))
    of_query = "claim_verification" if "verdict" in roles else "multidoc_qa" if "answers" in roles else "passage_reranking"
    ignored = [column for column in words if column not in roles.values()]
    return Columns(roles, "response_ranking" if is_response else of_query, ignored)
