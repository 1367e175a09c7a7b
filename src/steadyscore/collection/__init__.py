"""Collections: a file of instances, one JSON line each, under an optional header line; or any table that people have.

A collection is addressed by NAME (embedded in the package, or built into the cache), FILE or FOLDER. Files of our own format are
read and written as streams: nothing here holds more than one instance, and a file appears whole or not at all. Other tables are
held in memory (tables, columns, rows); the loaders of public formats are passages and layouts.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.disk import atomic, explaining_os_errors, is_there, local_file, make_folder, sha256
from ..machine.disk import cache_folder as cache_root
from ..machine.names import nearest
from ..machine.places import is_address
from ..terms import Collection, Instance, TaskName
from .catalogue import CATALOGUE
from .columns import OURS
from .files import Mistakes, Report, Unreadable, encode_line, lines, parse_line
from .format import collection_from, header_mistakes, header_record, id_of, instance_from, instance_mistakes, instance_record
from .rows import NOT_JUDGED, are_judged, is_of_the_format, read_pools
from .tables import Table, read_rows, read_table, table_kind

EMBEDDED = Path(__file__).parent / "embedded"
SCHEMA = Path(__file__).parent / "schema.json"
SUFFIXES = (".jsonl", ".jsonl.gz")

log = logging.getLogger("steadyscore")

Data = Any
"""What `open_collection` takes: a name, a file, a folder, a `Source`, or rows in memory (docs/python-api.md)."""
Names = Mapping[str, str] | None
"""Which column of a table is what, where that is not to be recognised: a name of ours -> the column."""


def cache_folder() -> Path:
    """Where built collections are kept: $STEADYSCORE_CACHE/collections, else ~/.cache/steadyscore/collections."""
    return cache_root() / "collections"


def names() -> list[str]:
    """Every name `open_collection` knows: the embedded collections, the paper's, and what was built under another name."""
    embedded = sorted(path.stem for path in EMBEDDED.glob("*.jsonl"))
    built = sorted(path.name for path in cache_folder().glob("[!.]*.jsonl*")) if cache_folder().is_dir() else []
    return list(dict.fromkeys([*embedded, *CATALOGUE, *map(_stem, built)]))


def location(name: str) -> Path | None:
    """The file of a named collection, or None where it is not on this machine yet."""
    places = [EMBEDDED / f"{name}.jsonl", *(cache_folder() / f"{name}{suffix}" for suffix in SUFFIXES)]
    return next((place for place in places if is_there(place) and place.is_file()), None)


@dataclass(frozen=True)
class Source:
    """A collection that was opened: its header at once, its instances as a stream."""

    name: str
    """As it was asked for: a name, or the path of a file."""
    collection: Collection
    read: Callable[[], Iterator[Instance]] = field(repr=False)
    """A new pass over everything that is stored."""
    digest_of: Callable[[], str] = field(repr=False)
    columns: Names = None

    def instances(self, *, reserve: bool = False) -> Iterator[Instance]:
        """A new pass over the instances.

        A file may hold candidates beyond the header's "depth": rank 101, which pool replacement brings in (§D). They are not part
        of the pool unless `reserve` is set, and their relevance then counts in the ideal ranking as that of any judged document.
        """
        depth = (self.collection.details or {}).get("depth")
        if reserve or depth is None:
            return self.read()
        return (_at_depth(instance, int(depth)) for instance in self.read())

    @cached_property
    def digest(self) -> str:
        """The first 16 digits of the SHA-256 of what is stored: what a run was scored on."""
        return self.digest_of()[:16]


def open_collection(data: Data, columns: Names = None, *, quiet: bool = False) -> Source:
    """Open a NAME, a FILE, a FOLDER, or rows that are in memory already (a list of dicts, a frame, a `Dataset`).

    columns  which column is what, where names are not known: {"query": "question", "text": "body"}
    quiet    do not say what was recognised
    """
    if isinstance(data, Source):
        return data
    if not isinstance(data, str | Path):
        return from_records(data, columns=columns)
    path = path_of(data)
    is_folder = path.is_dir() and not any(path.glob("*.arrow"))
    if not is_folder and not _is_own(path):
        return _from_table(read_table(path), str(data), columns, quiet, name=_stem(path.absolute().name))
    if columns:
        raise InputError(f"{data} is of a format whose names are fixed. Leave out --columns.")
    if is_folder:
        return _open_folder(str(data), path, quiet)
    kept = path.stem.rpartition("-")[2] if path.parent == _kept_rows() else ""  # that of the rows, wherever they came from
    return Source(str(data), _header(path), lambda: read_instances(path), lambda: kept or sha256(path))


def from_records(data: Any, name: str = "data", task: TaskName | None = None, columns: Names = None, **header: Any) -> Source:
    """A collection in memory: a list of dicts, a pandas or polars frame, an Arrow table, a Hugging Face dataset.

    task  a name of `tasks.TASKS`; None takes the one that the columns speak of
    """
    about = header | ({"task": task} if task else {})
    return _from_table(Table(list(enumerate(read_rows(data), 1))), name, columns, name=name, **about)


def _from_table(table: Table, address: str, columns: Names, quiet: bool = False, **header: Any) -> Source:
    records, known, lacks = read_pools(table, columns or {})
    names = {name.rpartition(".")[2] for name in (*known.roles.values(), *known.ignored)}
    if not quiet and (table.file or not names <= OURS):
        for remark in filter(None, (str(known), lacks)):
            _say_once(f"{address}: {remark}")
    about: dict[str, Any] = {"task": known.task, "queries": len(records), **header}
    return _in_memory(address, Collection(**about), records, columns)


def _open_folder(address: str, folder: Path, quiet: bool) -> Source:
    """BEIR or TREC files with the run that is among them, or BM25, as their first stage; in memory."""
    from .passages import BuildRequest, folder_format, from_passages, own_files, raise_mistakes_at_end

    format, split = folder_format(folder)
    known, report = replace(own_files(folder.absolute().name, format), split=split), Report()
    collection, instances = from_passages(folder, BuildRequest(known), report)
    records = [instance_record(instance) for instance in raise_mistakes_at_end(instances, report)]
    stage = (collection.details or {})["first_stage"]["kind"]
    counts = [f"{count:,} {what}" for what, count in (report.dropped + report.notes).items()]
    counts += [] if are_judged(records) else [f"no judgements, so {NOT_JUDGED}"]
    if not quiet:
        _say_once("; ".join([f"{address}: {format} files, first stage {stage}", *counts]))
    return _in_memory(address, replace(collection, queries=len(records)), records)


def _in_memory(address: str, collection: Collection, records: list[dict[str, Any]], columns: Names = None) -> Source:
    def digest() -> str:
        return hashlib.sha256(b"".join(map(encode_line, records))).hexdigest()

    return Source(address, collection, lambda: map(instance_from, records), digest, columns)


@cache
def _say_once(sentence: str) -> None:
    """However often a command opens its data."""
    log.warning(sentence)


def name_columns(data: Data, columns: Names) -> Data:
    """Data whose columns are named, opened; other data as it is."""
    return open_collection(data, columns) if columns else data


def _kept_rows() -> Path:
    return cache_root() / "rows"


def keep_as_file(data: Data, columns: Names = None) -> str:
    """A file with what is in memory, or in a table whose columns are named; in the cache, under its content."""
    source = open_collection(data, columns)
    path = _kept_rows() / f"{source.collection.name}-{source.digest}.jsonl"
    if not is_there(path):
        write(path, source.collection, source.instances(reserve=True))
    return str(path)


def read_instances(path: str | Path) -> Iterator[Instance]:
    """Instances in file order. At the first bad line the rest of the file is checked too: all mistakes are named at once.

    At the end of a file that does not hold as many queries as its header counts, it is refused.
    """
    path, count = Path(path), 0
    for count, (_, record, mistakes) in enumerate(_records(path), 1):  # noqa: B007
        if mistakes:
            raise InputError(check(path))
        yield instance_from(record)
    if not count:
        raise InputError(check(path))
    if (stated := _header(path).queries) not in (None, count):
        raise InputError(
            f"{path} holds {count:,} queries and its header counts {stated:,}, so it was cut short or changed. "
            'Copy or build it again, or correct "queries" in its first line.'
        )


def check(path: str | Path, columns: Names = None) -> list[str]:
    """Every mistake of a file as "FILE:LINE: what is wrong"; an empty list is a file that can be used."""
    path = Path(path)
    header, mistakes = None, Mistakes()
    try:
        if columns or path.is_dir() or not _is_own(path):
            open_collection(path, columns)
            return []
    except InputError as error:
        return error.mistakes
    try:
        header = _header(path)
    except InputError as error:
        mistakes += error.mistakes
    digest, count = hashlib.sha256(), 0
    try:
        for count, (number, record, own) in enumerate(_records(path), 1):  # noqa: B007
            digest.update(encode_line(record))
            mistakes += [f"{path}:{number}: {mistake}" for mistake in own]
    except InputError as error:  # the file itself: absent, damaged
        return list(dict.fromkeys([*mistakes, *error.mistakes]))
    if not count:
        mistakes.append(f"{path}: holds no instance; give one JSON object per line.")
    if header and not mistakes:
        if header.queries not in (None, count):
            mistakes.append(f"{path}:1: the header counts {header.queries:,} queries, the file holds {count:,}")
        if (header.details or {}).get("sha256") not in (None, digest.hexdigest()):
            mistakes.append(f"{path}:1: the instances changed after the file was written; their sha256 is not the header's")
    return mistakes


def write(path: str | Path, collection: Collection, instances: Iterable[Instance]) -> int:
    """Write a collection and return its number of instances.

    The header states that number and the instances' SHA-256, so the lines go to a scratch file first and the header is made last
    (`details` may still be filled while the instances are drawn). Whenever the process dies, the old file is there, or none.
    """
    path = Path(path)
    if not path.name.endswith(SUFFIXES):
        raise InputError(f"{path}: a collection is written as .jsonl or .jsonl.gz; give --out one of these endings.")
    digest, queries = hashlib.sha256(), 0
    with explaining_os_errors(path):
        make_folder(path.parent)
    with (
        explaining_os_errors(path),
        tempfile.TemporaryFile(dir=path.parent) as body,
    ):  # nameless: the system frees it even after kill -9
        for instance in instances:
            line = encode_line(instance_record(instance))
            digest.update(line)
            queries += 1
            body.write(line)
        details = {**(collection.details or {}), "sha256": digest.hexdigest()}
        header = encode_line(header_record(replace(collection, queries=queries, details=details)))
        body.seek(0)
        with atomic(path) as out:
            out.write(header)
            shutil.copyfileobj(body, out, 1 << 20)
    return queries


def path_of(source: str | Path) -> Path:
    """The file that a NAME or FILE stands for."""
    if isinstance(source, str) and is_address(source):
        return local_file(source)
    if isinstance(source, Path) or source.endswith(SUFFIXES) or os.sep in source:
        return Path(source)
    if path := location(source):
        return path
    if table_kind(Path(source)) or is_there(source):
        return Path(source)
    known = names()
    whole, _, part = source.partition(".")
    if source in known or (whole in CATALOGUE and part in CATALOGUE[whole].parts):
        raise InputError(f"{source} is not on this machine yet. Get it with: steadyscore data get {whole}")
    near = nearest(source, known)
    hint = f"Did you mean {near}?" if near else "Nor is there such a file or folder."
    raise InputError(f"no collection is named {source}. {hint} All names: steadyscore data list")


def _stem(name: str) -> str:
    return Path(name.removesuffix(".gz")).stem if table_kind(Path(name)) else name


def _records(path: Path) -> Iterator[tuple[int, Any, list[str]]]:
    """Line number, JSON value and mistakes of every line but the header."""
    first_line: dict[str, int] = {}
    for place, (number, line) in enumerate(lines(path)):
        record = parse_line(line)
        if place or not _is_header(record):
            mistakes = [str(record)] if isinstance(record, Unreadable) else instance_mistakes(record)
            if (id := id_of(record)) is not None and first_line.setdefault(id, number) != number:
                mistakes.append(f"query id {id!r} is already on line {first_line[id]}")
            yield number, record, mistakes


def _is_header(record: Any) -> bool:
    return isinstance(record, dict) and "collection" in record


def _is_own(path: Path) -> bool:
    """Whether a file is of our format, by its first line; what is no JSON at all is told as if it were."""
    if table_kind(path) != ".jsonl":
        return False
    record = parse_line(next(lines(path), (0, b"null"))[1])
    return _is_header(record) or not isinstance(record, dict | list) or is_of_the_format(record)


def _header(path: Path) -> Collection:
    """The header line, or, without one, a passage-reranking collection named as the file."""
    number, line = next(lines(path), (0, b""))
    if not _is_header(record := parse_line(line)):
        return Collection(name=_stem(path.name), task="passage_reranking")
    mistakes = header_mistakes(record["collection"])
    mistakes += [f'header: "{key}" stands outside "collection"' for key in record if key != "collection"]
    if mistakes:
        raise InputError([f"{path}:{number}: {mistake}" for mistake in mistakes])
    return collection_from(record["collection"])


def _at_depth(instance: Instance, depth: int) -> Instance:
    pool, reserve = instance.pool[:depth], instance.pool[depth:]
    judged = {candidate.id: candidate.relevance for candidate in reserve if candidate.relevance is not None}
    return replace(instance, pool=pool, judged={**(instance.judged or {}), **judged} or None) if reserve else instance
