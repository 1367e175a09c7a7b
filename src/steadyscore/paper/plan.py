"""What an artifact needs, before anything is loaded: runs, windows, tokens, time, money, adapters, and what is missing here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from ..collection import cache_folder, open_collection
from ..collection.catalogue import CATALOGUE, how_to_get
from ..engines import Price
from ..engines.chat import estimate_cost
from ..engines.kinds import check_address, check_reader
from ..errors import InputError, SteadyscoreError
from ..machine.disk import is_there
from ..models.adapter import other_task
from ..models.card import read_card
from ..models.embedded import base_address_mistake, fetch_command
from ..scoring.estimate import Estimate, is_hosted, speeds
from ..tasks import TASKS, reader_kind
from ..terms import Collection
from ..training.recipe import TrainConfig, make_schedule, resolve_plan
from ..window.prompt import CHARS_PER_TOKEN
from .data import shape_of, shape_of_collection
from .jobs import Job, TrainingJob, jobs_of, requests_of, trainings_of
from .names import BASES, COLLECTIONS, FIRST_STAGES, PRIVATE, READERS, SYSTEMS, TaskKind, task_of
from .recipe import Artifact
from .scale import Choices
from .work import Piece, Stage, Store, loads_of, pieces_of, train_config

FRAME = 1_100
"""Characters of instruction, rubric and skeleton around the candidates of a window."""


def size_of(job: Job, price: Price | None = None) -> Estimate:
    """What a run costs, from the size of the collection alone; time from the speed of the scorer's last run on this machine."""
    queries, pool, characters, _ = shape_of(job.data).cut(job.config.cut.queries, job.config.cut.pool)
    width = job.config.settings.width or TASKS[task_of(job.request.collection)].width
    orders = 1 if width == 1 else job.need.permutations + 1  # a candidate alone is scored once, whatever the order
    per_order = math.ceil(pool / width) if job.request.condition == "companions" else round(pool)
    shown = pool if job.request.condition != "fillers" else pool * min(width, pool)
    windows = queries * orders * per_order
    tokens = round((windows * FRAME + queries * orders * shown * characters) / CHARS_PER_TOKEN)
    address = job.scoring.address
    rate = speeds().get(address)
    money = estimate_cost(tokens, round(queries * orders * pool), price) if price and is_hosted(address) else None
    return Estimate(queries, windows, tokens, tokens / rate if rate else None, money)


def sum_sizes(sizes: Sequence[Estimate]) -> Estimate:
    """What several runs cost: the time where it is known of all, the money of those that are charged."""
    seconds = [size.seconds for size in sizes if size.seconds is not None]
    costs = [size.cost for size in sizes if size.cost is not None]
    return Estimate(
        queries=sum(size.queries for size in sizes),
        windows=sum(size.windows for size in sizes),
        tokens=sum(size.tokens for size in sizes),
        seconds=sum(seconds) if len(seconds) == len(sizes) else None,
        cost=sum(costs) if costs else None,
    )


@dataclass(frozen=True)
class TrainingSize:
    """What an adapter costs."""

    label_windows: int
    steps: int
    tokens: int
    label_tokens: int = 0
    held_out_tokens: int = 0
    """Of all evaluations on the queries that are held out."""


def training_size(training: TrainingJob, store: Store) -> TrainingSize:
    config = train_config(training, store.label_folder(training), store.training_folder(training))
    queries, pool, characters, _ = shape_of_collection(training.data).cut(config.queries, config.pool, config.chars)
    how = resolve_plan(config, Collection(training.data, training.task))
    width = max(how.widths)
    windows = queries * math.ceil(pool / width)
    steps = make_schedule(how, windows).steps

    def tokens(windows: float, width: int) -> int:
        return round(windows * (FRAME + min(width, pool) * characters) / CHARS_PER_TOKEN)

    label_width = training.labels.value["width"] or width
    labelled = queries * math.ceil(pool / label_width) * training.labels.value["orders"]
    held_out = shape_of_collection(config.held_out_data).queries if config.held_out_data else config.held_out
    evaluations = 1 + math.ceil(steps / config.evaluate_every) if config.evaluate_every else 1
    evaluated = held_out * evaluations * math.ceil(pool / width) * (1 + config.held_out_permutations)
    seen = tokens(steps * config.batch * how.window_views, width)
    return TrainingSize(labelled, steps, seen, tokens(labelled, label_width), tokens(evaluated, width))


# -- GPUs

FLOPS = 4e14
"""Operations a second of one GPU, as stated: two fifths of what an H100 does in bfloat16. Nothing was measured on one."""
PASS, STEP = 2, 6
"""Operations per parameter and token: forward, and a step of LoRA that computes activations again."""
HOUR = 2.5
"""Price of a GPU for an hour, as stated."""
WORKERS = (1, 8, 64)
ADAPTER = 0.032
"""GB of a LoRA of rank 16 for a base of a billion parameters, in float32."""
SCORE = 24
"""Bytes that a stored score takes: of a table of runs at the tiny scale, compressed."""


def gpu_seconds(stage: Stage, work: TrainingJob | Job, store: Store) -> float:
    """Seconds of one GPU: from the speed of the scorer's last run on this machine, else from the stated rate; hosted: none."""
    if isinstance(work, TrainingJob):
        size, own = training_size(work, store), BASES[work.base_name].active
        if stage == "train":
            runs = len(work.weights) or 1
            return runs * (STEP * size.tokens + PASS * size.held_out_tokens) * own * 1e9 / FLOPS
        teacher = work.teacher_base
        return PASS * size.label_tokens * BASES[teacher].active * 1e9 / FLOPS if teacher else 0.0
    run, address = size_of(work), work.scoring.address
    if "planted" in work.scoring.value:
        return run.tokens / FLOPS
    billions = BASES[work.request.base].active if work.request.base else SYSTEMS[work.request.system].billions
    scored = 0.0 if not address or is_hosted(address) else run.seconds or PASS * run.tokens * billions * 1e9 / FLOPS
    shape = shape_of(work.data)
    for reader, view in work.need.readings:
        prompts = run.queries * (work.need.permutations // view.serving_permutations)
        scored += PASS * prompts * (FRAME + 5 * shape.characters) / CHARS_PER_TOKEN * READERS[reader].billions * 1e9 / FLOPS
    return scored


@dataclass(frozen=True)
class Fleet:
    """What some GPUs take for the three stages, one after the other."""

    gpus: int
    hours: dict[Stage, float]
    """Until the last of them is done."""
    gpu_hours: float
    """Of work; the rest of the time they wait."""
    balance: float
    """Load of the busiest over the mean, in the least even stage."""
    price: float

    @property
    def wall(self) -> float:
        return sum(self.hours.values())

    @property
    def cost(self) -> float:
        return self.wall * self.gpus * self.price

    def as_json(self) -> dict[str, float]:
        each = {f"{stage}_hours": round(hours, 2) for stage, hours in self.hours.items()}
        hours = {"hours": round(self.wall, 2), "gpu_hours": round(self.gpu_hours, 1), "balance": round(self.balance, 3)}
        return {"gpus": self.gpus} | each | hours | {"cost": round(self.cost)}


def fleet_of(pieces: Sequence[Piece], gpus: int, price: float = HOUR) -> Fleet:
    hours: dict[Stage, float] = {}
    work, balance = 0.0, 1.0
    for stage in get_args(Stage):
        loads = loads_of([piece for piece in pieces if piece.stage == stage], gpus)
        hours[stage] = max(loads) / 3_600
        work += sum(loads) / 3_600
        balance = max(balance, max(loads) * gpus / sum(loads) if sum(loads) else 1.0)
    return Fleet(gpus, hours, work, balance, price)


def disk_of(jobs: Sequence[Job], trainings: Sequence[TrainingJob]) -> dict[str, float]:
    """GB of models in bfloat16, of adapters with their checkpoints, and of runs."""
    bases = {job.request.base for job in jobs if job.request.base} | {t.base_name for t in trainings}
    others = {job.request.system for job in jobs if not job.request.base}
    readers = {reader for job in jobs for reader, *_ in job.need.readings}
    billions = [BASES[base].billions for base in bases] + [SYSTEMS[name].billions for name in others]
    models = 2 * (sum(billions) + sum(READERS[reader].billions for reader in readers))
    kept = 2 + 2 * TrainConfig().keep  # the last step, the selected one, and checkpoints with their optimizer
    rows = 0.0
    for job in jobs:
        shape = shape_of(job.data).cut(job.config.cut.queries, job.config.cut.pool)
        rows += shape.queries * shape.pool * (job.need.permutations + 1)
    adapters = sum(kept * ADAPTER * BASES[t.base_name].active * (len(t.weights) or 1) for t in trainings)
    return {"models": models, "adapters": adapters, "runs": rows * SCORE / 1e9}


@dataclass(frozen=True)
class PlannedRuns:
    """The runs of one system and base."""

    system: str
    base: str
    runs: int
    done: int
    size: Estimate
    """Of those that are not done."""


@dataclass(frozen=True)
class Plan:
    """What some artifacts need."""

    runs: list[PlannedRuns]
    trainings: list[tuple[TrainingJob, bool, TrainingSize]]
    """Adapters, whether each is trained already, and what it costs."""
    missing: list[str]
    """What is not on this machine, or would be refused, one sentence each."""
    jobs: list[Job]
    pieces: list[Piece]
    """All jobs of the three stages, with what they cost."""


def plan_of(artifacts: Iterable[Artifact], choices: Choices, store: Store, price: Price | None = None) -> Plan:
    jobs = jobs_of(requests_of((cell for a in artifacts for cell in a.cells()), choices), choices)
    groups: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((SYSTEMS[job.request.system].label, job.request.base), []).append(job)
    runs = []
    for names, members in groups.items():
        sizes = [size_of(job, price) for job in members if store.unmet(job, choices)]
        runs.append(PlannedRuns(*names, len(members), len(members) - len(sizes), sum_sizes(sizes)))
    trainings, refused = [], []
    for training in trainings_of(jobs):
        try:
            trainings.append((training, store.has_adapter(training), training_size(training, store)))
        except InputError as error:
            refused += [f"{training.described} cannot be trained: {mistake}" for mistake in error.mistakes]
    todo = [t for t, is_done, _ in trainings if not is_done]
    missing = [*refused, *missing_of(jobs, todo, choices)]
    pieces = [] if refused else pieces_of(jobs, seconds=lambda stage, work: gpu_seconds(stage, work, store))
    return Plan(runs, trainings, missing, jobs, pieces)


def missing_of(jobs: Sequence[Job], trainings: Sequence[TrainingJob], choices: Choices) -> list[str]:
    """What a run would be refused for: collections, addresses, models, adapters, readers, libraries."""
    missing: list[str] = []
    for job in jobs:
        if not shape_of(job.data).is_here:
            missing.append(_missing_collection(job, choices))
        if not job.scoring.training and "planted" not in job.scoring.value:
            missing += _missing_scorer(job.request.system, job.scoring.address)
        if job.need.readings:
            missing += _missing_reader(job, choices)
    trained = [(job.request, task_of(job.request.collection)) for job in jobs if SYSTEMS[job.request.system].training]
    given = dict.fromkeys((of.system, task, choices.adapter(of.system, task, of.base, of.seed)) for of, task in trained)
    for system, task, folder in given:
        missing += _refused(_check_adapter, system, task, folder) if folder else []
    for training in trainings:
        if mistake := base_address_mistake(training.base):
            missing.append(f"{training.base_name} cannot be trained: {mistake}.")
        else:
            missing += _missing_scorer(training.base, training.base)
        if not shape_of_collection(training.data).is_here:
            how = how_to_get(CATALOGUE[training.data])
            missing.append(f"{training.data}, to train on, is not on this machine. Get it with: {how}")
    return list(dict.fromkeys(missing))


def _refused(check: Callable[..., Any], *arguments: Any) -> list[str]:
    """What a check says; nothing where it passes."""
    try:
        check(*arguments)
    except SteadyscoreError as error:
        return list(getattr(error, "mistakes", [str(error)]))
    return []


def _missing_reader(job: Job, choices: Choices) -> list[str]:
    """What keeps readers from a run: addresses that cannot read, and claims without verdicts."""
    missing: list[str] = []
    for reader in () if choices.is_planted else sorted({reader for reader, *_ in job.need.readings}):
        address = choices.reader_address(reader)
        missing += _refused(check_reader, address) or _missing_scorer("reader", address)
    if shape_of(job.data).is_here:
        collection = open_collection(str(job.data.value["collection"])).collection
        missing += [f"{COLLECTIONS[job.request.collection]}: {said}" for said in _refused(reader_kind, TASKS[collection.task])]
    return missing


def _check_adapter(system: str, task: TaskKind, folder: str) -> None:
    """Refuse a folder that holds no adapter, or one of another task."""
    if not is_there(Path(folder) / "adapter_config.json"):
        raise InputError(f"{folder}, given for {system}, is not an adapter folder: it has no adapter_config.json.")
    if other := other_task({"scorer": {"adapter": {"task": read_card(Path(folder)).task}}, "task": task}):
        raise InputError(f"{folder}, given for {system}, is {other}. Name an adapter of this task, or none and it is trained.")


def _missing_collection(job: Job, choices: Choices) -> str:
    name, asked = job.request.collection, job.data.value["collection"]
    if name in PRIVATE:
        return f"{COLLECTIONS[name]} is private. Name a collection of your own: --collection {name}=FILE"
    if job.request.first_stage and choices.scale.name == "paper":
        stage = job.request.first_stage
        return (
            f"{COLLECTIONS[name]} with the first stage {stage} is not on this machine. Get it with: steadyscore data get {name} "
            f"--first-stage {FIRST_STAGES[stage]} --out {cache_folder() / asked}.jsonl"
        )
    known = CATALOGUE[name.partition(".")[0]]
    verdicts = " --verdicts FILE" if known.verdicts else ""
    return f"{COLLECTIONS[name]} is not on this machine. Get it with: {how_to_get(known)}{verdicts}"


def _missing_scorer(name: str, address: str) -> list[str]:
    if not address:
        return [f"{name} has no address. Name one: --system {name}=ADDRESS, for example openai:MODEL@URL."]
    if refused := _refused(check_address, address):
        return refused
    if address.partition(":")[0] not in ("hf", address) or "+" in address or Path(address.removeprefix("hf:")).exists():
        return []
    how = fetch_command(address)
    return [f"{address} is not on this machine. Get it with: {how}"] if how else []
