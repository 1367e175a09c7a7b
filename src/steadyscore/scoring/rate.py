"""How fast a scorer is on this machine in its present state: a few windows of the run itself, timed now."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from ..collection import Source
from ..errors import InputError
from ..terms import Instance
from .estimate import estimate
from .score import AuditConfig, Cut, cut_instances
from .scorer import PoolScorer

WINDOWS = 4
"""Windows that are timed, after one that warms up."""
SECONDS = 10.0
"""Time after which no further window is begun."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a few windows took."""

    windows: int
    tokens: int
    """As `estimate` counts them, so that what its count misses is in the rate."""
    seconds: float
    spread: float = 0.0
    """Standard deviation of the seconds of a window, as a share of them."""
    opening: float | None = None
    """Seconds until the scorer was open."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


def time_windows(scorer: PoolScorer, address: str, source: Source, config: AuditConfig, mitigations: Sequence[str] = ()) -> Rate:
    """Score one window of each of the first queries and time it; the first one warms up, unless it is the only one."""
    timed: list[Instance] = []
    seconds: list[float] = []
    for place, instance in enumerate(islice(cut_instances(source.instances(), config.cut), WINDOWS + 1)):
        if sum(seconds) > SECONDS:
            break
        window = replace(instance, pool=instance.pool[: scorer.width])
        began = time.perf_counter()
        scorer.score(window)
        if place == 1:
            timed, seconds = [], []
        timed.append(window)
        seconds.append(time.perf_counter() - began)
    if not timed:
        raise InputError(f"{source.name} holds no query to time.")
    once = replace(config, permutations=1, canonical=False, cut=Cut())
    tokens = estimate(address, replace(source, read=lambda: iter(timed)), once, mitigations).tokens
    return Rate(len(timed), tokens, sum(seconds), statistics.pstdev(seconds) / statistics.mean(seconds))
