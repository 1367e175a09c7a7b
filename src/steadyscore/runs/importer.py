"""Folders of format 1, which versions up to 0.2 wrote: read as they are, and brought into parts by a command that writes.

What is on disk is taken by key: the table of a complete run, shards of an unfinished one, the table of fewer permutations of one
that was growing. `run.json` is replaced last, so an import that was cut anywhere begins again.
"""

from __future__ import annotations

import atexit
import json
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..errors import DamagedFile
from ..machine.disk import explaining_os_errors, is_there, list_files, remove_tree, set_aside, write_record, write_record_once
from ..machine.places import Place, open_whole
from .beside import table_of
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
    PartNote,
    RunRecord,
    Session,
    SessionNote,
    perturbation_of,
    remedy_for,
    repair_command,
)
from .lists import write_list
from .parts import COMPACTED, Parts, count_keys, merged_note
from .requests import asked_digest, asked_of
from .table import read_table, row_groups, table_mistakes

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
    return _Import(folder, cast("dict[str, Any]", old), stored).run(), stored


def import_run(folder: Place, old: RunRecord) -> RunRecord:
    """Bring a run of format 1 into parts; damaged files are set aside. Gives the new record."""
    with explaining_os_errors(folder):
        first = _Import(folder, cast("dict[str, Any]", old), folder).run()
        write_record(folder / OLD_RECORD, old)
        write_record(folder / RECORD_FILE, first)
        for name in (EARLIER_FILE, UNFINISHED_FILE):
            (folder / name).unlink(missing_ok=True)
        remove_tree(folder / SHARDS_FOLDER)
    return first


class _Import:
    """One import: the old folder, and where the parts go. Into another folder nothing may be damaged."""

    def __init__(self, folder: Place, old: dict[str, Any], into: Place):
        self.folder, self.old, self.into = folder, old, into
        self._is_strict = into != folder
        self._notes: dict[str, SessionNote] = {}
        self._shrunk: dict[str, Any] = {}

    def run(self) -> RunRecord:
        grown = self.old.get("before_growth")
        first = {key: value for key, value in self.old.items() if key not in MADE_NOW} | {"format": FORMAT}
        fingerprint = _forget_code(self.old["fingerprint"])
        if grown is not None:
            first |= {"fingerprint": _forget_code(grown["fingerprint"]), "command": grown["command"]}
            asked = {"fingerprint": asked_of(fingerprint), "command": self.old.get("command", [])}
            write_record_once(self.into / REQUESTS_FOLDER / "000001.json", asked)
        else:
            first["fingerprint"] = fingerprint
        is_whole = self._import_scores()
        if self.old["status"] == "complete" and is_whole:
            self._import_list(asked_digest(asked_of(fingerprint)))
        first["accepted"] = [change for start in self.old.get("starts", []) for change in start.get("changed", [])]
        first["files"] = self._import_beside(fingerprint.get("permutations"))
        return cast("RunRecord", first)

    # -- scores

    def _import_scores(self) -> bool:
        """Put the rows of every table of scores; gives whether all could be read."""
        table = self.folder / SCORES_FILE
        shards = [file for file in list_files(self.folder / SHARDS_FOLDER) if file.suffix == ".parquet"]
        begun = [file for name in (UNFINISHED_FILE, EARLIER_FILE) if is_there(file := self.folder / name)]
        is_complete = self.old["status"] == "complete"
        files = [*([table] if is_complete or is_there(table) else shards), *begun]
        self._read_sessions(shards)
        note = merged_note([PartNote(sessions=list(self._notes.values()), shrunk=self._shrunk)])
        parts, is_whole = Parts(self.into, "scores"), True
        for number, file in enumerate(files):
            try:
                for rows in _whole_queries(file, self._remedy(SCORES_FILE)):
                    if file.name == SCORES_FILE and not begun:
                        parts.put(COMPACTED, rows, PartNote(keys=count_keys(rows)) | note)
                    else:
                        parts.put(f"s{number:06d}", rows, note)
                    note = PartNote()
            except DamagedFile as damage:
                self._leave(file, damage)
                is_whole = False
        return is_whole

    def _read_sessions(self, shards: list[Any]) -> None:
        starts = self.old.get("starts") or [{"versions": self.old.get("versions", {}), "times": [self.old.get("created", "")]}]
        of_parts = [work for file in shards if file.name.startswith("part-") for work in _part_sessions(file)]
        for session in self.old.get("sessions", []):
            if not (of_parts and "parts" in session):  # else the sum of what the parts say
                start = session.get("start", 0)
                self._note(session, starts[start] if start < len(starts) else starts[-1])
        for work in of_parts:
            self._note(work["session"], work["start"])
        scored_by = [_without_times(note["scored_by"]) for note in self._notes.values()]
        for start in starts if "starts" in self.old else []:
            if _without_times(start) not in scored_by:
                self._note({}, start)

    def _note(self, session: Session | dict[str, Any], start: dict[str, Any]) -> None:
        number = len(self._notes) + 1
        cost = {key: value for key, value in session.items() if key not in ("start", "parts", "shrunk")}
        known = {"id": f"old-{number:06d}", "number": number, "time": (start.get("times") or [""])[0], "puts": 1}
        self._notes[known["id"]] = cast("SessionNote", {**cost, **known, "scored_by": _without_times(start)})
        if session.get("shrunk"):
            self._shrunk[f"{known['id']}-000001"] = session["shrunk"]

    # -- the other tables

    def _import_list(self, asked: str) -> None:
        """List the queries of a complete run, if its tables hold as many as it says."""
        coverage, ledger = self.old["coverage"], Parts(self.into, "scores").ledger()
        failed = {one["query_id"] for one in coverage["failed"]}
        try:
            rows = read_table(self.folder / QUERIES_FILE, remedy=self._remedy(QUERIES_FILE)).to_pylist()
        except DamagedFile as damage:
            self._leave(self.folder / QUERIES_FILE, damage)
            return
        if sum(row["query_id"] in ledger.where and row["query_id"] not in failed for row in rows) != coverage["scored"]:
            return
        end = PartNote(failed=coverage["failed"], notes=self.old.get("notes", []))
        end |= PartNote(cut=coverage["cut"]) if "cut" in coverage else {}
        count = lambda query_id: None if query_id in failed else len(ledger.numbers(query_id))  # noqa: E731
        write_list(Parts(self.into, "queries"), asked, rows, count, end)

    def _import_beside(self, permutations: int | None) -> dict[str, int]:
        """Put the tables beside the scores; gives their rows."""
        there = [file.name for file in list_files(self.folder) if file.parent == self.folder]
        names = {*there, *self.old.get("files", [])}
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
        return f"To repair the run: {repair_command(self.old.get('command'), name)}"


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


def _part_sessions(file: Place) -> list[dict[str, Any]]:
    """What the workers of a part of format 1 noted in it; nothing of a damaged one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_whole(file) as stream:
            sessions: list[dict[str, Any]] = json.loads((pq.read_schema(stream).metadata or {})[b"steadyscore.part"])["sessions"]
            return sessions
    except (pa.ArrowException, OSError, ValueError, KeyError):
        return []


def _without_times(start: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in start.items() if key != "times"}


def _forget_code(fingerprint: dict[str, Any]) -> dict[str, Any]:
    """Without the code of a Python scorer, which the first versions kept: whether it is the same is asked of it now."""
    scorer = fingerprint.get("scorer")
    if not isinstance(scorer, dict) or scorer.get("kind") != "python":
        return fingerprint
    return fingerprint | {"scorer": {key: value for key, value in scorer.items() if key not in ("source", "state")}}
