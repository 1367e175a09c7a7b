"""Runs jobs into a store: labels, adapters and runs under their keys. What is there already is not made again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

from ..collection import Source, open_collection
from ..engines import Backend, EngineOptions
from ..engines.kinds import open_engine
from ..errors import InputError, SteadyscoreError
from ..machine.disk import is_there, read_json, write_json
from ..machine.progress import bar
from ..measures.answers import EVIDENCE
from ..models.adapter import other_task
from ..readers.outputs import reader_label, readers_of
from ..readers.reader import ask_reader
from ..runs.folder import Run
from ..runs.layout import NOISE_FILE, perturbed_file
from ..scoring.conditions import under_condition
from ..scoring.mitigations import mitigate
from ..scoring.perturbation import score_perturbed
from ..scoring.rereads import noise_floor
from ..scoring.score import AuditConfig, Cut, cut_instances, score_collection, scorer_for
from ..scoring.scorer import PoolScorer, Settings
from ..scoring.timing import read_timings, time_requests, write_timings
from ..training.labels import label_collection, read_labels, recalibrate, write_labels
from ..training.objectives import OBJECTIVES, PAPER_RAMP
from ..training.recipe import TrainConfig, for_objective, make_config, read_recipe
from ..training.train import train
from .derived import open_data
from .jobs import Content, Job, Need, Scoring, TrainingJob, any_of, with_kind
from .planted import Effects, PlantedGrader, PlantedReader, judgements_by_text
from .scale import Choices, width_at

READS = 10
"""Reads of every request, where a cell needs what batching alone moves or a mean over it."""


@dataclass(frozen=True)
class Store:
    """A folder of runs, labels, adapters and derived collections, each named by the hash of what it is."""

    folder: Path

    def run_folder(self, content: Content, permutations: int) -> Path:
        return self.folder / "runs" / content.key / f"m{permutations}"

    def find_run(self, content: Content, need: Need, choices: Choices) -> Run | None:
        """The smallest complete run that holds all that a cell takes from it.

        The first permutations of a larger run are those of a smaller one, so which of several runs it is changes no number.
        """
        folders = (self.folder / "runs" / content.key).glob("m*")
        for size in sorted(int(folder.name[1:]) for folder in folders if folder.name[1:].isdigit()):
            folder = self.run_folder(content, size)
            if size < need.permutations or not is_there(folder / "run.json"):
                continue
            if (run := Run.open(folder)).is_complete and holds(run, need, choices):
                return run
        return None

    def unmet(self, job: Job, choices: Choices) -> list[Need]:
        """What cells take from a job's run and no run holds yet."""
        return [need for need in job.needs if self.find_run(job.content, need, choices) is None]

    def adapter_folder(self, training: TrainingJob) -> Path:
        return self.folder / "adapters" / training.content.key

    def has_adapter(self, training: TrainingJob) -> bool:
        record = self.adapter_folder(training) / "train.json"
        return is_there(record) and bool(read_json(record)["status"] == "complete")

    def label_folder(self, training: TrainingJob) -> Path:
        return self.folder / "labels" / training.labels.key

    @property
    def collections(self) -> Path:
        return self.folder / "collections"

    def describe(self, folder: Path, content: Content) -> None:
        """Say beside a run, in words, what its key stands for."""
        if not is_there(file := folder / "what.json"):
            write_json(file, content.value)


def holds(run: Run, need: Need, choices: Choices) -> bool:
    """Whether a complete run has everything but the permutations that a cell takes from it."""
    files = [*map(perturbed_file, need.perturb), *([NOISE_FILE] if need.noise else [])]
    readers = {reader_label(reader_name(reader, choices), EVIDENCE, serving) for reader, serving in need.readings}
    has_timings = not need.timed or not need.timed - {timing.way for timing in read_timings(run)}
    return has_timings and all(map(run.has, files)) and (not readers or readers <= set(readers_of(run)))


@dataclass
class Workshop:
    """Makes what jobs need; one opened model is kept from job to job."""

    store: Store
    choices: Choices
    options: EngineOptions
    command: Sequence[str] = ()
    quiet: bool = False
    _opened: tuple[str, Backend] | None = None

    def do(self, job: Job, say: Callable[[str], None]) -> Run:
        """Score a job, or resume it, and keep beside it what was asked for."""
        source = open_data(job.data, self.store.collections)
        plain = scorer_for(self._backend(job.scoring, source, job), source.collection, job.config)
        if other := other_task(plain.identity()):
            raise InputError(f"the scorer is {other}. Name an adapter of this task, or none and it is trained.")
        scorer = under_condition(mitigate(plain, job.mitigations), job.request.condition, source)
        need = reduce(or_, self.store.unmet(job, self.choices), Need())
        scored = Need(need.permutations or job.need.permutations)
        known = self.store.find_run(job.content, scored, self.choices)
        permutations = scored.permutations if known is None else int(known.folder.name[1:])
        folder = self.store.run_folder(job.content, permutations)
        config = replace(job.config, permutations=permutations)
        name = f"{job.request.system} on {source.collection.name}"
        run = score_collection(
            scorer, source, folder, config, command=list(self.command), progress=bar(name, self.quiet)
        )  # fmt: skip
        self.store.describe(folder.parent, job.content)
        if failed := run.record["coverage"]["failed"]:
            say(f"{name}: {len(failed)} queries could not be scored, the first one because {failed[0]['reason']}")
        self._complete(job, need, run, source, scorer, config)
        return run

    def _complete(self, job: Job, need: Need, run: Run, source: Source, scorer: Any, config: AuditConfig) -> None:
        """Everything but the scores that cells take from a run and that no run holds."""
        if need.perturb:
            score_perturbed(scorer, run, source, config, sorted(need.perturb))
        if need.noise:
            noise_floor(scorer, source, replace(config, noise_reads=READS), run.read_noise(), keep=run.write_noise)
        if need.timed - {timing.way for timing in read_timings(run)}:
            instances = list(cut_instances(source.instances(), config.cut))
            write_timings(run, time_requests(self._ways(job, scorer), instances))
        for reader, serving in sorted(need.readings):
            engine = PlantedReader(reader, source.instances()) if self.choices.is_planted else None
            address = reader_name(reader, self.choices)
            ask_reader(run, source, address, serving_permutations=serving, options=self.options, engine=engine)
        run.update_record()

    def _ways(self, job: Job, scorer: PoolScorer) -> dict[int, PoolScorer]:
        """The scorer at every width that is timed, under the number that the recipe gives it."""
        collection, scale = job.request.collection, self.choices.scale
        widths = {way: width_at(way, collection, scale) if way else scorer.settings.width for way in sorted(job.need.timed)}
        return {way: scorer.with_settings(replace(scorer.settings, width=width)) for way, width in widths.items()}

    def _backend(self, scoring: Scoring, source: Source, job: Job) -> Backend:
        if "planted" in scoring.value:
            gold = judgements_by_text(source.instances(reserve=True))
            return PlantedGrader(f"planted {job.request.system}", Effects(**scoring.value["planted"]), gold)
        address = self.address_of(scoring)
        if self._opened is None or self._opened[0] != address:
            self._opened = None  # the model before makes room first
            self._opened = (address, open_engine(address, self.options))
        return self._opened[1]

    def address_of(self, scoring: Scoring) -> str:
        """The address that scores; an adapter is trained before it is named."""
        if scoring.training is None:
            return scoring.address
        folder = self.train(scoring.training)
        return f"{with_kind(scoring.training.base)}+{folder}"

    def train(self, training: TrainingJob) -> Path:
        """An adapter in its folder, trained where it is not there yet."""
        folder = self.store.adapter_folder(training)
        if self.store.has_adapter(training):
            return folder
        labels = self.label(training)
        config = train_config(training, labels, folder)
        self._opened = None
        train(config, command=self.command)
        self.store.describe(folder, training.content)
        return folder

    def label(self, training: TrainingJob) -> Path:
        """The label folder of a student, made where it is not there yet."""
        folder = self.store.label_folder(training)
        if not is_there(folder / "labels.parquet"):
            self._label(training, folder, training.labels.value["width"])
        if not training.training.recalibrated:
            return folder
        changed = folder.with_name(f"{folder.name}-recalibrated")
        if not is_there(changed / "labels.parquet"):
            batched = replace(training, training=replace(training.training, label_width=None, recalibrated=False))
            reference = {label.query_id: label for label in read_labels(self.label(batched))}
            write_labels(changed, [recalibrate(label, reference[label.query_id]) for label in read_labels(folder)])
        return changed

    def _label(self, training: TrainingJob, folder: Path, width: int | None) -> None:
        collection = open_collection(training.data).collection
        cut = training.labels.value
        config = AuditConfig(
            canonical=False,
            permutations=cut["orders"],
            scheme="hashed",
            chars=cut["chars"],
            settings=Settings(width=width, label_mass=False),
            cut=Cut(cut["queries"], cut["pool"]),
        )
        scorer = scorer_for(open_engine(self.address_of(training.teacher), self.options), collection, config)
        if other := other_task(scorer.identity()):
            raise InputError(f"the teacher of {training.system} is {other}. Name an adapter of this task, or none.")
        label_collection(scorer, training.data, folder, config, command=list(self.command), progress=bar("labels", self.quiet))


def reader_name(reader: str, choices: Choices) -> str:
    return f"planted:{reader}" if choices.is_planted else choices.reader_address(reader)


def train_config(training: TrainingJob, labels: Path, out: Path) -> TrainConfig:
    """The recipe of the task at the paper's scale, defaults elsewhere; then what the variant and the scale change."""
    how, scale = training.training, training.choices.scale
    recipe = read_recipe(training.task) if scale.name == "paper" else {}
    start = make_config(for_objective(recipe, how.objective))
    width = width_at(how.width, any_of(training.task), scale)
    changes: dict[str, Any] = {
        "base": training.base,
        "data": training.data,
        "labels": str(labels),
        "out": str(out),
        "views": how.views,
        "teacher_orders": how.teacher_orders,
        "seed": training.seed,
        **{name: value for name, value in (("weight", how.weight), ("dropout", how.dropout)) if value is not None},
        **({"queries": how.queries} if how.queries else {}),
        **({"ramp": PAPER_RAMP} if how.queries and OBJECTIVES[how.objective].ramp else {}),  # its share of a shorter run
        **({"widths": (width,)} if width else {}),
        **dict(scale.training),
    }
    known = {field.name for field in fields(TrainConfig)}
    return replace(start, **{name: value for name, value in changes.items() if name in known})


def do_all(jobs: Sequence[Job], workshop: Workshop, say: Callable[[str], None]) -> list[str]:
    """Do jobs one after the other; what cannot be done is said and left, and given back as sentences."""
    failed: list[str] = []
    for job in sorted(jobs, key=lambda job: (job.scoring.address, str(job.scoring.value), job.request.collection)):
        try:
            workshop.do(job, say)
        except InputError as error:
            failed += [f"{job.request.system} on {job.request.collection}: {mistake}" for mistake in error.mistakes]
        except SteadyscoreError as error:
            failed.append(f"{job.request.system} on {job.request.collection}: {error}")
    return list(dict.fromkeys(failed))
