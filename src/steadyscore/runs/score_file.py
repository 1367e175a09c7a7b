"""Anybody's scores: Parquet, CSV, TSV, JSONL, a log of inspect_ai, or TREC runs, one per permutation. No model is needed.

Columns `query_id, permutation, candidate_id, score` and, where present, `slot, window, partition, relevance,
grade_0..grade_3, label_mass`. Every mistake in a file is reported at once; nothing is dropped or filled in. This module turns a
file into columns as they were written; `score_columns` says what the columns must hold.
"""

from __future__ import annotations

import csv
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ..collection.files import LONGEST_RECORD, Mistakes, Report, Unreadable, first_mistakes, lines, parse_line
from ..collection.tables import END
from ..collection.trec import read_qrels, read_trec_run
from ..errors import InputError
from ..machine.contents import expanded_bytes, open_unpacked, text_columns
from ..machine.extras import check_installed
from ..terms import Array
from .layout import score_schema
from .score_columns import REQUIRED, Rows, check_columns, check_rows, sort_rows
from .table import Scored, from_table

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET, DELIMITED, JSON_LINES = (".parquet", ".pq"), (".csv", ".tsv"), (".jsonl", ".ndjson")
TREC = (".run", ".trec", ".txt", ".res", "")
INSPECT = (".eval",)
ORDER = "steadyscore_order"
"""Under this name the metadata of a sample keep the order in which its choices were shown."""
IDS = ("query_id", "candidate_id")
CHUNK = 50_000
"""JSON lines that are turned into arrays together."""
ROW_BYTES = 250
"""What a row costs in memory while it is read, checked and measured, at least."""
SHARE = 2
"""A file may need one part in so many of the machine's memory."""


def read_scores(files: Sequence[Path], relevance: Path | None = None, notes: list[str] | None = None) -> list[Scored]:
    """The queries of a score file, or of several TREC runs (one per permutation, in the order given); what is odd and was
    read all the same goes to `notes`."""
    named = (*files, *([relevance] if relevance else []))
    if missing := [_why_no_file(file) for file in named if not file.is_file()]:
        raise InputError(missing)
    if len(files) > 1 and (tables := [str(file) for file in files if suffix(file) not in TREC]):
        raise InputError(
            f"several files must be TREC runs, one per permutation; these are tables: {', '.join(tables)}. "
            "Join them into one file, with a column `permutation`."
        )
    rows = _read_trec_runs(files, notes) if len(files) > 1 or suffix(files[0]) in TREC else _read_columns(files[0])
    queries = scored_queries(rows)
    return _with_judgements(queries, relevance, notes) if relevance else queries


def _why_no_file(file: Path) -> str:
    if any(any(file.glob(below)) for below in ("run.json", "*/run.json", "*/*/run.json")):
        return f"{file} is a folder of runs. `steadyscore report {file}` measures what they hold."
    return f"{file} is a folder. Name the files in it." if file.is_dir() else f"file {file} does not exist."


def scored_queries(rows: Rows) -> list[Scored]:
    """The queries of a table whose columns have their kinds."""
    if not rows.table.num_rows:
        raise InputError(f"{rows.name} holds no row.")
    rows = sort_rows(rows)
    check_rows(rows)
    queries = list(from_table(rows.table))
    if all(len(q.permuted) < 2 for q in queries):
        raise InputError(
            f"{rows.name} holds one permutation per query; order instability needs at least two. Score another order too."
        )
    return queries


def suffix(file: Path) -> str:
    """What a file is by its ending: lower case, without .gz."""
    plain = file.with_suffix("") if file.suffix.lower() == ".gz" else file
    return plain.suffix.lower()


def _with_judgements(queries: list[Scored], file: Path, notes: list[str] | None) -> list[Scored]:
    report = Report()
    qrels = read_qrels(file, report)
    if report.mistakes:
        raise InputError(first_mistakes(report.mistakes))
    judged = []
    for query in queries:
        mine = qrels.get(query.query_id, {})
        gains = np.array([mine.get(i, np.nan) for i in query.candidate_ids], dtype=float)
        ideal = np.array(sorted(mine.values(), reverse=True), dtype=float) if mine else None
        judged.append(replace(query, relevance=None if np.isnan(gains).all() else gains, ideal=ideal))
    if notes is not None and qrels.keys().isdisjoint(query.query_id for query in queries):
        scored = _first_ids(query.query_id for query in queries)
        notes.append(f"{file} judges none of the queries: its first are {_first_ids(qrels)}, those of the scores {scored}.")
    return judged


def _first_ids(ids: Iterable[str]) -> str:
    return ", ".join(islice(ids, 3)) or "none"


# -- reading


def _read_columns(file: Path) -> Rows:
    """The columns of a table that we know, of the kinds they must have."""
    import pyarrow as pa

    kind = suffix(file)
    readers = {PARQUET: _read_parquet, DELIMITED: _read_delimited, JSON_LINES: _read_json_lines, INSPECT: _read_inspect_log}
    read = next((reader for endings, reader in readers.items() if kind in endings), None)
    if read is None or (read is _read_parquet and file.suffix.lower() == ".gz"):
        raise InputError(f"{file} is none of .parquet, .csv, .tsv, .jsonl, .eval or a TREC run (.gz may follow all but Parquet).")
    try:
        table = read(file)
    except UnicodeDecodeError as refusal:
        raise InputError(f"{file} holds bytes that are not UTF-8. Save it as UTF-8.") from refusal
    except (pa.ArrowException, OSError, EOFError, zlib.error, csv.Error) as refusal:
        reason = str(refusal).splitlines()[0] if str(refusal) else type(refusal).__name__
        raise InputError(f"{file} cannot be read as {kind[1:]}: {reason}") from refusal
    rows = Rows(table, str(file), lambda indices: _lines_of(file, indices))
    return check_columns(rows)


def known_columns(names: Sequence[str], file: Path | str) -> list[str]:
    """The columns of a file that are read; refuses a file that lacks some, or has one twice."""
    known = score_schema().names
    mistakes = []
    if absent := [name for name in REQUIRED if name not in names]:
        has = ", ".join(names[:30]) + (", ..." if len(names) > 30 else "")
        mistakes.append(f"{file} has no column {', '.join(absent)}. It needs {', '.join(REQUIRED)}; it has {has}.")
    if twice := [name for name in known if list(names).count(name) > 1]:
        mistakes.append(f"{file} has the column {', '.join(twice)} twice. Keep one.")
    if mistakes:
        raise InputError(mistakes)
    return [name for name in known if name in names]


def _read_parquet(file: Path) -> pa.Table:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as source:
        known, about = known_columns(source.schema_arrow.names, file), source.metadata
        # By row group: pyarrow ends the process where the record of a single column is damaged.
        size = sum(about.row_group(group).total_byte_size for group in range(about.num_row_groups))
        refuse_beyond_memory(file, about.num_rows * ROW_BYTES + size, f"{about.num_rows:,} rows")
        texts = [name for name in text_columns(source.schema) if name in known]
    with pq.ParquetFile(file, read_dictionary=texts) as source:
        table = source.read(columns=known)
    table.validate(full=True)
    held = sum(map(expanded_bytes, table.columns))
    refuse_beyond_memory(file, about.num_rows * ROW_BYTES + held, f"{about.num_rows:,} rows of {held:,} bytes when unpacked")
    return table


def _read_delimited(file: Path) -> pa.Table:
    import pyarrow as pa
    import pyarrow.csv as pc

    rows = _fields_by_line(file)
    _, header = next(rows, (0, []))
    if not header:
        raise InputError(f"{file} holds no row.")
    known, size = known_columns(header, file), file.stat().st_size
    if file.suffix.lower() == ".gz":
        with open_unpacked(file) as stream:
            size = sum(map(len, iter(lambda: stream.read(1 << 20), b"")))
    refuse_beyond_memory(file, 2 * size, f"{size:,} bytes")
    counts = ((number, len(fields)) for number, fields in rows if len(fields) != len(header))
    if odd := Mistakes(f"{file}:{n}: the line has {count} fields, the header has {len(header)}." for n, count in counts):
        raise InputError(first_mistakes(odd))
    with open_unpacked(file) as stream:
        return pc.read_csv(
            stream,
            parse_options=pc.ParseOptions(delimiter=_delimiter(file), newlines_in_values=True),
            # As text, whatever a value looks like: 007, 1e5 and 2020-01-01 are names where an id is meant. "nan" is a score that
            # went wrong, not a missing one.
            convert_options=pc.ConvertOptions(
                null_values=[""], strings_can_be_null=True, include_columns=known, column_types=dict.fromkeys(known, pa.string())
            ),
        )


class _Fraction(str):
    """A JSON number with a point or an exponent, as it was written."""


def _read_json_lines(file: Path) -> pa.Table:
    """Our columns as text, each value as it is written: a number that stands for an id must not lose a digit."""
    import pyarrow as pa

    kinds = pa.schema([(name, pa.string()) for name in score_schema().names])
    seen, mistakes, count = dict[str, None](), Mistakes(), 0
    chunks: list[pa.Table] = []
    waiting: list[dict[str, str | None]] = []
    for count, (number, line) in enumerate(lines(file), 1):
        record = parse_line(line, parse_int=str, parse_float=_Fraction, parse_constant=_Fraction)
        if not isinstance(record, dict):
            mistakes.append(f"{file}:{number}: {record if isinstance(record, Unreadable) else 'the line is not a JSON object'}.")
            continue
        seen.update(dict.fromkeys(record))
        values = {name: record[name] for name in kinds.names if name in record}
        mistakes += [f"{file}:{number}: {told}" for name, value in values.items() if (told := _json_mistake(name, value))]
        waiting.append({name: value if isinstance(value, str | None) else str(value).lower() for name, value in values.items()})
        if len(waiting) == CHUNK:
            refuse_beyond_memory(file, count * ROW_BYTES, f"more than {count:,} rows")
            chunks.append(pa.Table.from_pylist(waiting, kinds))
            waiting.clear()
    if mistakes:
        raise InputError(first_mistakes(mistakes))
    if not count:
        raise InputError(f"{file} holds no row.")
    return pa.concat_tables([*chunks, pa.Table.from_pylist(waiting, kinds)]).select(known_columns([*seen], file))


def _json_mistake(name: str, value: Any) -> str | None:
    if isinstance(value, list | dict | Unreadable):
        return f"{name} is {'a list' if isinstance(value, list) else 'an object'}. Write one value."
    if name in IDS and isinstance(value, bool | _Fraction):
        return f"{name} is {str(value).lower()}. Write an id in quotes; only a whole number may stand without."
    return None


def _delimiter(file: Path) -> str:
    return "\t" if suffix(file) == ".tsv" else ","


def _fields_by_line(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every record of a delimited file, the header first."""
    csv.field_size_limit(LONGEST_RECORD)  # a further column may hold whole documents
    with open_unpacked(file) as source, io.TextIOWrapper(source, encoding="utf-8-sig", newline="") as stream:
        reader = csv.reader(chain(_bounded_lines(file, stream), ["\n", END]), delimiter=_delimiter(file))
        before = number = 0
        for fields in filter(None, reader):
            if fields == [END]:
                return
            before, number = number, reader.line_num
            yield number, fields
        raise InputError(f"{file}:{before + 1}: a cell begins with a quote that is never closed. Close or double it.")


def _bounded_lines(file: Path, stream: IO[str]) -> Iterator[str]:
    for line in iter(lambda: stream.readline(LONGEST_RECORD), ""):
        if len(line) == LONGEST_RECORD:
            raise InputError(f"{file} has a line of more than {LONGEST_RECORD >> 20} MB. Give one row per line.")
        yield line


def _read_trec_runs(files: Sequence[Path], notes: list[str] | None) -> Rows:
    import pyarrow as pa

    report = Report()
    columns: dict[str, list[Any]] = {name: [] for name in REQUIRED}
    places: list[str] = []
    if twice := [file for place, file in enumerate(files) if file.resolve() in [other.resolve() for other in files[:place]]]:
        raise InputError(f"{twice[0]} is given twice, and each run is one permutation. Name it once.")
    for permutation, file in enumerate(files):
        ranked: dict[str, list[tuple[int, float]]] = {}
        for where, query, document, rank, score in read_trec_run(file, report):
            if score is None:
                report.mistakes.append(f"{where}: the line has no score; give `query Q0 document rank score tag`")
                continue
            places.append(where)
            ranked.setdefault(query, []).append((rank, score))
            for name, value in zip(REQUIRED, (query, permutation, document, score), strict=True):
                columns[name].append(value)
        falls = [np.diff([-negated for _, negated in sorted((rank, -score) for rank, score in of)]) for of in ranked.values()]
        if (odd := sum((steps > 0).any() for steps in falls)) and notes is not None:
            notes.append(f"{file}: the ranks of {odd} of {len(ranked)} queries contradict their scores; the scores were taken.")
    if report.mistakes:
        raise InputError(first_mistakes(report.mistakes))
    kinds = score_schema()
    table = pa.table(columns, schema=pa.schema([kinds.field(name) for name in REQUIRED]))
    name = ", ".join(str(file) for file in files[:2]) + (", ..." if len(files) > 2 else "")
    return Rows(table, name, lambda indices: [places[index] for index in indices])


def _read_inspect_log(file: Path) -> pa.Table:
    """A log of inspect_ai: a sample is a query, an epoch a permutation, a choice a candidate with a score of 1 or 0.

    Epochs without an answer have no row: what is left is measured, and queries that lack permutations are named.
    """
    import pyarrow as pa

    check_installed(f"reading {file.name}", "inspect_ai")
    from inspect_ai.log import read_eval_log

    log = read_eval_log(str(file))
    samples = log.samples or []
    if errors := [str(sample.id) for sample in samples if sample.error]:
        raise InputError(f"{file}: {len(errors)} samples ended in an error, the first is {errors[0]}. Try `inspect eval-retry`.")
    if log.status != "success":
        raise InputError(f"{file} was not run to its end, its status is {log.status}. Try `inspect eval-retry`.")
    unknown = [str(sample.id) for sample in samples if ORDER not in sample.metadata or "choice" not in (sample.scores or {})]
    if unknown:
        raise InputError(
            f"{file} does not say in which order choices were shown, and which was the answer ({len(unknown)} samples, the first "
            f"is {unknown[0]}). Run the task with --solver steadyscore/permuted_choice and inspect's scorer choice()."
        )
    return pa.Table.from_pylist([row for sample in samples for row in _choices(sample)])


def _choices(sample: Any) -> list[dict[str, object]]:
    """One row for each choice; choices go by inspect's letters, in the order of the data set."""
    ids = [chr(ord("A") + place) if place < 26 else str(place - 25) for place in range(len(sample.choices))]
    answers = {*filter(None, (sample.scores["choice"].answer or "").split(", "))}
    targets = {*"".join(sample.target), *sample.target}
    slots = {place: slot for slot, place in enumerate(sample.metadata[ORDER])}
    return [
        {
            "query_id": str(sample.id), "permutation": sample.epoch - 1, "candidate_id": id, "score": float(id in answers),
            "relevance": int(id in targets), "slot": slots[place], "window": 0,
        }
        for place, id in enumerate(ids) if answers
    ]  # fmt: skip


def _lines_of(file: Path, rows: Array) -> list[str]:
    """The places of rows in their file, which is read again: only a mistake asks."""
    kind = suffix(file)
    if kind in PARQUET:
        return [f"row {row + 1}" for row in rows]
    records = _fields_by_line(file) if kind in DELIMITED else lines(file)
    numbers = [number for number, _ in records][kind in DELIMITED :]  # less the header
    return [f"line {numbers[row]}" for row in rows]


# -- bounds


def _memory_bytes() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def refuse_beyond_memory(file: Path, needed: int, holds: str) -> None:
    """Refuse what would fill the memory before it is read: a few megabytes may unpack to hundreds of millions of rows."""
    if needed > _memory_bytes() // SHARE:
        raise InputError(
            f"{file} holds {holds}, which need about {needed / 2**30:,.1f} GB of memory; "
            f"this machine has {_memory_bytes() / 2**30:,.1f} GB, of which a score file may take half. "
            "Split it by query, or measure it on a larger machine."
        )
