"""What a run will cost, before anything is loaded, and what its requests take: windows, tokens, money, seconds."""

from __future__ import annotations

import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from ..collection import Data, Source, open_collection
from ..engines import Price
from ..engines.chat import estimate_cost
from ..engines.kinds import kind_of, parse_address
from ..errors import InputError, StorageError
from ..machine.disk import cache_folder, write_json
from ..models.adapter import card_of
from ..runs.folder import Run
from ..runs.layout import TIMINGS_FILE, timing_schema
from ..tasks import TASKS
from ..terms import Array, Collection, Instance
from ..window.prompt import CHARS_PER_TOKEN, prompt_text, shown
from .config import AuditConfig, Cut, settings_for
from .mitigations import count_windows
from .score import count_shown, cut_instances
from .scorer import PoolScorer, Settings
from .starts import SHUFFLED_POOLS

log = logging.getLogger("steadyscore")

WINDOWS = 4
"""Windows that are timed, after one that warms up."""
SECONDS = 10.0
"""Time after which no further window is begun."""
ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run will cost."""

    queries: int
    windows: int
    """Prompts: windows of a scorer, evidence of a reader."""
    tokens: int
    seconds: float | None
    """From windows that were timed just now; None where none was."""
    cost: float | None
    """Of an endpoint that charges, where its price is given."""


def estimate(
    address: str, source: Data, config: AuditConfig, mitigations: Sequence[str] = (), price: Price | None = None
) -> Estimate:
    """Windows, tokens and cost of a run, without loading a model or a tokenizer; how long it takes is not known that way."""
    opened = open_collection(source)
    collection, task = opened.collection, TASKS[opened.collection.task]
    settings, width = presentation_of(address, collection, config)
    shuffled = SHUFFLED_POOLS if config.permutations > 1 and _is_order_free(address, settings, width) else 0
    queries = windows = 0
    characters = grades = 0.0
    for instance in cut_instances(opened.instances(), config.cut):
        n = len(instance.pool)
        # Windows of one and whole sets are the same in every order, and read once.
        passes = 1 if width == 1 or (settings.prompt == "set" and width is None) else count_shown(config, n)
        count = count_windows(n, width, mitigations, passes + (n > 1 and queries < shuffled))
        fixed = prompt_text(task, instance.query, [], instruction=settings.instruction, style=settings.prompt or "paper")
        frame = sum(len(piece.text) for piece in (*fixed.prefix, *fixed.body)) + len(fixed.system)
        pool = sum(len(shown(candidate, settings.chars)) for candidate in instance.pool) + 20 * n
        queries, windows = queries + 1, windows + round(count)
        shown_times = count / count_windows(n, width)  # how often each candidate stands in a window
        characters += count * frame + shown_times * pool
        grades += shown_times * n
    tokens = round(characters / CHARS_PER_TOKEN)
    written = round(grades) if address.startswith("openai") else 0  # a decision model writes nothing
    money = estimate_cost(tokens, written, price) if price and is_hosted(address) else None
    return Estimate(queries, windows, tokens, None, money)


def presentation_of(address: str, collection: Collection, config: AuditConfig) -> tuple[Settings, int | None]:
    """Settings and width that `scorer_for` will give the scorer of an address, found without opening it."""
    kind, rest = kind_of(address), parse_address(address).rest
    card = card_of(rest) if kind.takes == "ids" and not kind.is_server else None
    settings = settings_for(config, collection, card.settings if card else {}, is_whole=not kind.has_prompt)
    return settings, settings.width_or(TASKS[collection.task].width if kind.has_prompt else kind.width(rest))


def _is_order_free(address: str, settings: Settings, width: int | None) -> bool:
    """Whether the scorer of an address will declare that no order moves its scores, so that some pools are shuffled too."""
    is_set = settings.prompt == "set" and width is None
    return is_set or kind_of(address).is_order_free(parse_address(address).rest)


def is_hosted(address: str) -> bool:
    """Whether a scorer or reader is an endpoint that charges by the token."""
    kind = kind_of(address)
    return kind.takes == "text" and "price" in kind.options


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


def remember_speed(name: str, tokens: int, seconds: float) -> None:
    """Keep tokens per second of a scorer on this machine for the next estimate, where the disk allows: it can do without."""
    if seconds > 1:
        try:
            write_json(cache_folder() / "speed.json", speeds() | {name: tokens / seconds})
        except StorageError as error:
            log.info("the speed of %s is not kept: %s", name, error)


def speeds() -> dict[str, float]:
    """Tokens per second of the scorers that ran on this machine, by address."""
    try:
        speeds: dict[str, float] = json.loads((cache_folder() / "speed.json").read_text())
        return speeds
    except (OSError, json.JSONDecodeError):
        return {}


# -- seconds per query: a warm scorer, one request at a time, several ways of serving in rotating order, several rounds


class Timing(NamedTuple):
    """One request."""

    way: int
    """Key of the scorer that was timed, such as its width."""
    query_id: str
    round: int
    seconds: float


def time_requests(
    ways: Mapping[int, PoolScorer],
    instances: Sequence[Instance],
    rounds: int = ROUNDS,
    clock: Callable[[], float] = time.perf_counter,
) -> list[Timing]:
    """Time every query, in first-stage order, under several ways of serving it: in each round another way comes first.

    Before anything is timed, each way scores one query, so that nothing is loaded, compiled or allocated on the clock.
    """
    if not instances:
        raise InputError("there is no query to time.")
    for scorer in ways.values():
        scorer.score(instances[0])
    timings = []
    keys = list(ways)
    for number in range(rounds):
        turn = number % len(keys)
        for way in keys[turn:] + keys[:turn]:
            for instance in instances:
                began = clock()
                ways[way].score(instance)
                timings.append(Timing(way, instance.id, number, clock() - began))
    return timings


def query_seconds(timings: Sequence[Timing], way: int) -> Array:
    """(Q,) the median over rounds for every query of one way."""
    by_query: dict[str, list[float]] = {}
    for timing in timings:
        if timing.way == way:
            by_query.setdefault(timing.query_id, []).append(timing.seconds)
    return np.array([np.median(seconds) for seconds in by_query.values()])


def read_timings(run: Run) -> list[Timing]:
    """What was timed beside a run; empty where nothing was."""
    return [Timing(**row) for row in run.read(TIMINGS_FILE).to_pylist()] if run.has(TIMINGS_FILE) else []


def write_timings(run: Run, timings: Sequence[Timing]) -> None:
    import pyarrow as pa

    run.write(TIMINGS_FILE, pa.Table.from_pylist([timing._asdict() for timing in timings], schema=timing_schema()))
