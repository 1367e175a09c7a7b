"""Label training pools: the public function behind `steadyscore label`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Unpack, cast

from ..collection import Data, Names, Source, name_columns, open_collection
from ..engines import EngineOptions
from ..engines.python import open_object
from ..errors import InputError
from ..machine import console
from ..machine.bounds import Positive, changed_fields, check_fields
from ..machine.console import bar
from ..machine.disk import is_there
from ..machine.names import short_repr
from ..machine.places import Place, parse_place
from ..runs.layout import RECORD_FILE
from ..scoring.config import AuditConfig, Cut, ShownSettings, configure, in_precision_of, open_scorer
from ..scoring.parts import Cluster, Worker, score_on
from ..scoring.score import cut_instances, score_collection
from ..scoring.scorer import Scorer
from ..scoring.starts import start_remarks
from ..tasks import TASKS
from ..terms import Failure, Instance, JsonObject
from .labels import (
    Control,
    Label,
    Scale,
    first_orders,
    from_judgements,
    is_subset,
    label_by_run,
    label_quality,
    nested_subset,
    only_candidates,
    read_labels,
    recalibrate,
    replace_by_control,
    write_labels,
)


@dataclass(frozen=True, slots=True)
class LabelConfig:
    """What is made of a teacher's scores, of judgements or of other labels."""

    teacher_orders: Positive | None = None
    """Orders the teacher scores, or keeps of stored ones, T (default: 1, all stored)."""
    scale: Scale = "unit"
    """How a teacher without grades gets onto 0 to 1."""
    judged_top: Positive = 3
    """Highest judgement of the collection, which becomes grade 3."""
    recalibrate_to: str | None = None
    """Give each query the values of these labels in its own rank order."""
    control: Control | None = None
    """Negative control: random labels, or shuffled within a query."""
    rank_first_stage: bool = False
    """Also score the first-stage order, which `--propensity rankings` reads."""
    subset: Positive | None = None
    """A nested subset of N queries; training on it leaves out the others."""
    seed: int = 0
    """Seed of orders, controls and subsets."""

    def __post_init__(self) -> None:
        check_fields(self)


class LabelSettings(ShownSettings, total=False):
    """Settings of `label` by name: fields of `LabelConfig`, and what a teacher is shown."""

    teacher_orders: int | None
    scale: Scale
    judged_top: int
    recalibrate_to: str | None
    control: Control | None
    rank_first_stage: bool
    subset: int | None
    seed: int


@dataclass(frozen=True, slots=True)
class Labelled:
    """A label folder, what is in it and how good it is."""

    folder: Place
    labels: list[Label]
    quality: dict[str, float | None]
    """Silver quality against judgements and silver-beta, by the names that `label` prints."""
    failed: list[Failure]
    """Queries that got no label."""
    queries: int
    """Queries that were to be labelled."""

    def __repr__(self) -> str:
        return short_repr(self, f"{len(self.labels)} of {self.queries} queries: {self.folder!s}")

    def to_json(self) -> dict[str, object]:
        return self.quality | {"failed": [failure.to_json() for failure in self.failed], "out": str(self.folder)}


@dataclass(frozen=True, slots=True)
class LabelWork:
    """One call of `label`; also what workers are told (`scoring.parts.Work`)."""

    teacher: Any
    data: Data
    out: Place
    config: LabelConfig
    shown: AuditConfig
    options: EngineOptions
    quiet: bool = False
    command: Sequence[str] = ()
    allow_scorer_change: bool = False
    start: Place | None = None
    """A label folder to derive from; None: the teacher scores."""

    @property
    def named(self) -> str:
        """What labels, as messages name it."""
        return str(self.start or (self.teacher if isinstance(self.teacher, str) else open_object(self.teacher).name))

    def open_teacher(self, source: Source) -> tuple[Scorer, AuditConfig]:
        """Who labels, and what of every query."""
        shown, options = orders_of(self.config, self.shown), in_precision_of([self.out], self.teacher, self.options)
        return open_scorer(self.teacher, source.collection, shown, options), shown

    def workers(self) -> Iterator[tuple[str, Worker]]:
        source = open_collection(self.data)
        scorer, shown = self.open_teacher(source)
        worker = Worker(scorer, source, self.out, shown, self.command, allow_scorer_change=self.allow_scorer_change)
        yield f"labels of {scorer.name} for {source.collection.name}", worker


def orders_of(config: LabelConfig, shown: AuditConfig) -> AuditConfig:
    """What a teacher scores: its T orders, and the first-stage order where that is asked for."""
    return replace(
        shown,
        canonical=config.rank_first_stage,
        permutations=config.teacher_orders or 1,
        scheme="hashed",  # T of every pool: fewer orders are the first of them
        seed=config.seed,
        settings=replace(shown.settings, label_mass=False),
    )


def label(
    scorer: Any = None,
    data: Data = None,
    out: str | Place = "",
    *,
    start: str | Place | None = None,
    config: LabelConfig | None = None,
    shown: AuditConfig | None = None,
    options: EngineOptions | None = None,
    quiet: bool = False,
    command: Sequence[str] = (),
    allow_scorer_change: bool = False,
    on: str | Cluster | None = None,
    columns: Names = None,
    **settings: Unpack[LabelSettings],
) -> Labelled:
    """Label the pools of a collection into the folder `out`, for `train`; the same call resumes what was stopped.

    scorer    the teacher: an address, a function `(query, texts) -> scores`, an object with `.predict` or `.rank`; or
              "judgements" for the human ones
    data      the training collection, in any form that `audit` takes
    columns   which column of the data is what, where names are unknown: {"query": "question"}
    start     derive from this label folder instead of scoring
    on        "ray", "ray:auto", "ray://head:10001" or a `Cluster`: score there, into `out`, which all machines see
    settings  teacher_orders=10, scale="sigmoid", width=5, queries=100, ...: fields of `LabelConfig`, and what a teacher is shown
    """
    if (scorer is None) == (start is None) or data is None or not out:
        raise InputError("label needs either a scorer or a label folder to start from, the data, and the folder `out`.")
    own, presentation = _split_settings(cast(dict[str, Any], settings))
    data = name_columns(data, columns)
    source, place = open_collection(data), parse_place(out)
    how, options = replace(config or LabelConfig(), **own), options or EngineOptions()
    shown = configure(shown or AuditConfig(), presentation, ShownSettings, "label")
    beginning = None if start is None else parse_place(start)
    _refuse_idle_settings(scorer, beginning, how, shown)
    if beginning is not None and _is_same(beginning, place):
        raise InputError(f"{beginning} would be replaced by what is derived from it. Choose another --out.")
    work = LabelWork(scorer, data, place, how, shown, options, quiet, command, allow_scorer_change, beginning)
    if on is not None:
        score_on(on, work, console.say)
    return _label(work, source)


def _split_settings(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of `LabelConfig`, and those of the presentation."""
    names, known = [field.name for field in fields(LabelConfig)], LabelSettings.__annotations__
    if unknown := [name for name in settings if name not in known]:
        raise InputError(f"label has no setting {', '.join(unknown)}. It has {', '.join(known)}.")
    own = {name: value for name, value in settings.items() if name in names}
    return own, {name: value for name, value in settings.items() if name not in names}


def _refuse_idle_settings(teacher: Any, start: Place | None, config: LabelConfig, shown: AuditConfig) -> None:
    """Refuse settings that say nothing of labels from this source."""
    made, presentation = LabelConfig(), changed_fields(shown.settings)
    if shown.chars is not None:
        presentation.append("chars")
    of_teacher = [name for name in ("scale", "rank_first_stage") if getattr(config, name) != getattr(made, name)] + presentation
    of_judgements = ["judged_top"] if config.judged_top != made.judged_top else []
    if start is not None:
        source, idle = f"labels that are derived from {start}", of_teacher + of_judgements
    elif teacher == "judgements":
        several = ["teacher_orders"] if config.teacher_orders not in (None, 1) else []
        source, idle = "judgements, which nobody is shown and which have one order", several + of_teacher
    else:
        source, idle = "the labels of a scorer", of_judgements
    if idle:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
        raise InputError(f"{flags} would change nothing of {source}. Leave {'it' if len(idle) == 1 else 'them'} out.")


def _is_same(one: Place, other: Place) -> bool:
    """Whether two places are one folder."""
    if isinstance(one, Path) and isinstance(other, Path):
        return one.resolve() == other.resolve()
    return str(one).rstrip("/") == str(other).rstrip("/")


def _label(work: LabelWork, source: Source) -> Labelled:
    is_derived = work.start is not None or work.teacher == "judgements"
    if is_derived and is_there(work.out / RECORD_FILE):
        raise InputError(f"{work.out!s} holds a run, whose labels would be replaced by others. Choose another --out.")
    labels, failed = (_derive(work, source), []) if is_derived else _score(work, source)
    changed, unmatched = _change(labels, work)
    if is_derived or changed is not labels:
        write_labels(work.out, changed, _record(work, changed))
    quality = label_quality(changed, source, TASKS[source.collection.task].quality_cutoff)
    return Labelled(work.out, changed, quality, failed + unmatched, len(labels) + len(failed))


def _record(work: LabelWork, labels: Sequence[Label]) -> JsonObject:
    """What a derived label folder keeps of how it was made."""
    config = work.config
    subset = config.subset or (len(labels) if work.start is not None and is_subset(work.start) else None)
    asked = {"from": work.named, "teacher_orders": config.teacher_orders, "control": config.control, "subset": subset}
    return asked | {"recalibrated_to": config.recalibrate_to, "seed": config.seed, "command": list(work.command)}


def _score(work: LabelWork, source: Source) -> tuple[list[Label], list[Failure]]:
    """Labels, and the queries that the teacher failed on."""
    scorer, shown = work.open_teacher(source)
    run = score_collection(
        scorer,
        source,
        work.out,
        shown,
        command=list(work.command),
        progress=bar(f"labels of {work.named} for {source.collection.name}", work.quiet),
        allow_scorer_change=work.allow_scorer_change,
    )
    labels = label_by_run(run, work.config.scale)
    for remark in start_remarks(run.record):
        console.say(f"{scorer.name}: {remark}")
    return labels, run.record.failed


def _derive(work: LabelWork, source: Source) -> list[Label]:
    """Labels from other labels, or from judgements."""
    cut = cut_instances(source.instances(), work.shown.cut)
    if work.start is not None:
        stored = [first_orders(label, work.config.teacher_orders) for label in read_labels(work.start)]
        return _of_data(stored, cut, work, source.name)
    by_query = {instance.id: from_judgements(instance, work.config.judged_top) for instance in cut}
    labels = [label for label in by_query.values() if label is not None]
    if not labels:
        raise InputError(f"no query of {source.name} has a judged candidate. Name a scorer to label with: --scorer ADDRESS.")
    if unjudged := [query_id for query_id, label in by_query.items() if label is None]:
        share = f"{len(unjudged)} of {len(by_query)} queries"
        console.say(f"{share} have no judged candidate and get no label: {', '.join(unjudged[:10])}.")
    return labels


def _of_data(labels: list[Label], cut: Iterable[Instance], work: LabelWork, name: str) -> list[Label]:
    """These labels; where only a part of the data is asked for, those of its queries and candidates."""
    pools = {instance.id: {candidate.id for candidate in instance.pool} for instance in cut}
    belonging = [label for label in labels if not pools.get(label.query_id, set()).isdisjoint(label.candidate_ids)]
    if not belonging:
        part = "these queries of " if work.shown.cut.queries else ""
        raise InputError(f"{work.start} has no label of {part}{name}. Name the data that it was made of with --data.")
    if work.shown.cut == Cut():
        return labels
    return [only_candidates(label, pools[label.query_id]) for label in belonging]


def _change(labels: list[Label], work: LabelWork) -> tuple[list[Label], list[Failure]]:
    """Labels recalibrated, replaced by a control or cut to a subset, and the queries that the reference does not have."""
    config, unmatched = work.config, []
    if config.recalibrate_to:
        reference = {label.query_id: label for label in read_labels(config.recalibrate_to)}
        reason = f"no label in {config.recalibrate_to}"
        unmatched = [Failure(label.query_id, reason) for label in labels if label.query_id not in reference]
        labels = [recalibrate(label, reference[label.query_id]) for label in labels if label.query_id in reference]
        if not labels:
            raise InputError(f"no query of {work.named} has a label in {config.recalibrate_to}. Name labels of the same data.")
    if config.control:
        labels = [replace_by_control(label, config.control, config.seed) for label in labels]
    return nested_subset(labels, config.subset, config.seed) if config.subset else labels, unmatched
