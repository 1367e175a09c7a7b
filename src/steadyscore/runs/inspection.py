"""What is wrong with the files of a run folder: `doctor` prints it, and a run that is taken up repairs it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DamagedFile
from ..machine.checksums import State, record_state
from ..machine.disk import read_json
from .table import check_file, read_table, table_mistakes

TABLES = ("scores.parquet", "queries.parquet")
"""What every complete run has."""
MADE_ANEW = ("labels.parquet", "measures.parquet")
"""Made from the run's own tables by every command that writes them, so that damage needs no repair."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One file of a run folder, or one thing that should hold of its rows."""

    file: str
    state: State
    words: str = ""
    remedy: str = ""


# -- for doctor


def inspect_run(folder: Path, record: dict[str, Any]) -> list[Finding]:
    """Every file of a run folder, and whether its rows are what run.json says."""
    found = [Finding("run.json", record_state(read_json(folder / "run.json")))]
    found += [_inspect_table(folder, name, record) for name in _table_names(folder, record)]
    found += [_inspect_table(folder, name, {}) for name in MADE_ANEW if (folder / name).exists()]
    found += [_inspect_json(folder / name) for name in ("summary.json", "derived.json") if (folder / name).exists()]
    if record["status"] == "complete" and all(finding.state != "damaged" for finding in found):
        found += [Finding("rows", "damaged", mistake) for mistake in _row_mistakes(folder, record)] or [Finding("rows", "OK")]
    found += [Finding(name, "OK", "left by a process that was killed; nothing reads it") for name in _names(folder, "**/.*.tmp*")]
    found += [Finding(name, "OK", "set aside earlier; nothing reads it") for name in _names(folder, "damaged/**/*.parquet*")]
    return found


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


def _row_mistakes(folder: Path, record: dict[str, Any]) -> list[str]:
    """Where the rows of a complete run are not what run.json says of them."""
    scores, queries = (read_table(folder / name) for name in TABLES)
    if found := table_mistakes(scores):
        return found
    coverage, asked = record["coverage"], record["fingerprint"]
    scored, known = (set(table.column("query_id").to_pylist()) for table in (scores, queries))
    wanted = asked["permutations"] + bool(asked.get("canonical")) if asked.get("permutations") else None
    counts = scores.group_by("query_id").aggregate([("permutation", "count_distinct")])["permutation_count_distinct"].to_pylist()
    return [
        *_differing("queries in scores.parquet", len(scored), coverage["scored"]),
        *_differing("queries in queries.parquet", queries.num_rows, coverage["queries"]),
        *([f"{len(scored - known)} queries of scores.parquet are not in queries.parquet"] if scored - known else []),
        *(_differing("permutations of a query", min(counts), wanted) if wanted and set(counts) != {wanted} else []),
    ]


def _differing(what: str, there: int, wanted: int) -> list[str]:
    return [] if there == wanted else [f"{what}: {there}, run.json says {wanted}"]


# -- damage


def damage_of(folder: Path, record: dict[str, Any]) -> list[Finding]:
    """The tables of a run that are damaged or missing, with what the same command does about each."""
    found = [_inspect_table(folder, name, record) for name in _table_names(folder, record)]
    return [finding for finding in found if finding.state == "damaged"]


def _table_names(folder: Path, record: dict[str, Any]) -> list[str]:
    """The tables that are in a run folder, and those that must be."""
    there = {file.name for file in folder.glob("*.parquet")} | {f"shards/{file.name}" for file in folder.glob("shards/*.parquet")}
    listed = set(record.get("files", [])) | set(TABLES)
    if record["status"] != "complete":  # they come at the end
        listed -= set(TABLES)
    return sorted((there | listed) - set(MADE_ANEW))


def _inspect_table(folder: Path, name: str, record: dict[str, Any]) -> Finding:
    file = folder / name
    try:
        state = check_file(file)
        if state == "not checksummed":
            if name in record.get("files", []):
                raise DamagedFile(file, "is damaged: its checksum is gone")
            _read_whole(file)
        return Finding(name, state)
    except DamagedFile as damage:
        return Finding(name, "damaged", damage.what, _remedy(name))


def _read_whole(file: Path) -> None:
    """Without a checksum, damage shows only where it breaks the format or the rows."""
    table = read_table(file)
    holds_scores = file.name == "scores.parquet" or file.parent.name == "shards"
    if holds_scores and (mistakes := table_mistakes(table)):
        raise DamagedFile(file, f"is damaged: {'; '.join(mistakes)}")


def _remedy(name: str) -> str:
    """What happens, or has to be asked for, to get a table back."""
    if name in MADE_ANEW:
        return "Run the command that made it again: it is written anew."
    if flag := _flag(name):
        return f"It is set aside; pass {flag} to make it again."
    what = "its rows are written again" if name == "queries.parquet" else "its queries are scored again"
    return f"It is set aside, and {what}."


def _flag(name: str) -> str:
    """The flag of `audit` that makes a table beside the scores."""
    if name.startswith("perturbed-"):
        return f"--perturb {name.removeprefix('perturbed-').removesuffix('.parquet')}"
    return {"noise.parquet": "--noise-floor", "outputs.parquet": "--reader ADDRESS"}.get(name, "")


def repair_command(record: dict[str, Any], name: str) -> str:
    """The command that made a run, with the flag that makes a table of it again."""
    command, flag = record.get("command") or ["steadyscore", "audit", "..."], _flag(name)
    asked = flag.split()[0] in command if flag else True
    return shlex.join(command) + ("" if asked else f" {flag}")
