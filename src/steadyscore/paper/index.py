"""How far an artifact is: what the store holds of it, what it needs, and the table of them all."""

from __future__ import annotations

from typing import NamedTuple

from .artifacts import ARTIFACTS
from .jobs import jobs_of, requests_of
from .names import SYSTEMS
from .recipe import Artifact
from .scale import Choices
from .work import Store


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
    cells = list(artifact.cells())
    sides = [side for cell in cells if not cell.text for _, side in cell.sides()]
    trained = {side.system for side in sides if side.system} - {"off-the-shelf"}
    needs = []
    if any(SYSTEMS[name].training for name in trained):
        needs.append("adapters")
    if external := sorted(SYSTEMS[name].label for name in trained if SYSTEMS[name].is_external):
        needs.append(", ".join(external))
    if any(side.reader for side in sides):
        needs.append("readers")
    if any(side.perturb for side in sides):
        needs.append("changed pools")
    if any(side.first_stage for side in sides):
        needs.append("two more first stages")
    if any(len(side.seeds) > 1 for side in sides):
        needs.append("three seeds")
    return needs


def index_table() -> str:
    """The table of docs/reproduce.md: every table and figure with what it needs."""
    rows = ["| artifact | title | NAME | needs |", "|---|---|---|---|"]
    for artifact in ARTIFACTS.values():
        if artifact.is_diagram:
            rows.append(f"| {artifact.number} ({artifact.label}) | {artifact.title} | - | a diagram: nothing to measure |")
            continue
        is_scored = any(not cell.text and cell.statistic != "size" for cell in artifact.cells())
        needs = ", ".join(needs_of(artifact)) or ("scores" if is_scored else "nothing")
        rows.append(f"| {artifact.number} ({artifact.label}) | {artifact.title} | `{artifact.name}` | {needs} |")
    return "\n".join(rows)
