"""Which runs a user means by the folders that were named."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import InputError
from ..machine.disk import is_there, list_files
from ..machine.places import Place, parse_place
from .folder import Run
from .layout import ATTACKS_FOLDER, CLEAN, DECISIONS_FILE, RECORD_FILE


def find_folders(places: Sequence[str | Place]) -> list[Place]:
    """The run folders in and below some folders; a folder's own run is the first of its runs."""
    runs: list[Place] = []
    for folder in map(parse_place, places):
        files = list_files(folder)
        below = [file.parent for file in files if file.name == RECORD_FILE]
        if not below and any(file.name == DECISIONS_FILE for file in files):
            raise InputError(f"{folder} holds an audit of decisions, and no scores. `report`, `gate` and `compare` read it.")
        if not below:
            raise InputError(f"{folder} holds no run: neither it nor a folder below it has a run.json.")
        runs += sorted(below, key=lambda run: (run != folder, run))
    return runs


def find_runs(places: Sequence[str | Place]) -> list[Run]:
    """The runs in and below some folders; those of an attack, which are to be read together, only where each is named."""
    folders = find_folders(places)
    attacks = [folder.parent for folder in folders if folder.name == CLEAN and is_there(folder.parent / ATTACKS_FOLDER)]
    named = set(map(parse_place, places))
    if attacks := [attack for attack in attacks if attack / CLEAN not in named]:
        raise InputError(
            [
                f"{attack} is the folder of an attack: `steadyscore study attack --runs {attack}` measures it, writes its page "
                f"and checks bounds. Name single runs of it, such as {attack / CLEAN}, to read them as runs."
                for attack in attacks
            ]
        )
    return [Run.open(folder) for folder in folders]


def find_decision_folders(places: Sequence[str | Place]) -> list[Place]:
    """Folders of audits of decisions in and below some folders; none where these hold other runs."""
    return [file.parent for place in places for file in list_files(parse_place(place)) if file.name == DECISIONS_FILE]


def find_run(place: str | Place) -> Run:
    """The run of a folder: its own, or the only one below it."""
    folder = parse_place(place)
    return Run.open(own_or_only(folder, find_folders([folder])))


def own_or_only(folder: Place, runs: Sequence[Place]) -> Place:
    """Of the run folders in and below a folder, the one that is meant by its name."""
    if folder in runs or len(runs) == 1:
        return folder if folder in runs else runs[0]
    named = ", ".join(str(run.relative_to(folder)) for run in runs[:5]) + ", ..." * (len(runs) > 5)  # type: ignore[arg-type]
    raise InputError(f"{folder} holds {len(runs)} runs, and one is asked for here. Name one of them: {named}.")
