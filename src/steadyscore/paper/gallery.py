"""The gallery: every table and figure of a store as one static site, with the LaTeX, CSV and state of each.

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

from ..errors import InputError
from ..machine.disk import atomic_folder, is_there
from ..machine.extras import PAGE, check_installed
from ..report.templating import render
from ..terms import JsonObject
from .about import origins_of
from .draw import panels_of
from .layout import Filled, fill
from .library import Library
from .recipe import Artifact
from .render import Shown, to_csv, to_latex
from .scale import Choices
from .work import Store

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


@dataclass(frozen=True, slots=True)
class Gallery:
    """A written site."""

    page: Path
    states: list[State]


def write_gallery(
    artifacts: Sequence[Artifact], store: Store, choices: Choices, folder: Path, progress: Progress | None = None
) -> Gallery:
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
    return Gallery(folder / "index.html", states)


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
