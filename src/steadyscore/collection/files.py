"""Lines and records of any source file as streams, and what a conversion has to tell of them."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..errors import InputError
from ..machine.contents import expanded_bytes, open_unpacked, text_columns
from ..terms import Instance, JsonObject
from .format import instance_mistakes, instance_record

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LONGEST_RECORD = 1 << 25  # bytes of a line, characters of an array element: beyond this a file is broken, or made to fill memory
BATCH, LARGEST_BATCH = 256, 1 << 28  # records of a Parquet file that are unpacked together, and the bytes of their texts
PIECE = 1 << 20  # characters of an array that are read at once
BETWEEN = re.compile(r"[, \t\r\n]*")  # the elements of an array
MOST_MISTAKES, SHOWN = 1000, 20  # of a file: one that is broken as a whole has a mistake in every line

PLACE = re.compile(r"(.*?(?::|\brow |\brecord ))([0-9]+): (.*)", re.S)
VARIABLE = re.compile(r"(?<= is ).*(?=, not )|'[^']*'|\([^)]*\)|[0-9]+")  # what differs between mistakes of one kind


def first_mistakes(mistakes: list[str]) -> list[str]:
    """As many as a reader wants to see, and how many more there are."""
    return mistakes if len(mistakes) <= SHOWN else [*mistakes[:SHOWN], f"... and {len(mistakes) - SHOWN:,} more."]


class KeyTwice(ValueError):
    """Of an object that has a key twice one value would be lost, so it is refused by the key's name."""


def keys_once(pairs: list[tuple[str, Any]]) -> JsonObject:
    """An object, for the JSON decoder's `object_pairs_hook`."""
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise KeyTwice(f"an object has the key {twice!r} twice")
    return record


class Mistakes(list[str]):
    """Mistakes as they are met, each "PLACE: what is wrong"; those of one kind are one sentence with the first three places.

    At MOST_MISTAKES they are raised, so that a broken file does not fill memory with them.
    """

    def __init__(self, mistakes: Iterable[str] = ()) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[int, str, list[str]]] = {}
        self._count = 0
        self.extend(mistakes)

    def append(self, mistake: str) -> None:
        place = PLACE.fullmatch(mistake)
        kind, number = (place[1] + VARIABLE.sub("", place[3]), place[2]) if place else (mistake, "")
        index, first, numbers = self._kinds.setdefault(kind, (len(self), mistake, []))
        numbers += [] if number in numbers[-1:] else [number]
        more = f" (so in {len(numbers):,} places: {', '.join(numbers[:3])}{', ...' * (len(numbers) > 3)})"
        self[index : index + 1] = [first + more * (len(numbers) > 1)]
        self._count += 1
        if self._count >= MOST_MISTAKES:
            raise InputError([*self[:SHOWN], f"... and more; reading stopped after {MOST_MISTAKES:,} mistakes."])

    def extend(self, mistakes: Iterable[str]) -> None:
        for mistake in mistakes:
            self.append(mistake)

    def __iadd__(self, mistakes: Iterable[str]) -> Self:  # type: ignore[override, misc]
        self.extend(mistakes)
        return self


@dataclass
class Report:
    """What a conversion met: mistakes stop it, `dropped` counts what its filters left out, `notes` what it only remarks on."""

    mistakes: list[str] = field(default_factory=Mistakes)
    dropped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def stop_at_mistakes(self) -> None:
        if self.mistakes:
            raise InputError(self.mistakes)


class Dropped(Exception):
    """A record that a filter leaves out; the message is the filter's name."""


class Unreadable(str):
    """Why a line or a record is not JSON."""


def encode_line(record: Any) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n"


def parse_line(line: bytes, **how: Any) -> Any:
    """The value of a line of JSON, or why it has none; `how` goes to the JSON decoder."""
    how.setdefault("object_pairs_hook", keys_once)
    try:
        record = json.loads(line.decode("utf-8"), **how)
        if b"\\ud" in line.lower():
            encode_line(record)  # half of a surrogate pair is JSON, but not text
        return record
    except UnicodeDecodeError as error:
        return Unreadable(f"byte {error.start + 1} is not UTF-8; save the file as UTF-8")
    except (ValueError, RecursionError) as error:
        return Unreadable(_why_not_json(error))


def _why_not_json(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "holds half of a surrogate pair (an escape \\ud800 to \\udfff on its own), which is not a character"
    if isinstance(error, json.JSONDecodeError):
        return f"not JSON at column {error.colno}: {error.msg}"
    if isinstance(error, RecursionError):
        return "nested too deeply to be a record"
    if isinstance(error, KeyTwice):
        return str(error)
    return "holds an integer of more than 4,300 digits"


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of every line that is not blank, without line end and byte order mark; gzip by its ending."""
    with explaining_read_errors(path), open_unpacked(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST_RECORD), b""), 1):
            if len(line) == LONGEST_RECORD:
                raise InputError(f"{path}:{number}: the line is longer than {LONGEST_RECORD >> 20} MB. Give one record per line.")
            line = line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line
            if line.strip():
                yield number, line.rstrip(b"\r\n")


def text_lines(path: Path, report: Report) -> Iterator[tuple[str, str]]:
    """Place ("FILE:LINE") and text of every line; a line that is not UTF-8 is a mistake."""
    for number, line in lines(path):
        try:
            yield f"{path}:{number}", line.decode("utf-8")
        except UnicodeDecodeError as error:
            report.mistakes.append(f"{path}:{number}: byte {error.start + 1} is not UTF-8; save the file as UTF-8")


def records(paths: Iterable[Path], report: Report) -> Iterator[tuple[str, Any]]:
    """Place and value of every record of files."""
    for path in paths:
        start, numbered = numbered_records(path)
        for number, record in numbered:
            if isinstance(record, Unreadable):
                report.mistakes.append(f"{start}{number}: {record}")
            else:
                yield f"{start}{number}", record


def numbered_records(path: Path) -> tuple[str, Iterator[tuple[int, Any]]]:
    """How places are named before their number, and the records of JSON Lines, of a JSON array (read piece by piece) or of a
    Parquet file, numbered."""
    if path.suffix.lower() == ".parquet":
        return f"{path}: record ", enumerate(_parquet(path), 1)
    if _is_array(path):
        return f"{path}: record ", enumerate(_array(path), 1)
    return f"{path}:", ((number, parse_line(line)) for number, line in lines(path))


def convert_records(
    records: Iterable[tuple[str, Any]],
    convert: Callable[[JsonObject, int], Instance],
    report: Report,
    chosen: Container[int] | None = None,
) -> Iterator[Instance]:
    """Records through `convert(record, number)`, which raises Dropped for a filter and ValueError for a mistake.

    Numbers count from 1; with `chosen`, only those records are taken. Every instance is held against the format, so what comes
    out can be written. The caller raises the mistakes at the end.
    """
    seen: dict[str, str] = {}
    for number, (where, record) in enumerate(records, 1):
        if chosen is not None and number not in chosen:
            continue
        try:
            if not isinstance(record, dict):
                raise ValueError("is not a JSON object")
            instance = convert(record, number)
            encode_line(instance_record(instance))
        except Dropped as left_out:
            report.dropped[str(left_out)] += 1
            continue
        except ValueError as mistake:
            report.mistakes.append(f"{where}: {mistake}")
            continue
        except (AttributeError, IndexError, KeyError, TypeError) as mistake:  # a list where an object should be, and so on
            report.mistakes.append(f"{where}: is not laid out as this format is: {mistake}")
            continue
        mistakes = instance_mistakes(instance_record(instance))
        if (first := seen.setdefault(instance.id, where)) != where:
            mistakes.append(f"id {instance.id!r} is already at {first}")
        report.mistakes += [f"{where}: {mistake}" for mistake in mistakes]
        if not mistakes:
            yield instance


def field_value(record: JsonObject, key: str, kind: type | tuple[type, ...]) -> Any:
    """A field of a source record, or the mistake that it is absent or of another kind."""
    value = record.get(key)
    if value is None:
        raise ValueError(f'"{key}" is missing; its keys are {", ".join(map(str, record))}')
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise ValueError(f'"{key}" is a {type(value).__name__}, not a {" or ".join(each.__name__ for each in kinds)}')
    return value


def field_list(record: JsonObject, key: str) -> list[Any]:
    """A field of a source record that is a list where it is there."""
    return [] if record.get(key) is None else list(field_value(record, key, list))


def _parquet(path: Path) -> Iterator[JsonObject]:
    import pyarrow
    import pyarrow.parquet

    try:
        texts = text_columns(pyarrow.parquet.read_metadata(path).schema)
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(batch_size=BATCH):
                if sum(map(expanded_bytes, batch.columns)) > LARGEST_BATCH:
                    raise InputError(
                        f"{path}: {batch.num_rows} records hold more than {LARGEST_BATCH >> 20} MB of text, as in a file "
                        "that was made to fill memory. Give shorter records."
                    )
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}. Copy the file again.") from None


def _is_array(path: Path) -> bool:
    """Whether a file begins as a JSON array does; one may be a single line of any length."""
    with explaining_read_errors(path), open_unpacked(path) as file:
        return file.read(1 << 16).removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"[")


def _array(path: Path) -> Iterator[Any]:
    """The elements of a JSON array, one at a time: public QA files hold half a gigabyte in one."""
    decoder = json.JSONDecoder()
    with explaining_read_errors(path), io.TextIOWrapper(open_unpacked(path), encoding="utf-8-sig") as file:
        rest = file.read(PIECE).lstrip().removeprefix("[")
        at = 0
        while True:
            at = BETWEEN.match(rest, at).end()  # type: ignore[union-attr]
            if rest.startswith("]", at):
                return
            try:
                element, end = decoder.raw_decode(rest, at)
                if "\\ud" in rest[at:end].lower():
                    encode_line(element)
            except (ValueError, RecursionError) as error:
                more = file.read(PIECE) if isinstance(error, json.JSONDecodeError) else ""
                if not more or len(rest) - at > LONGEST_RECORD:
                    yield Unreadable(f"the array breaks here: {_why_not_json(error)}; copy the file again")
                    return
                rest, at = rest[at:] + more, 0
                continue
            yield element
            at = end


@contextmanager
def explaining_read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file. `steadyscore data list` shows the collections that have a name.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError(f"{path}: the gzip stream is damaged or cut short; copy or build the file again.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start + 1} is not UTF-8; save the file as UTF-8.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
