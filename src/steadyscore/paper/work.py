"""Makes what jobs need into a store: labels, adapters and runs under their keys; and shares the jobs out among workers.

What is there already is not made again.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Literal

from ..collection import Source
from ..engines import Backend, EngineOptions
from ..engines.kinds import open_engine
from ..engines.synthetic import Effects, PlantedGrader, PlantedReader, judgements_by_text
from ..errors import InputError, ModelError, SteadyscoreError
from ..machine.console import bar
from ..machine.disk import atomic_folder, is_there, read_json, write_json
from ..measures.answers import EVIDENCE
from ..models.adapter import other_task
from ..readers.outputs import reader_label, readers_of
from ..readers.reader import ask_reader
from ..runs.folder import Run
from ..runs.layout import NOISE_FILE, perturbed_file
from ..scoring.config import AuditConfig, Cut, scorer_for
from ..scoring.estimate import read_timings, time_requests, write_timings
from ..scoring.mitigations import mitigate
from ..scoring.parts import Cluster, Row, Share, map_on_ray, score_share
from ..scoring.perturbation import noise_floor, score_perturbed
from ..scoring.score import cut_instances, score_collection
from ..scoring.scorer import PoolScorer, Settings
from ..studies.width import under_condition
from ..training.check import make_config
from ..training.checkpoints import copy_adapter
from ..training.held_out import copy_selected, read_points, select
from ..training.labelling import LabelConfig, LabelWork, label
from ..training.objectives import OBJECTIVES, PAPER_RAMP
from ..training.recipe import TrainConfig, for_objective, read_recipe, to_json
from ..training.train import Launch, launch_command, train
from .data import Content, open_data
from .jobs import ANY_OF, Job, Need, Scoring, TrainingJob, trainings_of, with_kind
from .scale import Choices, width_at

Stage = Literal["labels", "train", "score"]

SELECTED = "selected.json"
"""Beside an adapter: which checkpoint it is, and why."""
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

    def training_folder(self, training: TrainingJob) -> Path:
        return self.folder / "adapters" / training.content.key

    def adapter_folder(self, training: TrainingJob) -> Path:
        """Where the checkpoint is that was selected."""
        return self.training_folder(training) / "selected"

    def has_adapter(self, training: TrainingJob) -> bool:
        return is_there(self.adapter_folder(training) / SELECTED)

    def label_folder(self, training: TrainingJob) -> Path:
        """Where the labels are that a student learns from."""
        return self.folder / "labels" / f"{training.labels.key}{'-recalibrated' * training.training.recalibrated}"

    def has_labels(self, training: TrainingJob) -> bool:
        return is_there(self.label_folder(training) / "labels.parquet")

    def describe(self, folder: Path, content: Content) -> None:
        """Write into a folder what its key means."""
        if not is_there(file := folder / "what.json"):
            write_json(file, content.value)


def holds(run: Run, need: Need, choices: Choices) -> bool:
    """Whether a complete run has everything but the permutations that a cell takes from it."""
    files = [*map(perturbed_file, need.perturb), *([NOISE_FILE] if need.noise else [])]
    readers = {reader_label(choices.reader_address(reader), EVIDENCE, view) for reader, view in need.readings}
    has_timings = not need.timed or need.timed <= {timing.way for timing in read_timings(run)}
    return has_timings and all(map(run.has, files)) and (not readers or readers <= set(readers_of(run)))


@dataclass
class Workshop:
    """Makes what jobs need; one opened model is kept from job to job."""

    store: Store
    choices: Choices
    options: EngineOptions
    command: Sequence[str] = ()
    quiet: bool = False
    stage: Stage | None = None
    """Make nothing of the stages before; None: whatever a job needs."""
    launch: tuple[Launch, int] | None = None
    """How many processes train an adapter together, and how."""
    _opened: tuple[str, Backend] | None = None

    def do(self, job: Job, say: Callable[[str], None]) -> Run:
        """Score a job, or resume it, and add what else was asked for."""
        source = open_data(job.data, self.store.folder / "collections")
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
        progress = bar(name, self.quiet)
        run = score_collection(scorer, source, folder, config, command=list(self.command), progress=progress)
        self.store.describe(folder.parent, job.content)
        if failed := run.record.failed:
            say(f"{name}: {len(failed)} queries could not be scored, the first one because {failed[0].reason}")
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
        for reader, view in sorted(need.readings, key=str):
            engine = PlantedReader(reader, source.instances()) if self.choices.is_planted else None
            ask_reader(run, source, self.choices.reader_address(reader), view=view, options=self.options, engine=engine)
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
        return self._open(self.address_of(scoring))

    def _open(self, address: str) -> Backend:
        if self._opened is None or self._opened[0] != address:
            self._opened = None  # the model before makes room first
            # The tables do not depend on what the processor computes natively.
            options = replace(self.options, dtype="float32") if self.options.dtype == "auto" else self.options
            self._opened = (address, open_engine(address, options))
        return self._opened[1]

    def address_of(self, scoring: Scoring) -> str:
        """The address that scores; an adapter is trained before it is named."""
        if scoring.training is None:
            return scoring.address
        training = scoring.training
        if self.stage in ("labels", "score") and not self.store.has_adapter(training):
            raise InputError(f"{training.described} is not trained yet. Run the same command with --stage train first.")
        return f"{with_kind(scoring.address)}+{self.train(training)}"

    # -- training

    def train(self, training: TrainingJob) -> Path:
        """The selected adapter of a student, trained where it is not there yet."""
        folder = self.store.adapter_folder(training)
        if not self.store.has_adapter(training):
            trained, labels = self.store.training_folder(training), self.label(training)
            self._opened = None
            runs = [trained / f"weight-{weight:g}" for weight in training.weights] or [trained]
            for place, weight in zip(runs, training.weights or (None,), strict=True):
                self._train(train_config(training, labels, place, weight))
            self.store.describe(trained, training.content)
            select_checkpoint(runs, folder)
        return folder

    def _train(self, config: TrainConfig) -> None:
        """Train in this process, or in several of this machine by Accelerate's launcher."""
        if self.launch is None:
            train(config, command=self.command, quiet=self.quiet)
            return
        kind, processes = self.launch
        recipe = Path(f"{config.out}.yaml")
        write_json(recipe, to_json(config))
        words = shlex.split(launch_command(kind, ["--recipe", str(recipe)], processes))
        if code := subprocess.run(words, check=False).returncode:
            raise ModelError(f"training on {processes} processes ended with code {code}: {shlex.join(words)}")

    # -- labels

    def label(self, training: TrainingJob, share: Share | None = None) -> Path:
        """The label folder of a student, made where it is not there yet; of a share of the windows, whatever they give."""
        folder, how = self.store.label_folder(training), training.training
        if self.store.has_labels(training):
            return folder
        if self.stage == "train":
            raise InputError(f"{training.described} has no labels yet. Run the same command with --stage labels first.")
        if not how.recalibrated:
            self._label(training, folder, share)
        else:
            plain = replace(training, training=replace(how, recalibrated=False))
            batched = replace(training, training=replace(how, label_width=None, recalibrated=False))
            start, reference = self.label(plain, share), self.label(batched, share)
            if share is None:
                config = LabelConfig(recalibrate_to=str(reference))
                label(None, training.data, folder, start=start, config=config, command=self.command, quiet=self.quiet)
        return folder

    def _label(self, training: TrainingJob, folder: Path, share: Share | None) -> None:
        cut = training.labels.value
        config = LabelConfig(teacher_orders=cut["orders"])
        shown = AuditConfig(chars=cut["chars"], settings=Settings(width=cut["width"]), cut=Cut(cut["queries"], cut["pool"]))
        teacher = self._open(self.address_of(training.teacher))
        if other := other_task({"scorer": teacher.identity(), "task": training.task}):
            raise InputError(f"the teacher of {training.system} is {other}. Name an adapter of this task, or none.")
        if share is not None:
            work = LabelWork(teacher, training.data, folder, config, shown, self.options, self.quiet, self.command)
            score_share(work, share)
        else:
            label(teacher, training.data, folder, config=config, shown=shown, command=self.command, quiet=self.quiet)


def select_checkpoint(runs: Sequence[Path], folder: Path) -> None:
    """Copy the checkpoint of the best held-out quality, the paper's rule; the last one of a run that held out nothing."""
    about: dict[str, Any] = {"rule": "last", "reason": "nothing was held out"}
    point = None
    if len(runs) > 1 or is_there(runs[0] / "evaluations.json"):
        chosen = next(choice for choice in select(read_points(runs)) if choice.rule == "highest_quality")
        if (point := chosen.point) is None:
            raise InputError(f"no checkpoint of {runs[0]} can be selected: {chosen.reason}.")
        chosen_at = {"step": point.step, "weight": point.weight, "quality": point.quality}
        about = {"rule": chosen.rule, "reason": chosen.reason, **chosen_at}
    with atomic_folder(folder) as scratch:
        if point is None:
            copy_adapter(runs[0], scratch)
        else:
            copy_selected(point, scratch)
        write_json(scratch / SELECTED, about)


def selection_words(store: Store, training: TrainingJob) -> str:
    """Which checkpoint scores, as a sentence; empty where nothing was trained yet."""
    if not store.has_adapter(training):
        return ""
    about = read_json(store.adapter_folder(training) / SELECTED)
    at = f"step {about['step']:,} at weight {about['weight']:g}" if "step" in about else "the last step"
    return f" Scored: {at} ({about['reason']})."


def train_config(training: TrainingJob, labels: Path, out: Path, weight: float | None = None) -> TrainConfig:
    """The recipe of the task at the paper's scale, defaults elsewhere; then what the variant and the scale change."""
    how, scale = training.training, training.choices.scale
    recipe = read_recipe(training.task) if scale.name == "paper" else {}
    start = make_config(for_objective(recipe, how.objective))
    width = width_at(how.width, ANY_OF[training.task], scale)
    changes: dict[str, Any] = {
        "base": training.base,
        "data": training.data,
        "labels": str(labels),
        "out": str(out),
        "views": how.views,
        "teacher_orders": how.teacher_orders,
        "seed": training.seed,
        **{name: value for name, value in (("weight", weight or how.weight), ("dropout", how.dropout)) if value is not None},
        **({"queries": how.queries} if how.queries else {}),
        **({"ramp": PAPER_RAMP} if how.queries and OBJECTIVES[how.objective].ramp else {}),  # its share of a shorter run
        **({"widths": (width,)} if width else {}),
        **dict(scale.training),
    }
    return replace(start, **changes)


# -- three stages: labels, adapters, scores. Workers see one store and plan the same shares without a word between them. Labels
# are few and large, so every worker scores its part of each; adapters and runs are many, and the largest goes first to the worker
# that has least to do


@dataclass(frozen=True)
class Piece:
    """One job of a stage."""

    stage: Stage
    name: str
    work: TrainingJob | Job
    seconds: float = 0.0
    """On one GPU, as planned; only its size relative to other jobs counts."""
    key: str = field(default="", compare=False)

    def do(self, workshop: Workshop, say: Callable[[str], None], share: Share | None = None) -> None:
        if isinstance(self.work, Job):
            workshop.do(self.work, say)
        elif self.stage == "labels":
            workshop.label(self.work, share)
        else:
            workshop.train(self.work)


def pieces_of(jobs: Sequence[Job], seconds: Callable[[Stage, TrainingJob | Job], float] | None = None) -> list[Piece]:
    """The jobs of all stages: labels before what learns from them, a teacher before its student."""
    trainings = trainings_of(jobs)
    labels = {training.labels.key + str(training.training.recalibrated): training for training in trainings}
    pieces: list[Piece] = [Piece("labels", f"labels for {t.described}", t, key=key) for key, t in labels.items()]
    pieces += [Piece("train", t.described, t, key=t.content.key) for t in trainings]
    pieces += [Piece("score", f"{j.request.system} on {j.request.collection}", j, key=j.content.key) for j in jobs]
    return [replace(piece, seconds=seconds(piece.stage, piece.work)) for piece in pieces] if seconds else pieces


def share_out(pieces: Iterable[Piece], workers: int) -> list[list[Piece]]:
    """Jobs for every worker, the same on every machine: the largest first, to whoever has least to do."""
    shares: list[list[Piece]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        least = loads.index(min(loads))
        shares[least].append(piece)
        loads[least] += max(piece.seconds, 1e-9)  # jobs of unknown size are spread by their number
    return shares


def loads_of(pieces: Sequence[Piece], workers: int) -> list[float]:
    """Seconds of every worker in one stage; labels are divided by their windows."""
    if all(piece.stage == "labels" for piece in pieces):
        return [sum(piece.seconds for piece in pieces) / workers] * workers
    return [sum(piece.seconds for piece in share) for share in share_out(pieces, workers)]


def do_pieces(pieces: Iterable[Piece], workshop: Workshop, say: Callable[[str], None], share: Share | None = None) -> list[str]:
    """Do jobs one after the other; what cannot be done is said and left, and given back as sentences."""
    failed: list[str] = []
    for piece in pieces:
        try:
            piece.do(workshop, say, share)
        except InputError as error:
            failed += [f"{piece.name}: {mistake}" for mistake in error.mistakes]
        except SteadyscoreError as error:
            failed.append(f"{piece.name}: {error}")
    return list(dict.fromkeys(failed))


def pieces_of_share(pieces: Sequence[Piece], share: Share) -> list[Piece]:
    """The jobs of one worker; of labels all, as it does its part of each. Runs of one scorer come one after the other."""
    if all(piece.stage == "labels" for piece in pieces):
        return list(pieces)
    return in_order(share_out(pieces, share.workers)[share.number - 1])


def in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Runs by what scores them, so that an opened model serves all of its own; other jobs as they are, before them."""

    def place(piece: Piece) -> tuple[str, str, str]:
        job = piece.work
        return (job.scoring.address, str(job.scoring.value), job.request.collection) if isinstance(job, Job) else ("", "", "")

    return sorted(pieces, key=place)


# -- Ray


def open_actor(told: tuple[Workshop, Sequence[Piece]]) -> Callable[[Row], Any]:
    """The work of an actor, which keeps an opened model from job to job."""
    return partial(_do_row, *told)


def _do_row(workshop: Workshop, pieces: Sequence[Piece], row: Row) -> dict[str, list[str]]:
    remarks: list[str] = []
    share = Share(row["share"], row["of"]) if "share" in row else None
    return {"failed": do_pieces([pieces[row["piece"]]], workshop, remarks.append, share), "remarks": remarks}


LABEL_PARTS = 32
"""Parts into which a cluster divides each set of labels."""


def do_on_ray(pieces: Sequence[Piece], workshop: Workshop, cluster: Cluster, say: Callable[[str], None]) -> None:
    """Do the jobs of one stage on a Ray cluster. What failed or was lost is said, and left to the command that follows."""
    rows: list[Row] = []
    for number, piece in sorted(enumerate(pieces), key=lambda numbered: -numbered[1].seconds):
        shares = range(1, LABEL_PARTS + 1) if piece.stage == "labels" else ()
        rows += [{"piece": number, "share": share, "of": LABEL_PARTS} for share in shares] or [{"piece": number}]
    told = (replace(workshop, quiet=True, stage=pieces[0].stage, launch=None, _opened=None), pieces)
    for row, answer in zip(rows, map_on_ray(cluster, open_actor, told, rows, quiet=workshop.quiet), strict=True):
        if answer.error:
            say(f"{pieces[row['piece']].name}: {answer.error}. It is done here now.")
        else:
            for sentence in (*answer.value["remarks"], *answer.value["failed"]):
                say(sentence)
