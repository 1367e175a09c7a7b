"""Scores that exist already, in whatever form a caller has them: files, frames, arrays, or arrays by query."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..collection.format import LARGEST, is_encodable, is_id
from ..collection.memory import read_rows
from ..errors import InputError
from ..machine.disk import sha256, write_parquet
from ..runs.score_file import read_scores
from ..runs.table import Scored


class GivenScores(NamedTuple):
    queries: list[Scored]
    name: str
    digests: list[str]
    """What tells these scores from others: the start of a SHA-256 per file or array."""


def read_any_scores(scores: Any, relevance: Any = None) -> GivenScores:
    """Scores as the arrays every measure takes; every check of a score file holds for all forms."""
    is_several = isinstance(scores, Sequence) and len(scores) > 0 and all(isinstance(s, str | Path) for s in scores)
    if isinstance(scores, str | Path) or is_several:
        files = [Path(scores)] if isinstance(scores, str | Path) else [Path(file) for file in scores]
        judged = None if relevance is None else Path(relevance)
        queries = read_scores(files, judged)
        return GivenScores(queries, files[0].stem, [sha256(file)[:16] for file in [*files, *([judged] if judged else [])]])
    in_lists = isinstance(scores, list | tuple) and len(scores) > 0 and isinstance(scores[0], list | tuple | np.ndarray)
    in_arrays = in_lists or isinstance(scores, np.ndarray | Mapping)
    if relevance is not None and not in_arrays:
        raise InputError("a frame has its judgements in a column `relevance` of its own. Leave out `relevance`.")
    queries = _from_arrays(scores, relevance) if in_arrays else _from_rows(read_rows(scores))
    return GivenScores(queries, "scores", [_digest(queries)])


def _from_rows(rows: list[dict[str, Any]]) -> list[Scored]:
    """A frame with the columns of a score file, read as one."""
    import pyarrow as pa

    if odd := [row for row in rows if not isinstance(row, Mapping)]:
        raise InputError(f"a row of the scores is {odd[0]!r}. Give rows with the columns of a score file, or arrays.")
    with tempfile.TemporaryDirectory(prefix="steadyscore-") as folder:
        file = Path(folder) / "scores.parquet"
        write_parquet(file, pa.Table.from_pylist(rows))
        return read_scores([file])


def _from_arrays(scores: np.ndarray | Mapping[str, Any], relevance: Any) -> list[Scored]:
    """(M, n) of one query, (Q, M, n) of several, or {query id: (M, n)}; relevance in the same form without M."""
    by_query = _by_query(scores, 2, "scores")
    judged = {} if relevance is None else _by_query(relevance, 1, "relevance")
    mistakes = [f"query {query_id} has judgements and no scores." for query_id in judged if query_id not in by_query]
    if relevance is not None and not isinstance(relevance, Mapping) and len(judged) < len(by_query):
        mistakes.append(f"{len(by_query)} queries have scores and {len(judged)} have judgements. Give a row for each, in order.")
    for query_id, rows in by_query.items():
        if not is_id(query_id) or not is_encodable(query_id):
            mistakes.append(f"{query_id!r} cannot be a query id. Give one line of text.")
        if not np.isfinite(rows).all():
            mistakes.append(f"the scores of query {query_id} are not all finite numbers.")
        if len(rows) < 2:
            mistakes.append(f"query {query_id} has one permutation; order instability needs at least two.")
        if not rows.shape[1]:
            mistakes.append(f"query {query_id} has no candidate.")
        if (gold := judged.get(query_id)) is not None and (np.isinf(gold).any() or (np.nan_to_num(gold) % 1).any()):
            mistakes.append(f"the judgements of query {query_id} are not all whole numbers.")
        if (gold := judged.get(query_id)) is not None and (np.abs(np.nan_to_num(gold, posinf=0, neginf=0)) > LARGEST).any():
            mistakes.append(f"a judgement of query {query_id} is beyond 32 bits. Give grades of at most {LARGEST}.")
        if (gold := judged.get(query_id)) is not None and len(gold) != rows.shape[1]:
            mistakes.append(f"query {query_id} has {rows.shape[1]} candidates and {len(gold)} judgements.")
    if mistakes or not by_query:
        raise InputError(mistakes or ["there are no scores to measure."])
    digits = len(str(max(rows.shape[1] for rows in by_query.values())))
    return [
        Scored(
            query_id=query_id,
            candidate_ids=tuple(f"{column:0{digits}d}" for column in range(rows.shape[1])),
            permutations=np.arange(len(rows)),
            scores=rows,
            relevance=None if query_id not in judged else np.maximum(judged[query_id], 0),  # below 0 is 0, as in files
        )
        for query_id, rows in by_query.items()
    ]


def _numbers(values: Any, what: str) -> np.ndarray:
    try:
        array = np.asarray(values)
        if np.iscomplexobj(array):
            raise TypeError("complex numbers have no order")
        return array.astype(np.float64)
    except (TypeError, ValueError) as odd:
        raise InputError(f"the {what} are not an array of numbers: {odd}.") from odd


def _by_query(values: Any, dimensions: int, what: str) -> dict[str, np.ndarray]:
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


def _digest(queries: Sequence[Scored]) -> str:
    whole = hashlib.sha256()
    for query in queries:
        arrays = (query.scores, query.relevance, query.permutations, query.slots, query.windows, query.grades)
        for part in (query.query_id, *query.candidate_ids, *arrays):
            whole.update(part.tobytes() if isinstance(part, np.ndarray) else str(part).encode())
    return whole.hexdigest()[:16]
