"""Checksums that travel inside the file they belong to, so that the rename that brings a file brings its checksum too.

A Parquet file carries the SHA-256 of all its bytes among its key-value metadata, computed with zeros in the place of the digest
itself. A JSON object carries that of its other keys under `sha256`, whatever the layout. Files of earlier versions carry none.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import IO, Any, Literal

from ..terms import JsonObject
from .places import Place, open_whole

State = Literal["OK", "damaged", "not checksummed"]

KEY = "steadyscore.sha256"
"""Name of the digest among the key-value metadata of a Parquet file."""
BLANK = "0" * 64
"""Its value while the digest is computed."""

_SEAL = re.compile(re.escape(KEY.encode()) + rb"\x18@(.{64})", re.DOTALL)
"""Key and value in the footer: Parquet writes a text as its length (64 is `@`) and its bytes."""
_MAGIC, _TAIL, _CHUNK = b"PAR1", 8, 1 << 20


def seal_parquet(stream: IO[bytes]) -> None:
    """Fill the digest into a whole Parquet file that was written to this stream with BLANK under KEY."""
    place, _ = _find_seal(stream) or (0, b"")
    assert place, "the file was written without a place for its digest"
    digest = _digest_without(stream, place)
    stream.seek(place)
    stream.write(digest)
    stream.seek(0, 2)


def parquet_state(file: Place) -> State:
    """Whether a Parquet file is what was written. One that does not end as Parquet does is damaged, whoever wrote it."""
    with open_whole(file) as stream:
        try:
            seal = _find_seal(stream)
        except ValueError:
            return "damaged"
        if seal is None:
            return "not checksummed"
        place, digest = seal
        return "OK" if _digest_without(stream, place) == digest else "damaged"


def _find_seal(stream: IO[bytes]) -> tuple[int, bytes] | None:
    """Place and digest in the footer; ValueError where the footer is missing."""
    size = stream.seek(0, 2)
    stream.seek(max(size - _TAIL, 0))
    tail = stream.read(_TAIL)
    length = int.from_bytes(tail[:4], "little")
    start = size - _TAIL - length
    if tail[4:] != _MAGIC or start < len(_MAGIC):
        raise ValueError("the file does not end as a Parquet file does")
    stream.seek(start)
    # The last one: a text of a column may look like it, and statistics of columns stand before the metadata.
    seals = list(_SEAL.finditer(stream.read(length)))
    return (start + seals[-1].start(1), seals[-1][1]) if seals else None


def _digest_without(stream: IO[bytes], place: int) -> bytes:
    """SHA-256 of a file with BLANK in the place of its digest."""
    digest = hashlib.sha256()
    stream.seek(0)
    left = place
    while left and (chunk := stream.read(min(left, _CHUNK))):
        digest.update(chunk)
        left -= len(chunk)
    digest.update(BLANK.encode())
    stream.seek(place + len(BLANK))
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest().encode()


def seal_record(record: Mapping[str, Any]) -> dict[str, object]:
    """A JSON object with its checksum, which stands first: whoever changes the file by hand can delete that line."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    return {"sha256": _record_digest(rest), **rest}


def record_state(record: Mapping[str, Any]) -> State:
    """Whether a JSON object is what was written."""
    if "sha256" not in record:
        return "not checksummed"
    return "OK" if seal_record(record)["sha256"] == record["sha256"] else "damaged"


def _record_digest(record: JsonObject) -> str:
    plain = json.loads(json.dumps(record))  # as a reader gets it: numbers that were keys are texts
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
