"""Small files that would fill memory, built here: each is refused with a sentence, in a process that stays below a gigabyte."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from steadyscore.errors import SteadyscoreError
from tests.fuzz.formats import (
    check_recipe,
    judged_by,
    open_run,
    open_whole_collection,
    present_decisions,
    read_scores_then_measure,
)

MOST_MEMORY, MOST_SECONDS = 700, 60
ROW = b'{"query_id": "q", "permutation": 0, "candidate_id": "a", "score": 1.0}\n'
LONG_ROW = ROW.replace(b'"score"', b'"note": "' + b"x" * 10_000 + b'", "score"')
INSTANCE = b'{"id": "q", "query": "w", "candidates": [{"id": "a", "text": "t"}]}\n'
EXPANDS = "expands to more than 100 times as many"


def packed(content: bytes) -> bytes:
    """A gzip file that expands to 128 MB, by members that are all the same; the first 64 MB are allowed to any."""
    piece = content * ((8 << 20) // len(content))
    return gzip.compress(piece) * 16


def dictionary_parquet(rows: int, **more: object) -> bytes:
    """A text of a megabyte, stored once and repeated in every row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * (1 << 20)]))
    columns = {"query_id": long, "permutation": pa.array(range(rows)), **{name: pa.array([v] * rows) for name, v in more.items()}}
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def zipped() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("c.jsonl", INSTANCE)
    return out.getvalue()


def aliases() -> bytes:
    """A list of ten lists of ten lists and so on, ten deep, in 400 bytes."""
    lines = ["base: &l0 [x, x, x, x, x, x, x, x, x, x]"]
    names = ("data", "labels", "out", "objective", "widths", "views", "steps", "epochs", "batch")
    lines += [f"{name}: &l{i} [{', '.join([f'*l{i - 1}'] * 10)}]" for i, name in enumerate(names, 1)]
    return "\n".join(lines).encode()


def records(file: Path) -> None:
    from steadyscore.collection.files import Report
    from steadyscore.collection.files import records as read

    for _ in read([file], report := Report()):
        pass
    report.stop_at_mistakes()


BOMBS: dict[str, tuple[str, Callable[[], bytes], Callable[[Path], None], str]] = {
    "a collection of one line": ("a.jsonl.gz", lambda: packed(b"x"), open_whole_collection, "the line is longer than 32 MB"),
    "a collection without end": ("b.jsonl.gz", lambda: packed(INSTANCE), open_whole_collection, "reading stopped after 1,000"),
    "blank lines without end": ("c.jsonl.gz", lambda: packed(b" " * 9999 + b"\n"), open_whole_collection, EXPANDS),
    "scores without end, JSON": ("d.jsonl.gz", lambda: packed(LONG_ROW), read_scores_then_measure, EXPANDS),
    "scores without end, CSV": ("e.csv.gz", lambda: packed(b"query_id\n"), read_scores_then_measure, "no column permutation"),
    "rows without end, CSV": (
        "e2.csv.gz",
        lambda: gzip.compress(b"query_id,permutation,candidate_id,score\n") + packed(b"q,0,a,1\n"),
        read_scores_then_measure,
        EXPANDS,
    ),
    "a CSV of one line": ("f.csv", lambda: b"x" * (40 << 20), read_scores_then_measure, "a line of more than 32 MB"),
    "judgements without end": ("g.txt.gz", lambda: packed(b"q 0 a 1\n"), judged_by, "reading stopped after 1,000 mistakes"),
    "an array without end": ("h.json.gz", lambda: gzip.compress(b"[") + packed(b"1, " + b" " * 9999), records, EXPANDS),
    "an array that only opens": ("i.json", lambda: b"[" * (3 << 20), records, "nested too deeply"),
    "a text in every score row": (
        "j.parquet",
        lambda: dictionary_parquet(200_000, candidate_id="a", score=1.0),
        read_scores_then_measure,
        "when unpacked",
    ),
    "a text in every record": ("k.parquet", lambda: dictionary_parquet(5000), records, "records hold more than 256 MB of text"),
    "lists of lists": ("l.yaml", aliases, check_recipe, "holds lists or keys inside the value of data, labels"),
    "deep decisions": ("m.json", lambda: b'{"a":' * 1_000_000, present_decisions, ""),
    "large decisions": ("n.json", lambda: b" " * (65 << 20), present_decisions, "is larger than 64 MB"),
    "a large record": ("run.json", lambda: b" " * (65 << 20), open_run, "is larger than 64 MB"),
    "bzip2": ("o.jsonl", lambda: bz2.compress(INSTANCE), open_whole_collection, "is packed with bzip2"),
    "xz": ("p.jsonl.gz", lambda: lzma.compress(INSTANCE), open_whole_collection, "is packed with xz"),
    "zip": ("q.csv", zipped, read_scores_then_measure, "is packed with zip"),
    "zstd": ("r.jsonl", lambda: b"\x28\xb5\x2f\xfd" + b"\x00" * 20, open_whole_collection, "is packed with zstd"),
    "gzip under another name": ("s.jsonl", lambda: gzip.compress(INSTANCE), open_whole_collection, "Name it s.jsonl.gz"),
}
"""Name, file, content, what reads it, and what the refusal says."""


def peak_memory() -> int:
    """Megabytes that this process held at most; getrusage would count those of the process that started it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+)", status, re.M)[1]) >> 10


def read_all(folder: Path) -> dict[str, object]:
    """What becomes of every bomb in this process, and the memory that it took."""
    said: dict[str, object] = {}
    for name, (file, _, read, _) in BOMBS.items():
        began = time.process_time()
        try:
            read(folder / file)
            words = "accepted"
        except SteadyscoreError as refusal:
            words = str(refusal)
        said[name] = (words, time.process_time() - began, peak_memory())
    return said


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bombs")
    for file, make, _, _ in BOMBS.values():
        (folder / file).write_bytes(make())
    command = [sys.executable, "-m", "tests.machine.test_bombs", str(folder)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert child.returncode == 0, child.stderr[-3000:]
    return json.loads(child.stdout)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_with_a_sentence_before_it_fills_memory(said, name):
    words, seconds, megabytes = said[name]
    assert words != "accepted"
    assert BOMBS[name][3] in words
    assert words.count("\n") <= 1000
    assert megabytes < MOST_MEMORY
    assert seconds < MOST_SECONDS


if __name__ == "__main__":
    print(json.dumps(read_all(Path(sys.argv[1]))))
