"""A run folder: what was asked, what was scored so far, and whether it is complete.

    run.json          format, status, fingerprint, arguments, versions, sessions, coverage; `complete` after all else exists
    queries.parquet   per query: answers, verdict and the relevance of every judged document
    perturbed-*.parquet  what a changed pool or other markers moved, where that was asked for
    noise.parquet     the same presentation scored repeatedly, where a noise floor was asked for
    shards/           whole queries, appended while scoring; gone once scores.parquet stands
    scores.parquet    the score table
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
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .checksums import record_state
from .disk import read_json, storage, write_parquet, write_record, write_tables
from .errors import DamagedFile, InputError, RunMismatch
from .inspection import damage_of, repair_command
from .scores import Scored, from_table, read_table, schema, to_table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1
log = logging.getLogger("steadyscore")


class Run:
    """The folder of one scorer on one collection."""

    def __init__(self, folder: Path, record: dict[str, Any]):
        self.folder, self.record = folder, record
        self._buffer: list[pa.Table] = []
        self._flushed = time.monotonic()

    # -- beginning and going on

    @classmethod
    def begin(cls, folder: Path, fingerprint: dict[str, Any], **about: Any) -> Run:
        """Open a folder to score into: a new one, one where nothing was scored yet, or one with this fingerprint to go on in."""
        file = folder / "run.json"
        if file.exists() and not (run := cls.open(folder)).is_empty:
            _refuse_mismatch(folder, run.record["fingerprint"], fingerprint)
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
        return self.record["status"] == "complete"

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
        table = self.folder / "scores.parquet"
        files = [table] if table.exists() else self._shards()
        return {i for file in files for i in read_table(file, ["query_id"]).column("query_id").unique().to_pylist()}

    def begin_session(self) -> dict[str, Any]:
        """What this session costs, for the caller to fill in; `flush` writes it beside the sessions before it."""
        session: dict[str, Any] = {}
        self.record.setdefault("sessions", []).append(session)
        return session

    def append(self, scored: Scored, *, seconds: float = 2.0, rows: int = 200_000) -> None:
        """Keep a query; written out as a shard every few seconds, so that a kill loses little and files stay few."""
        self._buffer.append(to_table(scored))
        if time.monotonic() - self._flushed >= seconds or sum(t.num_rows for t in self._buffer) >= rows:
            self.flush()

    def flush(self) -> None:
        self._write_record()  # before the shard: what was spent is spent, whether or not the scores get here
        if self._buffer:
            import pyarrow as pa

            # Queries are scored in collection order, so shards in the order of their numbers are too.
            existing = self._shards()
            index = int(existing[-1].stem) + 1 if existing else 0
            file = self.folder / "shards" / f"{index:06d}.parquet"
            tables, self._buffer = self._buffer, []  # first: what a stop catches in the writing is never written twice
            with storage(file):
                write_parquet(file, pa.concat_tables(tables))
        self._flushed = time.monotonic()

    def finish(self, coverage: dict[str, Any], queries: pa.Table) -> None:
        """Join the shards and mark the run complete, last."""
        self.flush()
        with storage(self.folder):
            write_parquet(self.folder / "queries.parquet", queries)
            # One shard at a time: a run may be larger than memory.
            write_tables(self.folder / "scores.parquet", schema(), map(read_table, self._shards()))
            shutil.rmtree(self.folder / "shards", ignore_errors=True)
            self.record |= {"status": "complete", "coverage": coverage}
            self._list("queries.parquet", "scores.parquet")

    def keep(self, **about: Any) -> None:
        """Have run.json say something more of a complete run."""
        if any(self.record.get(key) != value for key, value in about.items()):
            self.record |= about
            self._write_record()

    # -- reading

    def has(self, name: str) -> bool:
        """Whether a table belongs to this run: it is there, or it was and must be."""
        return name in self.record.get("files", []) or (self.folder / name).exists()

    def read(self, name: str) -> pa.Table:
        """A table of this run, or what repairs it."""
        return read_table(self.folder / name, remedy=f"To repair the run: {repair_command(self.record, name)}")

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
        if not self.is_complete:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it goes on where it stopped.")
        ideals = {
            row["query_id"]: np.asarray(row["judged"], dtype=float)
            for row in self.read("queries.parquet").to_pylist()
            if row["judged"] is not None
        }
        return list(from_table(self.read("scores.parquet"), ideals))


def read_run_record(folder: Path) -> dict[str, Any]:
    """run.json of a folder, as it was written and of the kinds that this version reads, without its checksum."""
    from .schemas import RunRecord, check_record

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
            raise InputError(f"{folder} holds no run: there is no run.json in or below it.")
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


def _refuse_mismatch(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
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
    for name in ("steadyscore", "numpy", "torch", "transformers", "peft"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found
