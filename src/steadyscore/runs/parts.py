"""Parts of a run that workers write without a lock: `shards/part-<hash>.parquet`, whole queries of one stretch of a collection.

A part's name is a hash of what is in it, so workers that never spoke to each other mean the same by the same name. A part
appears by one rename, with its checksum, and carries in its metadata what it cost, what failed and what scored it; run.json is
written by the first worker and by nobody else until the parts are collected.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from typing_extensions import TypedDict

from ..errors import DamagedFile, RunMismatch
from ..machine.disk import remove_leftovers, set_aside, write_parquet, write_record_once
from ..machine.mirrors import fetch, name_of
from .folder import Run, check_same_command, new_record
from .growth import is_growth
from .layout import DAMAGED_FOLDER, RECORD_FILE, SHARDS_FOLDER, FailedQuery, Session, score_schema
from .table import Scored, check_file, from_table, read_table, to_table

METADATA_KEY = b"steadyscore.part"

log = logging.getLogger("steadyscore")


class PartSession(TypedDict):
    """One worker's work on a part."""

    session: Session
    start: dict[str, Any]
    """`scoring.starts.Start`: what scored it."""


class PartRecord(TypedDict):
    """What a part says of itself."""

    sessions: list[PartSession]
    failed: list[FailedQuery]
    """Queries of the part that its scorer failed on."""


def part_id(fingerprint: dict[str, Any], query_ids: Sequence[str]) -> str:
    """The name of a part: the same on every machine that scores the same queries in the same way."""
    content = json.dumps([fingerprint, list(query_ids)], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def part_file(folder: Path, part: str) -> Path:
    return folder / SHARDS_FOLDER / f"part-{part}.parquet"


def is_record(name: str) -> bool:
    """Whether a worker needs a file of the folder from the beginning; parts it gets one by one, when it comes to them."""
    return name.rpartition("/")[2] == RECORD_FILE


def join_run(folder: Path, fingerprint: dict[str, Any], **about: Any) -> Run:
    """The run that workers share: the first one writes run.json, the others find it, and none changes it."""
    (folder / SHARDS_FOLDER).mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder / SHARDS_FOLDER)
    write_record_once(folder / RECORD_FILE, new_record(fingerprint, about))
    run = Run.open(folder)
    there = run.record["fingerprint"]
    if (run.is_growing and there == fingerprint) or (run.is_complete and is_growth(there, fingerprint)):
        raise RunMismatch(f"{folder} holds a part of what is asked for, and shares cannot add to it. Leave out --shard and --on.")
    check_same_command(folder, there, fingerprint)
    return run


def read_part(folder: Path, part: str) -> tuple[list[Scored], PartRecord]:
    """The queries of a part that are on disk; a damaged file is set aside, and its queries are scored again."""
    file = part_file(folder, part)
    fetch(file)
    if not file.exists():
        return [], PartRecord(sessions=[], failed=[])
    try:
        check_file(file)
        return list(from_table(read_table(file))), _record(file)
    except DamagedFile as damage:
        kept = set_aside(file, folder / DAMAGED_FOLDER / SHARDS_FOLDER)
        log.warning("%s %s. It was moved to %s, and its queries are scored again.", name_of(file), damage.what, name_of(kept))
        return [], PartRecord(sessions=[], failed=[])


def write_part(folder: Path, part: str, queries: Sequence[Scored], record: PartRecord) -> None:
    """Write a part whole, in place of one that had fewer queries."""
    import pyarrow as pa

    table = pa.concat_tables([to_table(query) for query in queries]) if queries else score_schema().empty_table()
    metadata = {METADATA_KEY: json.dumps(record, ensure_ascii=False).encode()}
    # Without a look for leftovers: among a million parts, the list of the folder would take longer than the part.
    write_parquet(part_file(folder, part), table.replace_schema_metadata(metadata), sweep=False)


def part_records(folder: Path) -> Iterator[tuple[str, PartRecord]]:
    """What the parts on disk say of themselves, by name."""
    for file in sorted((folder / SHARDS_FOLDER).glob("part-*.parquet")):
        yield file.stem.removeprefix("part-"), _record(file)


def _record(file: Path) -> PartRecord:
    import pyarrow.parquet as pq

    stored = (pq.read_schema(file).metadata or {}).get(METADATA_KEY)
    if stored is None:
        raise RunMismatch(f"{file} carries no record of what scored it. Delete it and score it again.")
    return cast("PartRecord", json.loads(stored))
