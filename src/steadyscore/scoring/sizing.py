"""How many workers a run needs: its parts and bytes, and hours and money by number of workers, before anything is scored."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..collection import Source
from ..engines.address import KINDS, parse_address
from ..runs.layout import SHARDS_FOLDER
from ..runs.parts import PartRecord, part_file, write_part
from ..runs.table import Scored
from ..terms import Instance
from .estimate import presentation_of
from .mitigations import count_windows
from .parts import cut_stretches
from .rate import Rate
from .schedule import Pace, Schedule, simulate_schedule, workers_needed
from .score import AuditConfig, cut_instances

USUAL = (1, 8, 64, 512)
"""Numbers of workers that are shown where none is asked for."""
SIMULATED_PARTS = 10_000
"""Parts that are simulated one by one; of more, several together."""


@dataclass(frozen=True, slots=True)
class FleetQuestion:
    """What is asked about workers."""

    workers: int | None = None
    """This many, beside the usual numbers."""
    hours: float | None = None
    """So many hours are there: how many workers are needed?"""
    hourly_price: float | None = None
    """Of one worker, in whatever currency the user counts."""
    in_shares: bool = False
    """Each worker has its share (`--shard`), instead of taking the next part when it is free (`--on ray`)."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """So many workers on a run, simulated."""

    workers: int
    hours: float
    busy_share: float
    tail_seconds: float
    """At the end, when some worker has nothing left to do."""
    tail_parts: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Sizing:
    """What a run is for workers."""

    parts: int
    windows: int
    largest_part: int
    """Windows of the largest part."""
    part_bytes: int
    """All parts together; the table that they are collected into takes about as much again."""
    seconds_per_window: float | None
    opening: float | None
    fleets: tuple[Fleet, ...]
    """By number of workers; empty where nothing was timed."""
    hours: float | None
    """That were asked about."""
    needed: int | None
    """Workers for these hours; None where no number is enough, or nothing was asked."""

    def hours_text(self) -> str:
        """The answer to the question about hours, as a line; empty where there was none."""
        if self.hours is None or self.seconds_per_window is None:
            return ""
        if self.needed is None:
            return f"No number of workers ends within {self.hours:g} hours: to open the scorer and score one part takes longer.\n"
        workers = "1 worker ends" if self.needed == 1 else f"{self.needed:,} workers end"
        return f"{workers} within {self.hours:g} hours.\n"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def size_fleet(
    address: str,
    source: Source,
    config: AuditConfig,
    mitigations: Sequence[str],
    timed: Rate | None,
    seconds: float | None,
    question: FleetQuestion,
) -> Sizing:
    """Parts, bytes, and hours by number of workers; `seconds` is what one worker scores for, from windows that were `timed`."""
    shape = _read_shape(address, source, config, mitigations)
    windows = sum(shape.part_windows)
    if timed is None or seconds is None or not windows:
        largest = max(shape.part_windows, default=0)
        return Sizing(len(shape.part_windows), windows, largest, shape.bytes, None, None, (), question.hours, None)
    pace = Pace(seconds / windows, timed.spread, timed.opening or 0.0)
    simulated = _merge(shape.part_windows)
    needed = workers_needed(simulated, 3600 * question.hours, pace, in_shares=question.in_shares) if question.hours else None
    asked = {workers for workers in (question.workers, needed) if workers}
    usual = {workers for workers in USUAL if workers <= len(shape.part_windows)}
    fleets = tuple(_fleet(simulated, workers, pace, question) for workers in sorted(asked | usual))
    return Sizing(
        parts=len(shape.part_windows),
        windows=windows,
        largest_part=max(shape.part_windows),
        part_bytes=shape.bytes,
        seconds_per_window=pace.window,
        opening=timed.opening,
        fleets=fleets,
        hours=question.hours,
        needed=needed,
    )


def _fleet(parts: Sequence[int], workers: int, pace: Pace, question: FleetQuestion) -> Fleet:
    found: Schedule = simulate_schedule(parts, workers, pace, in_shares=question.in_shares)
    cost = None if question.hourly_price is None else workers * found.seconds / 3600 * question.hourly_price
    return Fleet(workers, found.seconds / 3600, found.busy_share(workers), found.tail, found.tail_parts, cost)


def _merge(parts: Sequence[int]) -> list[int]:
    """Neighbouring parts together, where there are very many."""
    each = math.ceil(len(parts) / SIMULATED_PARTS)
    return [sum(parts[i : i + each]) for i in range(0, len(parts), each)] if each > 1 else list(parts)


# -- parts and bytes


@dataclass(frozen=True, slots=True)
class _Shape:
    part_windows: list[int]
    bytes: int


def _read_shape(address: str, source: Source, config: AuditConfig, mitigations: Sequence[str]) -> _Shape:
    """One pass over the collection; its first part is written, with numbers as long as scores are, and weighed."""
    width = presentation_of(address, source.collection, config)[1]
    orders = config.permutations + config.canonical
    instances = cut_instances(source.instances(), config.cut)
    counted = ((i, round(count_windows(len(i.pool), width, mitigations, orders))) for i in instances)
    parts: list[int] = []
    rows, bytes_per_row = 0, 0.0
    for stretch, windows in cut_stretches(counted):
        held = orders * sum(len(instance.pool) for instance in stretch)
        if not parts and held:
            bytes_per_row = _weigh(stretch, orders, has_grades=KINDS[parse_address(address).kind].grades) / held
        parts.append(windows)
        rows += held
    return _Shape(parts, round(rows * bytes_per_row))


def _weigh(instances: Sequence[Instance], orders: int, *, has_grades: bool) -> int:
    """Bytes of a part of these queries, with its checksum and its record."""
    rng = np.random.default_rng(0)

    def scored(instance: Instance) -> Scored:
        n = len(instance.pool)
        ids = tuple(sorted(candidate.id for candidate in instance.pool))
        places = np.stack([rng.permutation(n) for _ in range(orders)])
        return Scored(
            query_id=instance.id,
            candidate_ids=ids,
            permutations=np.arange(orders),
            scores=rng.random((orders, n)),
            slots=places,
            windows=places // 20,
            grades=rng.random((orders, n, 4)) if has_grades else None,
            label_mass=rng.random((orders, n)) if has_grades else None,
            relevance=instance.relevance(ids),
        )

    with tempfile.TemporaryDirectory(prefix="steadyscore-") as folder:
        (Path(folder) / SHARDS_FOLDER).mkdir()
        write_part(Path(folder), "weighed", [scored(instance) for instance in instances], PartRecord(sessions=[], failed=[]))
        return part_file(Path(folder), "weighed").stat().st_size
