"""A run folder: what was asked, what was scored so far, and whether it is complete.

    run.json          format, status, fingerprint, arguments, starts, sessions, coverage; `complete` after all else exists
    queries.parquet   per query: answers, verdict and the relevance of every judged document
    perturbed-*.parquet  what a changed pool or other markers moved, where that was asked for
    noise.parquet     the same presentation scored repeatedly, where a noise floor was asked for
    shards/           whole queries, appended while scoring; gone once scores.parquet stands
    scores.parquet    the score table, queries in the order of the collection
    damaged/          what was not what had been written, set aside before it was made again

Every file appears by rename, so a kill at any moment leaves either the old state or the new one. Starting the same
command again goes on after the last query on disk; another fingerprint is refused. Every table
carries its checksum (`checksums.py`), and run.json its own and the names of the tables that must be there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..machine.checksums import record_state
from ..machine.disk import read_json, storage, write_parquet, write_record, write_tables
from ..errors import DamagedFile, InputError, RunMismatch
from .inspection import damage_of, repair_command
from .table import MAKE_AGAIN, Scored, from_table, read_table, row_groups, schema, to_table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
GROUP_ROWS = 50_000
"""Rows after which the score table begins a new row group: what is held at once while a table is joined or read."""


class Piece(NamedTuple):
    """Where rows of one query stand: a row group of a file, and the rows in it."""

    file: int
    group: int
    start: int
    stop: int


log = logging.getLogger("steadyscore")


class Run:
    """The folder of one scorer on one collection."""

    def __init__(self, folder: Path, record: dict[str, Any]):
        self.folder, self.record = folder, record
        self._buffer: list[pa.Table] = []
        self._flushed = time.monotonic()
        self._next_shard: int | None = None

    # -- beginning and going on

    @classmethod
    def begin(cls, folder: Path, fingerprint: dict[str, Any], **about: Any) -> Run:
        """Open a folder to score into: a new one, one where nothing was scored yet, or one with this fingerprint to go on in."""
        file = folder / "run.json"
        if file.exists() and not (run := cls.open(folder)).is_empty:
            check_same_command(folder, run.record["fingerprint"], fingerprint)
            run._set_aside_damaged()
            if not run.is_complete:
                run._take_up()
            return run
        record = {
            "format": FORMAT,
            "status": "scoring",
            "created": _now(),
            "fingerprint": fingerprint,
            **about,
            "versions": versions(),
        }
        with storage(folder):
            (folder / "shards").mkdir(parents=True, exist_ok=True)
            write_record(file, record)
        return cls(folder, record)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing folder."""
        return cls(folder, read_run_record(folder))

    @property
    def is_complete(self) -> bool:
        return bool(self.record["status"] == "complete")

    @property
    def is_empty(self) -> bool:
        return not (self.is_complete or self._shards() or (self.folder / "scores.parquet").exists())

    def reopen(self) -> None:
        """Take a complete run up again, for queries that could not be scored."""
        self.record["status"] = "scoring"
        self._write_record()
        self._take_up()

    def _take_up(self) -> None:
        """What an unfinished run has of a score table becomes its first shard; every other shard is already in it."""
        table, shards = self.folder / "scores.parquet", self.folder / "shards"
        with storage(self.folder):
            if table.exists():
                shutil.rmtree(shards, ignore_errors=True)
            shards.mkdir(exist_ok=True)
            if table.exists():
                os.replace(table, shards / "000000.parquet")

    def _set_aside_damaged(self) -> None:
        """Move what is not what was written to `damaged/`; a complete run without one of its two tables is taken up again."""
        found = damage_of(self.folder, self.record)
        for finding in found:
            file = self.folder / finding.file
            if file.exists():
                with storage(self.folder):
                    kept = _free_name(self.folder / "damaged" / finding.file)
                    kept.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(file, kept)
            log.warning("%s %s. %s", file, finding.words, finding.remedy)
        if found:
            lost = {finding.file for finding in found}
            told = [{"file": f.file, "reason": f.words, "time": _now()} for f in found]
            self.record["set_aside"] = [*self.record.get("set_aside", []), *told]
            self.record["files"] = [name for name in self.record.get("files", []) if name not in lost]
            if lost & {"scores.parquet", "queries.parquet"}:
                self.record["status"] = "scoring"
            self._write_record()

    def _write_record(self) -> None:
        with storage(self.folder):
            write_record(self.folder / "run.json", self.record)

    # -- scoring

    def _shards(self) -> list[Path]:
        return sorted((self.folder / "shards").glob("*.parquet"))

    def done(self) -> set[str]:
        """Ids of the queries that are on disk."""
        return set(_locate(self._files()))

    def _files(self) -> list[Path]:
        table = self.folder / "scores.parquet"
        return [table] if table.exists() else self._shards()

    def begin_session(self) -> dict[str, Any]:
        """What this session costs, for the caller to fill in; `flush` writes it beside the sessions before it."""
        session: dict[str, Any] = {"start": max(len(self.record.get("starts", [])) - 1, 0)}
        self.record.setdefault("sessions", []).append(session)
        return session

    def append(self, scored: Scored, *, at_once: bool = False, seconds: float = 1.0, rows: int = 200_000) -> None:
        """Keep a query, written out as a shard once a second's work is held: a kill loses less, and files stay few.

        A query that took longer is written by itself, and so is each one of a scorer that charges (`at_once`).
        """
        self._buffer.append(to_table(scored))
        held = time.monotonic() - self._flushed
        if at_once or held >= seconds or sum(t.num_rows for t in self._buffer) >= rows:
            self.flush()

    def flush(self) -> None:
        self._write_record()  # before the shard: what was spent is spent, whether or not the scores get here
        if self._buffer:
            import pyarrow as pa

            if self._next_shard is None:
                existing = self._shards()
                self._next_shard = int(existing[-1].stem) + 1 if existing else 0
            file = self.folder / "shards" / f"{self._next_shard:06d}.parquet"
            with storage(file):
                write_parquet(file, pa.concat_tables(self._buffer))
            # Only now: a stop that came in the writing writes the same queries again, under the same number.
            self._next_shard, self._buffer = self._next_shard + 1, []
        self._flushed = time.monotonic()

    def finish(self, coverage: dict[str, Any], order: Sequence[str], queries: Iterable[pa.Table]) -> None:
        """Join the shards in the order of the queries and mark the run complete, last."""
        self.flush()
        with storage(self.folder):
            rows = iter(queries)
            first = next(rows)  # there is at least one query
            write_tables(self.folder / "queries.parquet", first.schema, chain([first], rows))
            # A part at a time: a run may be larger than memory.
            write_tables(self.folder / "scores.parquet", schema(), _join(self._shards(), order))
            shutil.rmtree(self.folder / "shards", ignore_errors=True)
            self.record |= {"status": "complete", "coverage": coverage}
            self._list("queries.parquet", "scores.parquet")

    def keep(self, **about: Any) -> None:
        """Have run.json say something more."""
        if any(self.record.get(key) != value for key, value in about.items()):
            self.record |= about
            self._write_record()

    # -- reading

    def has(self, name: str) -> bool:
        """Whether a table belongs to this run: it is there, or it was and must be."""
        return name in self.record.get("files", []) or (self.folder / name).exists()

    def read(self, name: str) -> pa.Table:
        """A table of this run, or what repairs it."""
        return read_table(self.folder / name, remedy=self._remedy(name))

    def _remedy(self, name: str) -> str:
        return f"To repair the run: {repair_command(self.record, name)}"

    def write(self, name: str, table: pa.Table) -> None:
        """Keep a table beside the scores."""
        write_parquet(self.folder / name, table)
        self._list(name)

    def _list(self, *names: str) -> None:
        """Have run.json name tables that must be there from now on."""
        self.record["files"] = sorted({*self.record.get("files", []), *names})
        self._write_record()

    def noise(self) -> list[Scored]:
        """One presentation of each query scored repeatedly, where that was asked for."""
        return list(from_table(self.read("noise.parquet"))) if self.has("noise.parquet") else []

    def keep_noise(self, queries: list[Scored]) -> None:
        import pyarrow as pa

        self.write("noise.parquet", pa.concat_tables([to_table(query) for query in queries]))

    def perturbed(self, query_ids: Sequence[str]) -> dict[str, np.ndarray]:
        """Measure -> (Q,) of what perturbations moved, NaN where a query was not perturbed."""
        place = {query_id: i for i, query_id in enumerate(query_ids)}
        found: dict[str, np.ndarray] = {}
        there = {file.name for file in self.folder.glob("perturbed-*.parquet")}
        for name in sorted(there | {name for name in self.record.get("files", []) if name.startswith("perturbed-")}):
            for row in self.read(name).to_pylist():
                values = found.setdefault(row["measure"], np.full(len(place), np.nan))
                values[place[row["query_id"]]] = row["value"]
        return found

    def scored(self) -> list[Scored]:
        """Every query of a complete run."""
        return list(self.iter_scored())

    def queries(self) -> ScoredQueries:
        """The queries of a complete run for whoever goes through them more than once and holds none."""
        return ScoredQueries(self)

    def iter_scored(self) -> Iterator[Scored]:
        """The queries of a complete run one by one, so that a run may be larger than memory."""
        if not self.is_complete:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it goes on where it stopped.")
        queries = _iter_queries(self.folder / "scores.parquet", self._remedy("scores.parquet"))
        judged = _iter_judged(self.folder / "queries.parquet", self._remedy("queries.parquet"))
        return _with_ideals(queries, judged)


class ScoredQueries:
    """The queries of a run, read anew whenever they are gone through."""

    def __init__(self, run: Run):
        self._run = run

    def __iter__(self) -> Iterator[Scored]:
        return self._run.iter_scored()


# -- tables that may be larger than memory


def _locate(files: Sequence[Path]) -> dict[str, tuple[Piece, ...]]:
    """Query -> where its rows stand. Of a query that is in two places the first counts."""
    import pyarrow.compute as pc

    found: dict[str, tuple[Piece, ...]] = {}
    for number, file in enumerate(files):
        last = ""
        for group, table in enumerate(row_groups(file, ["query_id"])):
            runs = pc.run_end_encode(table.column("query_id").combine_chunks())
            start = 0
            for query_id, stop in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                piece = Piece(number, group, start, stop)
                if query_id not in found:
                    found[query_id] = (piece,)
                elif query_id == last and start == 0:  # cut in two by the end of a row group
                    found[query_id] += (piece,)
                last, start = query_id, stop
    return found


def _join(files: Sequence[Path], order: Iterable[str]) -> Iterator[pa.Table]:
    """The rows of the queries in this order, about GROUP_ROWS at a time; equal rows give equal parts, however they came."""
    import pyarrow as pa

    # Each start of a run goes through the collection in order, so few row groups are needed at once.
    read = lru_cache(maxsize=4)(lambda number, group: next(row_groups(files[number], only=group)))
    where = _locate(files)
    held, rows = [], 0
    for piece in (piece for query_id in order for piece in where.get(query_id, ())):
        held.append(read(piece.file, piece.group).slice(piece.start, piece.stop - piece.start))
        rows += piece.stop - piece.start
        if rows >= GROUP_ROWS:
            yield pa.concat_tables(held).combine_chunks()
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held).combine_chunks()


def _iter_queries(file: Path, remedy: str = MAKE_AGAIN) -> Iterator[Scored]:
    """The queries of a score table, a row group at a time; one that goes on in the next row group is whole."""
    import pyarrow as pa
    import pyarrow.compute as pc

    carried: pa.Table | None = None
    for table in row_groups(file, remedy=remedy):
        table = table if carried is None else pa.concat_tables([carried, table])
        last = pc.index(table.column("query_id"), table.column("query_id")[-1]).as_py() if table.num_rows else 0
        yield from from_table(table.slice(0, last))
        carried = table.slice(last)
    if carried is not None:
        yield from from_table(carried)


def _iter_judged(file: Path, remedy: str = MAKE_AGAIN) -> Iterator[tuple[str, np.ndarray | None]]:
    for table in row_groups(file, ["query_id", "judged"], remedy=remedy):
        for query_id, judged in zip(*(column.to_pylist() for column in table.columns), strict=True):
            yield query_id, None if judged is None else np.asarray(judged, dtype=float)


def _with_ideals(queries: Iterable[Scored], judged: Iterator[tuple[str, np.ndarray | None]]) -> Iterator[Scored]:
    """Every query with the relevance of all its judged documents. Both come in the same order, or what is ahead is kept."""
    ahead: dict[str, np.ndarray | None] = {}
    for query in queries:
        while query.query_id not in ahead and (row := next(judged, None)) is not None:
            ahead[row[0]] = row[1]
        yield replace(query, ideal=ahead.pop(query.query_id, None))


def read_run_record(folder: Path) -> dict[str, Any]:
    """run.json of a folder, as it was written and of the kinds that this version reads, without its checksum."""
    from ..machine.schemas import RunRecord, check_record

    file = folder / "run.json"
    restore = "Copy it back from a backup, or score into another --out."
    try:
        record = read_json(file)
    except FileNotFoundError:
        raise InputError(f"{folder} is not a run folder: it has no run.json.") from None
    except DamagedFile as damage:
        raise DamagedFile(file, damage.what, restore) from damage
    if record.get("format") != FORMAT:
        raise InputError(f"{folder} has format {record.get('format')}, this version reads {FORMAT}. Score it again.")
    if record_state(record) == "damaged":
        remedy = f'If you changed it on purpose, delete its line "sha256" and it is taken as it stands; if not: {restore}'
        raise DamagedFile(file, "was changed since it was written", remedy)
    check_record(RunRecord, record, f"{file} cannot be used", restore)
    return {key: value for key, value in record.items() if key != "sha256"}


def find_folders(folders: Sequence[Path]) -> list[Path]:
    """The run folders in and below some folders."""
    found = []
    for folder in folders:
        files = [folder / "run.json"] if (folder / "run.json").exists() else sorted(folder.glob("**/run.json"))
        if not files:
            raise InputError(f"{folder} holds no run: neither it nor a folder below it has a run.json.")
        found += [file.parent for file in files]
    return found


def find_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs in and below some folders."""
    return [Run.open(folder) for folder in find_folders(folders)]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _free_name(file: Path) -> Path:
    """The name itself, or the first of `name.2`, `name.3`, ... that is not taken."""
    names = (file.with_name(f"{file.name}.{n}") for n in range(2, sys.maxsize))
    return file if not file.exists() else next(name for name in names if not name.exists())


def check_same_command(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder whose record was made with other settings."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if keys:
        differing = "; ".join(_differing(key, old.get(key), new.get(key)) for key in keys)
        raise RunMismatch(f"{folder} was made by another command: {differing}. Choose another --out, or delete the folder.")


def _differing(key: str, old: Any, new: Any) -> str:
    """Both values, of long ones the part in which they differ."""
    was, now = (json.dumps(value, ensure_ascii=False) for value in (old, new))
    first = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    return f"{key} was {_around(was, first)}, now {_around(now, first)}"


def _around(text: str, place: int) -> str:
    start = max(0, place - 20)
    return text if len(text) <= 80 else "..." * bool(start) + text[start : start + 74] + "..." * (start + 74 < len(text))


def versions() -> dict[str, str]:
    """What produced a run: this package, Python, the machine, and the libraries that were installed."""
    import importlib.metadata

    found = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for name in ("steadyscore", "numpy", "torch", "transformers", "tokenizers", "peft", "vllm", "llama-cpp-python", "httpx"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
