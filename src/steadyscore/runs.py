"""A run folder: what was asked, what was scored so far, and whether it is complete.

    run.json          format, status, fingerprint, arguments, versions, sessions, coverage; `complete` after all else exists
    queries.parquet   per query: answers, verdict and the relevance of every judged document
    perturbed-*.parquet  what a changed pool or other markers moved, where that was asked for
    noise.parquet     the same presentation scored repeatedly, where a noise floor was asked for
    shards/           whole queries, appended while scoring; gone once scores.parquet stands
    scores.parquet    the score table

Every file appears by rename, so a kill at any moment leaves either the old state or the new one. Starting the same
command again goes on after the last query on disk; another fingerprint is refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .disk import atomic, storage, write_json, write_parquet
from .errors import InputError, RunMismatch, StorageError
from .scores import Scored, from_table, read_table, schema, to_table

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = 1


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
            if not run.is_complete:
                run._take_up()
            return run
        record = {
            "format": FORMAT,
            "status": "scoring",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "fingerprint": fingerprint,
            **about,
            "versions": versions(),
        }
        with storage(folder):
            (folder / "shards").mkdir(parents=True, exist_ok=True)
            write_json(file, record)
        return cls(folder, record)

    @classmethod
    def open(cls, folder: Path) -> Run:
        """Open an existing folder."""
        try:
            record = json.loads((folder / "run.json").read_text())
        except FileNotFoundError:
            raise InputError(f"{folder} is not a run folder: it has no run.json.") from None
        except (OSError, json.JSONDecodeError) as damage:
            raise StorageError(f"{folder / 'run.json'} cannot be read: {damage}.") from damage
        if record.get("format") != FORMAT:
            raise InputError(f"{folder} has format {record.get('format')}, this version reads {FORMAT}. Score it again.")
        return cls(folder, record)

    @property
    def is_complete(self) -> bool:
        return self.record["status"] == "complete"

    @property
    def is_empty(self) -> bool:
        return not (self.is_complete or self._shards() or (self.folder / "scores.parquet").exists())

    def reopen(self) -> None:
        """Take a complete run up again, for queries that could not be scored."""
        self.record["status"] = "scoring"
        write_json(self.folder / "run.json", self.record)
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
        with storage(self.folder):  # before the shard: what was spent is spent, whether or not the scores get here
            write_json(self.folder / "run.json", self.record)
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
        import pyarrow.parquet as pq

        self.flush()
        target = self.folder / "scores.parquet"
        with storage(self.folder):
            write_parquet(self.folder / "queries.parquet", queries)
            with atomic(target) as stream, pq.ParquetWriter(stream, schema()) as writer:
                for shard in self._shards():  # one at a time: a run may be larger than memory
                    writer.write_table(read_table(shard))
            shutil.rmtree(self.folder / "shards", ignore_errors=True)
            self.record |= {"status": "complete", "coverage": coverage}
            write_json(self.folder / "run.json", self.record)

    def keep(self, **about: Any) -> None:
        """Have run.json say something more of a complete run."""
        if any(self.record.get(key) != value for key, value in about.items()):
            self.record |= about
            write_json(self.folder / "run.json", self.record)

    # -- reading

    def noise(self) -> list[Scored]:
        """One presentation of each query scored repeatedly, where that was asked for."""
        file = self.folder / "noise.parquet"
        return list(from_table(read_table(file))) if file.exists() else []

    def keep_noise(self, queries: list[Scored]) -> None:
        import pyarrow as pa

        write_parquet(self.folder / "noise.parquet", pa.concat_tables([to_table(query) for query in queries]))

    def perturbed(self, query_ids: Sequence[str]) -> dict[str, np.ndarray]:
        """Measure -> (Q,) of what perturbations moved, NaN where a query was not perturbed."""
        place = {query_id: i for i, query_id in enumerate(query_ids)}
        found: dict[str, np.ndarray] = {}
        for file in sorted(self.folder.glob("perturbed-*.parquet")):
            for row in read_table(file).to_pylist():
                values = found.setdefault(row["measure"], np.full(len(place), np.nan))
                values[place[row["query_id"]]] = row["value"]
        return found

    def scored(self) -> list[Scored]:
        """Every query of a complete run."""
        if not self.is_complete:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it goes on where it stopped.")
        ideals = {
            row["query_id"]: np.asarray(row["judged"], dtype=float)
            for row in read_table(self.folder / "queries.parquet").to_pylist()
            if row["judged"] is not None
        }
        return list(from_table(read_table(self.folder / "scores.parquet"), ideals))


def find_runs(folders: list[Path]) -> list[Run]:
    """The runs in and below some folders."""
    runs = []
    for folder in folders:
        files = [folder / "run.json"] if (folder / "run.json").exists() else sorted(folder.glob("**/run.json"))
        if not files:
            raise InputError(f"{folder} holds no run: there is no run.json in or below it.")
        runs += [Run.open(file.parent) for file in files]
    return runs


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
