"""Disks that refuse: full, over a quota, read-only."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from steadyscore.errors import StorageError
from tests.faults.audits import audit, make_collection, score_share
from tests.faults.changes import RENAMES
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.namespaces import mount_small
from tests.faults.processes import run_forked

NOBODY = 65534
KILOBYTES = 2048
PAGE = 4096


def is_refused(work: Callable[[], None], words: str, out: Path, told: Path) -> None:
    """Work that may be refused, with a sentence and nothing left behind; makes a file where it was."""
    try:
        work()
    except StorageError as refusal:
        sentence = str(refusal)
        told.touch()
        if words not in sentence or "What was written before is kept" not in sentence:
            raise
        if os.access(out, os.W_OK) and (left := list(out.rglob("*.tmp*"))):  # what nobody may delete is deleted by the next
            raise AssertionError(f"{left} was left behind") from refusal


def commands(data: Path, out: Path) -> list[Callable[[], None]]:
    return [partial(audit, data, out, seconds=0.0), partial(score_share, data, out, 1, 1)]


@fault("disk full", "a tmpfs of 2 MB, filled up to the last n pages, for every n until the audit fits", times=16, few=2)
def fill_disk(folder: Path, times: int) -> Counts:
    data, whole, small = make_collection(folder), folder / "whole", folder / "small"
    run_forked(audit, data, whole)
    mount_small(small, KILOBYTES)
    counts, pages = Counts(), 1 if times > 10 else 5
    while counts.times < times:
        out, ballast, told = small / "run", small / "ballast", folder / "told"
        command = commands(data, out)[counts.times % 2]
        free = os.statvfs(small).f_bavail * os.statvfs(small).f_frsize
        ballast.write_bytes(bytes(max(free - pages * PAGE, 0)))
        run_forked(is_refused, command, "No space left on device", out, told)
        ballast.unlink()
        pages = pages + (1 if times > 10 else 9) if told.exists() else 1
        run_forked(audit, data, out)
        counts += Counts(told.exists()) + compare_runs(out, whole)
        told.unlink(missing_ok=True)
        shutil.rmtree(out)
    return counts


@fault("quota", "`RLIMIT_FSIZE`: no file may grow beyond n bytes, for n from 0 on", times=12, few=3, is_slow=True)
def limit_size(folder: Path, times: int) -> Counts:
    data, whole = make_collection(folder, 8), folder / "whole"
    run_forked(audit, data, whole)
    largest = max(file.stat().st_size for file in whole.rglob("*") if file.is_file())
    counts = Counts()
    for number in range(times):
        out, told = folder / f"run-{number}", folder / f"told-{number}"
        command = commands(data, out)[number % 2]
        run_forked(_limited, number * largest // times, is_refused, command, "File too large", out, told)
        run_forked(audit, data, out)
        counts += Counts(told.exists()) + compare_runs(out, whole)
    return counts


def _limited(size: int, work: Callable[..., None], *args: object) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    work(*args)


@fault(
    "read-only folder",
    "the run folder loses its write permission at the n-th rename of an audit by another user",
    times=16,
    few=3,
)
def close_folder(folder: Path, times: int) -> Counts:
    data, whole = make_collection(folder, 8), folder / "whole"
    audit(data, whole)  # here, so that everything is imported: another user may not read where it lies
    counts, at = Counts(), [0, 0]
    (work := folder / "work").mkdir()
    if os.geteuid() == 0:
        folder.chmod(0o755)
        folder.parent.chmod(0o755)
        os.chown(work, NOBODY, NOBODY)
    for number in itertools.count():
        if counts.times >= times:
            break
        which, out, told = number % 2, work / f"run-{number}", work / f"told-{number}"
        at[which] += 1
        run_forked(_closing, at[which], out, is_refused, commands(data, out)[which], "Permission denied", out, told)
        for closed in (out, *(child for child in out.iterdir() if child.is_dir())):
            closed.chmod(0o755)
        run_forked(audit, data, out)
        at[which] *= told.exists()  # from the first rename again where nothing was left to write
        counts += Counts(told.exists()) + compare_runs(out, whole)
    return counts


def _closing(at: int, out: Path, work: Callable[..., None], *args: object) -> None:
    """Work as somebody to whom permissions apply, in a folder that is closed after a number of renames."""
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    done = 0

    def closing(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*paths: object) -> None:
            nonlocal done
            change(*paths)
            done += 1
            if done == at:
                for folder in (*(child for child in out.iterdir() if child.is_dir()), out):
                    folder.chmod(0o555)

        return changed

    for name in RENAMES:
        setattr(os, name, closing(getattr(os, name)))
    work(*args)


@fault("folder that cannot be made", "`--out` below a file, or in a folder without write permission", times=2, few=2)
def refuse_folder(folder: Path, times: int) -> Counts:
    data = make_collection(folder, 4)
    (folder / "file").touch()
    for out in (folder / "file" / "run", Path("/proc/run")):
        with pytest.raises(StorageError, match="cannot write"):
            audit(data, out)
    return Counts(times)
