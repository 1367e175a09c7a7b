"""What a run holds, for whoever reads it: its record with what it cost, its queries, the tables beside its scores."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, cast

import numpy as np

from ..errors import DamagedFile, InputError
from ..machine.names import short_repr
from ..machine.places import Place
from ..terms import Array, Failure, JsonObject
from .layout import (
    NOISE_FILE,
    OUTPUTS_FILE,
    QUERIES_FILE,
    SCORES_FILE,
    TABLES,
    perturbation_of,
    query_schema,
    repair_command,
    score_schema,
)
from .parts import Ledger, Parts, Wanted, list_parts, merged_note
from .records import Coverage, EarlyStop, PartNote, Request, RunRecord, Session, ShrunkWindow, Start, read_record
from .requests import Requests, asked_digest, asked_of
from .table import CompactQueries, Scored, from_table
from .tables import QueryList, read_beside, table_of, whole_lists

if TYPE_CHECKING:
    import pyarrow as pa


class StoredRun:
    """A run as it is on disk. What is complete counts: of several requests the newest one that is."""

    def __init__(self, folder: Place, first: RunRecord, *, stored: Place | None = None):
        self.folder = folder
        self._stored = stored or folder
        """Where the parts are: elsewhere for a run of an earlier version that is only read."""
        self._requests = Requests(self._stored, first)
        self._asked: JsonObject | None = None
        """What a command asks for; None: whatever is complete."""
        self._record: RunRecord | None = None
        self._ledger: Ledger | None = None

    def __repr__(self) -> str:
        first = self._requests.first
        return short_repr(self, f"{self.folder}: {first.name} on {first.collection}")

    # -- the record

    @property
    def record(self) -> RunRecord:
        """What was asked, what it cost, and whether it is complete."""
        if self._record is None:
            self._record = self._make_record()
        return self._record

    @property
    def is_complete(self) -> bool:
        return self.record.status == "complete"

    @property
    def was_complete(self) -> bool:
        """Whether it is, or was under fewer queries or permutations than are asked for now."""
        return bool(whole_lists(self._lists))

    def _make_record(self) -> RunRecord:
        from ..machine.schemas import read_as

        requests, newest = self._requests.all(), self._requests.newest
        ledger = self._ledger or self.parts.ledger()
        starts, sessions = sessions_of(ledger.notes)
        lists = whole_lists(self._lists)
        asked = [self._asked] if self._asked is not None else [request["fingerprint"] for request in reversed(requests)]
        whole = next((one for one in asked if (own := lists.get(asked_digest(one))) and _holds(ledger, one, own)), None)
        keys = {**self._requests.first.keys, "status": "scoring"}
        keys |= {key: value for key, value in newest.items() if key in Request.__annotations__}
        keys |= {"fingerprint": self._requests.fingerprint(asked[0] if whole is None else whole)}
        record = replace(read_record(keys, str(self.folder), ""), starts=starts, sessions=sessions)
        if whole is None:
            return record
        note = lists[asked_digest(whole)].note
        failed = [Failure(**failure) for failure in note["failed"]]
        coverage = sum_sessions(sessions, note["total"], failed, note.get("cut"))
        if "stop" in note:
            coverage = replace(coverage, stop=read_as(EarlyStop, note["stop"]))
        told = list(dict.fromkeys([*note.get("notes", []), *record.notes]))
        return replace(record, status="complete", coverage=coverage, notes=told)

    # -- scores

    @property
    def parts(self) -> Parts:
        """The parts of the score table."""
        return Parts(self._stored, "scores", self._remedy(SCORES_FILE))

    @property
    def ledger(self) -> Ledger:
        """Where the rows of every key are."""
        if self._ledger is None:
            self._ledger = self.parts.ledger()
        return self._ledger

    @property
    def _lists(self) -> Parts:
        return Parts(self._stored, "queries", self._remedy(QUERIES_FILE))

    def _own_list(self) -> QueryList | None:
        return whole_lists(self._lists).get(asked_digest(asked_of(self.record.fingerprint.keys)))

    def scored_ids(self) -> set[str]:
        """Ids of the queries of which scores are on disk."""
        return set(self.ledger.where)

    def read_queries(self) -> CompactQueries:
        """Every query of a complete run, held in memory."""
        return CompactQueries(self.iter_queries())

    def iter_queries(self) -> Iterator[Scored]:
        """The queries of a complete run one by one, so that a run may be larger than memory."""
        listed = self._own_list()
        if not self.is_complete or listed is None:
            raise InputError(f"{self.folder} is not complete. Run the command that made it again; it resumes where it stopped.")
        return self._iter_queries(listed)

    def _iter_queries(self, listed: QueryList) -> Iterator[Scored]:
        ideals: dict[str, Array] = {}
        expected: dict[str, int] = {}

        def order() -> Iterator[str]:
            for table in listed.tables(["query_id", "judged", "orders"]):
                for query_id, judged, orders in zip(*(column.to_pylist() for column in table.columns), strict=True):
                    if orders:
                        expected[query_id] = orders
                        if judged is not None:
                            ideals[query_id] = np.asarray(judged, dtype=float)
                        yield query_id

        ledger = self._ledger or self.parts.ledger()
        for table in ledger.tables(order(), wanted_of(self.record.fingerprint.keys)):
            for query in from_table(table, ideals):
                ideals.pop(query.query_id, None)
                if len(query.permutations) < expected.pop(query.query_id):
                    raise DamagedFile(self.folder, f"lacks scores of query {query.query_id}", self._remedy(SCORES_FILE))
                yield query
        if expected:
            raise DamagedFile(self.folder, f"lacks scores of query {next(iter(expected))}", self._remedy(SCORES_FILE))

    def score_tables(self) -> Iterator[pa.Table]:
        """The score table, some queries at a time."""
        listed = self._own_list()
        order = [] if listed is None else (query_id for query_id, _ in listed.scored())
        return self.ledger.tables(order, wanted_of(self.record.fingerprint.keys))

    def query_tables(self) -> Iterator[pa.Table]:
        """The queries in the order of the collection, some at a time."""
        listed = self._own_list()
        return iter(()) if listed is None else listed.tables(query_schema().names)

    def digest(self) -> str:
        """What tells the scores of this run from others, wherever they are and however they are laid out."""
        content = hashlib.sha256()
        for query in self.iter_queries():
            content.update(json.dumps([query.query_id, query.candidate_ids, query.permutations.tolist()]).encode())
            content.update(np.ascontiguousarray(query.scores, dtype="<f8").tobytes())
        return content.hexdigest()

    # -- tables beside the scores

    @property
    def _permutations(self) -> int | None:
        return permutations_of(self.record.fingerprint.keys if self._asked is None else self._asked)

    def _parts_of(self, name: str) -> Parts:
        return Parts(self._stored, table_of(name, self._permutations), self._remedy(name))

    def _count_files(self) -> dict[str, int]:
        """The tables beside the scores, and their rows."""
        own = {table_of(OUTPUTS_FILE, self._permutations): OUTPUTS_FILE}
        tables = sorted({table for table, _ in list_parts(self._stored)} - {"scores", "queries"})
        counts: dict[str, int] = {}
        for table in tables:
            if table in own or not table.startswith("outputs-"):
                name = own.get(table, f"{table}.parquet")
                notes = [note for _, note in Parts(self._stored, table, self._remedy(name)).notes()]
                counts[name] = max(notes, key=lambda note: note["order"])["rows"]
        return counts

    def _remedy(self, name: str) -> str:
        return f"To repair the run: {repair_command(self._requests.newest.get('command'), name)}"

    def has(self, name: str) -> bool:
        """Whether a table belongs to this run: it is there, or it was and must be."""
        is_listed = name in self._requests.newest.get("files", {}) and name != OUTPUTS_FILE
        return is_listed or bool(self._parts_of(name).files())

    def read(self, name: str) -> pa.Table:
        """A table of this run, or what repairs it."""
        import pyarrow as pa

        if name in TABLES:
            is_scores = name == SCORES_FILE
            schema, tables = (score_schema(), self.score_tables()) if is_scores else (query_schema(), self.query_tables())
            return pa.concat_tables([schema.empty_table(), *tables])
        rows, _, _ = read_beside(self._parts_of(name), name)
        if rows is None or rows.num_rows < self._requests.newest.get("files", {}).get(name, 0):
            raise DamagedFile(self.folder / name, "is missing", self._remedy(name))
        return rows

    def read_noise(self) -> list[Scored]:
        """One presentation of each query scored repeatedly; empty where no noise floor was asked for."""
        return list(from_table(self.read(NOISE_FILE))) if self.has(NOISE_FILE) else []

    def read_perturbed(self, query_ids: Sequence[str], sample: Iterable[str] | None = None) -> dict[str, Array]:
        """Measure -> (Q,) of what perturbations moved, NaN where a query was not perturbed, or is not in a sample."""
        place = {query_id: i for i, query_id in enumerate(query_ids)}
        kept = place.keys() if sample is None else place.keys() & set(sample)
        moved: dict[str, Array] = {}
        names = {*self._requests.newest.get("files", {}), *self._count_files()}
        for name in sorted(filter(perturbation_of, names)):
            for row in self.read(name).to_pylist():
                values = moved.setdefault(row["measure"], np.full(len(place), np.nan))
                if row["query_id"] in kept:  # one that failed when the run grew has no scores beside it
                    values[place[row["query_id"]]] = row["value"]
        return moved


def _holds(ledger: Ledger, asked: JsonObject, listed: QueryList) -> bool:
    """Whether the rows of every key that a list of queries counts are there."""
    wanted = wanted_of(asked)
    return all(sum(map(wanted, ledger.numbers(query_id))) >= orders for query_id, orders in listed.scored())


def permutations_of(asked: JsonObject) -> int | None:
    return cast("int | None", asked.get("permutations"))


def wanted_of(asked: JsonObject) -> Wanted:
    """Whether a permutation is asked for."""
    limit = permutations_of(asked)
    return (lambda number: True) if limit is None else (lambda number: number < limit)


# -- what it cost


def sessions_of(notes: Iterable[PartNote]) -> tuple[list[Start], list[Session]]:
    """(starts, sessions) of a run: what scored it, each once with its times; and what every session cost."""
    from ..machine.schemas import read_as

    merged = merged_note(notes)
    cuts: dict[str, list[JsonObject]] = {}
    for name, windows in sorted(merged.get("shrunk", {}).items()):
        cuts.setdefault(name.rpartition("-")[0], []).extend(windows)
    starts: list[Start] = []
    sessions: list[Session] = []
    for session in merged.get("sessions", []):
        by = read_as(Start, session["scored_by"])
        place = next((i for i, start in enumerate(starts) if replace(start, times=()) == by), len(starts))
        if place == len(starts):
            starts.append(by)
        starts[place] = replace(by, times=(*starts[place].times, session["time"]))
        sessions.append(read_as(Session, {**session, "start": place, "shrunk": cuts.get(session["id"], [])}))
    return starts, sessions


def sum_sessions(
    sessions: Sequence[Session], queries: int = 0, failed: Sequence[Failure] = (), cut: int | None = None
) -> Coverage:
    """What all sessions scored and cost. A query that was scored again, as its part was lost, has the cuts of the last time;
    those of permutations that were added to it join those of the ones before."""
    scored = Coverage(queries, queries - len(failed), list(failed), cut)
    if all(session.seconds is None for session in sessions):  # scores that were given cost nothing
        return scored
    shrunk: dict[str, list[ShrunkWindow]] = {}
    charged: Counter[str] = Counter()
    for session in sessions:
        for query_id, cuts in groupby(session.shrunk, key=lambda cut: cut.query_id):
            last = list(cuts)
            shrunk[query_id] = [*(cut for cut in shrunk.get(query_id, []) if cut.known < last[0].known), *last]
        charged.update(session.spent or {})
    shuffled = sum(session.shuffled_pools or 0 for session in sessions)
    return replace(
        scored,
        shrunk=[cut for cuts in shrunk.values() for cut in cuts],
        seconds=round(sum((session.seconds or 0.0 for session in sessions), 0.0), 1),
        windows=sum(session.windows or 0 for session in sessions),
        tokens=sum(session.tokens or 0 for session in sessions),
        spent=dict(charged) or None,
        shuffled_pools=shuffled or None,
        shuffled_difference=max(session.shuffled_difference or 0.0 for session in sessions) if shuffled else None,
    )
