"""A folder of passage files (BEIR, TREC, MS MARCO) as a collection, and what every build asks for and says in its header."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..machine.disk import sha256
from ..terms import Collection, Instance, TaskName, Verdict
from . import passages
from .catalogue import WEB, Known
from .claims import read_verdicts
from .files import SHOWN, Report
from .first_stage import FirstStage, check_stage, parse_first_stage
from .tables import table_kind


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


def own_files(name: str, format: str, task: TaskName = "passage_reranking") -> Known:
    """The row of the catalogue that somebody's own files would have."""
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


def from_passages(
    folder: Path, request: BuildRequest, report: Report, choose: Callable[[Iterable[str]], list[str]] | None = None
) -> tuple[Collection, Iterator[Instance]]:
    """A collection of passage files, of which `choose` names the queries."""
    known = request.known
    files = passages.find(folder, known.format, known.split)
    stage = request.stage or (FirstStage("run", str(files.run)) if files.run else parse_first_stage(known.first_stage or "bm25"))
    check_stage(stage)
    run = Path(stage.argument) if stage.kind == "run" and stage.argument else None
    instances = passages.from_files(files, stage, report, **passage_options(request, report, choose))
    return header(request, report, [files.topics, files.qrels, *files.corpus, run, request.verdicts], stage), instances


def passage_options(request: BuildRequest, report: Report, choose: Callable[[Iterable[str]], list[str]] | None) -> dict[str, Any]:
    labels: dict[str, Verdict] | None = read_verdicts(request.verdicts, report) if request.verdicts else None
    return {"depth": request.depth, "choose": choose, "without_itself": request.known.without_itself, "verdicts": labels}


def raise_mistakes_at_end(instances: Iterator[Instance], report: Report) -> Iterator[Instance]:
    """The stream, and at its end every mistake: nothing is renamed into place before that."""
    count = 0
    for count, instance in enumerate(instances, 1):  # noqa: B007
        yield instance
    report.stop_at_mistakes()
    if not count:
        filters = ", ".join(f"{what} ({times:,})" for what, times in report.dropped.items()) or "the source is empty"
        raise InputError(f"no query is left: {filters}. Check that the files belong together.")


def header(request: BuildRequest, report: Report, used: Iterable[Path | None], stage: FirstStage | None) -> Collection:
    """The header. `dropped` and `notes` are the report's own counters: they fill while the instances are drawn."""
    known = request.known
    is_passages = known.format in passages.ROLES
    details: dict[str, Any] = {"licence": known.licence, "source": known.source, "role": known.role}
    if is_passages:
        details["depth"] = request.depth
        details["first_stage"] = stage.provenance if stage else {"kind": "run", "source": f"{known.ir_datasets} scoreddocs"}
    details["sources"] = checksums([path for path in used if path])
    details |= {"filters": list(known.filters), "dropped": report.dropped, "notes": report.notes, "seed": request.seed}
    task: TaskName = "claim_verification" if request.verdicts else known.task  # scored alike, and a reader can judge it
    return Collection(known.name, task, chars=request.chars or known.chars, details=details)


def checksums(paths: Iterable[Path]) -> list[dict[str, str]]:
    """Name and SHA-256 of the files a collection was made of."""
    return [{"file": path.name, "sha256": sha256(path)} for path in paths if path.is_file()]
