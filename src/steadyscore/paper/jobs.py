"""What must be scored and trained for some cells: requests, merged, each under a key that is a hash of what it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property, reduce
from itertools import product
from operator import or_
from typing import Any

from ..measures.views import ScoreView
from ..scoring.config import AuditConfig, Cut
from ..scoring.scorer import Settings
from ..terms import Perturbation
from ..training.objectives import OBJECTIVES
from .data import EMBEDDED, Content, data_of
from .names import BASES, SYSTEMS, TRAINING_DATA, TaskKind, Training, bases_in, task_of
from .recipe import Arrangement, Cell, Request, RunSettings, Side
from .scale import PLANTED, Choices, at_scale, planted_effects, width_at


@dataclass(frozen=True)
class Need:
    """What a cell takes from a run."""

    permutations: int = 0
    """M; a run of more holds every smaller one."""
    perturb: frozenset[Perturbation] = frozenset()
    noise: bool = False
    timed: frozenset[int] = frozenset()
    """Widths to time, as recipes name them; 0: the run's own."""
    readings: frozenset[tuple[str, ScoreView]] = frozenset()
    """Readers, each with the budget K that it reads at and how its scores are read."""

    def __or__(self, other: Need) -> Need:
        return Need(
            max(self.permutations, other.permutations),
            self.perturb | other.perturb,
            self.noise or other.noise,
            self.timed | other.timed,
            self.readings | other.readings,
        )


def request_of(side: Side, base: str, seed: int, collection: str) -> Request:
    """The run of a side; a system of somebody else has neither base nor seed, one off the shelf has no seed."""
    system = SYSTEMS[side.system]
    trained = system.training
    settings = {field.name: getattr(side, field.name) for field in fields(RunSettings)}
    if side.width is None and trained:
        settings["width"] = trained.width
    return Request(side.system, "" if system.is_external else base, seed if trained else 0, collection, **settings)


def sides_of(cell: Cell, choices: Choices) -> list[Side]:
    """Every side that a cell needs, at the size of the scale."""
    sides = list(_sides(cell))
    sides += [replace(side, system=side.matched_to, matched_to="") for side in sides if side.matched_to]
    return [at_scale(side, choices) for side in sides]


def _sides(cell: Cell) -> Iterator[Side]:
    own = [side for _, side in cell.sides()]
    if cell.statistic == "size":
        return
    if cell.statistic in ("teacher_correlation", "teacher_figure"):
        for student in cell.rivals or (cell.system,):
            yield from (cell.side(system=student), teacher_side(cell.side(system=student)))
    elif cell.statistic in ("primacy", "u_shape"):
        yield from (replace(side, arrangement=place) for side in own for place in PLACES)
    elif cell.statistic == "setting_leads":
        yield from (cell.side(**{cell.second: value}) for value in cell.rivals)
    else:
        yield from own
        yield from (cell.side(system=rival) for rival in cell.rivals)
    if cell.statistic == "width_effect":
        yield from (replace(side, width=1, permutations=1) for side in own)


PLACES: tuple[Arrangement, ...] = ("top", "middle", "bottom")


def teacher_side(student: Side) -> Side:
    """The teacher of a student on held-out training pools, where its labels are judged."""
    training = SYSTEMS[student.system].training
    teacher = (training.teacher if training else None) or student.base
    at = replace(student, collections="msmarco.held-out")
    return replace(at, system=teacher) if teacher in SYSTEMS else replace(at, system="off-the-shelf", base=teacher)


def need_of(side: Side) -> Need:
    """What a side takes from each of its runs."""
    readings = frozenset({(side.reader, side.view)} if side.reader else set())
    return Need(side.permutations, frozenset(side.perturb), side.noise or side.is_reread, frozenset(side.timed), readings)


def requests_of(cells: Iterable[Cell], choices: Choices) -> dict[Request, frozenset[Need]]:
    """Every run that some cells need, once each, with all that they take from it."""
    requests: dict[Request, frozenset[Need]] = {}
    for cell in cells:
        if not cell.text:
            for side in sides_of(cell, choices):
                for base, seed, collection in product(bases_in(side.base), side.seeds, choices.members(side.collections)):
                    request = request_of(side, base, seed, collection)
                    requests[request] = requests.get(request, frozenset()) | {need_of(side)}
    return requests


@dataclass(frozen=True)
class TrainingJob:
    """An adapter that must be trained, and the labels that it learns from."""

    training: Training
    system: str
    base_name: str
    task: TaskKind
    seed: int
    choices: Choices

    @property
    def base(self) -> str:
        """Address of the base."""
        return self.choices.base_address(self.base_name)

    @property
    def data(self) -> str:
        """The collection that it learns from."""
        return TRAINING_DATA[self.task] if self.choices.scale.name == "paper" else EMBEDDED[self.task][0]

    @cached_property
    def teacher(self) -> Scoring:
        """What scores the labels: another base, a trained system, or its own base as it is."""
        name, of = self.training.teacher, ANY_OF[self.task]
        if name in SYSTEMS:
            return scoring_of(name, self.base_name, self.seed, of, self.choices)
        return scoring_of("off-the-shelf", name or self.base_name, 0, of, self.choices)

    @property
    def described(self) -> str:
        return f"{self.system} of {self.base_name} for {self.task}, seed {self.seed},"

    @property
    def teacher_base(self) -> str:
        """Name of the base that scores the labels; empty where a system of somebody else does."""
        teacher = self.training.teacher or self.base_name
        return teacher if teacher in BASES else self.base_name if SYSTEMS[teacher].training else ""

    @cached_property
    def labels(self) -> Content:
        orders = self.training.labelled_orders or self.training.teacher_orders
        width = width_at(self.training.label_width, ANY_OF[self.task], self.choices.scale)
        return Content({"teacher": self.teacher.value, "data": self.data, "orders": orders, "width": width, **self._cut})

    @cached_property
    def content(self) -> Content:
        training = {name: value for name, value in asdict(self.training).items() if name != "teacher"}
        return Content(
            {"training": training, "base": self.base, "labels": self.labels.value, "seed": self.seed, "task": self.task}
            | {"settings": dict(self.choices.scale.training)}
            | ({"weights": list(self.weights)} if self.weights else {})
        )

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights that are all trained, of which selection takes one; empty: that of the recipe, or the variant's own."""
        is_tuned = OBJECTIVES[self.training.objective].weight == "task" and self.training.weight is None
        return self.choices.weights if is_tuned else ()

    @property
    def _cut(self) -> dict[str, Any]:
        return {name: self.choices.scale.training.get(name) for name in ("queries", "pool", "chars")}


@dataclass(frozen=True)
class Scoring:
    """What gives the scores: a planted grader, an address, or an adapter that is trained first."""

    value: dict[str, Any]
    address: str = ""
    """Of what scores, or of the base that takes the adapter."""
    training: TrainingJob | None = None


def scoring_of(system: str, base: str, seed: int, collection: str, choices: Choices, mitigation: str = "") -> Scoring:
    """What scores a system at a scale, with the user's choices in place of the paper's."""
    known = SYSTEMS[system]
    if given := choices.systems.get(system):
        return Scoring({"address": given}, given)
    if choices.is_planted:
        return Scoring({"planted": asdict(planted_effects(system, base, seed, collection, mitigation))})
    if known.is_external:
        return Scoring({"address": known.address or ""}, known.address or "")
    address = choices.scoring_address(base)
    if known.training is None:
        return Scoring({"address": address}, address)
    if folder := choices.adapter(system, task_of(collection), base, seed):
        return Scoring({"address": f"{address}+{folder}"}, f"{with_kind(address)}+{folder}")
    job = TrainingJob(known.training, system, base, task_of(collection), seed, choices)
    scored_by = {"base": address} if address != job.base else {}
    return Scoring({"adapter": job.content.value, "checkpoint": CHECKPOINT} | scored_by, address, job)


CHECKPOINT = "highest held-out quality"
"""Which of an adapter's checkpoints scores, where anything was held out."""


ANY_OF: dict[TaskKind, str] = {"passage_reranking": "dl19", "multidoc_qa": "hotpotqa", "response_ranking": "rewardbench2"}
"""Some collection of a task."""


def with_kind(address: str) -> str:
    """An address that takes an adapter after a plus."""
    return address if ":" in address else f"hf:{address}"


@dataclass(frozen=True)
class Job:
    """A run that some cells need, at a scale."""

    request: Request
    needs: frozenset[Need]
    scoring: Scoring
    data: Content
    """The collection: its name or file, the part that is taken, and how its pools are arranged."""
    config: AuditConfig

    @cached_property
    def content(self) -> Content:
        s, config = self.config.settings, self.config
        presentation = {"width": s.width, "partition": s.partition, "placeholder": s.placeholder, "markers": s.markers}
        return Content(
            {"scorer": self.scoring.value, "data": self.data.value, "mitigation": self.request.mitigation}
            | presentation
            | ({} if self.request.condition == "companions" else {"condition": self.request.condition})
            | {"queries": config.cut.queries, "pool": config.cut.pool, "seed": config.seed, "scheme": config.scheme}
        )

    @cached_property
    def need(self) -> Need:
        """All that its cells take from it."""
        return reduce(or_, self.needs, Need())

    @property
    def mitigations(self) -> list[str]:
        """That the scorer is served under; one inside the model is planted with its effects."""
        is_planted = "planted" in self.scoring.value and self.request.mitigation in PLANTED
        return [self.request.mitigation] if self.request.mitigation and not is_planted else []


def jobs_of(requests: Mapping[Request, frozenset[Need]], choices: Choices) -> list[Job]:
    """Runs at a scale: requests that come to the same content are one job."""
    merged: dict[str, Job] = {}
    for request, needs in requests.items():
        job = job_of(request, needs, choices)
        key = job.content.key
        merged[key] = replace(merged[key], needs=merged[key].needs | needs) if key in merged else job
    return list(merged.values())


def job_of(request: Request, needs: frozenset[Need], choices: Choices) -> Job:
    scale, collection = choices.scale, request.collection
    scoring = scoring_of(request.system, request.base, request.seed, collection, choices, request.mitigation)
    width = request.width or (PLANTED_WIDTHS.get(request.system) if choices.is_planted else None)
    takes_pool = width is None and SYSTEMS[request.system].is_external and not choices.is_planted
    data = data_of(request, choices)
    most = scale.pool.get(str(data.value["collection"]), scale.pool.get(task_of(collection)))
    pool = min(filter(None, [request.pool, most]), default=None)
    queries = min(filter(None, [request.queries, scale.queries]), default=None)
    config = AuditConfig(
        permutations=max(need.permutations for need in needs),
        scheme="hashed",
        settings=Settings(
            width=None if takes_pool else width_at(width, collection, scale),
            partition=request.partition,
            placeholder=request.placeholder,
        ),
        cut=Cut(queries, pool),
    )
    return Job(request, needs, scoring, data, config)


PLANTED_WIDTHS = {"jina": 100, "rank-zephyr": 100}
"""Systems that take the whole pool at once."""


def trainings_of(jobs: Iterable[Job]) -> list[TrainingJob]:
    """Adapters to train, teachers before students."""
    trainings: dict[str, TrainingJob] = {}
    for job in jobs:
        for training in _chain(job.scoring):
            trainings.setdefault(training.content.key, training)
    return list(trainings.values())


def _chain(scoring: Scoring) -> Iterator[TrainingJob]:
    if scoring.training is not None:
        yield from _chain(scoring.training.teacher)
        yield scoring.training
