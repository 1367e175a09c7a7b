"""Files of a run that are not what was written."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steadyscore.errors import DamagedFile, InputError, RunMismatch
from tests.faults.audits import audit, make_collection, score_share
from tests.faults.counting import compare_files, compare_runs
from tests.faults.fault import Counts, fault
from tests.faults.processes import run_forked


class Stop(BaseException):
    """Ends an audit half-way."""


def make_states(folder: Path) -> dict[str, Path]:
    """A run that stopped half-way, one whose parts were not collected yet, one that is complete."""
    data = make_collection(folder)
    run_forked(audit, data, folder / "whole")
    run_forked(stop_half_way, data, folder / "half")
    run_forked(score_share, data, folder / "parts", 1, 2)
    return {name: folder / name for name in ("half", "parts", "whole")}


def stop_half_way(data: Path, out: Path) -> None:
    from steadyscore.runs.folder import Run

    real, kept = Run.append, 0

    def append(run: Run, scored: Any, **options: Any) -> None:
        nonlocal kept
        real(run, scored, **options)
        kept += 1
        if kept == 8:
            raise Stop

    Run.append = append  # type: ignore[method-assign]
    with pytest.raises(Stop):
        audit(data, out, seconds=0.0)


def flip(content: bytes, dice: random.Random) -> bytes:
    changed = bytearray(content)
    changed[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def truncate(content: bytes, dice: random.Random) -> bytes:
    return content[: dice.randrange(len(content))]


def overwrite(content: bytes, dice: random.Random) -> bytes:
    """Zeros or noise over a stretch, as a bad sector leaves them."""
    start, length = dice.randrange(len(content)), dice.randrange(1, 512)
    stretch = bytes(length) if dice.random() < 0.5 else dice.randbytes(length)
    changed = (content[:start] + stretch + content[start + length :])[: len(content)]
    return changed if changed != content else flip(content, dice)


def damage(folder: Path, times: int, change: Callable[[bytes, random.Random], bytes]) -> Counts:
    states, dice, counts = make_states(folder), random.Random(0), Counts()
    for number in range(times):
        state = list(states)[number % len(states)]
        out = Path(shutil.copytree(states[state], folder / f"run-{number}"))
        file = dice.choice(sorted(out.rglob("*.parquet")))
        file.write_bytes(change(file.read_bytes(), dice))
        again = score_share_and_audit if state == "parts" else audit
        run_forked(again, folder / "pools.jsonl", out)
        if "parts" in file.relative_to(out).parts:
            assert list(out.glob(f"damaged/*/{file.name}")), f"{file} was not set aside"
        counts += Counts(1) + compare_runs(out, states["whole"])
        shutil.rmtree(out)
    return counts


def score_share_and_audit(data: Path, out: Path) -> None:
    score_share(data, out, 1, 2)
    audit(data, out)


@fault("flipped bit", "one bit of a part or of a view", times=24, few=3)
def flip_bits(folder: Path, times: int) -> Counts:
    return damage(folder, times, flip)


@fault("truncated file", "a part or a view cut at any byte", times=12, few=3, is_slow=True)
def truncate_files(folder: Path, times: int) -> Counts:
    return damage(folder, times, truncate)


@fault("corrupted file", "up to 512 bytes of zeros or noise in a part or a view", times=12, few=3, is_slow=True)
def overwrite_files(folder: Path, times: int) -> Counts:
    return damage(folder, times, overwrite)


@fault("deleted file", "a part or a view removed", times=9, few=3, is_slow=True)
def delete_files(folder: Path, times: int) -> Counts:
    states, dice, counts = make_states(folder), random.Random(0), Counts()
    for number in range(times):
        state = list(states)[number % len(states)]
        out = Path(shutil.copytree(states[state], folder / f"run-{number}"))
        dice.choice(sorted(out.rglob("*.parquet"))).unlink()
        run_forked(audit, folder / "pools.jsonl", out)
        counts += Counts(1) + compare_runs(out, states["whole"])
    return counts


# -- run.json


def set_value(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(record: dict[str, Any]) -> None:
        for step in path[:-1]:
            record = record[step]
        record[path[-1]] = value

    return edit


EDITS: tuple[Callable[[dict[str, Any]], None], ...] = (
    set_value("name", value="another"),
    set_value("task", value="another"),
    set_value("fingerprint", "seed", value=7),
    set_value("fingerprint", "permutations", value=5),
    set_value("fingerprint", "data", "sha256", value="0" * 16),
    set_value("files", value={"noise.parquet": 7}),
    set_value("format", value=1),
    lambda record: record.pop("fingerprint"),
    lambda record: record.pop("name"),
)


@fault(
    "run.json edited",
    "a value changed by hand, a key removed, half of the file, or another file: refused until it is put back",
    times=11,
    few=5,
)
def edit_record(folder: Path, times: int) -> Counts:
    states, counts = make_states(folder), Counts()
    spoiled: list[Callable[[str], str]] = [
        *(lambda text, edit=edit: _edited(text, edit) for edit in EDITS),
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
    ]
    for number in range(times):
        state = list(states)[number % len(states)]
        out = Path(shutil.copytree(states[state], folder / f"run-{number}"))
        before = Path(shutil.copytree(out, folder / f"before-{number}"))
        text = (out / "run.json").read_text()
        edited = spoiled[number % len(spoiled)](text)
        if json.loads(edited) != json.loads(text) if edited.endswith("}\n") else True:
            (out / "run.json").write_text(edited)
            for command in (audit, score_share_and_audit):
                run_forked(_is_refused, command, folder / "pools.jsonl", out)
            (out / "run.json").write_text(text)
            counts += Counts(1) + compare_files(out, before)
        run_forked(audit, folder / "pools.jsonl", out)
        counts += compare_runs(out, states["whole"])
    return counts


def _edited(text: str, edit: Callable[[dict[str, Any]], None]) -> str:
    record = json.loads(text)
    edit(record)
    return json.dumps(record, indent=2, ensure_ascii=False) + "\n"


def _is_refused(command: Callable[[Path, Path], None], data: Path, out: Path) -> None:
    with pytest.raises(DamagedFile, match=r"run\.json .*(Copy it back from a backup|If you changed it on purpose)"):
        command(data, out)


@fault(
    "run.json edited and unsealed",
    "the same without its checksum, as the docs allow: refused, or repaired from the tables",
    times=9,
    few=3,
)
def unseal_record(folder: Path, times: int) -> Counts:
    states, counts = make_states(folder), Counts()
    for number in range(times):
        state, edit = list(states)[number % len(states)], EDITS[number % len(EDITS)]
        out = Path(shutil.copytree(states[state], folder / f"run-{number}"))
        text = (out / "run.json").read_text()
        record = json.loads(_edited(text, edit))
        del record["sha256"]
        (out / "run.json").write_text(json.dumps(record))
        told = folder / f"told-{number}"
        run_forked(_may_be_refused, folder / "pools.jsonl", out, told)
        if told.exists():
            (out / "run.json").write_text(text)
            run_forked(audit, folder / "pools.jsonl", out)
        counts += Counts(1) + compare_runs(out, states["whole"])
    return counts


def _may_be_refused(data: Path, out: Path, told: Path) -> None:
    try:
        audit(data, out)
    except (RunMismatch, InputError, DamagedFile) as refusal:
        told.write_text(str(refusal))
