"""Lines of topics, judgements, corpora and runs, in the layouts of TREC, BEIR and MS MARCO.

The line itself shows which layout it is. Mistakes go to the report with file and line; reading goes on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..machine.names import shorten
from ..terms import JsonObject
from .files import Report, lines, records, text_lines
from .format import CONTROL, LARGEST, is_id

DOCUMENT_IDS = ("_id", "id", "pid", "docno", "docid", "doc_id")  # MS MARCO v2 passages have a docid beside their pid
DOCUMENT_TEXTS = ("text", "contents", "passage", "body")

JSON_START = re.compile(rb"\s*(\{|\[\s*([\]{]|$))")  # an object or a list of them, not an id in brackets
WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")

RunLine = tuple[str, str, str, int, float | None]  # place, query, document, rank, score
Document = tuple[str, str, str | None, str]  # place, id, title, text


def falling_scores(scores: Sequence[float]) -> list[float]:
    """Scores for a run in this order: these where they fall, else minus the rank.

    Evaluation tools sort by score and not by rank, trec_eval in single precision, and break ties in ways of their own.
    """
    with np.errstate(over="ignore"):
        single = np.array(scores, np.float32)
    if (single[1:] < single[:-1]).all():
        return list(scores)
    return [-float(rank) for rank in range(1, len(scores) + 1)]


def read_topics(path: Path, report: Report) -> dict[str, str]:
    """Query id -> text: JSON lines, TSV, or TREC's <top> blocks (their title)."""
    is_blocks = next(lines(path), (0, b""))[1].lstrip().startswith(b"<")
    topics: dict[str, str] = {}
    for where, row in (_top_blocks if is_blocks else _objects)(path, report):
        id, text = _id_text(_first(row, DOCUMENT_IDS)), " ".join(str(row.get("text") or "").split())
        if not id or not text:
            report.mistakes.append(f"{where}: a query needs an id and a text")
        elif topics.setdefault(id, text) != text:
            report.mistakes.append(f"{where}: query id {id!r} occurs twice with different texts")
    if not topics and not report.mistakes:
        report.mistakes.append(f"{path}: holds no query; give JSON lines, `id<TAB>text` lines or TREC's <top> blocks")
    return topics


def read_qrels(path: Path, report: Report) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade, from TREC's four columns or BEIR's three; grades below 0 (junk) count as 0."""
    qrels: dict[str, dict[str, int]] = {}
    for number, (where, line) in enumerate(text_lines(path, report)):
        columns = [column.strip() for column in (line.split("\t") if "\t" in line else line.split())]
        if number == 0 and columns[-1:] == ["score"]:
            continue  # BEIR's heading
        if len(columns) not in (3, 4) or not WHOLE_NUMBER.fullmatch(columns[-1]):
            report.mistakes.append(f"{where}: not a judgement; give `query 0 document grade`, or query, document, grade")
            continue
        query, document = columns[0], columns[-2]
        if abs(grade := int(columns[-1])) > LARGEST:
            report.mistakes.append(f"{where}: grade {grade} is beyond 32 bits; give a grade of at most {LARGEST}")
        elif mistake := _id_mistake(query, document):
            report.mistakes.append(f"{where}: {mistake}")
        elif document in qrels.setdefault(query, {}):
            report.mistakes.append(f"{where}: document {document} of query {query} is judged twice; keep one of the lines")
        else:
            qrels[query][document] = max(grade, 0)
            report.notes.update({"negative grades read as 0": 1} if grade < 0 else {})
    return qrels


def read_corpus(paths: Iterable[Path], report: Report) -> Iterator[Document]:
    """Place, id, title and text of every document: JSON lines, JSON, Parquet, or `id<TAB>text`."""
    for where, row in (row for path in paths for row in _objects(path, report)):
        if not (id := _id_text(_first(row, DOCUMENT_IDS))):
            report.mistakes.append(f"{where}: a document without an id; the id is one of {', '.join(DOCUMENT_IDS)}")
        else:
            yield where, id, str(row.get("title") or "").strip() or None, str(_first(row, DOCUMENT_TEXTS) or "").strip()


def read_trec_run(path: Path, report: Report) -> Iterator[RunLine]:
    """Place, query, document, rank and score: TREC's six columns, or MS MARCO's query, document, rank."""
    for where, line in text_lines(path, report):
        columns = line.split()
        if len(columns) == 6:
            query, _, document, rank, score, _ = columns
        elif len(columns) == 3:
            (query, document, rank), score = columns, ""
        else:
            report.mistakes.append(f"{where}: not a line of a run; give `query Q0 document rank score tag`")
            continue
        if not WHOLE_NUMBER.fullmatch(rank) or abs(int(rank)) > LARGEST:
            report.mistakes.append(f"{where}: not a line of a run: the rank is {_quoted(rank)}, not a whole number of 32 bits")
        elif score and not (NUMBER.fullmatch(score) and math.isfinite(float(score))):
            report.mistakes.append(f"{where}: not a line of a run: the score is {_quoted(score)}, not a finite number")
        elif score and WHOLE_NUMBER.fullmatch(score) and abs(int(score)) > 2**53:
            report.mistakes.append(
                f"{where}: the score {_quoted(score)} is a whole number beyond 2^53, of which neighbours become one"
            )
        elif mistake := _id_mistake(query, document):
            report.mistakes.append(f"{where}: {mistake}")
        else:
            yield where, query, document, int(rank), float(score) if score else None


def _quoted(value: str) -> str:
    """A field as a message shows it."""
    return repr(shorten(value, 40, "..."))


def _id_text(value: Any) -> str:
    """An id as text, a whole number as its digits; empty where it is neither."""
    return str(value).strip() if is_id(value) else ""


def _id_mistake(*ids: str) -> str | None:
    """Why one of the ids of a line cannot be used."""
    if not all(ids):
        return "an id is empty; give the query and the document"
    odd = [id for id in ids if CONTROL.search(id)]
    return f"id {_quoted(odd[0])} holds a control character; ids are text of one line" if odd else None


def _objects(path: Path, report: Report) -> Iterator[tuple[str, JsonObject]]:
    """Place and fields of every row: JSON lines, JSON, Parquet, or an id and a text.

    These are split at the first tab; quotes are text (MS MARCO has bare ones).
    """
    if path.suffix == ".parquet" or JSON_START.match(next(lines(path), (0, b""))[1]):
        for where, record in records([path], report):
            if isinstance(record, dict):
                yield where, record
            else:
                report.mistakes.append(f"{where}: is not a JSON object")
        return
    for where, line in text_lines(path, report):
        id, tab, text = line.partition("\t")
        if not tab:
            report.mistakes.append(f"{where}: no tab; give `id<TAB>text`")
        else:
            yield where, {"id": id.strip(), "text": text.strip()}


def _first(row: JsonObject, keys: Iterable[str]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None), None)


def _top_blocks(path: Path, report: Report) -> Iterator[tuple[str, JsonObject]]:
    text = "\n".join(line for _, line in text_lines(path, report))
    for number, block in enumerate(re.findall(r"<top>(.*?)</top>", text, re.S), 1):
        id = re.search(r"<num>\s*(?:Number:)?\s*([^\s<]+)", block)
        title = re.search(r"<title>\s*(?:Topic:)?\s*(.*?)\s*(?=<|\Z)", block, re.S)
        yield f"{path}: topic {number}", {"id": id.group(1) if id else "", "text": title.group(1) if title else ""}
