"""What is wrong with the files of a run folder, for `doctor`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import DamagedFile, SteadyscoreError
from ..machine.contents import State, check_parquet, record_state
from ..machine.disk import is_there, list_files, read_json
from ..machine.places import Place
from .folder import Run
from .layout import (
    DAMAGED_FOLDER,
    DERIVED_FILE,
    RECORD_FILE,
    REQUESTS_FOLDER,
    SCORES_FILE,
    STATUS_FILE,
    SUMMARY_FILE,
    remedy_for,
)
from .parts import list_parts, read_part
from .requests import read_run_record
from .table import table_mistakes

ANEW = "Run the command that made it again: it is written anew."


@dataclass(frozen=True, slots=True)
class Finding:
    """One file of a run folder, or one thing that should hold of its rows."""

    file: str
    state: State
    words: str = ""
    remedy: str = ""


def inspect_run(folder: Place) -> list[Finding]:
    """Every file of a run folder, and whether its rows are what was asked for."""
    read_run_record(folder)  # without it nothing else can be judged
    files = list_files(folder)
    requests = [file for file in files if file.parent == folder / REQUESTS_FOLDER]
    findings = [_inspect(folder, file, _json_state) for file in (folder / RECORD_FILE, *requests)]
    findings += [_inspect(folder, part, _part_state, remedy_for(f"{table}.parquet")) for table, part in list_parts(folder)]
    findings += inspect_results(folder)
    if all(finding.state != "damaged" for finding in findings):
        findings += _inspect_rows(folder)
    if isinstance(folder, Path):  # a store has no scratch files
        scratch = sorted(str(file.relative_to(folder)) for file in folder.glob("**/.*.tmp*"))
        findings += [Finding(name, "OK", "left by a process that was killed; nothing reads it") for name in scratch]
    aside = [str(file.relative_to(folder)) for file in files if str(file.relative_to(folder)).startswith(f"{DAMAGED_FOLDER}/")]
    return findings + [Finding(name, "OK", "set aside earlier; nothing reads it") for name in aside]


def inspect_results(folder: Place) -> list[Finding]:
    """Tables and records that a command made from parts: each is made anew by the next one."""
    tables = [file for file in list_files(folder) if file.parent == folder and file.suffix == ".parquet"]
    records = [file for name in (STATUS_FILE, SUMMARY_FILE, DERIVED_FILE) if is_there(file := folder / name)]
    findings = [_inspect(folder, file, check_parquet) for file in tables]
    return findings + [_inspect(folder, file, _json_state) for file in records]


def _inspect(folder: Place, file: Place, state_of: Callable[[Place], State], remedy: str = ANEW) -> Finding:
    name = str(file.relative_to(folder))  # type: ignore[arg-type]
    try:
        return Finding(name, state_of(file))
    except DamagedFile as damage:
        return Finding(name, "damaged", damage.what, remedy)


def _json_state(file: Place) -> State:
    if (state := record_state(read_json(file))) == "damaged":
        raise DamagedFile(file, "was changed since it was written")
    return state


def _part_state(file: Place) -> State:
    read_part(file)
    return "OK"


def _inspect_rows(folder: Place) -> list[Finding]:
    """Whether the rows of a run are what was asked for: of all queries, or of those that were scored so far."""
    try:
        run = Run.open(folder)
        for name in run.record.files or []:
            run.read(name)
        if run.is_complete:
            mistakes = table_mistakes(run.read(SCORES_FILE))
        elif is_there(file := run.folder / STATUS_FILE) and read_json(file).get("status") == "complete":
            mistakes = ["the run was complete, and rows of it are missing"]
        else:
            words = f"the run is not complete: {len(run.scored_ids())} queries have scores"
            return [Finding("rows", "OK", words, "Run the command that made it again: it resumes where it stopped.")]
    except SteadyscoreError as refusal:
        mistakes = [str(refusal)]
    return [Finding("rows", "damaged", mistake) for mistake in mistakes] or [Finding("rows", "OK")]
