"""What an audit will cost, before anything is loaded: each scorer on each collection, and the readers of its candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..collection import Source
from ..engines import Price
from ..machine.progress import duration
from ..readers.estimate import estimate_reader
from ..scoring.estimate import Estimate, estimate, is_hosted
from ..scoring.score import AuditConfig
from .audit import Additions
from .table import text_table

HEADER = ("scorer", "data", "queries", "windows", "tokens (about)", "time (about)", "cost (about)")


@dataclass(frozen=True, slots=True)
class AuditEstimate:
    """One scorer on one collection."""

    scorer: str
    data: str
    scoring: Estimate
    readers: dict[str, Estimate]

    @property
    def total_cost(self) -> float | None:
        return _sum_known([self.scoring.cost, *(reading.cost for reading in self.readers.values())])

    def to_json(self) -> dict[str, Any]:
        readers = [{"reader": name, "prompts": e.windows, "tokens": e.tokens, "cost": e.cost} for name, e in self.readers.items()]
        return {
            "scorer": self.scorer, "data": self.data, **asdict(self.scoring), "readers": readers, "total_cost": self.total_cost,
        }  # fmt: skip

    def rows(self) -> list[list[Any]]:
        """Rows of the table: the scorer's, then one for each reader."""
        scoring, queries = self.scoring, self.scoring.queries
        time = "unknown until its first run here" if scoring.seconds is None else duration(scoring.seconds)
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
        table = text_table(HEADER, rows).rstrip("\n")
        whole = _sum_known(part.total_cost for part in self.parts)
        if whole is None or len(rows) == 1:
            return table
        return f"{table}\n\nall together, where the price is known: about {whole:.2f}"


def estimate_audit(
    scorers: Iterable[str], sources: Sequence[Source], config: AuditConfig, additions: Additions, price: Price | None = None
) -> AuditEstimates:
    """Windows, tokens, time and money of an audit."""
    return AuditEstimates(
        tuple(
            AuditEstimate(
                scorer,
                source.name,
                estimate(scorer, source, config, additions.mitigations, price),
                {
                    reader: estimate_reader(reader, source, config, additions.reader_k, additions.serving_permutations, price)
                    for reader in additions.readers
                },
            )
            for scorer in scorers
            for source in sources
        )
    )


def _sum_known(costs: Iterable[float | None]) -> float | None:
    """The sum of what is known; None where nothing is."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None


def _money(address: str, cost: float | None) -> str:
    if cost is None:
        return "give --price" if is_hosted(address) else "-"
    return f"{cost:.2f}" if cost >= 0.01 else f"{cost:.4f}"
