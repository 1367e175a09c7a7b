"""From public files, or a hub, to a collection: which loader and which filters; and from a collection to the files of others."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import InputError, SteadyscoreError
from ..machine.disk import atomic
from ..machine.extras import check_installed
from ..terms import Collection, Instance
from . import open_collection
from .catalogue import Known
from .files import Report, convert_records, encode_line, records
from .first_stage import STAGE_MODULES, parse_first_stage
from .layouts import LAYOUTS, aliases_of, hotpotqa
from .passages import (
    ROLES,
    BuildRequest,
    Choose,
    Documents,
    checksums,
    from_ir_datasets,
    from_passages,
    header,
    raise_mistakes_at_end,
)
from .splits import leave_out_shared, sample_ids
from .trec import falling_scores

EXPORT_FORMATS = ("trec", "beir", "jsonl")
FORMATS = (*ROLES, *LAYOUTS, "jsonl")
RECORD_FILES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".parquet")
ALIASES = "id_aliases.json"
NO_CONNECTION = ("ConnectionError", "ConnectError", "NameResolution", "Couldn't reach", "Connection refused", "timed out")


def from_folder(folder: Path, request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A collection of files on disk."""
    known = request.known
    if not folder.exists():
        raise InputError(f"{folder}: no such folder. To build {known.name}: {known.obtain or 'give the folder of its files'}.")
    if known.format not in ROLES and (request.stage or request.verdicts):
        raise InputError(f"{known.format} records hold their own candidates; --first-stage and --verdicts are for passage data.")
    if known.format == "jsonl":
        collection, instances = _own_lines(folder, request, report)
    elif known.format in ROLES:
        collection, instances = from_passages(folder, request, report, _sample(request))
    else:
        paths = _record_files(folder, known.files)
        instances = _from_records(partial(records, paths), request, report, _aliases(folder, report))
        collection = header(request, report, [*paths, request.verdicts], None)
    return collection, _kept(instances, request, report)


def from_hub(request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A collection of the catalogue through ir_datasets or the datasets library; needs a network."""
    known, stage = request.known, None
    if known.ir_datasets:
        stage = request.stage or (parse_first_stage(known.first_stage) if known.first_stage else None)
        check_installed(f"data get {known.name}", "ir_datasets", *(STAGE_MODULES[stage.kind] if stage else ()))
        instances = from_ir_datasets(known.ir_datasets, stage, request, report, _sample(request))
    elif known.hub:
        check_installed(f"data get {known.name}", "datasets")
        instances = _from_records(partial(_hub_records, *known.hub), request, report)
    else:
        raise InputError(f"{known.name} cannot be downloaded freely: {known.obtain}; then: {known.build_command}")
    collection = header(request, report, [request.verdicts], stage)
    return collection, _kept(_explain_download_errors(instances, known), request, report)


def _sample(request: BuildRequest) -> Choose | None:
    known = request.known
    return partial(sample_ids, size=known.sample, seed=request.seed, spare=request.spare) if known.sample else None


def _from_records(
    source: Callable[[Report], Iterable[tuple[str, Any]]],
    request: BuildRequest,
    report: Report,
    aliases: dict[str, list[str]] | None = None,
) -> Iterator[Instance]:
    known = request.known
    convert = LAYOUTS[known.format][1]
    if known.format == "2wiki":
        convert = partial(hotpotqa, aliases=aliases)
    chosen = None
    if known.sample is not None:
        size = sum(1 for _ in source(Report()))
        chosen = set(random.Random(request.seed).sample(range(1, size + 1), min(size, known.sample + request.spare)))
        report.dropped["records outside the sample"] = size - len(chosen)
    yield from convert_records(source(report), convert, report, chosen)


def _kept(instances: Iterator[Instance], request: BuildRequest, report: Report) -> Iterator[Instance]:
    """The first of those that another collection does not have; at the end all mistakes are raised."""
    limit = request.known.limit + request.spare if request.known.limit else None
    if (other := request.apart_from or request.known.apart_from) is not None:
        try:
            others = open_collection(other).instances
        except InputError as error:
            wanted = f"{request.known.name} leaves out what is also in {other}"
            raise InputError(f"{wanted}, which cannot be read: {error} Or name its file with --apart-from.") from None
        instances = leave_out_shared(instances, others(), report.dropped)
    return raise_mistakes_at_end(islice(instances, limit), report)


def _own_lines(path: Path, request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A file of our own format, checked and rewritten with a header that counts and signs it."""
    file = path if path.is_file() else _record_files(path, ("*.jsonl*",))[0]
    source = open_collection(file)
    collection, instances = source.collection, source.instances(reserve=True)
    details = {**(collection.details or {}), "sources": checksums([file]), "dropped": report.dropped}
    renamed = replace(collection, name=request.known.name, chars=request.chars or collection.chars, details=details)
    if (choose := _sample(request)) is not None:
        chosen = set(choose(each.id for each in source.instances()))
        instances = (instance for instance in instances if instance.id in chosen)
    return renamed, instances


def _hub_records(id: str, configuration: str | None, split: str, report: Report) -> Iterator[tuple[str, Any]]:
    import datasets

    rows = datasets.load_dataset(id, configuration, split=split, streaming=True)
    return ((f"{id}: record {number}", row) for number, row in enumerate(rows, 1))


def _explain_download_errors(instances: Iterator[Instance], known: Known) -> Iterator[Instance]:
    """Whatever a download library raises, as one sentence; they raise anything from OSError to their own trees."""
    try:
        yield from instances
    except SteadyscoreError:
        raise
    except Exception as error:
        where = f"ir_datasets {known.ir_datasets}" if known.ir_datasets else f"the hub's {(known.hub or ('',))[0]}"
        reason = "no connection" if any(sign in repr(error) for sign in NO_CONNECTION) else " ".join(str(error).split())[:160]
        by_hand = f"from files: {known.obtain}, then: {known.build_command}"
        raise InputError(f"{known.name} could not be fetched from {where} ({reason}); {by_hand}") from None


def _record_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    if folder.is_file():
        return [folder]
    for pattern in patterns:
        files = [path for path in sorted(folder.glob(pattern)) if path.name.endswith(RECORD_FILES) and path.name != ALIASES]
        if files:
            return files
    raise InputError(f"{folder}: no file ending in {', '.join(RECORD_FILES)}.")


def _aliases(folder: Path, report: Report) -> dict[str, list[str]] | None:
    path = (folder if folder.is_dir() else folder.parent) / ALIASES
    if not path.is_file():
        return None
    return dict(aliases_of(record) for _, record in records([path], report))


# -- for other tools


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
