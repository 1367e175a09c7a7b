"""Scores that exist already, in whatever form a caller has them: files, frames, arrays, or arrays by query."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from os.path import commonprefix
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..collection.format import is_encodable, is_id
from ..collection.tables import read_rows
from ..errors import InputError
from ..machine.disk import sha256
from ..runs.score_columns import REQUIRED, Rows, check_columns
from ..runs.score_file import known_columns, read_scores, scored_queries
from ..runs.table import Scored
from ..scoring.scorer import as_numbers
from ..terms import Array

if TYPE_CHECKING:
    import pyarrow as pa

GIVEN = "the table of scores"
"""Rows that are in no file, as messages name them."""


class GivenScores(NamedTuple):
    queries: list[Scored]
    name: str
    digests: list[str]
    """What tells these scores from others: the start of a SHA-256 per file or array."""
    notes: list[str] | None = None


def read_any_scores(scores: Any, relevance: Any = None, name: str | None = None) -> GivenScores:
    """Scores as the arrays every measure takes; every check of a score file holds for all forms."""
    is_several = isinstance(scores, Sequence) and len(scores) > 0 and all(isinstance(s, str | Path) for s in scores)
    if isinstance(scores, str | Path) or is_several:
        files = [Path(scores)] if isinstance(scores, str | Path) else [Path(file) for file in scores]
        judged = None if relevance is None else Path(relevance)
        notes: list[str] = []
        queries = read_scores(files, judged, notes)
        digests = [sha256(file)[:16] for file in filter(None, [*files, judged])]
        return GivenScores(queries, name or _common_stem(files), digests, notes)
    is_lists = isinstance(scores, list | tuple) and len(scores) > 0 and hasattr(scores[0], "__len__")
    is_array = hasattr(scores, "__array__") and not set(REQUIRED) & set(_columns_of(scores))
    if isinstance(scores, Mapping) or is_array or (is_lists and not isinstance(scores[0], str | Mapping)):
        table = _from_arrays(scores, relevance)
    elif relevance is not None:
        raise InputError("a frame has its judgements in a column `relevance` of its own. Leave out `relevance`.")
    else:
        table = _from_rows(scores)
    queries = scored_queries(check_columns(Rows(table, GIVEN, lambda places: [f"row {place + 1}" for place in places])))
    return GivenScores(queries, name or "scores", [_digest(queries)])


def _common_stem(files: Sequence[Path]) -> str:
    """What the names of several files begin with, without the number of each; else the name of their folder."""
    stems = [Path(file.name.removesuffix(".gz")).stem for file in files]
    alike = stems[0] if len(files) == 1 else commonprefix(stems).rstrip("0123456789-_. ")  # noqa: RUF071 - letters, not folders
    return alike or files[0].absolute().parent.name


def _columns_of(values: Any) -> list[Any]:
    """What a frame, a table or a dataset calls its columns; empty for anything else."""
    return list(getattr(values, "column_names", getattr(values, "columns", ())))


def _from_rows(scores: Any) -> pa.Table:
    """The columns of a score file that a frame has, or that some of its rows have."""
    import pyarrow as pa

    columns = _columns_of(scores)
    rows = read_rows(scores) if len(set(columns)) == len(columns) else []  # a dict would hold one of two alike
    if odd := [row for row in rows if not isinstance(row, Mapping)]:
        raise InputError(f"a row of the scores is {odd[0]!r}. Give rows with the columns of a score file, or arrays.")
    names = known_columns(columns or [*dict.fromkeys(name for row in rows for name in row)], GIVEN)
    try:  # what is absent may be NaN or NA
        return pa.table({name: pa.array([row.get(name) for row in rows], from_pandas=True) for name in names})
    except (pa.ArrowException, OverflowError) as mixed:
        raise InputError(f"a column of {GIVEN} holds values of several kinds: {str(mixed).splitlines()[0]}.") from mixed


def _from_arrays(scores: Any, relevance: Any) -> pa.Table:
    """(M, n) of one query, (Q, M, n) of several, or {query id: (M, n)}; relevance in the same form without M."""
    import pyarrow as pa

    by_query = _by_query(scores, 2, "scores")
    judged = {} if relevance is None else _by_query(relevance, 1, "relevance")
    mistakes = [f"query {query_id} has judgements and no scores." for query_id in judged if query_id not in by_query]
    if relevance is not None and not isinstance(relevance, Mapping) and len(judged) < len(by_query):
        mistakes.append(f"{len(by_query)} queries have scores and {len(judged)} have judgements. Give a row for each, in order.")
    digits, tables = len(str(max((rows.shape[1] for rows in by_query.values()), default=0))), []
    for query_id, rows in by_query.items():
        count, n = rows.shape
        gold = judged.get(query_id, np.full(n, np.nan))
        if not is_id(query_id) or not is_encodable(query_id):
            mistakes.append(f"{query_id!r} cannot be a query id. Give one line of text.")
        elif not rows.size:
            mistakes.append(f"query {query_id} has no candidate.")
        elif len(gold) != n:
            mistakes.append(f"query {query_id} has {n} candidates and {len(gold)} judgements.")
        else:
            ids, grades = [f"{column:0{digits}d}" for column in range(n)], pa.array(np.tile(gold, count), from_pandas=True)
            columns = [[query_id] * rows.size, np.repeat(np.arange(count), n), ids * count, rows.ravel(), grades]
            tables.append(pa.table(columns, [*REQUIRED, "relevance"]))
    if mistakes or not by_query:
        raise InputError(mistakes or ["there are no scores to measure."])
    return pa.concat_tables(tables)


def _by_query(values: Any, dimensions: int, what: str) -> dict[str, Array]:
    if isinstance(values, Mapping):
        if len(set(map(str, values))) < len(values):
            raise InputError(f"two queries of the {what} have one name, such as 1 and '1'. Give each its own.")
        by_query = {str(key): _numbers(value, what) for key, value in values.items()}
    else:
        array = _numbers(values, what)
        array = array[None] if array.ndim == dimensions else array
        by_query = {f"{place:06d}": one for place, one in enumerate(array, 1)} if array.ndim else {}
    if odd := [key for key, value in by_query.items() if value.ndim != dimensions]:
        shape = "(M, n), a row per permutation and a column per candidate" if dimensions == 2 else "(n,), one per candidate"
        raise InputError(f"the {what} of query {odd[0]} have shape {by_query[odd[0]].shape}. Each query needs {shape}.")
    return by_query


def _numbers(values: Any, what: str) -> Array:
    """An array, nested lists, a tensor, or a frame whose candidates have no names; what is masked or absent is NaN."""
    for one in values if isinstance(values, list | tuple) else [values]:
        names = list(_columns_of(one) or getattr(one, "index", [])) if hasattr(one, "isna") or hasattr(one, "to_dicts") else []
        if names != list(range(len(names))):
            rows = f"Give rows with {', '.join(REQUIRED)} and relevance, or `.to_numpy()` in one order."
            raise InputError(f"the {what} name their candidates, and arrays are joined by place. {rows}")
    plain = values.to_numpy() if hasattr(values, "to_numpy") else values
    array = as_numbers(np.where(values.isna(), None, plain) if hasattr(values, "isna") else plain)
    if isinstance(array, str):
        raise InputError(f"the {what} are not an array of numbers that can be told apart, but {array}.")
    return array


def _digest(queries: Sequence[Scored]) -> str:
    whole = hashlib.sha256()
    for query in queries:
        arrays = (query.scores, query.relevance, query.permutations, query.slots, query.windows, query.grades)
        for part in (query.query_id, *query.candidate_ids, *arrays):
            whole.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return whole.hexdigest()[:16]
