"""How a complete run grows: to more queries or more permutations of the same command, so that only what is missing is scored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..machine.disk import explaining_os_errors
from ..terms import Array
from .layout import EARLIER_FILE, SCORES_FILE, SHARDS_FOLDER, BeforeGrowth, RunRecord
from .table import Scored

Fingerprint = Mapping[str, Any]


def is_growth(old: Fingerprint, new: Fingerprint) -> bool:
    """Whether a run of the new fingerprint holds everything that one of the old holds, and more."""
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return bool(differing) and all(key in GROWS and GROWS[key](old, new) for key in differing)


def has_more_permutations(old: Fingerprint, new: Fingerprint) -> bool:
    """Permutations are drawn by their number, but those of a Latin square all depend on how many there are."""
    before, now = old.get("permutations"), new.get("permutations")
    return before is not None and now is not None and now > before and new.get("scheme") != "balanced"


def _has_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    """The first N of a collection are among the first N + 1."""
    before, now = old.get("queries"), new.get("queries")
    return before is not None and (now is None or now > before)


def _names_more_queries(old: Fingerprint, new: Fingerprint) -> bool:
    before, now = old.get("query_ids"), new.get("query_ids")
    if before is None or new.get("queries") is not None:
        return False
    return now is None or set(before) <= set(now)


GROWS: dict[str, Callable[[Fingerprint, Fingerprint], bool]] = {
    "permutations": has_more_permutations,
    "queries": _has_more_queries,
    "query_ids": _names_more_queries,
}
"""By key of the fingerprint, whether the new value only adds to the old one."""


def describe_difference(key: str, old: Any, new: Any) -> str:
    """Both values, of long ones the part in which they differ."""
    was, now = (json.dumps(value, ensure_ascii=False) for value in (old, new))
    first = next((i for i, (a, b) in enumerate(zip(was, now, strict=False)) if a != b), 0)
    keep = {"chars": "whole texts; " if new is None else "", "scheme": ""}.get(key) if old else None
    kept = "" if keep is None else f" ({keep}--{key} {old} goes on as it was)"
    return f"{key} was {_excerpt(was, first)}, now {_excerpt(now, first)}{kept}"


def _excerpt(text: str, place: int) -> str:
    start = max(0, place - 20)
    return text if len(text) <= 80 else "..." * bool(start) + text[start : start + 74] + "..." * (start + 74 < len(text))


# -- its steps: a kill between any two leaves a run that goes on or back, also in a store, where a rename is a copy and a removal


def begin_growth(folder: Path, record: RunRecord, fingerprint: dict[str, Any], command: list[str]) -> None:
    """Have the record of a complete run ask for more, and know what it was. It is written next.

    Where permutations are missing the table becomes `earlier.parquet`, from which queries are taken to be completed.
    """
    sessions = len(record.get("sessions", []))
    before = BeforeGrowth(fingerprint=record["fingerprint"], command=record.get("command", []), sessions=sessions)
    record["before_growth"], record["fingerprint"], record["command"] = before, fingerprint, command
    record["status"] = "scoring"
    with explaining_os_errors(folder):
        shutil.rmtree(folder / SHARDS_FOLDER, ignore_errors=True)  # what a process that was killed as it ended left
        if adds_permutations(record):
            os.replace(folder / SCORES_FILE, folder / EARLIER_FILE)


def adds_permutations(record: RunRecord) -> bool:
    """Whether a run grows now, and to more permutations of what it holds."""
    return "before_growth" in record and has_more_permutations(record["before_growth"]["fingerprint"], record["fingerprint"])


def restore_table(folder: Path, record: RunRecord) -> None:
    """The table of a complete run has its own name: no growth has begun, or it was undone, or it has ended."""
    table, earlier = folder / SCORES_FILE, folder / EARLIER_FILE
    if record["status"] == "complete" and earlier.exists():
        with explaining_os_errors(folder):
            if table.exists():
                earlier.unlink()
            else:
                os.replace(earlier, table)


def undo_growth(folder: Path, record: RunRecord) -> None:
    """Have the record say what the run was before it began to grow. It is written next, and `restore_table` follows.

    What the growth took stays in its account; what it scored goes.
    """
    table, shards = folder / SCORES_FILE, folder / SHARDS_FOLDER
    with explaining_os_errors(folder):
        if not adds_permutations(record):  # the first shard is the table that was complete, and the run is joined from it
            for shard in sorted(shards.glob("*.parquet"))[1:]:
                shard.unlink()
        else:
            shutil.rmtree(shards, ignore_errors=True)
            if table.exists():  # of the larger run, whose queries may have been written too: both are joined anew
                table.unlink()
            else:
                record["status"] = "complete"
    before = record.pop("before_growth")
    record["fingerprint"], record["command"] = before["fingerprint"], before["command"]
    for session in record.get("sessions", [])[before["sessions"] :]:
        session.pop("windows", None)
        session.pop("tokens", None)
        session.pop("shrunk", None)


def join_presentations(known: Scored, more: Scored) -> Scored:
    """One query's rows of an earlier scoring, and those that were missing."""

    def rows(a: Array | None, b: Array | None) -> Array | None:
        return None if a is None or b is None else np.concatenate([a, b])

    return replace(
        more,
        permutations=np.concatenate([known.permutations, more.permutations]),
        scores=np.concatenate([known.scores, more.scores]),
        slots=rows(known.slots, more.slots),
        windows=rows(known.windows, more.windows),
        grades=rows(known.grades, more.grades),
        label_mass=rows(known.label_mass, more.label_mass),
    )
