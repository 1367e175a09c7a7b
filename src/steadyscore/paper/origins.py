"""What makes the rows of an artifact: grader or model, prompt, penalty, labels and reader, in words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..engines.planted import Effects
from ..terms import Collection
from ..training.recipe import resolve_plan
from .jobs import Scoring, TrainingJob, requests_of, scoring_of
from .names import BASES, SYSTEMS
from .recipe import Artifact
from .scale import Choices
from .work import Store, reader_name, selection_words, train_config


class Origin(NamedTuple):
    """A system or reader of an artifact, and what gives its numbers at a scale."""

    name: str
    source: str


def origins_of(artifact: Artifact, choices: Choices, store: Store | None = None) -> list[Origin]:
    """Every system and reader of an artifact; of several bases, seeds and tasks the first is told for all."""
    requests = requests_of(artifact.cells(), choices)
    systems: dict[str, Scoring] = {}
    for asked in requests:
        if asked.system not in systems:
            systems[asked.system] = scoring_of(asked.system, asked.base, asked.seed, asked.collection, choices)
    readers = sorted({reader for needs in requests.values() for need in needs for reader, *_ in need.readings})
    return [
        *(Origin(SYSTEMS[name].label, describe_scoring(scoring, store)) for name, scoring in systems.items()),
        *(Origin(f"{reader.capitalize()} reader", describe_reader(reader, choices)) for reader in readers),
    ]


def describe_scoring(scoring: Scoring, store: Store | None = None) -> str:
    if "planted" in scoring.value:
        return describe_effects(Effects(**scoring.value["planted"]))
    if scoring.training is not None:
        return describe_training(scoring.training) + (selection_words(store, scoring.training) if store else "")
    return f"{scoring.address or 'no address yet'}, not trained here."


def describe_effects(effects: Effects) -> str:
    """A planted grader in one sentence; it is neither trained nor a model."""
    parts = [f"{effects.signal:.2f} of its score is the judgement itself"]
    parts += [
        f"{what} moves it by up to {abs(size):.2f}"
        for what, size in (("the slot", effects.slot), ("company", effects.companion), ("the marker", effects.marker))
        if size
    ]
    parts += ["it writes whole grades"] if effects.is_written else []
    return f"A planted grader in the paper's prompt, without a model or training: {', '.join(parts)}."


def describe_training(job: TrainingJob) -> str:
    """Base, objective and penalty, labels, and the prompt that an adapter is trained and scored in."""
    how = job.training
    config = train_config(job, Path("labels"), Path("adapter"))
    plan = resolve_plan(config, Collection(job.data, job.task))
    taught = (
        "its own base"
        if how.teacher is None
        else BASES[how.teacher].label
        if how.teacher in BASES
        else SYSTEMS[how.teacher].label
    )
    penalty = (
        f"weight {plan.weight:g} in the convention {config.weight_convention!r}, ramp {config.ramp:g}, {plan.views} views"
        if plan.weight
        else "no penalty"
    )
    return (
        f"An adapter of {job.base}: objective {how.objective}, {penalty}; labels of {how.teacher_orders} "
        f"{'order' if how.teacher_orders == 1 else 'orders'} by {taught}; the prompt style {config.prompt!r}, width "
        f"{', '.join(map(str, plan.widths))}."
    )


def describe_reader(reader: str, choices: Choices) -> str:
    if choices.is_planted:
        return "A planted reader without a model: it answers from the first two passages and gives a verdict by the first."
    return f"{reader_name(reader, choices)}, frozen."
