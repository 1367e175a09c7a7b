"""How long workers take for the parts of a run: the scheduler simulated, part by part, on a clock that nobody waits for.

Workers open their scorer, take the next part when they have ended one, and may die: then what they had of the part is lost, a
new worker opens the scorer, and the part is begun again. A part that is lost too often is scored at the end, by the command that
collects. Shares (`--shard I/N`) are the same with a queue for each worker.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

RETRIES = 3
"""Times that a part is begun again after the death of its worker."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a worker is and how long it lives; measured, or assumed."""

    window: float
    """Seconds of a window, on average."""
    spread: float = 0.0
    """Standard deviation of the seconds of a window, as a share of them."""
    opening: float = 0.0
    """Seconds until a new worker has opened its scorer."""
    handing: float = 0.0
    """Seconds that a part takes beside its windows: to be handed over, read and written."""
    deaths: float = 0.0
    """Deaths of a worker in an hour of its life."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """What became of a plan."""

    seconds: float
    """From the start of the workers to the end of the last part."""
    busy: float
    """Seconds of all workers together on parts that they ended."""
    lost: float
    """Seconds on parts that a death cut short."""
    deaths: int
    tail: float
    """Seconds at the end in which some worker had nothing left to do."""
    tail_parts: int
    """Parts that end in them."""
    left: int
    """Parts that were lost too often, scored by the command that collects (its seconds count)."""

    def busy_share(self, workers: int) -> float:
        """Of the time that is paid for."""
        return self.busy / (workers * self.seconds) if self.seconds else 0.0


def simulate_schedule(
    parts: Sequence[int], workers: int, pace: Pace, *, in_shares: bool = False, retries: int = RETRIES, seed: int = 0
) -> Schedule:
    """Score parts of so many windows each. The same seed gives the same schedule."""
    rng = random.Random(seed)
    shared = deque((windows, 0) for windows in parts)
    queues = [deque((windows, 0) for windows in parts[i::workers]) if in_shares else shared for i in range(workers)]
    free = [(pace.opening, worker) for worker in range(workers)]
    dies_at = [pace.opening + _lifetime(pace, rng) for _ in range(workers)]
    ends: list[float] = []
    idle: list[float] = []
    busy, lost, deaths, left = 0.0, 0.0, 0, 0.0
    left_parts = 0
    while free:
        now, worker = heapq.heappop(free)
        if not queues[worker]:
            idle.append(now)
            continue
        windows, tries = queues[worker].popleft()
        seconds = _seconds(windows, pace, rng)
        if now + seconds <= dies_at[worker]:
            busy += seconds
            ends.append(now + seconds)
            heapq.heappush(free, (now + seconds, worker))
            continue
        deaths, lost = deaths + 1, lost + max(dies_at[worker] - now, 0.0)
        again = max(dies_at[worker], now) + pace.opening
        dies_at[worker] = again + _lifetime(pace, rng)
        heapq.heappush(free, (again, worker))
        if tries < retries:
            queues[worker].appendleft((windows, tries + 1))
        else:
            left, left_parts = left + seconds, left_parts + 1
    last = max(ends, default=0.0)
    began = min(min(idle), last) if idle else last
    tail_parts = sum(end > began for end in ends)
    return Schedule(last + left, busy, lost, deaths, last - began, tail_parts, left_parts)


def workers_needed(parts: Sequence[int], seconds: float, pace: Pace, *, in_shares: bool = False) -> int | None:
    """The fewest workers that are done within so many seconds; None where one worker for each part is not enough."""

    def is_enough(workers: int) -> bool:
        return simulate_schedule(parts, workers, pace, in_shares=in_shares).seconds <= seconds

    most = len(parts)
    if not most or not is_enough(most):
        return None
    low = max(1, min(most, math.floor(sum(parts) * pace.window / seconds)))
    high = low
    while not is_enough(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low if is_enough(low) else high


def _lifetime(pace: Pace, rng: random.Random) -> float:
    return rng.expovariate(pace.deaths / 3600) if pace.deaths else math.inf


def _seconds(windows: int, pace: Pace, rng: random.Random) -> float:
    """Of a part: windows vary by themselves, so a part varies less."""
    plain = windows * pace.window
    varied = plain + rng.gauss(0, pace.spread * pace.window * math.sqrt(windows)) if pace.spread else plain
    return max(varied, 0.0) + pace.handing
