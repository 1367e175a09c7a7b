"""Collections: a file of instances, one JSON line each, under an optional header line.

A collection is addressed by NAME (embedded in the package, or built into the cache) or by FILE (.jsonl, .jsonl.gz).
Files are read and written as streams: nothing here holds more than one instance, and a file appears whole or not at all.
The loaders of public formats stand beside: passages, multidoc_qa, responses, claims; the paper's collections in catalogue.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.disk import atomic, explaining_os_errors, is_there, make_folder, sha256
from ..machine.disk import cache_folder as cache_root
from ..machine.mirrors import is_address
from ..machine.stores import local_file
from ..terms import Collection, Instance, TaskName
from . import memory
from .catalogue import CATALOGUE
from .files import Mistakes, Unreadable, encode_line, lines, parse_line
from .format import collection_from, header_mistakes, header_record, id_of, instance_from, instance_mistakes, instance_record

EMBEDDED = Path(__file__).parent / "embedded"
SCHEMA = Path(__file__).parent / "schema.json"
SUFFIXES = (".jsonl", ".jsonl.gz")

Data = Any
"""What `open_collection` takes: a name, a file, a `Source`, or rows in memory (docs/python-api.md)."""


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
    read: Callable[[], Iterator[Instance]]
    """A new pass over everything that is stored."""
    digest_of: Callable[[], str]

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


def open_collection(data: Data) -> Source:
    """Open a NAME, a FILE, or instances that are in memory already (a list of dicts, a frame, a `Dataset`)."""
    if isinstance(data, Source):
        return data
    if not isinstance(data, str | Path):
        return from_records(data)
    path = path_of(data)
    return Source(str(data), _header(path), lambda: read_instances(path), lambda: sha256(path))


def from_records(data: Any, name: str = "data", task: TaskName = "passage_reranking", **header: Any) -> Source:
    """A collection in memory: a list of dicts, a pandas or polars frame, an Arrow table, a Hugging Face dataset."""
    records = memory.read_records(data)
    collection = Collection(name=name, task=task, queries=len(records), **header)
    return Source(name, collection, lambda: map(instance_from, records), lambda: memory.digest(records))


def read_instances(path: str | Path) -> Iterator[Instance]:
    """Instances in file order. At the first bad line the rest of the file is checked too: all mistakes are named at once.

    At the end of a file that does not hold as many queries as its header counts, it is refused.
    """
    path = Path(path)
    seen: set[str] = set()
    for _, record in _records(path):
        if isinstance(record, Unreadable) or instance_mistakes(record) or str(record["id"]) in seen:
            raise InputError(check(path))
        instance = instance_from(record)
        seen.add(instance.id)
        yield instance
    if not seen:
        raise InputError(check(path))
    if (stated := _stated_queries(path)) not in (None, len(seen)):
        raise InputError(
            f"{path} holds {len(seen):,} queries and its header counts {stated:,}, so it was cut short or changed. "
            'Copy or build it again, or correct "queries" in its first line.'
        )


def check(path: str | Path) -> list[str]:
    """Every mistake of a file as "FILE:LINE: what is wrong"; an empty list is a file that can be used."""
    path = Path(path)
    header, found = None, Mistakes()
    try:
        header = _header(path)
    except InputError as error:
        found += error.mistakes
    first_line: dict[str, int] = {}
    digest, count = hashlib.sha256(), 0
    try:
        for number, record in _records(path):
            count += 1
            if isinstance(record, Unreadable):
                found.append(f"{path}:{number}: {record}")
                continue
            digest.update(encode_line(record))
            found += [f"{path}:{number}: {mistake}" for mistake in instance_mistakes(record)]
            id = id_of(record)
            if id is not None and first_line.setdefault(id, number) != number:
                found.append(f"{path}:{number}: query id {id!r} is already on line {first_line[id]}")
    except InputError as error:  # the file itself: absent, damaged
        return list(dict.fromkeys([*found, *error.mistakes]))
    if not count:
        found.append(f"{path}: holds no instance; give one JSON object per line.")
    if header and not found:
        if header.queries not in (None, count):
            found.append(f"{path}:1: the header counts {header.queries:,} queries, the file holds {count:,}")
        if (header.details or {}).get("sha256") not in (None, digest.hexdigest()):
            found.append(f"{path}:1: the instances changed after the file was written; their sha256 is not the header's")
    return found


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
    known = names()
    whole, _, part = source.partition(".")
    if source in known or (whole in CATALOGUE and part in CATALOGUE[whole].parts):
        raise InputError(f"{source} is not on this machine yet. Get it with: steadyscore data get {whole}")
    near = difflib.get_close_matches(source, known, n=1, cutoff=0.6)
    hint = f"Did you mean {near[0]}?" if near else "A file ends in .jsonl or .jsonl.gz."
    raise InputError(f"no collection is named {source}. {hint} All names: steadyscore data list")


def _stem(name: str) -> str:
    return name.removesuffix(".gz").removesuffix(".jsonl")


def _records(path: Path) -> Iterator[tuple[int, Any]]:
    """Line number and JSON value of every line but the header."""
    for place, (number, line) in enumerate(lines(path)):
        record = parse_line(line)
        if place or not _is_header(record):
            yield number, record


def _is_header(record: Any) -> bool:
    return isinstance(record, dict) and "collection" in record


def _header(path: Path) -> Collection:
    """The header line, or, without one, a passage-reranking collection named as the file."""
    number, line = next(lines(path), (0, b""))
    if not _is_header(record := parse_line(line)):
        return Collection(name=_stem(path.name), task="passage_reranking")
    found = header_mistakes(record["collection"])
    found += [f'header: "{key}" stands outside "collection"' for key in record if key != "collection"]
    if found:
        raise InputError([f"{path}:{number}: {mistake}" for mistake in found])
    return collection_from(record["collection"])


def _stated_queries(path: Path) -> int | None:
    """How many queries the header counts."""
    _, line = next(lines(path))
    header = parse_line(line)
    return collection_from(header["collection"]).queries if _is_header(header) else None


def _at_depth(instance: Instance, depth: int) -> Instance:
    pool, reserve = instance.pool[:depth], instance.pool[depth:]
    judged = {candidate.id: candidate.relevance for candidate in reserve if candidate.relevance is not None}
    return replace(instance, pool=pool, judged={**(instance.judged or {}), **judged} or None) if reserve else instance
