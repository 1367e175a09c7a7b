"""What is wrong with the files of a run folder: for `doctor`, which prints it, and for a run that is taken up, which repairs it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checksums import State, record_state
from .disk import read_json
from .errors import DamagedFile
from .scores import check_file, read_table, table_mistakes

if TYPE_CHECKING:
    import pyarrow as pa

TABLES = ("scores.parquet", "queries.parquet")
"""What every complete run has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One file of a run folder, or one thing that should hold of its rows."""

    file: str
    state: State
    words: str = ""
    remedy: str = ""


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
    # What is measured from the run's own tables is written anew by every audit.
    return sorted((there | listed) - {"measures.parquet", "labels.parquet"})


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
    if file.name == "scores.parquet" or file.parent.name == "shards":
        if mistakes := table_mistakes(table):
            raise DamagedFile(file, f"is damaged: {'; '.join(mistakes)}")


def _remedy(name: str) -> str:
    """What happens, or has to be asked for, to get a table back."""
    flag = _flag(name)
    if flag:
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
