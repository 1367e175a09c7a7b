"""Folders of format 1, which versions up to 0.2 wrote: read as they are, and brought into parts by a command that writes.

What is on disk is taken by key: the table of a complete run, shards of an unfinished one, the table of fewer permutations of one
that was growing. `run.json` is replaced last, so an import that was cut anywhere begins again.
"""

from __future__ import annotations

import atexit
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from ..errors import DamagedFile
from ..machine.disk import explaining_os_errors, is_there, list_files, remove_tree, set_aside, write_record, write_record_once
from ..machine.places import Place, open_whole
from ..terms import JsonObject
from .layout import (
    DAMAGED_FOLDER,
    FORMAT,
    NOISE_FILE,
    OUTPUTS_FILE,
    QUERIES_FILE,
    RECORD_FILE,
    REQUESTS_FOLDER,
    SCORES_FILE,
    TIMINGS_FILE,
    perturbation_of,
    remedy_for,
    repair_command,
)
from .parts import COMPACTED, Parts, merged_note
from .records import PartNote, RunRecord, Session, SessionNote, Start, read_record, to_json
from .requests import asked_digest, asked_of, read_run_record
from .table import read_table, row_groups, table_mistakes
from .tables import table_of, write_list

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("steadyscore")

OLD_RECORD = "run-1.json"
"""What run.json was, after an import."""
EARLIER_FILE, UNFINISHED_FILE, SHARDS_FOLDER = "earlier.parquet", "unfinished.parquet", "shards"
MADE_NOW = ("status", "coverage", "sessions", "starts", "files", "before_growth", "sha256")
"""Keys of the old record that are no longer in it."""


def imported_elsewhere(folder: Place, old: RunRecord) -> tuple[RunRecord, Path]:
    """A run of format 1 as it would be written now, in a folder that goes with the process; the run's own is not touched."""
    stored = Path(tempfile.mkdtemp(prefix="steadyscore-"))
    atexit.register(remove_tree, stored)
    return read_record({**_Import(folder, old, stored).run(), "status": "scoring"}, str(folder), ""), stored


def import_run(folder: Place, old: RunRecord) -> RunRecord:
    """Bring a run of format 1 into parts; damaged files are set aside. Gives the new record."""
    with explaining_os_errors(folder):
        first = _Import(folder, old, folder).run()
        write_record(folder / OLD_RECORD, old.keys)
        write_record(folder / RECORD_FILE, first)
        for name in (EARLIER_FILE, UNFINISHED_FILE):
            (folder / name).unlink(missing_ok=True)
        remove_tree(folder / SHARDS_FOLDER)
        return read_run_record(folder)


class _Import:
    """One import: the old folder, and where the parts go. Into another folder nothing may be damaged."""

    def __init__(self, folder: Place, old: RunRecord, into: Place):
        self.folder, self.old, self.into = folder, old, into
        self._is_strict = into != folder
        self._notes: dict[str, SessionNote] = {}
        self._shrunk: dict[str, list[JsonObject]] = {}

    def run(self) -> dict[str, object]:
        """run.json as it would be written now."""
        grown = cast("Mapping[str, JsonObject] | None", self.old.keys.get("before_growth"))
        first = {key: value for key, value in self.old.keys.items() if key not in MADE_NOW} | {"format": FORMAT}
        fingerprint = _forget_code(self.old.fingerprint.keys)
        if grown is not None:
            first |= {"fingerprint": _forget_code(grown["fingerprint"]), "command": grown["command"]}
            asked = {"fingerprint": asked_of(fingerprint), "command": self.old.command}
            write_record_once(self.into / REQUESTS_FOLDER / "000001.json", asked)
        else:
            first["fingerprint"] = fingerprint
        is_whole = self._import_scores()
        if self.old.status == "complete" and is_whole:
            self._import_list(asked_digest(asked_of(fingerprint)))
        first["accepted"] = [change for start in self.old.starts for change in start.changed]
        first["files"] = self._import_beside(self.old.fingerprint.permutations)
        return first

    # -- scores

    def _import_scores(self) -> bool:
        """Put the rows of every table of scores; gives whether all could be read."""
        table = self.folder / SCORES_FILE
        shards = [file for file in list_files(self.folder / SHARDS_FOLDER) if file.suffix == ".parquet"]
        begun = [file for name in (UNFINISHED_FILE, EARLIER_FILE) if is_there(file := self.folder / name)]
        is_complete = self.old.status == "complete"
        files = [*([table] if is_complete or is_there(table) else shards), *begun]
        self._read_sessions(shards)
        note = merged_note([PartNote(sessions=list(self._notes.values()), shrunk=self._shrunk)])
        parts, is_whole = Parts(self.into, "scores"), True
        for number, file in enumerate(files):
            try:
                for rows in _whole_queries(file, self._remedy(SCORES_FILE)):
                    parts.put(COMPACTED if file.name == SCORES_FILE and not begun else f"s{number:06d}", rows, note)
                    note = PartNote()
            except DamagedFile as damage:
                self._leave(file, damage)
                is_whole = False
        return is_whole

    def _read_sessions(self, shards: Sequence[Place]) -> None:
        starts = self.old.starts or [Start(self.old.versions or {}, times=(self.old.created or "",))]
        of_parts = [work for file in shards if file.name.startswith("part-") for work in _part_sessions(file)]
        stored = cast("list[JsonObject]", self.old.keys.get("sessions", []))
        for session, keys in zip(self.old.sessions, stored, strict=True):
            if not (of_parts and "parts" in keys):  # else the sum of what the parts say
                self._note(session, starts[min(session.start or 0, len(starts) - 1)])
        for session, start in of_parts:
            self._note(session, start)
        scored_by = [note["scored_by"] for note in self._notes.values()]
        for start in self.old.starts:
            if _without_times(start) not in scored_by:
                self._note(Session(), start)

    def _note(self, session: Session, start: Start) -> None:
        number = len(self._notes) + 1
        id, time = f"old-{number:06d}", next(iter(start.times), "")
        own = SessionNote(id=id, number=number, time=time, puts=1, scored_by=_without_times(start))
        self._notes[id] = cast("SessionNote", {**replace(session, start=None).costs(), **own})
        if session.shrunk:
            self._shrunk[f"{id}-000001"] = to_json(session.shrunk)

    # -- the other tables

    def _import_list(self, asked: str) -> None:
        """List the queries of a complete run, if its tables hold as many as it says."""
        coverage, ledger = self.old.coverage, Parts(self.into, "scores").ledger()
        assert coverage is not None
        failed = {one.query_id for one in coverage.failed}
        try:
            rows = read_table(self.folder / QUERIES_FILE, remedy=self._remedy(QUERIES_FILE)).to_pylist()
        except DamagedFile as damage:
            self._leave(self.folder / QUERIES_FILE, damage)
            return
        if sum(row["query_id"] in ledger.where and row["query_id"] not in failed for row in rows) != coverage.scored:
            return
        end = PartNote(failed=[one.to_json() for one in coverage.failed], notes=self.old.notes)
        end |= {} if coverage.cut is None else PartNote(cut=coverage.cut)
        count = lambda query_id: None if query_id in failed else len(ledger.numbers(query_id))  # noqa: E731
        write_list(Parts(self.into, "queries"), asked, rows, count, end)

    def _import_beside(self, permutations: int | None) -> dict[str, int]:
        """Put the tables beside the scores; gives their rows."""
        there = [file.name for file in list_files(self.folder) if file.parent == self.folder]
        names = {*there, *(self.old.files or [])}
        counts: dict[str, int] = {}
        for name in sorted(name for name in names if name in (NOISE_FILE, OUTPUTS_FILE, TIMINGS_FILE) or perturbation_of(name)):
            try:
                rows = read_table(self.folder / name, remedy=self._remedy(name))
                Parts(self.into, table_of(name, permutations)).put("s", rows, PartNote(order=1, rows=rows.num_rows))
                counts[name] = rows.num_rows
            except DamagedFile as damage:
                self._leave(self.folder / name, damage)
        return counts

    def _leave(self, file: Place, damage: DamagedFile) -> None:
        if self._is_strict:
            raise damage
        if is_there(file):
            set_aside(file, self.folder / DAMAGED_FOLDER)
        log.warning("%s %s. %s", file, damage.what, remedy_for(file.name))

    def _remedy(self, name: str) -> str:
        return f"To repair the run: {repair_command(self.old.command, name)}"


def _whole_queries(file: Place, remedy: str) -> Iterator[pa.Table]:
    """The rows of a table, a part at a time; no query is cut in two."""
    import pyarrow as pa
    import pyarrow.compute as pc

    carried: pa.Table | None = None
    for rows in row_groups(file, remedy=remedy):
        rows = rows if carried is None else pa.concat_tables([carried, rows])
        if mistakes := table_mistakes(rows) if carried is None else []:
            raise DamagedFile(file, f"is damaged: {'; '.join(mistakes)}", remedy)
        last = pc.index(rows.column("query_id"), rows.column("query_id")[-1]).as_py() if rows.num_rows else 0
        if last:
            yield rows.slice(0, last)
        carried = rows.slice(last)
    if carried is not None and carried.num_rows:
        yield carried


def _part_sessions(file: Place) -> list[tuple[Session, Start]]:
    """What the workers of a part of format 1 noted in it; nothing of a damaged one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ..machine.schemas import read_as

    try:
        with open_whole(file) as stream:
            works = json.loads((pq.read_schema(stream).metadata or {})[b"steadyscore.part"])["sessions"]
            return [(read_as(Session, work["session"]), read_as(Start, work["start"])) for work in works]
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return []


def _without_times(start: Start) -> JsonObject:
    return cast("JsonObject", to_json(replace(start, times=())))


def _forget_code(fingerprint: JsonObject) -> JsonObject:
    """Without the code of a Python scorer, which the first versions kept: whether it is the same is asked of it now."""
    scorer = fingerprint.get("scorer")
    if not isinstance(scorer, Mapping) or scorer.get("kind") != "python":
        return fingerprint
    return {**fingerprint, "scorer": {key: value for key, value in scorer.items() if key not in ("source", "state")}}
