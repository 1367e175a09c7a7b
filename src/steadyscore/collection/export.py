"""A collection as TREC files or as a BEIR folder, for the tools that read those."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from pathlib import Path

from ..machine.disk import atomic
from ..terms import Instance
from .files import Report, encode_line
from .passages import Documents
from .trec import falling_scores

EXPORT_FORMATS = ("trec", "beir", "jsonl")


def export(folder: Path, format: str, instances: Iterable[Instance], name: str) -> dict[str, int]:
    """Write topics, judgements, first-stage run and corpus; the run keeps the pool's order. Returns lines per file.

    Grades of documents outside the pool go into the judgements. Every file is renamed into place at the end.
    """
    beir = format == "beir"
    topics, qrels = ("queries.jsonl", "qrels/test.tsv") if beir else ("topics.tsv", "qrels.txt")
    written = dict.fromkeys((topics, qrels, "run.txt", "corpus.jsonl"), 0)
    report = Report()
    with ExitStack() as stack:
        documents = stack.enter_context(closing(Documents()))
        out = {file: stack.enter_context(atomic(folder / file)) for file in written}

        def put(file: str, line: bytes) -> None:
            out[file].write(line)
            written[file] += 1

        if beir:
            out[qrels].write(b"query-id\tcorpus-id\tscore\n")
        for instance in instances:
            _check_ids(instance, () if beir else instance.judged or (), report)
            query = " ".join(instance.query.split())
            put(topics, encode_line({"_id": instance.id, "text": query}) if beir else f"{instance.id}\t{query}\n".encode())
            for id, grade in instance.judgements().items():
                put(qrels, (f"{instance.id}\t{id}\t{grade}\n" if beir else f"{instance.id} 0 {id} {grade}\n").encode())
            for rank, (candidate, score) in enumerate(zip(instance.pool, _scores(instance), strict=True), 1):
                put("run.txt", f"{instance.id} Q0 {candidate.id} {rank} {score} {name}\n".encode())
            texts = ((instance.id, each.id, each.title, " ".join(each.text.split())) for each in instance.pool)
            documents.add(texts, report, wanted_only=False)
        for id, title, text in documents.db.execute("select id, title, text from document order by place"):
            put("corpus.jsonl", encode_line({"_id": id, "title": title or "", "text": text}))
        report.stop_at_mistakes()
    return written


def _scores(instance: Instance) -> list[float]:
    """First-stage scores where they give the pool's order, else minus the rank."""
    scores = [candidate.score for candidate in instance.pool if candidate.score is not None]
    return falling_scores(scores if len(scores) == len(instance.pool) else [0.0] * len(instance.pool))


def _check_ids(instance: Instance, judged: Iterable[str], report: Report) -> None:
    for id in (instance.id, *(candidate.id for candidate in instance.pool), *judged):
        if len(id.split()) != 1:
            report.mistakes.append(f"query {instance.id}: id {id!r} has a space, which a TREC file cannot hold")
