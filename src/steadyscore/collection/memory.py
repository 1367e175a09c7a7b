"""Collections that are in memory already: lists of dicts, pandas and polars frames, Arrow tables, Hugging Face datasets.

None of these libraries is imported: a value is asked for its rows by the methods it has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..errors import InputError
from .files import encode_line
from .format import instance_mistakes

ROWS = ("to_pylist", "to_dicts", "to_list")
"""Methods that give rows as dicts: Arrow tables, polars frames, Hugging Face datasets."""
CANDIDATE_COLUMNS = {
    "candidate_id": "id",
    "doc_id": "id",
    "text": "text",
    "title": "title",
    "relevance": "relevance",
    "rank": "rank",
}
"""A column of a frame with a row per candidate -> the key of a candidate."""


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
    return {
        k: int(v) if k in ("relevance", "rank") and isinstance(v, float) and v.is_integer() else v for k, v in present.items()
    }


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
    records = [_record(row, i) for i, row in enumerate(rows, 1)] if "candidates" in rows[0] else list(_group_rows(rows))
    mistakes = [f"query {i}: {mistake}" for i, record in enumerate(records, 1) for mistake in instance_mistakes(record)]
    seen: set[str] = set()
    for record in records:
        if record["id"] in seen:
            mistakes.append(f"query id {record['id']!r} occurs more than once.")
        seen.add(record["id"])
    if mistakes:
        raise InputError(mistakes)
    return records


def _record(row: Mapping[str, Any], place: int) -> dict[str, Any]:
    candidates = row["candidates"]
    if isinstance(candidates, str) or not isinstance(candidates, Iterable):
        return dict(row)  # the format's own check says what is wrong
    pool = [_candidate(candidate, i) for i, candidate in enumerate(candidates, 1)]
    return (
        {"id": str(row.get("id", place))} | {k: v for k, v in row.items() if v is not None and k != "id"} | {"candidates": pool}
    )


def _candidate(candidate: Any, place: int) -> Any:
    if isinstance(candidate, str):
        return {"id": str(place), "text": candidate}
    if isinstance(candidate, Mapping):
        present = {key: value for key, value in candidate.items() if value is not None}
        return present | {"id": str(present.get("id", place))}
    return candidate


def _group_rows(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of candidates under their queries, in the order in which both first stand."""
    if missing := [name for name in ("query", "text") if name not in rows[0]]:
        raise InputError(
            f"the columns {', '.join(missing)} are missing. Give a row per query with `query` and `candidates`, or a row per "
            "candidate with `query`, `text` and, where known, `query_id`, `candidate_id`, `relevance`."
        )
    queries: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = str(row.get("query_id", row["query"]))
        record = queries.setdefault(key, {"id": key, "query": row["query"], "candidates": []})
        named = {CANDIDATE_COLUMNS[name]: value for name, value in row.items() if name in CANDIDATE_COLUMNS and value is not None}
        record["candidates"].append(named | {"id": str(named.get("id", len(record["candidates"]) + 1))})
    for place, record in enumerate(queries.values(), 1):
        yield record if "query_id" in rows[0] else record | {"id": str(place)}


def digest(records: list[dict[str, Any]]) -> str:
    """SHA-256 of the records as the file format writes them."""
    whole = hashlib.sha256()
    for record in records:
        whole.update(encode_line(record))
    return whole.hexdigest()
