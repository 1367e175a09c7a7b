"""What an audit will cost: each scorer on each collection, a few of its windows timed now, and the readers of its candidates."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..collection import Source
from ..engines import EngineOptions, Price
from ..errors import SteadyscoreError
from ..machine.console import duration, job
from ..machine.credentials import redact
from ..readers.reader import build_question, chat_messages
from ..results.render import to_text
from ..results.table import table_of
from ..scoring.config import AuditConfig, check_use, scorer_for
from ..scoring.estimate import Estimate, Rate, estimate, is_hosted, time_windows
from ..scoring.mitigations import mitigate
from ..scoring.score import cut_instances
from ..tasks import TASKS, reader_kind
from ..window.prompt import CHARS_PER_TOKEN
from .audit import open_backend

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

    def to_json(self) -> dict[str, object]:
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

    def to_json(self) -> list[dict[str, object]]:
        return [part.to_json() for part in self.parts]

    def __str__(self) -> str:
        rows = [row for part in self.parts for row in part.rows()]
        not_timed = [f"\n{part.scorer} is not timed: {part.timed}" for part in self.parts if isinstance(part.timed, str)]
        table = to_text([table_of(HEADER, rows)]) + "".join(dict.fromkeys(not_timed))
        table = table.rstrip("\n")
        whole = _sum_known(part.total_cost for part in self.parts)
        if whole is not None and len(rows) > 1:
            table += f"\n\nall together, where the price is known: about {whole:.2f}"
        return table


def estimate_audit(
    scorers: Iterable[str],
    sources: Sequence[Source],
    config: AuditConfig,
    options: EngineOptions | None = None,
) -> AuditEstimates:
    """Windows, tokens, time and money of an audit. A scorer that does not charge is opened, and a few windows are timed."""
    how, scorers = options or EngineOptions(), list(scorers)
    check_use({name: name for name in scorers}, config, how, config.readers, config.perturb)
    return AuditEstimates(tuple(part for scorer in scorers for part in _estimate_scorer(scorer, sources, config, how)))


def _estimate_scorer(address: str, sources: Sequence[Source], config: AuditConfig, options: EngineOptions) -> list[AuditEstimate]:
    parts = []
    for source, timed in zip(sources, _time_scorer(address, sources, config, options), strict=True):
        scoring = estimate(address, source, config, config.mitigations, options.price)
        if isinstance(timed, Rate):
            scoring = replace(scoring, seconds=scoring.tokens / timed.tokens_per_second)
        readers = {reader: _estimate_reader(reader, source, config, options.price) for reader in config.readers}
        parts.append(AuditEstimate(address, source.name, scoring, readers, timed))
    return parts


def _estimate_reader(address: str, source: Source, config: AuditConfig, price: Price | None) -> Estimate:
    """At most one prompt per order served, fewer where evidence recurs."""
    task, orders = TASKS[source.collection.task], config.permutations // config.view.serving_permutations
    queries, characters = 0, 0.0
    is_claims = reader_kind(task).writes == "verdict"
    has_verdicts = is_claims and any(instance.verdict for instance in cut_instances(source.instances(), config.cut))
    for instance in cut_instances(source.instances(), config.cut):
        if has_verdicts and instance.verdict is None:
            continue  # a claim that readers leave out
        some = instance.pool[: config.reader_k]
        messages = chat_messages(build_question(task, instance.query, some))
        whole = sum(len(c.text) + len(c.title or "") for c in instance.pool) * len(some) / len(instance.pool)
        frame = sum(len(message["content"]) for message in messages) - sum(len(c.text) + len(c.title or "") for c in some)
        queries, characters = queries + 1, characters + orders * (frame + whole)
    tokens = round(characters / CHARS_PER_TOKEN)
    written = queries * orders * reader_kind(task).tokens
    money = price.of(tokens, written) if price and is_hosted(address) else None
    return Estimate(queries, queries * orders, tokens, None, money)


def _time_scorer(address: str, sources: Sequence[Source], config: AuditConfig, options: EngineOptions) -> list[Rate | str]:
    """The rate of a scorer on each collection, or why it is not known: an estimate must come without the model, too."""
    if is_hosted(address):
        return ["it charges"] * len(sources)
    try:
        with job(f"timing {address}", unit=""):
            began = time.perf_counter()
            backend = open_backend(address, address, options)
            opening = time.perf_counter() - began
            scorers = [mitigate(scorer_for(backend, source.collection, config), config.mitigations) for source in sources]
            rates = [
                time_windows(scorer, address, source, config, config.mitigations)
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
        return "give price" if is_hosted(address) else "-"
    return f"{cost:.2f}" if cost >= 0.01 else f"{cost:.4f}"
