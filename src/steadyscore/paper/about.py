"""What a table or figure needs, how much of it a store holds, and what makes its rows, in words."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..engines.planted import Effects
from ..terms import Collection
from ..training.plan import resolve_plan
from .artifacts import ARTIFACTS
from .jobs import Scoring, TrainingJob, jobs_of, requests_of, scoring_of
from .names import BASES, SYSTEMS
from .recipe import Artifact
from .scale import Choices
from .work import Store, reader_name, selection_words, train_config


class Status(NamedTuple):
    status: str
    """`complete`, `part of it`, `not run`, `diagram`; the first two of the runs in the store."""
    runs: int
    done: int
    cells: int
    missing: list[str]
    """What is not there, one sentence each."""


def status_of(artifact: Artifact, choices: Choices, store: Store) -> Status:
    """How many of an artifact's runs are in the store."""
    if artifact.is_diagram:
        return Status("diagram", 0, 0, 0, [])
    cells = list(artifact.cells())
    jobs = jobs_of(requests_of(cells, choices), choices)
    done = sum(not store.unmet(job, choices) for job in jobs)
    missing = [f"{len(jobs) - done} of {len(jobs)} runs are not scored yet"] if done < len(jobs) else []
    word = "complete" if done == len(jobs) else "part of it" if done else "not run"
    return Status(word, len(jobs), done, len(cells), missing)


def needs_of(artifact: Artifact) -> list[str]:
    """What an artifact asks for besides scores, in words."""
    sides = [side for cell in artifact.cells() if not cell.text for _, side in cell.sides()]
    systems = [SYSTEMS[side.system] for side in sides if side.system]
    asked = {
        "adapters": any(system.training for system in systems),
        ", ".join(sorted({system.label for system in systems if system.is_external})): True,
        "readers": any(side.reader for side in sides),
        "changed pools": any(side.perturb for side in sides),
        "two more first stages": any(side.first_stage for side in sides),
        "three seeds": any(len(side.seeds) > 1 for side in sides),
    }
    return [need for need, is_asked in asked.items() if need and is_asked]


def index_table() -> str:
    """The table of docs/reproduce.md: every table and figure with what it needs."""
    rows = ["| artifact | title | NAME | needs |", "|---|---|---|---|"]
    for artifact in ARTIFACTS.values():
        is_scored = any(not cell.text and cell.statistic != "size" for cell in artifact.cells())
        needs = ", ".join(needs_of(artifact)) or ("scores" if is_scored else "nothing")
        name, asks = ("-", "a diagram: nothing to measure") if artifact.is_diagram else (f"`{artifact.name}`", needs)
        rows.append(f"| {artifact.number} ({artifact.label}) | {artifact.title} | {name} | {asks} |")
    return "\n".join(rows)


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
    taught = (BASES.get(how.teacher) or SYSTEMS[how.teacher]).label if how.teacher else "its own base"
    penalty = "no penalty"
    if plan.weight:
        penalty = (
            f"weight {plan.weight:g} in the convention {config.weight_convention!r}, ramp {config.ramp:g}, {plan.views} views"
        )
    return (
        f"An adapter of {job.base}: objective {how.objective}, {penalty}; labels of "
        f"{how.teacher_orders} {'order' if how.teacher_orders == 1 else 'orders'} by {taught}; the prompt style "
        f"{config.prompt!r}, width {', '.join(map(str, plan.widths))}."
    )


def describe_reader(reader: str, choices: Choices) -> str:
    if choices.is_planted:
        return "A planted reader without a model: it answers from the first two passages and gives a verdict by the first."
    return f"{reader_name(reader, choices)}, frozen."
