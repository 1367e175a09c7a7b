"""Tables of other programs as rows: CSV, TSV, JSON, Parquet, saved datasets, and frames in memory."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputError
from ..machine.contents import open_unpacked
from ..terms import JsonObject
from .files import BYTE_ORDER_MARK, Mistakes, Unreadable, explaining_read_errors, lines, numbered_records
from .format import LARGEST

SEPARATORS = {".csv": ",", ".tsv": "\t"}
TABLES = (*SEPARATORS, ".jsonl", ".ndjson", ".json", ".parquet")
END = "\x1e"
"""Stands in a row behind the last one: where it does not arrive, a quote that was never closed has swallowed what followed it."""
ROWS = ("to_pylist", "to_dicts", "to_list")
"""Methods that give rows as dicts: Arrow tables, polars frames, Hugging Face datasets."""


class Table(NamedTuple):
    """Rows with their numbers; `start` and a number name a row in a message."""

    rows: list[tuple[int, Any]]
    start: str = "row "
    file: str = ""


def table_kind(path: Path) -> str:
    """The ending of a file, without that of gzip, where it is one of a table."""
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    return ending if ending in TABLES else ""


def read_table(path: Path) -> Table:
    """The rows of a file, or of the folder of a saved dataset."""
    kind = table_kind(path)
    if kind in SEPARATORS or path.is_dir():
        rows = list(enumerate(_arrow_rows(path), 1)) if path.is_dir() else _csv_rows(path, SEPARATORS[kind])
        return Table(rows, f"{path}: row ", f"{path}: ")
    if not kind:
        raise InputError(f"{path} is not a table that can be read. Give one that ends in {', '.join(TABLES)}, or .gz after it.")
    start, records = numbered_records(path)
    rows = list(records)
    if kind == ".json" and rows and _is_one_object(path, rows[0][1]):
        raise InputError(f'{path} holds one object. Give a list of objects, or one on each line (pandas: orient="records").')
    mistakes = Mistakes(f"{start}{number}: {row}" for number, row in rows if isinstance(row, Unreadable))
    if mistakes:
        raise InputError(mistakes)
    return Table(rows, start, f"{path}: ")


def _is_one_object(path: Path, first: Any) -> bool:
    """Whether a JSON file is an object that is laid out over lines, or that holds columns."""
    is_laid_out = isinstance(first, Unreadable) and next(lines(path))[1].strip() == b"{"
    return is_laid_out or (isinstance(first, dict) and bool(first) and all(isinstance(cell, dict) for cell in first.values()))


def _csv_rows(path: Path, separator: str) -> list[tuple[int, Any]]:
    """Every cell as text, so that 007 stays 007; rows are counted as a spreadsheet does, the heading first."""
    with explaining_read_errors(path), open_unpacked(path) as file:
        content = file.read().removeprefix(BYTE_ORDER_MARK).lstrip(b"\r\n").decode()
    content = re.sub(r"\Asep=.[\r\n]+", "", content, flags=re.I)  # what Excel reads as the separator, and does not show
    heading = re.split(r"[\r\n]", content, maxsplit=1)[0]
    if not heading.strip():
        raise InputError(f"{path} is empty. Give a heading, and a row for each candidate or query.")
    separator = max((separator, *",;\t|"), key=heading.count)  # a spreadsheet may write a .csv with semicolons
    csv.field_size_limit(LARGEST)
    text = f"{content}\n{END}\n".encode()  # not as a StringIO, which takes four bytes for a letter
    stream = io.TextIOWrapper(io.BytesIO(text), "utf-8", newline="")
    (_, first), *rows = enumerate(csv.reader(stream, delimiter=separator), 1)
    names = [name.strip() or f"column {i}" for i, name in enumerate(first, 1)]
    check_names(names, f"{path}: ")
    if not rows or rows[-1][1] != [END]:
        raise InputError(f"{path}: row {len(rows) + 1}: a cell begins with a quote that is never closed. Close or double it.")
    odd = [(number, len(row)) for number, row in rows[:-1] if row and len(row) != len(names)]
    if odd:
        raise InputError(Mistakes(f"{path}: row {n}: {count} cells where the heading has {len(names)}" for n, count in odd))
    return [(n, {name: cell or None for name, cell in zip(names, row, strict=True)}) for n, row in rows[:-1] if any(row)]


def _arrow_rows(folder: Path) -> Iterator[JsonObject]:
    """The rows of what `Dataset.save_to_disk` wrote; what its `map` left in the folder is not of it."""
    import pyarrow as pa

    for file in sorted(file for file in folder.glob("*.arrow") if not file.name.startswith("cache-")):
        try:
            with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as stream:
                yield from (row for batch in stream for row in batch.to_pylist())
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{file} cannot be read as a saved dataset: {error}. Save it again.") from None


def check_names(names: Sequence[str], start: str = "") -> None:
    if again := [name for name, times in Counter(names).items() if times > 1]:
        raise InputError(f"{start}several columns are called {', '.join(again)}. Give each a name of its own.")


def read_rows(data: Any) -> list[dict[str, object]]:
    """The rows of a frame, a dataset or a list, as dicts."""
    has_rows = isinstance(data, Iterable) or any(hasattr(data, method) for method in ROWS)
    if isinstance(data, Mapping | bytes) or hasattr(data, "to_frame") or not has_rows:
        can_be = "a name, a file, a list of dicts, a frame that is in memory or one split of a dataset"
        raise InputError(f"{type(data).__name__} is not a kind of data. Give {can_be}.")
    names = getattr(data, "column_names", getattr(data, "columns", ()))
    check_names([name for name in names if isinstance(name, str)])
    if type(data).__module__.startswith("pandas"):
        return list(data.to_dict("records"))
    for method in ROWS:
        if hasattr(data, method):
            return list(getattr(data, method)())
    return list(data)


def plain_value(value: Any) -> Any:
    """A value of numpy or pandas as JSON has it; what is absent (None, NaN, NA) is None, and left out of dicts."""
    if isinstance(value, str):
        return value
    if hasattr(value, "tolist"):  # arrays and their scalars
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: plain for key, one in value.items() if (plain := plain_value(one)) is not None}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [plain_value(one) for one in value]
    is_absent = type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value)
    return None if is_absent else value


# -- chats, lists of messages, as text

Chat = list[tuple[str, str]]
KEYS = (("role", "content"), ("from", "value"))
"""What the role and the text of a message are called."""


def _read_chat(cell: Any) -> Chat | None:
    messages = cell if isinstance(cell, list) and all(isinstance(one, dict) for one in cell) else []
    for role, text in KEYS:
        if messages and all(isinstance(one.get(role), str) and isinstance(one.get(text), str) for one in messages):
            return [(one[role], one[text]) for one in messages]
    return None


def _as_text(chat: Chat) -> str:
    return chat[0][1] if len(chat) == 1 else "\n\n".join(f"{role}: {text}" for role, text in chat)


def _with_chats(cell: Any, make: Callable[[Chat], Any]) -> Any:
    """A cell with what is made of its chats; any other as it is."""
    if chat := _read_chat(cell):
        return make(chat)
    return [_with_chats(one, make) for one in cell] if isinstance(cell, list) else cell


def chats_as_text(cells: JsonObject, queries: Collection[str]) -> dict[str, object]:
    """The cells of a row without chats, and with a prompt of what they all begin with where no column is a query."""
    answers: list[Chat] = []
    for name, cell in cells.items():
        _with_chats([] if name in queries else cell, answers.append)
    shared = len(list(takewhile(lambda place: len(set(place)) == 1, zip(*(chat[:-1] for chat in answers), strict=False))))
    prompt = {"prompt": _as_text(answers[0][:shared])} if shared and not queries else {}
    return prompt | {
        name: _with_chats(cell, _as_text if name in queries else lambda chat: _as_text(chat[shared:]))
        for name, cell in cells.items()
    }
