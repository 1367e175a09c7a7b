"""A run to score into: what is asked of it is noted, what is scored is written as parts, and in the end it is complete.

Nothing in a run is ever rewritten. `run.json` says what was asked first; requests after it what was asked later; a part
(`parts.py`) holds whole rows under its digest. So a kill at any moment leaves a run that goes on, a command that is repeated
scores the keys that are missing, and a run is complete when every key that is asked for is there or is named as failed.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, cast

from ..errors import DamagedFile, InputError, UnusableScorer
from ..machine.contents import check_parquet, record_state
from ..machine.disk import (
    explaining_os_errors,
    is_there,
    list_files,
    read_json,
    remove_leftovers_below,
    remove_tree,
    set_aside,
    write_record,
    write_record_once,
    write_tables,
)
from ..machine.extras import versions
from ..machine.places import Place, StorePath, parse_place
from ..terms import Failure, JsonObject
from .layout import (
    ATTACKS_FOLDER,
    CLEAN,
    DAMAGED_FOLDER,
    DECISIONS_FILE,
    FORMAT,
    NOISE_FILE,
    PARTS_FOLDER,
    QUERIES_FILE,
    RECORD_FILE,
    REQUESTS_FOLDER,
    SCORES_FILE,
    STATUS_FILE,
    TABLES,
    QueryRow,
    query_schema,
    remedy_for,
    score_schema,
)
from .parts import COMPACTED, KEY_COLUMNS, WORKER, Ledger, is_compacted, list_parts, merged_note, read_part
from .records import EarlyStop, PartNote, RunRecord, Session, SessionNote, SetAside, Start, to_json
from .requests import asked_digest, asked_of, read_run_record
from .stored import StoredRun, wanted_of
from .table import Scored, from_table, to_table
from .tables import table_of, write_beside, write_list

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("steadyscore")

HELD_HERE, HELD_FOR_A_STORE = 1.0, 20.0
"""Seconds of work that are held before they are written: a kill loses less. A store is paid for each object that is written."""
HELD_ROWS = 200_000
"""Rows that are held before they are written, however soon."""
EQUAL = 1e-3
"""Difference up to which two scores of a scorer that declares itself deterministic are one."""


class Run(StoredRun):
    """The folder of one scorer on one collection."""

    def __init__(self, folder: Place, first: RunRecord, *, stored: Place | None = None):
        super().__init__(folder, first, stored=stored)
        self._session: Session | None = None
        """What is being scored costs; its note, without that."""
        self._session_note: SessionNote | None = None
        self._buffer: list[pa.Table] = []
        self._noted_costs: dict[str, float] | None = {}
        self._flushed = time.monotonic()
        self.pause = HELD_FOR_A_STORE if isinstance(folder, StorePath) else HELD_HERE
        """Seconds of work after which it is written."""
        self.group = ""
        """The stretch of a collection that a worker scores, of which it writes one part; empty: parts are of this session."""
        self.written: list[str] = []
        """The parts that were written here, by their names."""

    # -- creating and resuming

    @classmethod
    def open(cls, folder: Place) -> Run:
        """Open an existing folder to read it; one of an earlier version is read as it would be written now."""
        first = read_run_record(folder)
        if first.format != FORMAT:
            from .importer import imported_elsewhere

            first, stored = imported_elsewhere(folder, first)
            return cls(folder, first, stored=stored)
        return cls(folder, first)

    @classmethod
    def create_or_resume(cls, folder: Place, fingerprint: JsonObject, **about: object) -> Run:
        """Open a folder to score into: a new one, one in which nothing was scored yet, or one whose run is asked for again or
        for more. What is damaged is set aside.

        `about` are further keys of run.json (`RunRecord`).
        """
        if links := [name for name in (PARTS_FOLDER, DAMAGED_FOLDER) if (folder / name).is_symlink()]:
            raise InputError(f"{folder / links[0]} leads out of the run folder, and scores would go there. Remove the link.")
        first = _first_record(fingerprint, about)
        with explaining_os_errors(folder):
            if is_there(folder / RECORD_FILE):
                run = cls._open_to_write(folder)
                run._repair()
                if run.ledger.where or run._requests.allow(fingerprint):
                    run._pin(fingerprint)
                    run._restore_views()
                    return run
                for name in (PARTS_FOLDER, REQUESTS_FOLDER):
                    remove_tree(folder / name)
                write_record(folder / RECORD_FILE, first)
            elif not write_record_once(folder / RECORD_FILE, first):  # another process began it meanwhile
                return cls.create_or_resume(folder, fingerprint, **about)
            return cls(folder, read_run_record(folder))

    @classmethod
    def join(cls, folder: Place, fingerprint: JsonObject, *, command: list[str], **about: object) -> Run:
        """The run that workers share: the first one writes what is asked, the others find it."""
        with explaining_os_errors(folder):
            write_record_once(folder / RECORD_FILE, _first_record(fingerprint, {**about, "command": command}))
            run = cls._open_to_write(folder)
        run._pin(fingerprint)
        run.ask(fingerprint, command)
        return run

    @classmethod
    def _open_to_write(cls, folder: Place) -> Run:
        remove_leftovers_below(folder / PARTS_FOLDER)
        first = read_run_record(folder)
        if first.format != FORMAT:
            from .importer import import_run

            first = import_run(folder, first)
        return cls(folder, first)

    def _pin(self, fingerprint: JsonObject) -> None:
        """Have the run be about what a command asks for, if that is what was asked before or adds to it."""
        self._requests.check(fingerprint)
        self._asked, self._record = asked_of(fingerprint), None

    def ask(self, fingerprint: JsonObject, command: list[str]) -> None:
        """Have what a command asks for, or a part of it that was enough, be what the run is about, for whoever reads it."""
        self._asked, self._record = asked_of(fingerprint), None
        if self._requests.newest["fingerprint"] != self._asked:
            self.update_record(fingerprint=self._asked, command=command)

    def update_record(self, **about: object) -> None:
        """Have some keys of the record from now on; a request is written if they change, or if there are other tables."""
        if self._requests.add({**about, "files": self._count_files()}):
            self._record = None

    @property
    def is_of_one_request(self) -> bool:
        """Whether no command asked for more than the first one did."""
        return len({json.dumps(request["fingerprint"]) for request in self._requests.all()}) == 1

    # -- damage

    def _repair(self) -> None:
        """Set aside every part that is not what was written, and say so."""
        lost, tables = [], set()
        for table, file in list_parts(self._stored):
            try:
                read_part(file)
            except FileNotFoundError:  # merged with others meanwhile
                continue
            except DamagedFile as damage:
                self._set_aside(table, file, damage)
                tables.add(table)
                name = str(file.relative_to(self.folder))  # type: ignore[arg-type]
                lost.append(to_json(SetAside(file=name, reason=damage.what, time=_now())))
        there = self._count_files()
        missing = [name for name, rows in self._requests.newest.get("files", {}).items() if there.get(name, -1) < rows]
        for name in missing:
            if table_of(name, self._permutations) not in tables:
                log.warning("%s is missing. %s", self.folder / name, remedy_for(name))
        if lost or missing:
            self.update_record(set_aside=[*self._requests.newest.get("set_aside", []), *lost])

    def _set_aside(self, table: str, file: Place, damage: DamagedFile) -> None:
        """Move a part that is not what was written to `damaged/`; its rows are then missing."""
        set_aside(file, self.folder / DAMAGED_FOLDER / table)
        log.warning("%s %s. %s", file, damage.what, remedy_for(f"{table}.parquet"))

    # -- scoring

    def some_queries(self, count: int) -> list[Scored]:
        """Queries of which scores are on disk, of several parts where there are several; none of those that were written here."""
        of_parts: list[list[Scored]] = []
        for file in self.parts.files():
            if file.name not in self.written and len(of_parts) < count:
                with suppress(FileNotFoundError):  # merged with others meanwhile
                    if queries := list(islice(from_table(self.parts.read(file)[0]), count)):  # a part may hold only what it cost
                        of_parts.append(queries)
        of_each = -(-count // max(len(of_parts), 1))
        return [query for queries in of_parts for query in queries[:of_each]][:count]

    def join_stretch(self, group: str) -> None:
        """Note what of one stretch other workers wrote; of parts of other stretches a worker never asks."""
        files = self.parts.files(group)
        if self._ledger is None:
            self._ledger = Ledger(self.parts)
            files += [file for file in self.parts.files() if not file.name.startswith(WORKER)]
        known = set(self._ledger.files) if files else set()
        for file in files:
            if file not in known:
                try:
                    self._ledger.add(file, *self.parts.read(file, KEY_COLUMNS))
                except DamagedFile as damage:
                    self._set_aside("scores", file, damage)
                except FileNotFoundError:  # merged with others meanwhile: at worst its rows are scored twice
                    continue

    def begin_session(self, start: Start) -> Session:
        """What this session costs, for the caller to add up; every part that is written says it.

        A change of the scorer that was let pass is written by the next `flush`, also where nothing was left to score.
        """
        notes = self._ledger.notes if self._ledger is not None else [note for _, note in self.parts.notes()]
        number = 1 + max((session["number"] for session in merged_note(notes).get("sessions", [])), default=0)
        id = uuid.uuid4().hex[:15]
        self._session, self._noted_costs = Session(), None if start.changed else {}
        self._session_note = SessionNote(id=id, number=number, time=_now(), puts=0, scored_by=to_json(start))
        return self._session

    def append(self, scored: Scored) -> None:
        """Keep a query, written out as a part once a second's work is held: a kill loses less, and files stay few.

        A query that took longer is written by itself. Those of a worker's stretch are kept until the next `flush`.
        """
        self._buffer.append(to_table(scored))
        held = time.monotonic() - self._flushed
        if not self.group and (held >= self.pause or sum(t.num_rows for t in self._buffer) >= HELD_ROWS):
            self.flush()

    def flush(self) -> None:
        """Write what is held, and what it cost, as a part."""
        import pyarrow as pa

        session, own = self._session, self._session_note
        costs = _costs(session)
        if self._buffer or costs != self._noted_costs:
            rows = pa.concat_tables(self._buffer) if self._buffer else score_schema().empty_table()
            note = PartNote()
            if session is not None and own is not None:
                own = {**own, "puts": own["puts"] + 1}
                note["sessions"] = [cast("SessionNote", {**session.costs(), **own})]
                note["shrunk"] = {f"{own['id']}-{own['puts']:06d}": to_json(session.shrunk)} if session.shrunk else {}
            with explaining_os_errors(self.folder):
                file = self.parts.put(self.group or f"s{'' if own is None else own['id']}", rows, note)
            # Only now: a stop that came in the writing writes the same rows again, and they count once.
            self._buffer, self._record, self._noted_costs = [], None, costs
            self.written.append(file.name)
            if session is not None:
                self._session_note, session.shrunk = own, []
            if self._ledger is not None:
                self._ledger.add(file, rows, note)
        self._flushed = time.monotonic()

    def finish(
        self,
        queries: Iterable[QueryRow],
        failed: Sequence[Failure],
        *,
        cut: int | None = None,
        notes: Sequence[str] = (),
        stop: EarlyStop | None = None,
    ) -> None:
        """List the queries of the run, those too that failed: with it the run is complete. Then merge parts and write views."""
        self.flush()
        asked, lost = self._asked or self._requests.newest["fingerprint"], {one.query_id for one in failed}
        wanted, ledger = wanted_of(asked), self.ledger
        end = PartNote(failed=[one.to_json() for one in failed], notes=[*notes, *self._compare_doubled()])
        end |= PartNote() if cut is None else PartNote(cut=cut)
        end |= PartNote() if stop is None else PartNote(stop=to_json(stop))

        def count(query_id: str) -> int | None:
            return None if query_id in lost else sum(map(wanted, ledger.numbers(query_id)))

        with explaining_os_errors(self.folder):
            write_list(self._lists, asked_digest(asked), queries, count, end)
            self._record = None
            self._compact()
            self._write_views()
        self._ledger = None  # measures need its memory

    def _compare_doubled(self) -> list[str]:
        """What is said of rows that two processes scored; a deterministic scorer gives them twice alike."""
        if not self.ledger.doubled:
            return []
        try:
            count, largest, between = self.ledger.conflicts()
        except FileNotFoundError:  # merged with others meanwhile
            self._ledger = None
            return self._compare_doubled()
        if between is None:
            return []
        capabilities = self._requests.first.capabilities
        if capabilities is not None and capabilities.deterministic and largest > EQUAL:
            raise UnusableScorer(
                f"two processes scored the same presentations, and {count} scores differ by up to {largest:.3g}, though the "
                f"scorer is declared deterministic. Delete {between[0]} or {between[1]}, and run the same command again."
            )
        return [f"{count} scores were made by two processes and differ by up to {largest:.3g}; those of one of them are taken."]

    def _compact(self) -> None:
        """Merge the parts that sessions and workers wrote: first the merged ones are written, then the others go."""
        ledger = self.ledger
        loose = [(file, note) for file, note in zip(ledger.files, ledger.notes, strict=True) if not is_compacted(file)]
        if not loose:
            return
        listed = self._own_list()
        order = dict.fromkeys([*([] if listed is None else (query_id for query_id, _ in listed.scored())), *ledger.where])
        note = merged_note(note for _, note in loose)
        for rows in ledger.tables(order, is_of=lambda file: not is_compacted(file)):
            self.parts.put(COMPACTED, rows, note)
            note = PartNote()  # what it says, it says once
        if note.get("sessions") or note.get("shrunk"):
            self.parts.put(COMPACTED, score_schema().empty_table(), note)
        for file, _ in loose:
            file.unlink(missing_ok=True)
        self._ledger = None

    # -- views

    def _write_views(self) -> None:
        """Tables and status for people. Nothing of this package reads them."""
        write_tables(self.folder / SCORES_FILE, score_schema(), self.score_tables())
        write_tables(self.folder / QUERIES_FILE, query_schema(), self.query_tables())
        write_record(self.folder / STATUS_FILE, self.record.to_json())

    def _restore_views(self) -> None:
        """Write the views of a complete run again where they are missing, damaged or those of another request, and merge parts
        that a worker wrote after it was complete.
        """
        if not self.is_complete:
            return
        try:
            for name in TABLES:
                check_parquet(self.folder / name)
            told, now = read_json(self.folder / STATUS_FILE), self.record.to_json()
            is_own = record_state(told) != "damaged" and all(told.get(key) == now.get(key) for key in ("fingerprint", "coverage"))
        except (FileNotFoundError, DamagedFile):
            is_own = False
        if not is_own:
            self._write_views()
        if not all(map(is_compacted, self.parts.files())):
            self._compact()

    # -- tables beside the scores

    def write(self, name: str, table: pa.Table) -> None:
        """Add rows to a table beside the scores, in place of those of equal keys."""
        with explaining_os_errors(self.folder):
            write_beside(self._parts_of(name), self.folder, name, table)

    def write_noise(self, queries: list[Scored]) -> None:
        import pyarrow as pa

        self.write(NOISE_FILE, pa.concat_tables([to_table(query) for query in queries]))


def _first_record(fingerprint: JsonObject, about: JsonObject) -> dict[str, object]:
    """What run.json of a new run says."""
    return {"format": FORMAT, "created": _now(), "fingerprint": fingerprint, **about, "versions": versions()}


def _costs(session: Session | None) -> dict[str, float]:
    """What a session did and what it was charged."""
    done = {} if session is None else {"windows": session.windows or 0, **(session.spent or {})}
    return {name: value for name, value in done.items() if value}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# -- which runs a user means by the folders that were named


def find_folders(places: Sequence[str | Place]) -> list[Place]:
    """The run folders in and below some folders; a folder's own run is the first of its runs."""
    runs: list[Place] = []
    for folder in map(parse_place, places):
        files = list_files(folder)
        below = [file.parent for file in files if file.name == RECORD_FILE]
        if not below and any(file.name == DECISIONS_FILE for file in files):
            raise InputError(f"{folder} holds an audit of decisions, and no scores. `report`, `gate` and `compare` read it.")
        if not below:
            raise InputError(f"{folder} holds no run: neither it nor a folder below it has a run.json.")
        runs += sorted(below, key=lambda run: (run != folder, run))
    return runs


def find_runs(places: Sequence[str | Place]) -> list[Run]:
    """The runs in and below some folders; those of an attack, which are to be read together, only where each is named."""
    folders = find_folders(places)
    attacks = [folder.parent for folder in folders if folder.name == CLEAN and is_there(folder.parent / ATTACKS_FOLDER)]
    named = set(map(parse_place, places))
    if attacks := [attack for attack in attacks if attack / CLEAN not in named]:
        raise InputError(
            [
                f"{attack} is the folder of an attack: `steadyscore study attack --runs {attack}` measures it, writes its page "
                f"and checks bounds. Name single runs of it, such as {attack / CLEAN}, to read them as runs."
                for attack in attacks
            ]
        )
    return [Run.open(folder) for folder in folders]


def find_decision_folders(places: Sequence[str | Place]) -> list[Place]:
    """Folders of audits of decisions in and below some folders; none where these hold other runs."""
    return [file.parent for place in places for file in list_files(parse_place(place)) if file.name == DECISIONS_FILE]


def find_run(place: str | Place) -> Run:
    """The run of a folder: its own, or the only one below it."""
    folder = parse_place(place)
    return Run.open(own_or_only(folder, find_folders([folder])))


def own_or_only(folder: Place, runs: Sequence[Place]) -> Place:
    """Of the run folders in and below a folder, the one that is meant by its name."""
    if folder in runs or len(runs) == 1:
        return folder if folder in runs else runs[0]
    named = ", ".join(str(run.relative_to(folder)) for run in runs[:5]) + ", ..." * (len(runs) > 5)  # type: ignore[arg-type]
    raise InputError(f"{folder} holds {len(runs)} runs, and one is asked for here. Name one of them: {named}.")
