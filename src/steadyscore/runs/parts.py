"""Parts of a run's tables: `parts/<table>/<group>-<digest>.parquet`, written once, each with what its rows cost.

The second half of a part's name is the SHA-256 of its bytes, so a part that is not what was written shows it, and two processes
never write over each other. The first half says who wrote it: `c` a compaction, `s` a session, `w` a worker on one stretch of a
collection. Rows of one key may be in several parts; the first part by name counts, so a compacted one goes first.
"""

from __future__ import annotations

import hashlib
import io
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from ..errors import DamagedFile
from ..machine.disk import list_files, write_bytes
from ..machine.places import Place
from ..terms import Array, JsonObject
from .layout import PARTS_FOLDER, score_schema
from .records import PartNote, SessionNote

if TYPE_CHECKING:
    import pyarrow as pa

NOTE = b"steadyscore.part"
"""Name of a part's note in the metadata of its file."""
COMPACTED, WORKER = "c", "w"
"""How the names of parts begin that a compaction or a worker wrote; those of a session begin with `s`."""
KEY_COLUMNS = ["query_id", "permutation"]
GROUP_ROWS = 50_000
"""Rows of a compacted part, and of a row group of a view: what is held at once."""
ATTEMPTS = 5
"""Times that the parts are listed again, as one went between the listing and its reading."""

REMEDY = "Run the command that made it again: it sets the part aside and makes its rows anew."


class Parts:
    """The parts of one table."""

    def __init__(self, folder: Place, table: str, remedy: str = REMEDY):
        self.folder, self._remedy = folder / PARTS_FOLDER / table, remedy

    def files(self, group: str = "") -> list[Place]:
        """The parts that are there, by name; those of a group alone."""
        return [file for file in list_files(self._folder_of(group), group) if file.suffix == ".parquet"]

    def _folder_of(self, group: str) -> Place:
        """Parts of workers, of which there may be a million, are in 256 folders: one is soon listed."""
        return self.folder / group[:3] if group.startswith(WORKER) else self.folder

    def put(self, group: str, rows: pa.Table, note: PartNote) -> Place:
        """Write a part; in a store, by one request. Equal rows with an equal note are one part, whoever writes them."""
        import pyarrow.parquet as pq

        stream = io.BytesIO()
        pq.write_table(rows.replace_schema_metadata({NOTE: json.dumps(note, ensure_ascii=False).encode()}), stream)
        content = stream.getvalue()
        file = self._folder_of(group) / f"{group}-{_digest(content)}.parquet"
        write_bytes(file, content)
        return file

    def read(self, file: Place, columns: list[str] | None = None) -> tuple[pa.Table, PartNote]:
        """The rows of a part and its note, or DamagedFile; FileNotFoundError of one that is gone is the caller's to word."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        content = read_part(file, self._remedy)
        try:
            opened = pq.ParquetFile(pa.BufferReader(content), pre_buffer=False)  # which needs a thread, and memory for it
            table = opened.read(columns=columns, use_threads=False)
            return table.replace_schema_metadata(None), cast("PartNote", json.loads((table.schema.metadata or {})[NOTE]))
        except (pa.ArrowNotImplementedError, OSError, ValueError, KeyError) as damage:  # lack of memory is no damage
            raise DamagedFile(file, "is damaged, or of a version that this one cannot read", self._remedy) from damage

    def each(self, columns: list[str] | None = None) -> Iterator[tuple[Place, pa.Table, PartNote]]:
        """Every part: file, rows, note."""
        done: set[Place] = set()
        for attempt in range(ATTEMPTS):
            try:
                for file in self.files():
                    if file not in done:
                        yield file, *self.read(file, columns)
                        done.add(file)
                return
            except FileNotFoundError:  # merged with others by another process; what it was merged into is there
                if attempt + 1 == ATTEMPTS:
                    raise

    def notes(self) -> list[tuple[Place, PartNote]]:
        """What the parts say beside their rows."""
        return [(file, note) for file, _, note in self.each([])]

    def ledger(self) -> Ledger:
        """Where the rows of every key are."""
        ledger = Ledger(self)
        for part in self.each(KEY_COLUMNS):
            ledger.add(*part)
        return ledger


def read_part(file: Place, remedy: str = REMEDY) -> bytes:
    """The bytes of a part, which are those it is named after."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as refusal:
        raise DamagedFile(file, f"cannot be read ({refusal.strerror or refusal})", remedy) from refusal
    if not file.stem.endswith(f"-{_digest(content)}"):
        raise DamagedFile(file, "is damaged: it is not what was written", remedy)
    return content


def list_parts(folder: Place) -> list[tuple[str, Place]]:
    """(table, part) of every part of a run."""
    parts = folder / PARTS_FOLDER
    return [(file.relative_to(parts).parts[0], file) for file in list_files(parts) if file.suffix == ".parquet"]


def is_compacted(file: Place) -> bool:
    """Whether a part holds keys that no other compacted part has."""
    return file.name.startswith(f"{COMPACTED}-")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:24]


class Span(NamedTuple):
    """Rows of a part."""

    file: int
    start: int
    stop: int


def join_spans(spans: Iterable[Span]) -> list[Span]:
    """Rows that follow one another in a part are taken at once."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].file == span.file and joined[-1].stop == span.start:
            joined[-1] = joined[-1]._replace(stop=span.stop)
        else:
            joined.append(span)
    return joined


Wanted = Callable[[int], bool]
"""Whether the rows of a permutation are asked for."""
IsOf = Callable[[Place], bool]
"""Whether the rows of a part are."""


class Ledger:
    """Query -> where its rows are, of a table keyed by query and permutation."""

    def __init__(self, parts: Parts):
        self._parts = parts
        self.files: list[Place] = []
        self.notes: list[PartNote] = []
        self.where: dict[str, tuple[int, ...]] = {}
        """Query -> the numbers of its pieces, in the order of the parts."""
        self._pieces = array("q")
        """Every piece: part, rows from and to, and under which permutations, all of as many rows. As objects they would take
        more than the scores."""
        self.doubled: set[str] = set()
        """Queries of which some rows are in more than one part."""
        self._numbers: dict[tuple[int, ...], int] = {}
        self._number_sets: list[tuple[int, ...]] = []
        # Each start of a run goes through the collection in order, so few parts are needed at once.
        self._table = lru_cache(maxsize=2)(lambda number: parts.read(self.files[number])[0])

    def add(self, file: Place, keys: pa.Table, note: PartNote) -> None:
        """Note where the rows of a part are, from its columns of keys."""
        number = len(self.files)
        self.files.append(file)
        self.notes.append(note)
        if not keys.num_rows:
            return
        ids = keys.column("query_id").combine_chunks().dictionary_encode()
        codes, permutations = ids.indices.to_numpy(), keys.column("permutation").to_numpy()
        is_new = np.r_[True, codes[1:] != codes[:-1]]
        starts: Array = np.flatnonzero(is_new)
        changes = np.flatnonzero(is_new | np.r_[True, permutations[1:] != permutations[:-1]])
        ends: Any = np.searchsorted(changes, np.r_[starts[1:], len(codes)]).tolist()
        seen, names, first = permutations[changes].tolist(), ids.dictionary.to_pylist(), 0
        stops = [*starts[1:].tolist(), len(codes)]
        for code, start, stop, last in zip(codes[starts].tolist(), starts.tolist(), stops, ends, strict=True):
            numbers = tuple(seen[first:last])
            if numbers not in self._numbers:
                self._numbers[numbers] = len(self._number_sets)
                self._number_sets.append(numbers)
            first, query_id = last, names[code]
            if query_id in self.where and not self.numbers(query_id).isdisjoint(numbers):
                self.doubled.add(query_id)
            self.where[query_id] = (*self.where.get(query_id, ()), len(self._pieces) // 4)
            self._pieces.extend((number, start, stop, self._numbers[numbers]))

    def numbers(self, query_id: str) -> set[int]:
        """The permutations under which a query has rows."""
        return {number for place in self.where.get(query_id, ()) for number in self._number_sets[self._pieces[4 * place + 3]]}

    def _each(self, query_id: str) -> Iterator[tuple[int, Span]]:
        """(permutation, where its rows are) of a query, in the order of the parts."""
        for place in self.where.get(query_id, ()):
            part, start, stop, numbers = self._pieces[4 * place : 4 * place + 4]
            rows = (stop - start) // len(self._number_sets[numbers])
            for count, number in enumerate(self._number_sets[numbers]):
                yield number, Span(part, start + count * rows, start + (count + 1) * rows)

    def spans(self, query_id: str, wanted: Wanted, is_of: IsOf = bool) -> list[Span]:
        """Where the rows of a query are, by permutation, each one once: of some parts, in the first that has it."""
        rows: dict[int, Span] = {}
        for number, span in self._each(query_id):
            if wanted(number):
                rows.setdefault(number, span)
        return join_spans(span for _, span in sorted(rows.items()) if is_of(self.files[span.file]))

    def rows(self, span: Span) -> pa.Table:
        return self._table(span.file).slice(span.start, span.stop - span.start)

    def tables(self, order: Iterable[str], wanted: Wanted = lambda number: True, is_of: IsOf = bool) -> Iterator[pa.Table]:
        """The rows of the queries in this order, about GROUP_ROWS at a time; equal rows give equal tables, however they came."""
        queries: list[str] = []
        rows = 0
        for query_id in order:
            if spans := self.spans(query_id, wanted, is_of):
                queries.append(query_id)
                rows += sum(span.stop - span.start for span in spans)
            if rows >= GROUP_ROWS:
                yield self._gather(queries, wanted, is_of)
                queries, rows = [], 0
        if queries:
            yield self._gather(queries, wanted, is_of)
        self._table.cache_clear()

    def _gather(self, queries: Iterable[str], wanted: Wanted, is_of: IsOf) -> pa.Table:
        """The rows of some queries. Where another process has merged a part with others meanwhile, they are looked for again."""
        import pyarrow as pa

        for _ in range(ATTEMPTS):
            try:
                spans = join_spans(span for query_id in queries for span in self.spans(query_id, wanted, is_of))
                return pa.concat_tables([score_schema().empty_table(), *map(self.rows, spans)]).combine_chunks()
            except FileNotFoundError:
                vars(self).update(vars(self._parts.ledger()))
        raise DamagedFile(self._parts.folder, f"changed while it was read, {ATTEMPTS} times", "Run the command again.")

    def conflicts(self) -> tuple[int, float, tuple[Place, Place] | None]:
        """How many rows several parts score otherwise, by how much at most, and the two parts that differ most."""
        count, largest, between = 0, 0.0, None
        for query_id in sorted(self.doubled):
            first: dict[int, Span] = {}
            for number, span in self._each(query_id):
                known = first.setdefault(number, span)
                moved = np.abs(self._scores(known) - self._scores(span))
                count += int((moved > 0).sum())
                if moved.max() > largest:
                    largest, between = float(moved.max()), (self.files[known.file], self.files[span.file])
        return count, largest, between

    def _scores(self, span: Span) -> Array:
        scores: Array = self.rows(span).column("score").to_numpy()
        return scores


def merged_note(notes: Iterable[PartNote]) -> PartNote:
    """What several parts say of their sessions, each session by its newest note and each cut of a text once."""
    sessions: dict[str, SessionNote] = {}
    cuts: dict[str, list[JsonObject]] = {}
    for note in notes:
        for session in note.get("sessions", []):
            known = sessions.get(session["id"])
            if known is None or session["puts"] > known["puts"]:
                sessions[session["id"]] = session
        cuts |= note.get("shrunk", {})
    return PartNote(sessions=sorted(sessions.values(), key=_session_order), shrunk=cuts)


def _session_order(session: SessionNote) -> tuple[int, bool, str]:
    """Of sessions that began at once, one whose scorer had changed comes after the others."""
    return session["number"], "changed" in session["scored_by"], session["id"]
