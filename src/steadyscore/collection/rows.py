"""Rows of somebody's table as lines of our format: a row per candidate, a row per query, or candidates side by side in a row."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from ..tasks import TASKS
from .columns import (
    BETTER,
    OF_CANDIDATE,
    OF_QUERY,
    RESPONSES,
    TEXTS,
    WINNERS,
    Columns,
    column_words,
    is_known,
    plain_word,
    queries_of,
    recognise,
    sides_of,
)
from .files import Mistakes
from .format import (
    CANDIDATE_RULES,
    COUNT,
    INSTANCE_RULES,
    instance_mistakes,
    is_encodable,
    is_id,
    repeated_id,
    rule_mistakes,
    show_value,
)
from .layouts import hash_order
from .tables import Table, chats_as_text, plain_value
from .trec import NUMBER

Cells = dict[str, Any]  # column -> value; what is absent is left out
Rows = list[tuple[int, Cells]]  # with their numbers
Spread = tuple[Rows, set[str] | None, dict[str, str]]
"""A row for each candidate, the columns of candidates (None where every row was one from the start), and names of columns."""
RULES = CANDIDATE_RULES | INSTANCE_RULES | {"doc_id": CANDIDATE_RULES["id"], "query_id": INSTANCE_RULES["id"], "rank": COUNT}
WORDS = {"true": 1, "yes": 1, "false": 0, "no": 0} | dict.fromkeys(("", "nan", "na", "n/a", "null", "none"))
"""What else may stand among numbers."""
DECIMAL_COMMA = re.compile(r"(?<=[0-9]),(?![0-9]{3}$)(?=[0-9]+$)")
"""As a spreadsheet may write 3,5; 1,000 can mean two numbers, and is refused."""
TIES = ("tie", "tiebothbad", "tiebothgood", "bothbad", "bothgood", "both", "neither", "none", "draw", "equal", "same")
NOT_JUDGED = "nothing that needs judgements is measured"
BEST = 3
"""The grade of a response that was preferred, on the rubric's scale; the others have 0."""


def is_of_the_format(record: Any) -> bool:
    """Whether a record has the keys of an instance, and no other: then the rules of the format hold for it."""
    pool = record.get("candidates") if isinstance(record, dict) else None
    if not isinstance(pool, list) or not {"id", "query"} <= record.keys() <= INSTANCE_RULES.keys():
        return False
    return all(isinstance(one, dict) and {"id", "text"} <= one.keys() <= CANDIDATE_RULES.keys() for one in pool)


def read_pools(table: Table, given: Mapping[str, str]) -> tuple[list[dict[str, Any]], Columns, str]:
    """One record per query as a line of our format has it, what the columns are, and what the table does not say.

    given  a name of ours -> the column that goes by it

    Every mistake is raised at once, those of one kind as one sentence.
    """
    odd = [(number, type(row).__name__) for number, row in table.rows if not isinstance(row, Mapping)]
    mistakes = Mistakes(f"{table.start}{number}: {kind} is not a dict" for number, kind in odd)
    if mistakes or not table.rows:
        raise InputError(mistakes or f"{table.file}there is no row to score.")
    rows = [(n, {str(key): cell for key, cell in plain_value(row).items() if cell != ""}) for n, row in table.rows]
    queries_by = queries_of(column_words(_names(rows), given))
    rows = [(number, chats_as_text(cells, queries_by)) for number, cells in rows]
    spread, items, named = _spread(rows, given, mistakes, table.start)
    columns = _columns(rows, (spread, items, named), given, table.file)
    names = columns.roles
    rules = {column: RULES[role] for role, column in names.items()}
    needed = [names[role] for role in ("query", "query_id", "text") if role in names]
    queries: dict[Any, dict[str, Any]] = {}
    for number, cells in spread:
        values = {role: value for role, column in names.items() if (value := _value(role, cells.get(column))) is not None}
        wrong = rule_mistakes({names[role]: value for role, value in values.items()}, rules, needed, closed=False)
        if not wrong:
            key = number if items is not None else values.get("query_id", values["query"])
            query = queries.setdefault(key, {"number": number, "candidates": [], "repeats": {}, "ids": set()})
            differ = [role for role in OF_QUERY if role in values and query.setdefault(role, values[role]) != values[role]]
            wrong = [f'"{names[role]}" is not that of the rows before with the same query; give all rows one' for role in differ]
            values["id"] = values.get("doc_id", str(len(query["candidates"]) + 1))
            if (id := str(values["id"])) in query["ids"]:
                query["repeats"].setdefault(repeated_id(id), number)
            query["ids"].add(id)
            query["candidates"].append({key: values[key] for key in CANDIDATE_RULES if key in values})
        mistakes += [f"{table.start}{number}: {mistake}" for mistake in wrong]
    ranked = [each for query in queries.values() for each in query["candidates"] if "rank" in each]
    if any(each["rank"] == 0 for each in ranked):  # then the first has 0
        for each in ranked:
            each["rank"] += 1
    times = Counter(query.setdefault("query_id", str(place)) for place, query in enumerate(queries.values(), 1))
    records = []
    hint = "; where a query was asked several times, give each time a query_id"
    for query in queries.values():
        record = {"id": query["query_id"]} | {key: query[key] for key in INSTANCE_RULES if key in query}
        records.append(record)
        wrong = instance_mistakes(record) + (["its id occurs more than once"] if times[record["id"]] > 1 else [])
        if not is_encodable(json.dumps(record, ensure_ascii=False)):
            wrong.append("its texts hold half of a surrogate pair, which is not a character; replace it")
        for mistake in wrong:
            number = query["repeats"].get(mistake, query["number"])  # of an id, the row that repeats it
            more = hint if items is None and "query_id" not in names and "more than once" in mistake else ""
            mistakes.append(f"{table.start}{number}: query {record['id']!r}: {mistake}{more}")
    if mistakes:
        raise InputError(mistakes)
    return records, columns, _lacks(records, columns, items is None)


def _names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(name for _, cells in rows for name in cells))


def _columns(rows: Rows, spread: Spread, given: Mapping[str, str], start: str) -> Columns:
    """The roles of the columns, where all that is needed is there."""
    candidates, items, named = spread
    words = column_words(_names(candidates), named)
    there = dict.fromkeys([*_names(rows), *(word for word in words if "." in word)])
    if absent := [column for column in given.values() if not any(f".{name}".endswith(f".{column}") for name in there)]:
        raise InputError(f"{start}there is no column {', '.join(absent)}; there are {', '.join(there)}.")
    if unknown := [ours for ours in given if not is_known(ours)]:
        raise InputError(f"a column cannot be called {', '.join(unknown)} here. Names are {', '.join(OF_QUERY | OF_CANDIDATE)}.")
    if again := [column for column, times in Counter(given.values()).items() if times > 1]:
        raise InputError(f"{start}{', '.join(again)} cannot be two things at once. Give each column one name.")
    columns = recognise(words, items, named.values())
    texts, score = columns.roles.get("text", ""), columns.roles.get("score", "")
    if items is None and texts.casefold().endswith("s") and texts not in given.values():
        lists = "Write lists (as .jsonl, .json or .parquet)"
        raise InputError(f"{start}{texts} holds no lists. {lists}, or say --columns text={texts} where a cell is one text.")
    if missing := [role for role in ("query", "text") if role not in columns.roles]:
        among = f"{' or as '.join(missing)} among {', '.join(there)}"
        flag = f"--columns {','.join(f'{role}=COLUMN' for role in missing)}"
        is_headless = not columns.roles and re.search(r"\.[ct]sv(\.gz)?: $", start, re.I)
        heading = " The first row must be the names of the columns." if is_headless else ""
        raise InputError(f"{start}no column is recognised as {among}. Say it: {flag}.{heading}")
    if score and "relevance" not in columns.roles and score not in named.values():
        values = [_value("relevance", cells[score]) for _, cells in candidates if score in cells]
        if all(value is None or COUNT[0](value) for value in values):  # else a first stage's: not all of them can be judgements
            columns.roles["relevance"] = columns.roles.pop("score")
    id = columns.roles.get("doc_id", "")
    if items is None and words.get(id) == "id" and "query_id" not in columns.roles and id not in named.values():
        pairs = {(str(cells.get(columns.roles["query"])), str(cells.get(id))) for _, cells in candidates}
        if len({query for query, _ in pairs}) == len({id for _, id in pairs}) == len(pairs) < len(candidates):
            columns.roles["query_id"] = columns.roles.pop("doc_id")  # all rows of a query have one, and no other query has it
    return columns


# -- a row for each candidate


def _spread(rows: Rows, given: Mapping[str, str], mistakes: Mistakes, start: str) -> Spread:
    names = _names(rows)
    words = column_words(names, given)
    if sides := sides_of(words):
        return _spread_sides(rows, sides, words, given, mistakes, start)
    lists = [name for name in names if any(isinstance(cells.get(name), list) for _, cells in rows)]
    own = [name for known in OF_CANDIDATE.values() for name in lists if words[name] in map(plain_word, known)]
    with_texts = [name for name in lists if any(_has_text(item) for _, cells in rows for item in cells.get(name) or [])]
    texts = next((name for name in own if words[name] in TEXTS), next(iter(with_texts if queries_of(words) else []), None))
    if texts is None:
        return rows, None, dict(given)
    own += [texts] if texts not in own else []
    spread: Rows = []
    for number, cells in rows:
        query = {name: cell for name, cell in cells.items() if name not in own}
        pool = cells.get(texts) or [None]
        beside = {name: cells[name] for name in own if name != texts and isinstance(cells.get(name), list)}
        if not isinstance(pool, list) or any(len(cell) != len(pool) for cell in beside.values()):
            mistakes.append(f"{start}{number}: {', '.join([texts, *beside])} are not lists of one length; give each text its own")
            pool, beside = pool if isinstance(pool, list) else [pool], {}
        for place, item in enumerate(pool):
            values = _fields(texts, item) | {name: cell[place] for name, cell in beside.items()}
            spread.append((number, query | {name: value for name, value in values.items() if value not in (None, "")}))
    return spread, {*own, *_names(spread)} - {name for name in names if name not in own}, dict(given)


def _fields(name: str, value: Any) -> Cells:
    """What an object holds, also in objects of its own, each under the names that lead there; another value under its name."""
    if not isinstance(value, dict):
        return {name: value}
    return {inner: cell for key, one in value.items() for inner, cell in _fields(f"{name}.{key}", one).items()}


def _has_text(item: Any) -> bool:
    return isinstance(item, dict) and any(plain_word(name) in TEXTS for name in _fields("", item))


def _spread_sides(
    rows: Rows, sides: dict[str, str], words: Mapping[str, str], given: Mapping[str, str], mistakes: Mistakes, start: str
) -> Spread:
    """`response_a`, `response_b` and which of them won; or `chosen`, `rejected`, in an order that does not tell them apart."""
    better, texts, spread = [side for side in sides if BETTER.fullmatch(side)], "+".join(sides.values()), []
    known = [name for word in (*WINNERS, "label") for name in words if words[name] == word]
    winner = sides[better[0]] if better else next(iter(known), "winner")
    is_place = not any(map(str.isdigit, sides)) and any(NUMBER.fullmatch(str(cells.get(winner, "")).strip()) for _, cells in rows)
    judged = f"{winner} (0 is {next(iter(sides.values()))})" if is_place and not better else winner
    for place, (number, cells) in enumerate(rows):
        query = {name: cell for name, cell in cells.items() if name not in (*sides.values(), winner)}
        grades = {side: BEST * (side in better) for side in sides} if better else _grades(cells, winner, sides)
        if grades is None:
            odd = show_value(cells[winner])
            mistakes.append(f'{start}{number}: "{winner}" is {odd}, not one of {", ".join(sides)}, tie or a place from 0')
        absent = [column for column in sides.values() if cells.get(column, []) == []]
        if len(sides) == 2 or len(absent) == len(sides):
            mistakes += [f'{start}{number}: "{column}" is missing' for column in absent]
        held = {side: cells[column] for side, column in sides.items() if column in cells}
        pool = [(side, text) for side, cell in held.items() for text in (cell if better and isinstance(cell, list) else [cell])]
        for i, at in enumerate(hash_order(str(place), len(pool)) if better else range(len(pool)), 1):
            side, text = pool[at]
            values = {"side": str(i) if better else side, **_fields(texts, text)}
            values |= {judged: (grades or {}).get(side)} if better or winner in words else {}
            spread.append((number, query | values))
    role = "response" if words[next(iter(sides.values()))].startswith((*RESPONSES, "chosen")) else "text"
    items = {"side", judged, *(name for name in _names(spread) if name.split(".")[0] == texts)}
    return spread, items, {**given, role: texts, "doc_id": "side", "relevance": judged}


def _grades(cells: Cells, winner: str, sides: Mapping[str, str]) -> dict[str, int] | None:
    """The grade of each side; none of a tie or where nobody says. The winner is named by its letter, column, model or place."""
    said = str(cells.get(winner, "tie")).strip()
    word = str(int(float(said))) if NUMBER.fullmatch(said) and float(said).is_integer() else plain_word(said)
    models = {plain_word(name): plain_word(str(cell)) for name, cell in cells.items()}
    names = [(side, plain_word(column), f"model{side}", models.get(f"model{side}")) for side, column in sides.items()]
    won = [word in known for known in names]
    if not any(won) and not any(map(str.isdigit, sides)):
        won = [word == str(place) for place in range(len(sides))]
    return {} if word in TIES else dict(zip(sides, [BEST * is_best for is_best in won], strict=True)) if sum(won) == 1 else None


def _value(role: str, cell: Any) -> Any:
    """A cell as the format has it: digits among numbers are a number, a number among ids is its digits; else as it is."""
    if role in ("relevance", "rank", "score"):
        if isinstance(cell, str):
            word = DECIMAL_COMMA.sub(".", cell.strip().casefold())
            cell = float(word) if NUMBER.fullmatch(word) else WORDS.get(word, cell)
        return int(cell) if role != "score" and isinstance(cell, bool | float) and cell == cell // 1 else cell
    if role in ("query_id", "doc_id"):
        cell = int(cell) if isinstance(cell, float) and cell.is_integer() else cell
        return str(cell) if is_id(cell) else cell
    if role == "verdict" and isinstance(cell, str):
        return cell.strip().upper()
    return [cell] if role == "answers" and isinstance(cell, str) else cell


def are_judged(records: list[dict[str, Any]]) -> bool:
    return any("relevance" in candidate for record in records for candidate in record["candidates"])


def _lacks(records: list[dict[str, Any]], columns: Columns, by_candidate: bool) -> str:
    """What a table does not say, and what follows."""
    again = len(records) - len({record["query"] for record in records})
    numbered = f"queries are numbered{f', {again:,} of them with the text of an earlier one' if again else ''}"
    follows = {
        "relevance": NOT_JUDGED,
        "rank": "candidates count as ranked in the order they stand in" if TASKS[columns.task].has_ranked_pools else "",
        "query_id": "rows with one query text are one query" if by_candidate else numbered,
        "doc_id": "candidates are numbered",
    }
    present = columns.roles.keys() - (set() if are_judged(records) else {"relevance"})
    return "; ".join(f"no {role}, so {what}" for role, what in follows.items() if role not in present and what)
