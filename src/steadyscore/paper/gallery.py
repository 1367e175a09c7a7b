"""What a store holds of every table and figure, and what makes its rows; and the gallery, one site of them all.

One page per artifact and an index. The pages load nothing, which their own content policy enforces; the index alone has a
script, named there by its hash, that filters the list.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ..engines.synthetic import Effects
from ..errors import InputError
from ..machine.disk import atomic_folder, is_there
from ..machine.extras import PAGE, check_installed
from ..report.templating import render
from ..terms import Collection, JsonObject
from ..training.recipe import resolve_plan
from .jobs import Scoring, TrainingJob, jobs_of, requests_of, scoring_of
from .layout import Filled, fill
from .library import Library
from .names import BASES, SYSTEMS
from .recipe import Artifact
from .render import Shown, panels_of, to_csv, to_latex
from .scale import Choices
from .work import Store, selection_words, train_config

STATUS = "status.json"
"""Beside the pages: the state of every artifact; the mark of a folder that a gallery may replace."""
Progress = Callable[[Iterable[Artifact], int | None], Iterator[Artifact]]
STATES = {"complete": "complete", "part": "part of it", "empty": "nothing yet", "diagram": "diagram"}


@dataclass(frozen=True, slots=True)
class State:
    """How much of an artifact is there."""

    artifact: Artifact
    cells: int
    """That are measured, not printed as words."""
    filled: int
    missing: list[str]

    @property
    def kind(self) -> str:
        if self.artifact.is_diagram:
            return "diagram"
        return "complete" if self.filled == self.cells else "part" if self.filled else "empty"

    @property
    def words(self) -> str:
        if self.kind == "complete":
            return f"complete, {self.cells} cells" if self.cells else "complete, settings only"
        return STATES[self.kind] if self.kind != "part" else f"{self.filled} of {self.cells} cells"

    def as_json(self) -> JsonObject:
        of = self.artifact
        about = {"name": of.name, "number": of.number, "label": of.label, "title": of.title}
        return {**about, "status": STATES[self.kind], "cells": self.cells, "filled": self.filled, "missing": self.missing}


def write_gallery(
    artifacts: Sequence[Artifact], store: Store, choices: Choices, folder: Path, progress: Progress | None = None
) -> list[State]:
    """Fill every artifact from the finished runs of a store and write the site, whole or not at all."""
    check_installed("The gallery", *PAGE)
    check_place(folder)
    if not is_there(store.folder / "runs") and not choices.runs:
        how = f"steadyscore reproduce run all --scale {choices.scale.name} --store {store.folder}"
        raise InputError(f"{store.folder} holds no runs. Run `{how}` first.")
    library = Library(store, choices)
    states: list[State] = []
    files: dict[str, str] = {}
    for artifact in progress(artifacts, len(artifacts)) if progress else artifacts:
        filled = None if artifact.is_diagram else fill(artifact, library)
        states.append(state_of(artifact, filled))
        files |= artifact_files(states[-1], filled, artifacts, library)
    files["index.html"] = index_page(states, choices)
    files[STATUS] = json.dumps([state.as_json() for state in states], indent=2, ensure_ascii=False) + "\n"
    with atomic_folder(folder) as scratch:
        for name, text in files.items():
            (scratch / name).write_text(text, encoding="utf-8")
    return states


def check_place(folder: Path) -> None:
    """Refuse a folder of somebody else: the site takes the place of what is there."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file. Name a folder for the gallery.")
    if folder.exists() and any(folder.iterdir()) and not is_there(folder / STATUS):
        raise InputError(f"{folder} holds other files, which the gallery would replace. Name a new or an empty folder.")


def state_of(artifact: Artifact, filled: Filled | None) -> State:
    """Counted over the cells that are measured: words that the paper prints are always there."""
    if filled is None:
        return State(artifact, 0, 0, [])
    values = [entry.value for entry in filled.entries() if not entry.value.text]
    return State(artifact, len(values), sum(not value.reason for value in values), [reason for reason, _ in filled.reasons()[:3]])


def artifact_files(state: State, filled: Filled | None, artifacts: Sequence[Artifact], library: Library) -> dict[str, str]:
    """The page of an artifact, its LaTeX and its CSV, by file name."""
    artifact, place = state.artifact, artifacts.index(state.artifact)
    page = render(
        "artifact_page.html.jinja", a=artifact, state=state, filled=filled, scale=library.choices.scale.name,
        panels=[] if filled is None else panels_of(filled), shown=Shown(True, True, True),
        origins=[] if filled is None else origins_of(artifact, library.choices, library.store),
        before=artifacts[place - 1] if place else None, after=artifacts[place + 1] if place + 1 < len(artifacts) else None,
    )  # fmt: skip
    if filled is None:
        return {f"{artifact.name}.html": page}
    tables = {f"{artifact.name}.tex": to_latex(filled, Shown()), f"{artifact.name}.csv": to_csv(filled, Shown(paper=True))}
    return {f"{artifact.name}.html": page, **tables}


def index_page(states: Sequence[State], choices: Choices) -> str:
    script = render("gallery.js.jinja").strip()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    kinds = [(kind, word) for kind, word in STATES.items() if any(state.kind == kind for state in states)]
    return render(
        "gallery.html.jinja", states=states, scale=choices.scale, is_planted=choices.is_planted, kinds=kinds, script=script,
        digest=digest,
    )  # fmt: skip


# -- what is in the store, and what makes the rows


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


def origins_of(artifact: Artifact, choices: Choices, store: Store | None = None) -> list[tuple[str, str]]:
    """Every system and reader of an artifact, and what gives its numbers; of several bases, seeds and tasks the first is told."""
    requests = requests_of(artifact.cells(), choices)
    scorings: dict[str, Scoring] = {}
    for asked in requests:
        if asked.system not in scorings:
            scorings[asked.system] = scoring_of(asked.system, asked.base, asked.seed, asked.collection, choices)
    readers = sorted({reader for needs in requests.values() for need in needs for reader, *_ in need.readings})
    planted = "A planted reader without a model: it answers from the first two passages and gives a verdict by the first."
    return [
        *((SYSTEMS[name].label, describe_scoring(scoring, store)) for name, scoring in scorings.items()),
        *(
            (f"{r.capitalize()} reader", planted if choices.is_planted else f"{choices.reader_address(r)}, frozen.")
            for r in readers
        ),
    ]


def describe_scoring(scoring: Scoring, store: Store | None = None) -> str:
    if scoring.training is not None:
        return describe_training(scoring.training) + (selection_words(store, scoring.training) if store else "")
    if "planted" not in scoring.value:
        return f"{scoring.address or 'no address yet'}, not trained here."
    effects = Effects(**scoring.value["planted"])
    moved = {"the slot": effects.slot, "company": effects.companion, "the marker": effects.marker}
    parts = [f"{effects.signal:.2f} of its score is the judgement itself"]
    parts += [f"{what} moves it by up to {abs(size):.2f}" for what, size in moved.items() if size]
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
