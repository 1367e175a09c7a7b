"""What is wrong with the files of a run folder: `doctor` prints it, and a run that is resumed repairs it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DamagedFile
from ..machine.checksums import State, record_state
from ..machine.disk import read_json
from .layout import (
    DAMAGED_FOLDER,
    DERIVED_FILE,
    MADE_ANEW,
    QUERIES_FILE,
    RECORD_FILE,
    SCORES_FILE,
    SHARDS_FOLDER,
    SUMMARY_FILE,
    TABLES,
    RunRecord,
    flag_of,
)
from .table import check_file, read_table, table_mistakes


@dataclass(frozen=True, slots=True)
class Finding:
    """One file of a run folder, or one thing that should hold of its rows."""

    file: str
    state: State
    words: str = ""
    remedy: str = ""


# -- for doctor


def inspect_run(folder: Path, record: RunRecord) -> list[Finding]:
    """Every file of a run folder, and whether its rows are what run.json says."""
    findings = [Finding(RECORD_FILE, record_state(read_json(folder / RECORD_FILE)))]
    findings += [_inspect_table(folder, name, record.get("files", [])) for name in _table_names(folder, record)]
    findings += inspect_results(folder)
    if record["status"] == "complete" and all(finding.state != "damaged" for finding in findings):
        findings += [Finding("rows", "damaged", mistake) for mistake in _row_mistakes(folder, record)] or [Finding("rows", "OK")]
    scratch, set_aside = _names(folder, "**/.*.tmp*"), _names(folder, f"{DAMAGED_FOLDER}/**/*.parquet*")
    findings += [Finding(name, "OK", "left by a process that was killed; nothing reads it") for name in scratch]
    findings += [Finding(name, "OK", "set aside earlier; nothing reads it") for name in set_aside]
    return findings


def inspect_results(folder: Path) -> list[Finding]:
    """What an audit made from its runs and wrote beside them: tables and summary, each made anew by the next one."""
    tables = [_inspect_table(folder, name) for name in MADE_ANEW if (folder / name).exists()]
    return tables + [_inspect_json(folder / name) for name in (SUMMARY_FILE, DERIVED_FILE) if (folder / name).exists()]


def _names(folder: Path, pattern: str) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.glob(pattern))


def _inspect_json(file: Path) -> Finding:
    remedy = "Run the command that made it again: it is written anew."
    try:
        state = record_state(read_json(file))
    except DamagedFile as damage:
        return Finding(file.name, "damaged", damage.what, remedy)
    changed = state == "damaged"
    return Finding(file.name, state, "was changed since it was written" if changed else "", remedy if changed else "")


def _row_mistakes(folder: Path, record: RunRecord) -> list[str]:
    """Where the rows of a complete run are not what run.json says of them."""
    scores, queries = (read_table(folder / name) for name in TABLES)
    if mistakes := table_mistakes(scores):
        return mistakes
    coverage, asked = record["coverage"], record["fingerprint"]
    scored, known = (set(table.column("query_id").to_pylist()) for table in (scores, queries))
    wanted = asked["permutations"] + bool(asked.get("canonical")) if asked.get("permutations") else None
    counts = scores.group_by("query_id").aggregate([("permutation", "count_distinct")])["permutation_count_distinct"].to_pylist()
    return [
        *_count_mistake("queries in scores.parquet", len(scored), coverage["scored"]),
        *_count_mistake("queries in queries.parquet", queries.num_rows, coverage["queries"]),
        *([f"{len(scored - known)} queries of scores.parquet are not in queries.parquet"] if scored - known else []),
        *(_count_mistake("permutations of a query", min(counts), wanted) if wanted and set(counts) != {wanted} else []),
    ]


def _count_mistake(what: str, there: int, wanted: int) -> list[str]:
    return [] if there == wanted else [f"{what}: {there}, run.json says {wanted}"]


# -- damage


def damage_of(folder: Path, record: RunRecord) -> list[Finding]:
    """The tables of a run that are damaged or missing, with what the same command does about each."""
    findings = [_inspect_table(folder, name, record.get("files", [])) for name in _table_names(folder, record)]
    return [finding for finding in findings if finding.state == "damaged"]


def _table_names(folder: Path, record: RunRecord) -> list[str]:
    """The tables that are in a run folder, and those that must be."""
    there = {file.name for file in folder.glob("*.parquet")} | {f"shards/{file.name}" for file in folder.glob("shards/*.parquet")}
    listed = set(record.get("files", [])) | set(TABLES)
    if record["status"] != "complete":  # they come at the end
        listed -= set(TABLES)
    return sorted((there | listed) - set(MADE_ANEW))


def _inspect_table(folder: Path, name: str, listed: Sequence[str] = ()) -> Finding:
    """`listed`: the tables that run.json names. They were written with a checksum."""
    file = folder / name
    try:
        state = check_file(file)
        if state == "not checksummed":
            if name in listed:
                raise DamagedFile(file, "is damaged: its checksum is gone")
            _read_whole(file)
        return Finding(name, state)
    except DamagedFile as damage:
        return Finding(name, "damaged", damage.what, _remedy_for(name))


def _read_whole(file: Path) -> None:
    """Without a checksum, damage shows only where it breaks the format or the rows."""
    table = read_table(file)
    holds_scores = file.name == SCORES_FILE or file.parent.name == SHARDS_FOLDER
    if holds_scores and (mistakes := table_mistakes(table)):
        raise DamagedFile(file, f"is damaged: {'; '.join(mistakes)}")


def _remedy_for(name: str) -> str:
    """What happens, or has to be asked for, to get a table back."""
    if name in MADE_ANEW:
        return "Run the command that made it again: it is written anew."
    if flag := flag_of(name):
        return f"It is set aside; pass {flag} to make it again."
    what = "its rows are written again" if name == QUERIES_FILE else "its queries are scored again"
    return f"It is set aside, and {what}."


def repair_command(record: RunRecord, name: str) -> str:
    """The command that made a run, with the flag that makes a table of it again."""
    command, flag = record.get("command") or ["steadyscore", "audit", "..."], flag_of(name)
    asked = flag.split()[0] in command if flag else True
    return shlex.join(command) + ("" if asked else f" {flag}")
