"""What an audit will cost: each scorer on each collection, a few of its windows timed now, and the readers of its candidates."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..collection import Source
from ..engines import EngineOptions
from ..errors import SteadyscoreError
from ..machine.credentials import redact
from ..machine.progress import duration, job
from ..readers.estimate import estimate_reader
from ..scoring.estimate import Estimate, estimate, is_hosted
from ..scoring.mitigations import mitigate
from ..scoring.rate import Rate, time_windows
from ..scoring.score import AuditConfig, scorer_for
from ..scoring.sizing import FleetQuestion, Sizing, size_fleet
from .audit import Additions, Output, open_backend
from .table import text_table

HEADER = ("scorer", "data", "queries", "windows", "tokens (about)", "time (about)", "cost (about)")


@dataclass(frozen=True, slots=True)
class AuditEstimate:
    """One scorer on one collection."""

    scorer: str
    data: str
    scoring: Estimate
    readers: dict[str, Estimate]
    timed: Rate | str
    """What was timed for it, or why nothing was."""
    workers: Sizing | None = None
    """What it is for workers on many machines, where that was asked."""

    def fleet_text(self) -> str:
        """The table of workers, below what it is a table of; empty where nothing was asked."""
        sizing = self.workers
        if sizing is None:
            return ""
        parts = "1 part" if sizing.parts == 1 else f"{sizing.parts:,} parts"
        about = f"{self.scorer} on {self.data}: {parts} of up to {sizing.largest_part:,} windows"
        about += f", about {_bytes(sizing.part_bytes)} of parts and as much of a table"
        if sizing.seconds_per_window is None:
            return f"\n{about}.\n"
        opened = "" if sizing.opening is None else f", {sizing.opening:.1f} s to open the scorer"
        rows = [
            [f"{f.workers:,}", f"{f.hours:.2f}", f"{f.busy_share:.0%}", f"{f.tail_seconds:.0f} s", f.tail_parts, _cost(f.cost)]
            for f in sizing.fleets
        ]
        table = text_table(("workers", "hours", "busy", "tail", "parts in it", "cost"), rows)
        return f"\n{about}; {sizing.seconds_per_window:.4g} s a window{opened}.\n{table}{sizing.hours_text()}"

    @property
    def total_cost(self) -> float | None:
        return _sum_known([self.scoring.cost, *(reading.cost for reading in self.readers.values())])

    def to_json(self) -> dict[str, Any]:
        readers = [{"reader": name, "prompts": e.windows, "tokens": e.tokens, "cost": e.cost} for name, e in self.readers.items()]
        return {
            "scorer": self.scorer, "data": self.data, **asdict(self.scoring), "readers": readers, "total_cost": self.total_cost,
            **({"timed": asdict(self.timed)} if isinstance(self.timed, Rate) else {"timed": None, "not_timed": self.timed}),
            **({} if self.workers is None else {"workers": self.workers.to_json()}),
        }  # fmt: skip

    def rows(self) -> list[list[Any]]:
        """Rows of the table: the scorer's, then one for each reader."""
        scoring, queries = self.scoring, self.scoring.queries
        known = isinstance(self.timed, Rate) and scoring.seconds is not None
        time = duration(scoring.seconds or 0) if known else "not timed"
        money = _money(self.scorer, scoring.cost)
        readers = [
            [f"  read by {name}", self.data, queries, f"up to {e.windows}", e.tokens, "-", _money(name, e.cost)]
            for name, e in self.readers.items()
        ]
        return [[self.scorer, self.data, queries, scoring.windows, scoring.tokens, time, money], *readers]


@dataclass(frozen=True, slots=True)
class AuditEstimates:
    """What a whole call will cost. Prints as the table of `steadyscore audit --dry-run`."""

    parts: tuple[AuditEstimate, ...]

    def to_json(self) -> list[dict[str, Any]]:
        return [part.to_json() for part in self.parts]

    def __str__(self) -> str:
        rows = [row for part in self.parts for row in part.rows()]
        not_timed = [f"\n{part.scorer} is not timed: {part.timed}" for part in self.parts if isinstance(part.timed, str)]
        table = text_table(HEADER, rows) + "".join(dict.fromkeys(not_timed))
        table = table.rstrip("\n")
        whole = _sum_known(part.total_cost for part in self.parts)
        if whole is not None and len(rows) > 1:
            table += f"\n\nall together, where the price is known: about {whole:.2f}"
        return "\n".join([table, *filter(None, (part.fleet_text() for part in self.parts))]).rstrip("\n")


def estimate_audit(
    scorers: Iterable[str],
    sources: Sequence[Source],
    config: AuditConfig,
    additions: Additions,
    options: EngineOptions | None = None,
    workers: FleetQuestion | None = None,
) -> AuditEstimates:
    """Windows, tokens, time and money of an audit. A scorer that does not charge is opened, and a few windows are timed."""
    how = options or EngineOptions()
    parts = (part for scorer in scorers for part in _estimate_scorer(scorer, sources, config, additions, how))
    return AuditEstimates(
        tuple(parts if workers is None else (_size(part, sources, config, additions, workers) for part in parts))
    )


def _size(
    part: AuditEstimate, sources: Sequence[Source], config: AuditConfig, additions: Additions, question: FleetQuestion
) -> AuditEstimate:
    source = next(source for source in sources if source.name == part.data)
    timed = part.timed if isinstance(part.timed, Rate) else None
    sizing = size_fleet(part.scorer, source, config, additions.mitigations, timed, part.scoring.seconds, question)
    return replace(part, workers=sizing)


def _estimate_scorer(
    address: str, sources: Sequence[Source], config: AuditConfig, additions: Additions, options: EngineOptions
) -> list[AuditEstimate]:
    parts = []
    for source, timed in zip(sources, _time_scorer(address, sources, config, additions, options), strict=True):
        scoring = estimate(address, source, config, additions.mitigations, options.price)
        if isinstance(timed, Rate):
            scoring = replace(scoring, seconds=scoring.tokens / timed.tokens_per_second)
        readers = {
            reader: estimate_reader(reader, source, config, additions.reader_k, additions.serving_permutations, options.price)
            for reader in additions.readers
        }
        parts.append(AuditEstimate(address, source.name, scoring, readers, timed))
    return parts


def _time_scorer(
    address: str, sources: Sequence[Source], config: AuditConfig, additions: Additions, options: EngineOptions
) -> list[Rate | str]:
    """The rate of a scorer on each collection, or why it is not known: an estimate must come without the model, too."""
    if is_hosted(address):
        return ["it charges"] * len(sources)
    try:
        with job(f"timing {address}", unit=""):
            began = time.perf_counter()
            backend = open_backend(address, address, options, additions, [], Output(say=lambda remark: None))
            opening = time.perf_counter() - began
            scorers = [mitigate(scorer_for(backend, source.collection, config), additions.mitigations) for source in sources]
            rates = [
                time_windows(scorer, address, source, config, additions.mitigations)
                for scorer, source in zip(scorers, sources, strict=True)
            ]
            return [replace(rate, opening=opening) for rate in rates]
    except Exception as fault:  # somebody's own code may fail in any way
        reason = str(fault) if isinstance(fault, SteadyscoreError) else f"{type(fault).__name__}: {fault}"
        return [redact(reason.splitlines()[0])] * len(sources)


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def _cost(cost: float | None) -> str:
    return "-" if cost is None else f"{cost:,.2f}"


def _bytes(count: float) -> str:
    """A size as one says it: 12 kB, 3.4 GB."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def _money(address: str, cost: float | None) -> str:
    if cost is None:
        return "give --price" if is_hosted(address) else "-"
    return f"{cost:.2f}" if cost >= 0.01 else f"{cost:.4f}"
