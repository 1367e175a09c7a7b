"""Rows that were lost, doubled or changed, against those of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from steadyscore.machine.places import Place
from tests.faults.fault import Counts

KEYS = {
    "scores.parquet": ("query_id", "permutation", "candidate_id"),
    "queries.parquet": ("query_id",),
    "labels.parquet": ("query_id", "candidate_id"),
}
"""The tables of a run folder, and the columns by which a row is known."""

Row = tuple[Any, Any]
"""A key and a value."""


def compare_rows(rows: Sequence[Row], expected: Sequence[Row]) -> Counts:
    """How rows differ from those expected; their order is a part of the table."""
    times, values = Counter(key for key, _ in rows), dict(rows)
    known = {key for key, _ in expected}
    return Counts(
        lost=sum(key not in values for key in known),
        doubled=sum(count - 1 for count in times.values()),
        wrong=sum(key in values and values[key] != value for key, value in expected)
        + sum(key not in known for key in values)
        + ([key for key, _ in rows] != [key for key, _ in expected] and set(times) == known and len(rows) == len(expected)),
    )


def compare_runs(folder: Place, whole: Path, *, tolerance: float = 0.0) -> Counts:
    """How the tables of a run differ from those of an undisturbed one, value by value."""
    assert any((whole / name).exists() for name in KEYS), f"{whole} holds no table to compare with"
    counts = Counts()
    for name, keys in KEYS.items():
        if (whole / name).exists():
            rows, expected = _rows_of(folder / name, keys), _rows_of(whole / name, keys)
            if tolerance:
                known = dict(expected)
                rows = [(key, _snapped(row, known.get(key), tolerance)) for key, row in rows]
            counts += compare_rows(rows, expected)
    return counts


def _snapped(value: Any, expected: Any, tolerance: float) -> Any:
    """A value whose numbers are the expected ones wherever they are as near as that."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return {key: _snapped(part, expected.get(key), tolerance) for key, part in value.items()}
    if isinstance(value, list) and isinstance(expected, list) and len(value) == len(expected):
        return [_snapped(one, other, tolerance) for one, other in zip(value, expected, strict=True)]
    both = isinstance(value, float) and isinstance(expected, float)
    return expected if both and abs(value - expected) <= tolerance else value


def _rows_of(file: Place, keys: Iterable[str]) -> list[Row]:
    from steadyscore.runs.folder import Run
    from steadyscore.runs.table import read_table

    if (file.parent / "run.json").exists() and file.name in ("scores.parquet", "queries.parquet"):
        rows = Run.open(file.parent).read(file.name).to_pylist()
        assert rows == read_table(file).to_pylist(), f"{file} is not what the parts hold"
    else:
        rows = read_table(file).to_pylist() if file.exists() else []
    return [(tuple(row[key] for key in keys), row) for row in rows]


def compare_files(folder: Path, whole: Path, pattern: str = "**/*") -> Counts:
    """How files differ, byte by byte: one that is missing is a lost row, one that nobody wrote before is a doubled one."""
    there, expected = ({str(f.relative_to(top)) for f in top.glob(pattern) if f.is_file()} for top in (folder, whole))
    return Counts(
        lost=len(expected - there),
        doubled=len(there - expected),
        wrong=sum((folder / name).read_bytes() != (whole / name).read_bytes() for name in there & expected),
    )
