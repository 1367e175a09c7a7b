"""A run folder: what was asked, what was scored so far, and whether it is complete. `layout.py` lists its files.

Every file appears by rename, so a kill at any moment leaves either the old state or the new one. Starting the same
command again resumes after the last query on disk; one that asks for more queries or permutations makes a complete run grow;
any other fingerprint is refused. run.json names the tables that must be
there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import platform
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..errors import DamagedFile, InputError, RunMismatch
from ..machine.checksums import record_state
from ..machine.disk import explaining_os_errors, read_json, set_aside, write_parquet, write_record, write_tables
from ..machine.mirrors import Place, mirror_of, name_of
from ..machine.names import short_repr
from ..machine.working_copies import local_folder
from ..terms import Array
from .compact import CompactQueries
from .growth import adds_permutations, begin_growth, describe_difference, is_growth, restore_table, undo_growth
from .inspection import damage_of, repair_command
from .layout import (
    ATTACKS_FOLDER,
    CLEAN,
    DAMAGED_FOLDER,
    EARLIER_FILE,
    FORMAT,
    NOISE_FILE,
    OUTPUTS_FILE,
    QUERIES_FILE,
    RECORD_FILE,
    SCORES_FILE,
    SHARDS_FOLDER,
    TABLES,
    UNFINISHED_FILE,
    Coverage,
    QueryRow,
    RunRecord,
    Session,
    SetAside,
    check_run_record,
    forget_code,
    perturbation_of,
    perturbed_file,
    query_schema,
    score_schema,
)
from .streams import InOrder, first_queries, iter_judged, iter_queries, join, locate, query_tables, with_ideals
from .table import Scored, from_table, read_table, to_table

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("steadyscore")


HELD_HERE, HELD_FOR_A_STORE = 1.0, 20.0
"""Seconds of work that are held before they are written: a kill loses less. A store is paid for each object that is written."""


class Run:
    """The folder of one scorer on one collection."""

    def __init__(self, folder: Path, record: RunRecord):
        self.folder, self.record = folder, record
        self._buffer: list[pa.Table] = []
        self._flushed = time.monotonic()
        self._seconds_held = HELD_HERE if mirror_of(folder) is None else HELD_FOR_A_STORE
        self._next_shard: int | None = None

    def __repr__(self) -> str:
        return short_repr(self, f"{name_of(self.folder)}: {self.record['name']} on {self.record['collection']}")

    # -- creating and resuming

    @classmethod
    def create_or_resume(cls, folder: Path, fingerprint: dict[str, Any], **about: Any) -> Run:
        """Open a folder to score into: a new one, one in which nothing was scored yet, one of this fingerprint to resume, or
        one that `grow` makes a run of this fingerprint. One whose growth did not end is what it was if that is asked for.

        `about` are further keys of run.json: name, collection, task, source, capabilities, command.
        """
        if links := [name for name in (SHARDS_FOLDER, DAMAGED_FOLDER) if (folder / name).is_symlink()]:
            raise InputError(f"{folder / links[0]} leads out of the run folder, and scores would go there. Remove the link.")
        file = folder / RECORD_FILE
        if file.exists() and not (run := cls.open(folder)).is_empty:
            if run.is_growing and run.record["before_growth"]["fingerprint"] == fingerprint:
                log.warning("%s did not end growing and is asked for as it was before: what was added goes.", name_of(folder))
                undo_growth(folder, run.record)
                run._write_record()
            restore_table(folder, run.record)
            grows = is_growth(run.record["fingerprint"], fingerprint)
            if not grows:
                check_same_command(folder, run.record["fingerprint"], fingerprint)
            run._set_aside_damaged()
            if grows:
                run._check_can_grow()
            if not run.is_complete:
                run._restore_shards()
            return run
        record = new_record(fingerprint, about)
        with explaining_os_errors(folder):
            (folder / SHARDS_FOLDER).mkdir(parents=True, exist_ok=True)
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
    def is_growing(self) -> bool:
        """Whether a growth has begun and not ended."""
        return "before_growth" in self.record

    @property
    def is_empty(self) -> bool:
        return not (self.is_complete or self._shards() or (self.folder / SCORES_FILE).exists() or self._earlier_files())

    def reopen(self) -> None:
        """Make a complete run unfinished again, for queries that could not be scored."""
        self.record["status"] = "scoring"
        self._write_record()
        self._restore_shards()

    def _check_can_grow(self) -> None:
        if not self.is_complete:
            end = "Run the command that began it again first; then this one adds what is missing."
            raise RunMismatch(f"{self.folder} is not complete, so it cannot grow yet. {end}")

    def grow(self, fingerprint: dict[str, Any], command: list[str]) -> None:
        """Make a complete run a part of a larger one, if that is asked for: what was scored stays, and the rest is missing."""
        if not is_growth(self.record["fingerprint"], fingerprint):
            return
        begin_growth(self.folder, self.record, fingerprint, command)
        self._write_record()
        self._restore_shards()

    def earlier_queries(self) -> InOrder:
        """Queries that were scored under fewer permutations, before the run grew."""
        return InOrder(chain.from_iterable(map(iter_queries, self._earlier_files())))

    def _earlier_files(self) -> list[Path]:
        return [file for name in (UNFINISHED_FILE, EARLIER_FILE) if (file := self.folder / name).exists()]

    def _restore_shards(self) -> None:
        """The score table that an unfinished run has becomes its first shard; every other shard is already in it."""
        table, shards = self.folder / SCORES_FILE, self.folder / SHARDS_FOLDER
        with explaining_os_errors(self.folder):
            if table.exists():
                shutil.rmtree(shards, ignore_errors=True)
            shards.mkdir(exist_ok=True)
            if table.exists():
                os.replace(table, shards / "000000.parquet")

    def _set_aside_damaged(self) -> None:
        """Move files that are not what was written to `damaged/`; a complete run that lacks one of its two tables is resumed."""
        damage = damage_of(self.folder, self.record)
        for finding in damage:
            file = self.folder / finding.file
            if file.exists():
                set_aside(file, (self.folder / DAMAGED_FOLDER / finding.file).parent)
            log.warning("%s %s. %s", name_of(file), finding.words, finding.remedy)
        if damage:
            lost = {finding.file for finding in damage}
            moved = [SetAside(file=f.file, reason=f.words, time=_now()) for f in damage]
            self.record["set_aside"] = [*self.record.get("set_aside", []), *moved]
            self.record["files"] = [name for name in self.record.get("files", []) if name not in lost]
            if lost.intersection(TABLES):
                self.record["status"] = "scoring"
            self._write_record()

    def _write_record(self) -> None:
        with explaining_os_errors(self.folder):
            write_record(self.folder / RECORD_FILE, self.record)

    # -- scoring

    def _shards(self) -> list[Path]:
        return sorted((self.folder / SHARDS_FOLDER).glob("*.parquet"))

    def scored_ids(self) -> set[str]:
        """Ids of the queries whose scores are on disk."""
        return set(locate(self._score_files()))

    def known_ids(self) -> set[str]:
        """Ids of the queries of which scores are on disk, be it of fewer permutations than the run grows to."""
        return set(locate([*self._score_files(), *self._earlier_files()]))

    def some_queries(self, count: int, besides: Sequence[str] = ()) -> list[Scored]:
        """Queries of which scores are on disk, of several files where there are several; none of the files named `besides`."""
        return first_queries([f for f in (*self._score_files(), *self._earlier_files()) if f.name not in besides], count)

    def _score_files(self) -> list[Path]:
        table = self.folder / SCORES_FILE
        return [table] if table.exists() else self._shards()

    def begin_session(self) -> Session:
        """What this session costs, for the caller to fill in; `flush` writes it beside the sessions before it."""
        session = Session(start=max(len(self.record.get("starts", [])) - 1, 0))
        self.record.setdefault("sessions", []).append(session)
        return session

    def append(self, scored: Scored, *, at_once: bool = False, seconds: float | None = None, rows: int = 200_000) -> None:
        """Keep a query, written out as a shard once a second's work is held: a kill loses less, and files stay few.

        A query that took longer is written by itself, and so is each one of a scorer that charges (`at_once`).
        """
        self._buffer.append(to_table(scored))
        held = time.monotonic() - self._flushed
        if (
            at_once
            or held >= (self._seconds_held if seconds is None else seconds)
            or sum(t.num_rows for t in self._buffer) >= rows
        ):
            self.flush()

    def flush(self) -> None:
        self._write_record()  # before the shard: what was spent is spent, whether or not the scores get here
        if self._buffer:
            import pyarrow as pa

            if self._next_shard is None:
                self._next_shard = max((int(file.stem) + 1 for file in self._shards() if file.stem.isdigit()), default=0)
            file = self.folder / SHARDS_FOLDER / f"{self._next_shard:06d}.parquet"
            with explaining_os_errors(file):
                write_parquet(file, pa.concat_tables(self._buffer))
            # Only now: a stop that came in the writing writes the same queries again, under the same number.
            self._next_shard, self._buffer = self._next_shard + 1, []
        self._flushed = time.monotonic()

    def finish(self, coverage: Coverage, order: Sequence[str], queries: Iterable[QueryRow]) -> None:
        """Join the shards in the order of the queries and mark the run complete, last."""
        self.flush()
        with explaining_os_errors(self.folder):
            # A part at a time: a run may be larger than memory.
            write_tables(self.folder / SCORES_FILE, score_schema(), join(self._shards(), order))
            write_tables(self.folder / QUERIES_FILE, query_schema(), query_tables(queries))
            self._keep_unfinished()
            shutil.rmtree(self.folder / SHARDS_FOLDER, ignore_errors=True)
            if adds_permutations(self.record):  # what readers wrote speaks of too few of them
                (self.folder / OUTPUTS_FILE).unlink(missing_ok=True)
                self.record["files"] = [name for name in self.record.get("files", []) if name != OUTPUTS_FILE]
            for session in self.record.get("sessions", []):
                session.pop("parts", None)  # the parts are gone: what they cost is not summed again
            self.record.pop("before_growth", None)
            self.record["status"], self.record["coverage"] = "complete", coverage
            self._list_tables(QUERIES_FILE, SCORES_FILE)
            (self.folder / EARLIER_FILE).unlink(missing_ok=True)  # only now: until then the growth can be undone

    def _keep_unfinished(self) -> None:
        """Have queries that failed when the run grew keep what was scored of them, for the command that tries them again."""
        if not (files := self._earlier_files()):
            return
        scored = self.scored_ids()
        if unfinished := [query_id for query_id in locate(files) if query_id not in scored]:
            write_tables(self.folder / UNFINISHED_FILE, score_schema(), join(files, unfinished))
        else:
            (self.folder / UNFINISHED_FILE).unlink(missing_ok=True)

    def update_record(self, **about: Any) -> None:
        """Set some keys of run.json, which is written if they change."""
        if any(self.record.get(key) != value for key, value in about.items()):
            self.record = cast("RunRecord", {**self.record, **about})
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
        """Write a table beside the scores."""
        write_parquet(self.folder / name, table)
        self._list_tables(name)

    def _list_tables(self, *names: str) -> None:
        """Have run.json name tables that must be there from now on."""
        self.record["files"] = sorted({*self.record.get("files", []), *names})
        self._write_record()

    def read_noise(self) -> list[Scored]:
        """One presentation of each query scored repeatedly; empty where no noise floor was asked for."""
        return list(from_table(self.read(NOISE_FILE))) if self.has(NOISE_FILE) else []

    def write_noise(self, queries: list[Scored]) -> None:
        import pyarrow as pa

        self.write(NOISE_FILE, pa.concat_tables([to_table(query) for query in queries]))

    def read_perturbed(self, query_ids: Sequence[str]) -> dict[str, Array]:
        """Measure -> (Q,) of what perturbations moved, NaN where a query was not perturbed."""
        place = {query_id: i for i, query_id in enumerate(query_ids)}
        moved: dict[str, Array] = {}
        names = {*self.record.get("files", []), *(file.name for file in self.folder.glob(perturbed_file("*")))}
        for name in sorted(filter(perturbation_of, names)):
            for row in self.read(name).to_pylist():
                values = moved.setdefault(row["measure"], np.full(len(place), np.nan))
                if row["query_id"] in place:  # one that failed when the run grew has no scores beside it
                    values[place[row["query_id"]]] = row["value"]
        return moved

    def read_queries(self) -> CompactQueries:
        """Every query of a complete run, held in memory."""
        return CompactQueries(self.iter_queries())

    def queries(self) -> ScoredQueries:
        """The queries of a complete run, for callers that iterate more than once and hold none of them."""
        return ScoredQueries(self)

    def iter_queries(self) -> Iterator[Scored]:
        """The queries of a complete run one by one, so that a run may be larger than memory."""
        if not self.is_complete:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it resumes where it stopped.")
        queries = iter_queries(self.folder / SCORES_FILE, self._remedy(SCORES_FILE))
        judged = iter_judged(self.folder / QUERIES_FILE, self._remedy(QUERIES_FILE))
        return with_ideals(queries, judged)


class ScoredQueries:
    """The queries of a run, read anew by every iteration."""

    def __init__(self, run: Run):
        self._run = run

    def __iter__(self) -> Iterator[Scored]:
        return self._run.iter_queries()


def read_run_record(folder: Path) -> RunRecord:
    """run.json of a folder, as it was written and of the kinds that this version reads, without its checksum."""
    file = folder / RECORD_FILE
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
    check_run_record(record, f"{file} cannot be used", restore)
    forget_code(record)
    return cast("RunRecord", {key: value for key, value in record.items() if key != "sha256"})


def find_folders(places: Sequence[Place]) -> list[Path]:
    """The run folders in and below some folders; a folder's own run is the first of its runs."""
    runs = []
    for place in places:
        folder = local_folder(place)
        below = sorted((file.parent for file in folder.glob(f"**/{RECORD_FILE}")), key=lambda run: (run != folder, run))
        if not below:
            raise InputError(f"{name_of(folder)} holds no run: neither it nor a folder below it has a run.json.")
        runs += below
    return runs


def find_runs(places: Sequence[Place]) -> list[Run]:
    """The runs in and below some folders; those of an attack, which are to be read together, only where each is named."""
    folders = [local_folder(place) for place in places]
    clean = [file.parent.parent for folder in folders for file in sorted(folder.glob(f"**/{CLEAN}/{RECORD_FILE}"))]
    if attacks := [folder for folder in clean if (folder / ATTACKS_FOLDER).is_dir()]:
        raise InputError(
            [
                f"{attack} is the folder of an attack: `steadyscore attack --runs {attack}` measures it, writes its page and "
                f"checks bounds. Name single runs of it, such as {attack / CLEAN}, to read them as runs."
                for attack in attacks
            ]
        )
    return [Run.open(folder) for folder in find_folders(folders)]


def find_run(place: Place) -> Run:
    """The run of a folder: its own, or the only one below it."""
    folder = local_folder(place)
    return Run.open(own_or_only(folder, find_folders([folder])))


def own_or_only(folder: Path, runs: Sequence[Path]) -> Path:
    """Of the run folders in and below a folder, the one that is meant by its name."""
    if folder in runs or len(runs) == 1:
        return folder if folder in runs else runs[0]
    named = ", ".join(str(run.relative_to(folder)) for run in runs[:5]) + ", ..." * (len(runs) > 5)
    raise InputError(f"{name_of(folder)} holds {len(runs)} runs, and one is asked for here. Name one of them: {named}.")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def new_record(fingerprint: dict[str, Any], about: Mapping[str, Any]) -> RunRecord:
    """run.json of a run in which nothing was scored yet."""
    begun = {"format": FORMAT, "status": "scoring", "created": _now(), "fingerprint": fingerprint}
    return cast("RunRecord", {**begun, **about, "versions": versions()})


def check_same_command(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Refuse to go on in a folder whose record was made with other settings."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    if keys:
        differing = "; ".join(describe_difference(key, old.get(key), new.get(key)) for key in keys)
        raise RunMismatch(f"{folder} was made by another command: {differing}. Choose another --out, or delete the folder.")


def versions() -> dict[str, str]:
    """What produced a run: this package, Python, the machine, and the libraries that were installed."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    """Looked up once: a worker notes them with every part."""
    import importlib.metadata

    known = {"python": platform.python_version(), "machine": f"{platform.machine()}, {os.cpu_count()} cores"}
    for name in ("steadyscore", "numpy", "torch", "transformers", "tokenizers", "peft", "vllm", "llama-cpp-python", "httpx2"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            known[name] = importlib.metadata.version(name)
    return known
