"""What an artifact needs, before anything is loaded: runs, windows, tokens, time, money, adapters, and what is missing here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ..collection import open_collection
from ..collection.catalogue import CATALOGUE
from ..engines import Price
from ..engines.chat import estimate_cost
from ..engines.kinds import check_address
from ..errors import InputError, SteadyscoreError
from ..models.embedded import fetch_command
from ..scoring.estimate import is_hosted, speeds
from ..tasks import TASKS
from ..terms import Collection
from ..training.plan import make_schedule, resolve_plan
from ..window.prompt import CHARS_PER_TOKEN, shown
from .execute import Store, train_config
from .jobs import Content, Job, TrainingJob, jobs_of, requests_of, trainings_of
from .names import COLLECTIONS, PRIVATE, SYSTEMS, task_of
from .recipe import Artifact
from .scale import Choices

FRAME = 1_100
"""Characters of instruction, rubric and skeleton around the candidates of a window."""


class Shape(NamedTuple):
    """How large a collection is."""

    queries: int
    pool: float
    characters: float
    """Shown of a candidate, on average; the limit where the collection is not here."""
    is_here: bool


@lru_cache(maxsize=256)
def _shape(collection: str, part: tuple[int, int] | None) -> Shape:
    try:
        source = open_collection(collection)
    except InputError:
        known = CATALOGUE.get(collection.partition(".")[0])
        if known is None:
            return Shape(100, 100, 500, False)
        parts = known.parts.get(collection.partition(".")[2])
        return Shape(parts or known.queries, known.pool, known.chars, False)
    instances = [i for place, i in enumerate(source.instances()) if part is None or place % part[1] == part[0]]
    texts = [len(shown(c, source.collection.chars)) for i in instances for c in i.pool]
    return Shape(len(instances), len(texts) / max(len(instances), 1), sum(texts) / max(len(texts), 1), True)


def shape_of(data: Content) -> Shape:
    part = data.value["part"]
    return _shape(str(data.value["collection"]), None if part is None else (part[0], part[1]))


@dataclass(frozen=True)
class Size:
    """What a run costs."""

    queries: int
    windows: int
    tokens: int
    seconds: float | None
    cost: float | None


def size_of(job: Job, price: Price | None = None) -> Size:
    """From the size of the collection alone; time from the speed of the scorer's last run on this machine."""
    shape, config = shape_of(job.data), job.config
    queries = min(shape.queries, config.cut.queries or shape.queries)
    pool = min(shape.pool, config.cut.pool or shape.pool)
    width = config.settings.width or TASKS[task_of(job.request.collection)].width
    orders = 1 if width == 1 else job.need.permutations + 1  # a candidate alone is scored once, whatever the order
    per_order = math.ceil(pool / width) if job.request.condition == "companions" else round(pool)
    shown = pool if job.request.condition != "fillers" else pool * min(width, pool)
    windows = queries * orders * per_order
    tokens = round((windows * FRAME + queries * orders * shown * shape.characters) / CHARS_PER_TOKEN)
    address = job.scoring.training.base if job.scoring.training else job.scoring.address
    rate = speeds().get(address)
    money = estimate_cost(tokens, round(queries * orders * pool), price) if price and is_hosted(address) else None
    return Size(queries, windows, tokens, tokens / rate if rate else None, money)


@dataclass(frozen=True)
class TrainingSize:
    """What an adapter costs."""

    label_windows: int
    steps: int
    tokens: int


def training_size(training: TrainingJob, store: Store) -> TrainingSize:
    config = train_config(training, store.label_folder(training), store.adapter_folder(training))
    shape = _shape(training.data, None)
    queries = min(shape.queries, config.queries or shape.queries)
    pool = min(shape.pool, config.pool or shape.pool)
    how = resolve_plan(config, Collection(training.data, training.task))
    width = max(how.widths)
    windows = queries * math.ceil(pool / width)
    steps = make_schedule(how, windows).steps
    per_window = (FRAME + min(width, pool) * min(shape.characters, config.chars or shape.characters)) / CHARS_PER_TOKEN
    labelled = queries * math.ceil(pool / (training.labels.value["width"] or width)) * training.labels.value["orders"]
    return TrainingSize(labelled, steps, round(steps * config.batch * how.window_views * per_window))


@dataclass(frozen=True)
class PlannedRuns:
    """The runs of one system and base."""

    system: str
    base: str
    runs: int
    done: int
    size: Size
    """Of those that are not done."""


@dataclass(frozen=True)
class Plan:
    """What some artifacts need."""

    runs: list[PlannedRuns]
    trainings: list[tuple[TrainingJob, bool, TrainingSize]]
    """Adapters, whether each is trained already, and what it costs."""
    missing: list[str]
    """What is not on this machine, one sentence each."""
    jobs: list[Job]


def plan_of(artifacts: Iterable[Artifact], choices: Choices, store: Store, price: Price | None = None) -> Plan:
    jobs = jobs_of(requests_of((cell for a in artifacts for cell in a.cells()), choices), choices)
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((SYSTEMS[job.request.system].label, job.request.base), []).append(job)
    runs = [
        _planned(*names, members, [job for job in members if store.unmet(job, choices)], price)
        for names, members in groups.items()
    ]
    trainings = [(t, store.has_adapter(t), training_size(t, store)) for t in trainings_of(jobs)]
    return Plan(runs, trainings, missing_of(jobs, [t for t, is_done, _ in trainings if not is_done], choices), jobs)


def _planned(system: str, base: str, jobs: Sequence[Job], todo: Sequence[Job], price: Price | None) -> PlannedRuns:
    sizes = [size_of(job, price) for job in todo]
    seconds = [size.seconds for size in sizes]
    costs = [size.cost for size in sizes if size.cost is not None]
    whole = Size(
        sum(size.queries for size in sizes),
        sum(size.windows for size in sizes),
        sum(size.tokens for size in sizes),
        sum(s for s in seconds if s is not None) if None not in seconds else None,
        sum(costs) if costs else None,
    )
    return PlannedRuns(system, base, len(jobs), len(jobs) - len(todo), whole)


def missing_of(jobs: Sequence[Job], trainings: Sequence[TrainingJob], choices: Choices) -> list[str]:
    """What is not on this machine: collections, addresses, models, libraries."""
    found: list[str] = []
    for job in jobs:
        if not shape_of(job.data).is_here:
            found.append(_missing_collection(job, choices))
        if not job.scoring.training and "planted" not in job.scoring.value:
            found += _missing_scorer(job.request.system, job.scoring.address)
        if not choices.is_planted:
            found += [m for reader, _ in job.need.readings for m in _missing_scorer("reader", choices.reader_address(reader))]
    for training in trainings:
        found += _missing_scorer(training.base, training.base)
        if not _shape(training.data, None).is_here:
            found.append(
                f"{training.data}, to train on, is not on this machine. Get it with: steadyscore data get {training.data}"
            )
    return list(dict.fromkeys(found))


def _missing_collection(job: Job, choices: Choices) -> str:
    name, asked = job.request.collection, job.data.value["collection"]
    if name in PRIVATE:
        return f"{COLLECTIONS[name]} is private. Name a collection of your own: --collection {name}=FILE"
    if job.request.first_stage and choices.scale.name == "paper":
        return (
            f"{COLLECTIONS[name]} with the first stage {job.request.first_stage} is not on this machine. Build it as {asked} "
            f"with: steadyscore data build {name} --first-stage ..."
        )
    return f"{COLLECTIONS[name]} is not on this machine. Get it with: steadyscore data get {name}"


def _missing_scorer(name: str, address: str) -> list[str]:
    if not address:
        return [f"{name} has no address. Name one: --system {name}=ADDRESS, for example openai:MODEL@URL."]
    try:
        check_address(address)
    except SteadyscoreError as error:
        return [str(error)]
    if address.partition(":")[0] not in ("hf", address) or "+" in address or Path(address.removeprefix("hf:")).exists():
        return []
    how = fetch_command(address)
    return [f"{address} is not on this machine. Get it with: {how}"] if how else []
