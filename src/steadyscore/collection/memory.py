"""Collections that are in memory already: lists of dicts, pandas and polars frames, Arrow tables, Hugging Face datasets.

None of these libraries is imported: a value is asked for its rows by the methods it has.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InputError
from .files import encode_line, first_mistakes
from .format import id_of, instance_mistakes, is_id

ROWS = ("to_pylist", "to_dicts", "to_list")
"""Methods that give rows as dicts: Arrow tables, polars frames, Hugging Face datasets."""
CANDIDATE_COLUMNS = {
    "candidate_id": "id",
    "doc_id": "id",
    "text": "text",
    "title": "title",
    "relevance": "relevance",
    "rank": "rank",
    "score": "score",
}
"""A column of a frame with a row per candidate -> the key of a candidate."""
QUERY_COLUMNS = ("query", "answers", "verdict", "judged")
"""Columns of such a frame that say something of the whole query, beside its `query_id`."""
WHOLE_NUMBERS = ("id", "query_id", "candidate_id", "doc_id", "relevance", "rank")
"""Columns that pandas turns into floats where one of their values is absent."""


def read_rows(data: Any) -> list[dict[str, Any]]:
    """The rows of a frame, a dataset or a list, as dicts."""
    if type(data).__module__.startswith("pandas"):
        return [_without_nan(row) for row in data.to_dict("records")]
    for method in ROWS:
        if hasattr(data, method):
            return list(getattr(data, method)())
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        raise InputError(
            f"a {type(data).__name__} is not a collection. Give a name, a file, a list of dicts, a frame or a dataset."
        )
    return list(data)


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    """pandas has NaN where a value is absent, and floats where integers have gaps."""
    present = {key: value for key, value in row.items() if not (isinstance(value, float) and value != value)}
    return {k: int(v) if k in WHOLE_NUMBERS and isinstance(v, float) and v.is_integer() else v for k, v in present.items()}


def _plain(value: Any) -> Any:
    """A value of numpy or pandas as JSON has it; what is absent (None, NaN, NA) is None, and left out of dicts."""
    if hasattr(value, "tolist"):  # arrays and their scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain for key, one in value.items() if (plain := _plain(one)) is not None}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [_plain(one) for one in value]
    is_absent = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    return None if is_absent else value


def read_records(data: Any) -> list[dict[str, Any]]:
    """One record per query, as a line of the file format has it; every mistake at once.

    A row has a `candidates` list of its own (texts, or dicts of the format), or is one candidate of the query it names.
    Ids that are not given are the places of queries and candidates, counted from 1.
    """
    rows = read_rows(data)
    if odd := [f"row {i}: {type(row).__name__} is not a dict" for i, row in enumerate(rows, 1) if not isinstance(row, Mapping)]:
        raise InputError(odd)
    if not rows:
        raise InputError("the collection is empty: there is no row to score.")
    rows = [_plain(row) for row in rows]
    has_pools = any("candidates" in row for row in rows)
    records = [_record(row, i) for i, row in enumerate(rows, 1)] if has_pools else _group_rows(rows)
    mistakes = [f"query {i}: {mistake}" for i, record in enumerate(records, 1) for mistake in _record_mistakes(record)]
    times = Counter(id for record in records if (id := id_of(record)) is not None)
    mistakes += [f"query id {id!r} occurs more than once." for id in times if times[id] > 1]
    if mistakes:
        raise InputError(mistakes)
    return records


def _record_mistakes(record: dict[str, Any]) -> list[str]:
    if found := instance_mistakes(record):
        return found
    try:
        encode_line(record)
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        return [f"{half!r} in its texts is half of a surrogate pair, which is not a character; replace or remove it"]
    return []


def _record(row: dict[str, Any], place: int) -> dict[str, Any]:
    candidates = row.get("candidates")
    pool = {}
    if isinstance(candidates, list):  # of anything else the format's own check says what is wrong
        pool = {"candidates": [_candidate(candidate, i) for i, candidate in enumerate(candidates, 1)]}
    return {"id": _id(row.get("id", place))} | {key: value for key, value in row.items() if key != "id"} | pool


def _candidate(candidate: Any, place: int) -> Any:
    if isinstance(candidate, str):
        return {"id": str(place), "text": candidate}
    return candidate | {"id": _id(candidate.get("id", place))} if isinstance(candidate, dict) else candidate


def _id(value: Any) -> Any:
    """An id as text; what cannot be one as it is, so that the format's check names it."""
    return str(value) if is_id(value) else value


def _group_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of candidates under their queries, in the order in which both first stand."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if missing := [name for name in ("query", "text") if name not in columns]:
        raise InputError(
            f"the columns {', '.join(missing)} are missing. Give a row per query with `query` and `candidates`, or a row per "
            "candidate with `query`, `text` and, where known, `query_id`, `candidate_id`, `relevance`."
        )
    key = "query_id" if "query_id" in columns else "query"
    mistakes = [mistake for name in columns if (mistake := _column_mistake(name))]
    advice = "other rows have one: give it to all or to none" if key == "query_id" else "every row needs it"
    mistakes += [f'row {i}: "{key}" is missing; {advice}' for i, row in enumerate(rows, 1) if key not in row]
    queries: dict[str, dict[str, Any]] = {}
    for i, row in enumerate(rows, 1):
        if key not in row:
            continue
        record = queries.setdefault(str(row[key]), {"id": _id(row[key]), "query": row.get("query"), "candidates": []})
        for name in QUERY_COLUMNS:
            if (value := row.get(name)) is None:
                continue
            if record.get(name) is None:
                record[name] = value
            elif record[name] != value:
                mistakes.append(f'row {i}: "{name}" is not that of the rows before with {key} {row[key]!r}; give all rows one')
        named = {CANDIDATE_COLUMNS[name]: value for name, value in row.items() if name in CANDIDATE_COLUMNS}
        record["candidates"].append(named | {"id": _id(named.get("id", len(record["candidates"]) + 1))})
    if mistakes:
        raise InputError(first_mistakes(mistakes))
    found = list(queries.values())
    return found if key == "query_id" else [record | {"id": str(place)} for place, record in enumerate(found, 1)]


def _column_mistake(name: Any) -> str | None:
    known = ("query_id", *QUERY_COLUMNS, *CANDIDATE_COLUMNS)
    if name in known:
        return None
    near = difflib.get_close_matches(str(name), known, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"leave it out, or name it as one of {', '.join(known)}."
    return f"column {name!r} is not known: {advice}"


def digest(records: list[dict[str, Any]]) -> str:
    """SHA-256 of the records as the file format writes them."""
    whole = hashlib.sha256()
    for record in records:
        whole.update(encode_line(record))
    return whole.hexdigest()
