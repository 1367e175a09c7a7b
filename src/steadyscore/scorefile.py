"""Anybody's scores: Parquet, CSV, TSV, JSONL, or a set of TREC runs, one per permutation. No model is needed.

Columns `query_id, permutation, candidate_id, score` and, where present, `slot, window, partition, relevance,
grade_0..grade_3, label_mass`. Every mistake in a file is reported at once; nothing is dropped or filled in.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from .collection.files import Unreadable, lines, parsed
from .errors import InputError
from .scores import Scored, from_table, schema
from .terms import Partition

if TYPE_CHECKING:
    import pyarrow as pa

REQUIRED = ("query_id", "permutation", "candidate_id", "score")
PARQUET, DELIMITED, JSON_LINES = (".parquet", ".pq"), (".csv", ".tsv"), (".jsonl", ".ndjson")
MENTIONED = 5
"""Places that one kind of mistake names before it only counts."""


def read_scores(files: Sequence[Path], relevance: Path | None = None) -> list[Scored]:
    """The queries of a score file, or of several TREC runs (one per permutation, in the order given)."""
    if missing := [f"there is no file {file}." for file in (*files, *([relevance] if relevance else [])) if not file.is_file()]:
        raise InputError(missing)
    if len(files) > 1 and (tables := [str(file) for file in files if file.suffix in (*PARQUET, *DELIMITED, *JSON_LINES)]):
        raise InputError(
            f"several files must be TREC runs, one per permutation; these are tables: {', '.join(tables)}. "
            "Join them into one file, with a column `permutation`."
        )
    table = _trec_runs(files) if len(files) > 1 or _is_trec(files[0]) else _columns(files[0])
    name = ", ".join(str(file) for file in files[:2]) + (", ..." if len(files) > 2 else "")
    table = _sorted(table, name)
    _refuse_mistakes(table, name)
    queries = list(from_table(table))
    if all(len(q.permuted) < 2 for q in queries):
        raise InputError(
            f"{name} holds one permutation per query; order instability needs at least two. Score another order too."
        )
    return _judged(queries, read_qrels(relevance)) if relevance else queries


def read_qrels(file: Path) -> dict[str, dict[str, int]]:
    """TREC qrels, `query 0 document relevance` a line."""
    judged: dict[str, dict[str, int]] = {}
    mistakes = []
    for number, fields in _fields(file):
        if len(fields) != 4 or not fields[3].lstrip("-").isdigit():
            mistakes.append(f"{file}:{number}: a line of TREC qrels is `query 0 document relevance`.")
            continue
        judged.setdefault(fields[0], {})[fields[2]] = int(fields[3])
    if mistakes:
        raise InputError(_some(mistakes))
    return judged


def _judged(queries: list[Scored], qrels: dict[str, dict[str, int]]) -> list[Scored]:
    found = []
    for query in queries:
        mine = qrels.get(query.query_id)
        gains = None if mine is None else np.array([mine.get(i, np.nan) for i in query.candidate_ids], dtype=float)
        ideal = None if mine is None else np.array(sorted(mine.values(), reverse=True), dtype=float)
        found.append(replace(query, relevance=gains, ideal=ideal))
    return found


# -- reading


def _columns(file: Path) -> pa.Table:
    import pyarrow as pa

    try:
        table = _open(file)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as refusal:
        raise InputError(
            _ragged(file) or f"{file} cannot be read as {file.suffix[1:] or 'a table'}: {str(refusal).splitlines()[0]}"
        ) from refusal
    if absent := [name for name in REQUIRED if name not in table.column_names]:
        raise InputError(
            f"{file} has no column {', '.join(absent)}. It needs {', '.join(REQUIRED)}; it has {', '.join(table.column_names)}."
        )
    columns, mistakes = {}, []
    for kind in schema():
        if kind.name not in table.column_names:
            continue
        column = table.column(kind.name)
        if kind.name in REQUIRED and column.null_count:
            holes = np.flatnonzero(column.is_null().to_numpy())
            mistakes.append(f"{file}: {len(holes):,} rows have no {kind.name}: {_places(table, holes, file)}. Fill them in.")
        try:
            columns[kind.name] = (_numbered(column) if kind.name == "permutation" else column).cast(kind.type)
        except pa.ArrowException:
            mistakes.append(f"{file}: {_of_another_kind(table, kind, file)}")
    if mistakes:
        raise InputError(mistakes)
    return pa.table(columns)


def _open(file: Path) -> pa.Table:
    if file.suffix in PARQUET:
        import pyarrow.parquet as pq

        return pq.read_table(file)
    if file.suffix in JSON_LINES:
        import pyarrow as pa
        import pyarrow.json as pj

        try:
            return pj.read_json(file)
        except pa.ArrowInvalid:  # a bad line, or a column of numbers and text: Arrow says neither where nor what else
            return _json_lines(file)
    if file.suffix in DELIMITED:
        import pyarrow as pa
        import pyarrow.csv as pc

        ids = dict.fromkeys(("query_id", "candidate_id"), pa.string())  # 007 is a name, not 7
        return pc.read_csv(
            file,
            parse_options=pc.ParseOptions(delimiter=_delimiter(file)),
            # "nan" is a score that went wrong, not a missing one
            convert_options=pc.ConvertOptions(null_values=[""], strings_can_be_null=True, column_types=ids),
        )
    raise InputError(f"{file} is none of .parquet, .csv, .tsv, .jsonl or a TREC run.")


def _json_lines(file: Path) -> pa.Table:
    """JSON lines read one by one; a column that holds text and something else is text."""
    import pyarrow as pa

    records = [(number, parsed(line)) for number, line in lines(file)]
    bad = [(number, record) for number, record in records if not isinstance(record, dict)]
    if bad or not records:
        told = [f"{file}:{n}: {record if isinstance(record, Unreadable) else 'the line is no object'}." for n, record in bad]
        raise InputError(_some(told) or f"{file} holds no row.")
    columns = {}
    for name in dict.fromkeys(name for _, record in records for name in record):
        values = [record.get(name) for _, record in records]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            columns[name] = pa.array([None if value is None else str(value) for value in values])
    return pa.table(columns)


def _delimiter(file: Path) -> str:
    return "\t" if file.suffix == ".tsv" else ","


def _fields_by_line(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record of a delimited file, the header first."""
    csv.field_size_limit(2**31 - 1)  # a further column may hold whole documents
    with open(file, encoding="utf-8-sig", errors="replace", newline="") as stream:
        reader = csv.reader(stream, delimiter=_delimiter(file))
        yield from ((reader.line_num, fields) for fields in reader if fields)


def _ragged(file: Path) -> list[str]:
    """Lines of a delimited file that have more or fewer fields than its header."""
    if file.suffix not in DELIMITED:
        return []
    (_, header), *rows = [*_fields_by_line(file)] or [(0, [])]
    odd = [(number, len(fields)) for number, fields in rows if len(fields) != len(header)]
    return _some([f"{file}:{number}: the line has {count} fields, the header has {len(header)}." for number, count in odd])


def _numbered(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Permutations as numbers; where none is a number, named ones count in the order of their names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return column
    text = column.cast(pa.string())
    if pc.any(pc.match_substring_regex(text, r"^-?\d+$")).as_py():
        return text  # a name among numbers is a mistake: counted by name, the numbers would no longer be what they say
    return pc.index_in(text, pa.array(sorted(set(text.drop_null().to_pylist())), pa.string()))


def _of_another_kind(table: pa.Table, kind: pa.Field, file: Path) -> str:
    """The rows whose value cannot be read as what the column holds."""
    import pyarrow as pa

    def fits(value: Any) -> bool:
        try:
            pa.array([value]).cast(kind.type)
        except pa.ArrowException:
            return False
        return True

    values = [(repr(value), value) for value in table.column(kind.name).to_pylist()]
    odd = [name for name, value in dict(values).items() if not fits(value)]
    rows = np.array([row for row, (name, _) in enumerate(values) if name in set(odd)])
    what = "number" if pa.types.is_floating(kind.type) else "whole number" if pa.types.is_integer(kind.type) else "text"
    hint = "Number all or name all" if kind.name == "permutation" else f"Write a {what}"
    named = ", ".join(odd[:MENTIONED])
    return f"{len(rows):,} rows have {named} as {kind.name}, which is no {what}: {_places(table, rows, file)}. {hint}."


def _is_trec(file: Path) -> bool:
    return file.suffix in (".run", ".trec", ".txt", ".res", "")


def _fields(file: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with open(file, encoding="utf-8-sig") as stream:
            for number, line in enumerate(stream, 1):
                if fields := line.split():
                    yield number, fields
    except UnicodeDecodeError as refusal:
        raise InputError(f"{file} is no UTF-8 text. Save it as UTF-8.") from refusal


def _trec_runs(files: Sequence[Path]) -> pa.Table:
    import pyarrow as pa

    rows: dict[str, list] = {name: [] for name in REQUIRED}
    mistakes = []
    for permutation, file in enumerate(files):
        for number, fields in _fields(file):
            try:
                query, _, candidate, _, score, _ = fields
                values = (query, permutation, candidate, float(score))
            except ValueError:
                mistakes.append(f"{file}:{number}: a line of a TREC run is `query Q0 document rank score tag`.")
                continue
            for name, value in zip(REQUIRED, values, strict=True):
                rows[name].append(value)
    if mistakes:
        raise InputError(_some(mistakes))
    kinds = schema()
    return pa.table(rows, schema=pa.schema([kinds.field(name) for name in REQUIRED]))


# -- checking


def _sorted(table: pa.Table, name: str) -> pa.Table:
    """Rows by query (in the order of the file), permutation and candidate id."""
    import pyarrow.compute as pc

    if not table.num_rows:
        raise InputError(f"{name} holds no row.")
    first_seen = pc.index_in(table.column("query_id"), pc.unique(table.column("query_id")))
    keyed = table.append_column("_query", first_seen)
    return keyed.sort_by([("_query", "ascending"), ("permutation", "ascending"), ("candidate_id", "ascending")]).drop(["_query"])


def _refuse_mistakes(table: pa.Table, name: str) -> None:
    score = table.column("score").to_numpy()
    codes = [table.column(c).combine_chunks().dictionary_encode().indices.to_numpy() for c in ("query_id", "candidate_id")]
    query, candidate = codes
    permutation = table.column("permutation").to_numpy()
    mistakes = []
    bad = np.flatnonzero(~np.isfinite(score))
    if len(bad):
        mistakes += [f"{len(bad):,} scores are NaN or infinite: {_places(table, bad)}. Score those candidates again."]
    same = (np.diff(query) == 0) & (np.diff(permutation) == 0) & (np.diff(candidate) == 0)
    twice = np.flatnonzero(np.r_[False, same])
    if len(twice):
        mistakes += [
            f"{len(twice):,} rows stand twice: {_places(table, twice)}. Keep one score per query, permutation and candidate."
        ]
    else:
        mistakes += _unequal(table, query, permutation, candidate) or _rejudged(table, query, candidate)
    mistakes += _miscut(table, query)
    if mistakes:
        raise InputError([f"{name}: {mistake}" for mistake in mistakes])


def _unequal(table: pa.Table, query: np.ndarray, permutation: np.ndarray, candidate: np.ndarray) -> list[str]:
    """Queries whose permutations do not hold the same candidates."""
    starts = np.flatnonzero(np.r_[True, np.diff(query) != 0])
    found = []
    for start, stop in zip(starts, np.r_[starts[1:], len(query)], strict=True):
        turns = np.flatnonzero(np.r_[True, np.diff(permutation[start:stop]) != 0])
        pools = np.split(candidate[start:stop], turns[1:])
        if any(len(pool) != len(pools[0]) or (pool != pools[0]).any() for pool in pools[1:]):
            everyone = set(candidate[start:stop].tolist())
            odd, pool = next(
                (p, pool) for p, pool in zip(permutation[start:stop][turns], pools, strict=True) if len(pool) < len(everyone)
            )
            gone = next(i for i in range(start, stop) if candidate[i] in everyone - set(pool.tolist()))
            names = table.slice(gone, 1).to_pylist()[0]
            found.append(f"query {names['query_id']} lacks candidate {names['candidate_id']} in permutation {odd}")
    if not found:
        return []
    more = f" and {len(found) - MENTIONED:,} more queries" if len(found) > MENTIONED else ""
    return [f"every permutation must hold the same candidates; {'; '.join(found[:MENTIONED])}{more}."]


def _rejudged(table: pa.Table, query: np.ndarray, candidate: np.ndarray) -> list[str]:
    """A candidate has one relevance, whatever the permutation."""
    if "relevance" not in table.column_names:
        return []
    relevance = table.column("relevance").fill_null(-(2**31)).to_numpy()
    order = np.lexsort((candidate, query))
    together = (np.diff(query[order]) == 0) & (np.diff(candidate[order]) == 0)
    changed = order[1:][together & (np.diff(relevance[order]) != 0)]
    if not len(changed):
        return []
    return [f"{len(changed):,} rows give a candidate another relevance than its row before: {_places(table, np.sort(changed))}."]


def _miscut(table: pa.Table, query: np.ndarray) -> list[str]:
    """A query's orders are cut in one way, and in one that places can be read by."""
    if "partition" not in table.column_names:
        return []
    told = table.column("partition").combine_chunks().fill_null("").dictionary_encode()
    codes, names = told.indices.to_numpy(), told.dictionary.to_pylist()
    known = get_args(Partition)
    if unknown := {name: np.flatnonzero(codes == i) for i, name in enumerate(names) if name not in ("", *known)}:
        return [
            f"partition is {name} in {len(rows):,} rows: {_places(table, rows)}. Use {' or '.join(known)}."
            for name, rows in unknown.items()
        ]
    changed = np.flatnonzero(np.r_[False, (np.diff(query) == 0) & (np.diff(codes) != 0)])
    if not len(changed):
        return []
    return [f"{len(changed):,} rows give a query another partition than its row before: {_places(table, changed)}."]


def _places(table: pa.Table, rows: np.ndarray, file: Path | None = None) -> str:
    """The first rows by query, permutation and candidate; of a table as its file has it, by line as well."""
    first = rows[:MENTIONED]
    where = _lines_of(file, first) if file else [[] for _ in first]
    words = {"query_id": "query", "permutation": "permutation", "candidate_id": "candidate"}
    named = [
        ", ".join([*line, *(f"{word} {row[name]}" for name, word in words.items() if row[name] is not None)])
        for line, row in zip(where, table.select(list(words)).take(first).to_pylist(), strict=True)
    ]
    return "; ".join(named) + (f"; and {len(rows) - MENTIONED:,} more" if len(rows) > MENTIONED else "")


def _lines_of(file: Path, rows: np.ndarray) -> list[list[str]]:
    if file.suffix in PARQUET:
        return [[f"row {row + 1}"] for row in rows]
    found = _fields_by_line(file) if file.suffix in DELIMITED else lines(file)
    numbers = [number for number, _ in found][file.suffix in DELIMITED :]  # less the header
    return [[f"line {numbers[row]}"] for row in rows]


def _some(mistakes: list[str], most: int = 20) -> list[str]:
    return mistakes if len(mistakes) <= most else [*mistakes[:most], f"... and {len(mistakes) - most:,} more."]
