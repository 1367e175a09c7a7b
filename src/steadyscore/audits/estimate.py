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
from ..scoring.score import AuditConfig, check_use, scorer_for
from .audit import Additions, open_backend
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

    @property
    def total_cost(self) -> float | None:
        return _sum_known([self.scoring.cost, *(reading.cost for reading in self.readers.values())])

    def to_json(self) -> dict[str, Any]:
        readers = [{"reader": name, "prompts": e.windows, "tokens": e.tokens, "cost": e.cost} for name, e in self.readers.items()]
        return {
            "scorer": self.scorer, "data": self.data, **asdict(self.scoring), "readers": readers, "total_cost": self.total_cost,
            **({"timed": asdict(self.timed)} if isinstance(self.timed, Rate) else {"timed": None, "not_timed": self.timed}),
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
        return table


def estimate_audit(
    scorers: Iterable[str],
    sources: Sequence[Source],
    config: AuditConfig,
    additions: Additions,
    options: EngineOptions | None = None,
) -> AuditEstimates:
    """Windows, tokens, time and money of an audit. A scorer that does not charge is opened, and a few windows are timed."""
    how, scorers = options or EngineOptions(), list(scorers)
    check_use({name: name for name in scorers}, config, how, additions.readers, additions.perturb)
    return AuditEstimates(tuple(part for scorer in scorers for part in _estimate_scorer(scorer, sources, config, additions, how)))


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
            backend = open_backend(address, address, options)
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


def _money(address: str, cost: float | None) -> str:
    if cost is None:
        return "give --price" if is_hosted(address) else "-"
    return f"{cost:.2f}" if cost >= 0.01 else f"{cost:.4f}"
