"""From public files, or a hub, to a collection: which loader, which filters, and the card that goes into the header."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import InputError, SteadyscoreError
from ..machine.disk import sha256
from ..machine.extras import check_installed
from ..terms import Collection, Instance, TaskName, Verdict
from . import multidoc_qa, open_collection, passages, responses
from .catalogue import WEB, Known
from .claims import read_verdicts
from .files import SHOWN, Report, convert_records, records
from .first_stage import STAGE_MODULES, FirstStage, check_stage, parse_first_stage
from .splits import leave_out_shared, sample_ids
from .tables import table_kind

Convert = Callable[[dict[str, Any], int], Instance]

LAYOUTS: dict[str, tuple[TaskName, Convert]] = {
    "hotpotqa": ("multidoc_qa", multidoc_qa.hotpotqa),
    "2wiki": ("multidoc_qa", multidoc_qa.hotpotqa),
    "musique": ("multidoc_qa", multidoc_qa.musique),
    "rewardbench2": ("response_ranking", responses.rewardbench2),
    "rm-bench": ("response_ranking", responses.rm_bench),
    "ultrafeedback": ("response_ranking", responses.ultrafeedback),
    "nectar": ("response_ranking", responses.nectar),
    "ppe": ("response_ranking", responses.ppe),
}
"""Formats whose records each hold a whole instance."""
FORMATS = (*passages.ROLES, *LAYOUTS, "jsonl")
RECORD_FILES = (".jsonl", ".json", ".jsonl.gz", ".json.gz", ".parquet")
ALIASES = "id_aliases.json"
NO_CONNECTION = ("ConnectionError", "ConnectError", "NameResolution", "Couldn't reach", "Connection refused", "timed out")


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What a build is asked for: a row of the catalogue, or the same fields for data without a name."""

    known: Known
    stage: FirstStage | None = None
    depth: int = 100
    seed: int = 42
    verdicts: Path | None = None
    apart_from: str | None = None
    chars: int | None = None
    spare: int = 0
    """Instances beyond a sample or limit, from which parts replace queries whose text another part has."""


def own_collection(name: str, format: str) -> Known:
    """The row of somebody's own collection."""
    task: TaskName = LAYOUTS[format][0] if format in LAYOUTS else "passage_reranking"
    return Known(name, task, "evaluation", 0, 0, WEB, format, "not stated", "own files", "", first_stage="bm25")


def folder_format(folder: Path) -> tuple[str, str]:
    """Format and split of a folder of public files, by their names."""
    splits = [path.name.partition(".")[0] for path in folder.glob("qrels/*.tsv*")]
    if any(folder.glob("corpus.jsonl*")) and any(folder.glob("queries.jsonl*")):
        return "beir", splits[0] if len(splits) == 1 else "test"
    if any(path.is_file() for names in passages.ROLES["trec"].values() for name in names for path in folder.glob(name)):
        return "trec", "test"
    saved = {path.parent for path in folder.glob("*/*.arrow")}
    if parts := sorted(saved or {path for pattern in ("*", "*/*") for path in folder.glob(pattern) if table_kind(path)}):
        raise InputError(f"{folder} is not one collection; name one of its parts: {', '.join(map(str, parts[:SHOWN]))}.")
    known = "BEIR files (corpus.jsonl, queries.jsonl, qrels/), of TREC files (topics, docs, qrels, run)"
    raise InputError(
        f"{folder} holds no data that is known; give a file, or a folder of {known} or of a saved Hugging Face dataset."
    )


def from_folder(folder: Path, request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A collection of files on disk."""
    known = request.known
    if not folder.exists():
        raise InputError(f"{folder}: no such folder. To build {known.name}: {known.obtain or 'give the folder of its files'}.")
    if known.format not in passages.ROLES and (request.stage or request.verdicts):
        raise InputError(f"{known.format} records hold their own candidates; --first-stage and --verdicts are for passage data.")
    if known.format == "jsonl":
        return _own_lines(folder, request, report)
    if known.format in passages.ROLES:
        files = passages.find(folder, known.format, known.split)
        stage = request.stage or (
            FirstStage("run", str(files.run)) if files.run else parse_first_stage(known.first_stage or "bm25")
        )
        check_stage(stage)
        run = Path(stage.argument) if stage.kind == "run" and stage.argument else None
        found = passages.from_files(files, stage, report, **_passage_options(request, report))
        used = [files.topics, files.qrels, *files.corpus, run, request.verdicts]
        return _header(request, report, used, stage), _raise_mistakes_at_end(_leave_out_shared(found, request, report), report)
    paths = _record_files(folder, known.files)
    found = _from_records(partial(records, paths), request, report, _aliases(folder, report))
    return _header(request, report, [*paths, request.verdicts], None), _raise_mistakes_at_end(found, report)


def from_hub(request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A collection of the catalogue through ir_datasets or the datasets library; needs a network."""
    known = request.known
    if known.ir_datasets:
        stage = request.stage or (parse_first_stage(known.first_stage) if known.first_stage else None)
        check_installed(f"data get {known.name}", "ir_datasets", *(STAGE_MODULES[stage.kind] if stage else ()))
        options = _passage_options(request, report)
        found = passages.from_ir_datasets(known.ir_datasets, stage, report, **options)
        found = _leave_out_shared(found, request, report)
    elif known.hub:
        stage = None
        check_installed(f"data get {known.name}", "datasets")
        found = _from_records(partial(_hub_records, *known.hub), request, report, None)
    else:
        raise InputError(f"{known.name} cannot be downloaded freely: {known.obtain}; then: {_by_hand(known)}")
    return _header(request, report, [request.verdicts], stage), _raise_mistakes_at_end(
        _explain_download_errors(found, known), report
    )


def _passage_options(request: BuildRequest, report: Report) -> dict[str, Any]:
    known = request.known
    labels: dict[str, Verdict] | None = read_verdicts(request.verdicts, report) if request.verdicts else None
    choose = partial(sample_ids, size=known.sample, seed=request.seed, spare=request.spare) if known.sample else None
    return {"depth": request.depth, "choose": choose, "without_itself": known.without_itself, "verdicts": labels}


def _from_records(
    source: Callable[[Report], Iterable[tuple[str, Any]]],
    request: BuildRequest,
    report: Report,
    aliases: dict[str, list[str]] | None,
) -> Iterator[Instance]:
    known = request.known
    convert = LAYOUTS[known.format][1]
    if known.format == "2wiki":
        convert = partial(multidoc_qa.hotpotqa, aliases=aliases)
    chosen = None
    if known.sample is not None:
        size = sum(1 for _ in source(Report()))
        chosen = set(random.Random(request.seed).sample(range(1, size + 1), min(size, known.sample + request.spare)))
        report.dropped["records outside the sample"] = size - len(chosen)
    limit = known.limit + request.spare if known.limit else None
    yield from islice(_leave_out_shared(convert_records(source(report), convert, report, chosen), request, report), limit)


def _leave_out_shared(found: Iterator[Instance], request: BuildRequest, report: Report) -> Iterator[Instance]:
    other = request.apart_from or request.known.apart_from
    if other is None:
        return found
    try:
        others = open_collection(other).instances
    except InputError as error:
        wanted = f"{request.known.name} leaves out what is also in {other}"
        raise InputError(f"{wanted}, which cannot be read: {error} Or name its file with --apart-from.") from None
    return leave_out_shared(found, others(), report.dropped)


def _own_lines(path: Path, request: BuildRequest, report: Report) -> tuple[Collection, Iterator[Instance]]:
    """A file of our own format, checked and rewritten with a header that counts and signs it."""
    file = path if path.is_file() else _record_files(path, ("*.jsonl*",))[0]
    source = open_collection(file)
    collection = source.collection
    details = {**(collection.details or {}), "sources": _checksums([file]), "dropped": report.dropped}
    renamed = replace(collection, name=request.known.name, chars=request.chars or collection.chars, details=details)
    found = source.instances(reserve=True)
    if request.known.sample is not None:
        chosen = set(sample_ids((each.id for each in source.instances()), request.known.sample, request.seed, request.spare))
        found = (instance for instance in found if instance.id in chosen)
    return renamed, _raise_mistakes_at_end(_leave_out_shared(found, request, report), report)


def _hub_records(id: str, configuration: str | None, split: str, report: Report) -> Iterator[tuple[str, Any]]:
    import datasets

    rows = datasets.load_dataset(id, configuration, split=split, streaming=True)
    return ((f"{id}: record {number}", row) for number, row in enumerate(rows, 1))


def _explain_download_errors(found: Iterator[Instance], known: Known) -> Iterator[Instance]:
    """Whatever a download library raises, as one sentence; they raise anything from OSError to their own trees."""
    try:
        yield from found
    except SteadyscoreError:
        raise
    except Exception as error:
        where = f"ir_datasets {known.ir_datasets}" if known.ir_datasets else f"the hub's {(known.hub or ('',))[0]}"
        reason = "no connection" if any(sign in repr(error) for sign in NO_CONNECTION) else " ".join(str(error).split())[:160]
        by_hand = f"from files: {known.obtain}, then: {_by_hand(known)}"
        raise InputError(f"{known.name} could not be fetched from {where} ({reason}); {by_hand}") from None


def _by_hand(known: Known) -> str:
    return f"steadyscore data build {known.name} --from FOLDER"


def _raise_mistakes_at_end(found: Iterator[Instance], report: Report) -> Iterator[Instance]:
    """The stream, and at its end every mistake: nothing is renamed into place before that."""
    count = 0
    for count, instance in enumerate(found, 1):  # noqa: B007
        yield instance
    report.stop_at_mistakes()
    if not count:
        filters = ", ".join(f"{what} ({times:,})" for what, times in report.dropped.items()) or "the source is empty"
        raise InputError(f"no query is left: {filters}. Check that the files belong together.")


def _header(request: BuildRequest, report: Report, used: Iterable[Path | None], stage: FirstStage | None) -> Collection:
    """The header. `dropped` and `notes` are the report's own counters: they fill while the instances are drawn."""
    known = request.known
    is_passages = known.format in passages.ROLES
    details: dict[str, Any] = {"licence": known.licence, "source": known.source, "role": known.role}
    if is_passages:
        details["depth"] = request.depth
        details["first_stage"] = stage.provenance if stage else {"kind": "run", "source": f"{known.ir_datasets} scoreddocs"}
    details["sources"] = _checksums([path for path in used if path])
    details |= {"filters": list(known.filters), "dropped": report.dropped, "notes": report.notes, "seed": request.seed}
    task: TaskName = "claim_verification" if request.verdicts else known.task  # scored alike, and a reader can judge it
    return Collection(known.name, task, chars=request.chars or known.chars, details=details)


def _checksums(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Name and SHA-256 of the files a collection was made of."""
    return [{"file": path.name, "sha256": sha256(path)} for path in paths if path.is_file()]


def _record_files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    if folder.is_file():
        return [folder]
    for pattern in patterns:
        found = [path for path in sorted(folder.glob(pattern)) if path.name.endswith(RECORD_FILES) and path.name != ALIASES]
        if found:
            return found
    raise InputError(f"{folder}: no file ending in {', '.join(RECORD_FILES)}.")


def _aliases(folder: Path, report: Report) -> dict[str, list[str]] | None:
    path = (folder if folder.is_dir() else folder.parent) / ALIASES
    if not path.is_file():
        return None
    return dict(multidoc_qa.aliases_of(record) for _, record in records([path], report))
