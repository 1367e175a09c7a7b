"""What a file holds: whether it is what was written, and how far it may expand when it is read.

A Parquet file carries the SHA-256 of all its bytes among its key-value metadata, computed with zeros in the place of the digest
itself. A JSON object carries that of its other keys under `sha256`, whatever the layout. Both travel inside the file, so the
rename that brings a file brings its checksum too. Files of earlier versions carry none.

A few kilobytes can be packed so that they fill any memory. Three limits, which an honest file does not meet: a gzip file may
expand to 100 times its own size (text reaches 5 to 20, a file that was made to fill memory 1,000), and to 64 MB in any case. A
file that is read as a whole (a record, a card, a recipe, decisions) has at most 64 MB. A column whose rows repeat a long text is
measured by what its rows hold, not by what is stored.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Literal, cast

from ..errors import DamagedFile, InputError
from .places import Place, open_whole

if TYPE_CHECKING:
    import pyarrow as pa

State = Literal["OK", "damaged", "not checksummed"]

KEY = "steadyscore.sha256"
"""Name of the digest among the key-value metadata of a Parquet file."""
BLANK = "0" * 64
"""Its value while the digest is computed."""
SEAL = re.compile(re.escape(KEY.encode()) + rb"\x18@(.{64})", re.DOTALL)
"""Key and value in the footer: Parquet writes a text as its length (64 is `@`) and its bytes."""

MOST_EXPANSION = 100
"""Times its own size."""
ALWAYS_ALLOWED = 64 << 20
"""Bytes that any gzip file may expand to."""
LARGEST_WHOLE = 64 << 20
"""Bytes of a file that is read as a whole."""
PACKINGS = {
    "gzip": re.compile(rb"\x1f\x8b\x08"),
    "bzip2": re.compile(rb"BZh[1-9]1AY&SY"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zip": re.compile(rb"PK\x03\x04"),
}
"""How packed files begin."""

# -- checksums


def seal_parquet(stream: IO[bytes]) -> None:
    """Fill the digest into a whole Parquet file that was written to this stream with BLANK under KEY."""
    place, _ = _find_seal(stream) or (0, b"")
    assert place, "the file was written without a place for its digest"
    digest = _digest_without(stream, place)
    stream.seek(place)
    stream.write(digest)
    stream.seek(0, 2)


def check_parquet(file: Place, remedy: str = "") -> State:
    """Refuse a Parquet file that is missing or is not what was written; one that does not end as Parquet does is damaged, whoever
    wrote it."""
    try:
        with open_whole(file) as stream:
            if (seal := _find_seal(stream)) is None:
                return "not checksummed"
            if _digest_without(stream, seal[0]) == seal[1]:
                return "OK"
    except FileNotFoundError:
        raise DamagedFile(file, "is missing", remedy) from None
    except OSError as refusal:
        raise DamagedFile(file, f"cannot be read ({refusal.strerror or refusal})", remedy) from refusal
    except ValueError:
        pass
    raise DamagedFile(file, "is damaged: it is not what was written", remedy)


def _find_seal(stream: IO[bytes]) -> tuple[int, bytes] | None:
    """Place and digest in the footer; ValueError where the footer is missing."""
    size = stream.seek(0, 2)
    stream.seek(max(size - 8, 0))
    tail = stream.read(8)
    start = size - 8 - int.from_bytes(tail[:4], "little")
    if tail[4:] != b"PAR1" or start < 4:
        raise ValueError("the file does not end as a Parquet file does")
    stream.seek(start)
    # The last one: a text of a column may look like it, and statistics of columns stand before the metadata.
    seals = list(SEAL.finditer(stream.read(size - 8 - start)))
    return (start + seals[-1].start(1), seals[-1][1]) if seals else None


def _digest_without(stream: IO[bytes], place: int) -> bytes:
    """SHA-256 of a file with BLANK in the place of its digest."""
    digest = hashlib.sha256()
    for start, stop in ((0, place), (place + len(BLANK), stream.seek(0, 2))):
        digest.update(BLANK.encode() if start else b"")
        stream.seek(start)
        while chunk := stream.read(min(stop - stream.tell(), 1 << 20)):
            digest.update(chunk)
    return digest.hexdigest().encode()


def seal_record(record: Mapping[str, Any]) -> dict[str, object]:
    """A JSON object with its checksum, which stands first: whoever changes the file by hand can delete that line."""
    rest = {key: value for key, value in record.items() if key != "sha256"}
    plain = json.loads(json.dumps(rest))  # as a reader gets it: numbers that were keys are texts
    content = json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    return {"sha256": hashlib.sha256(content).hexdigest(), **rest}


def record_state(record: Mapping[str, Any]) -> State:
    """Whether a JSON object is what was written."""
    if "sha256" not in record:
        return "not checksummed"
    return "OK" if seal_record(record)["sha256"] == record["sha256"] else "damaged"


# -- how far a file expands


def open_unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file as a stream; gzip by its ending, refused where it expands without end. Other packings are refused."""
    stream = path.open("rb")
    is_gzip = path.suffix.lower() == ".gz"
    start = stream.peek(10)
    packing = next((name for name, mark in PACKINGS.items() if mark.match(start)), None)
    if packing is not None and not (is_gzip and packing == "gzip"):
        stream.close()
        remedy = f"Name it {path.name}.gz" if packing == "gzip" else "Unpack it, or pack it with gzip"
        raise InputError(f"{path} is packed with {packing}, which its ending does not say. {remedy}.")
    return cast(IO[bytes], io.BufferedReader(_Bounded(path, stream), 1 << 16)) if is_gzip else stream


class _Bounded(io.RawIOBase):
    """A gzip file that may expand by so much and no more."""

    def __init__(self, path: Path, packed: BinaryIO):
        self._path, self._packed, self._unpacked = path, packed, gzip.GzipFile(fileobj=packed)
        self._size = path.stat().st_size
        self._left = max(ALWAYS_ALLOWED, MOST_EXPANSION * self._size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._unpacked.readinto(buffer)
        self._left -= count
        if self._left < 0:
            raise InputError(
                f"{self._path} has {self._size:,} bytes and expands to more than {MOST_EXPANSION} times as many, as a file does "
                "that was made to fill memory. If it is yours, unpack it with gunzip and name the unpacked file."
            )
        return count

    def close(self) -> None:
        self._unpacked.close()
        self._packed.close()
        super().close()


def read_whole(path: Place) -> bytes:
    """The bytes of a file that is used as a whole, or a refusal of one that is too large for that."""
    with open_whole(path) as stream:
        content = stream.read(LARGEST_WHOLE + 1)
    if len(content) > LARGEST_WHOLE:
        raise InputError(f"{path} is larger than {LARGEST_WHOLE >> 20} MB, and it is read as a whole. Split it, or name another.")
    return content


def text_columns(schema: Any) -> list[str]:
    """Columns of a Parquet file that can be read as a dictionary: a text that many rows repeat is then held once."""
    leaves = [schema.column(place) for place in range(len(schema))]
    return [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY" and leaf.logical_type.type in ("STRING", "NONE")]


def expanded_bytes(column: pa.Array | pa.ChunkedArray) -> int:
    """Bytes that a column takes when every row holds its own text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, pa.ChunkedArray):
        return sum(map(expanded_bytes, column.chunks))
    if isinstance(column, pa.DictionaryArray) and column.type.value_type in (pa.string(), pa.binary()):
        lengths = pc.cast(pc.fill_null(pc.binary_length(column.dictionary), 0), pa.int64())
        return int(pc.sum(lengths.take(pc.drop_null(column.indices))).as_py() or 0)
    if isinstance(column, pa.StructArray | pa.ListArray | pa.LargeListArray):
        parts = column.flatten()
        return sum(map(expanded_bytes, parts if isinstance(parts, list) else [parts]))
    return int(column.nbytes)
