"""The folders of an audit below `--out`: one for every scorer on every collection, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..collection import Source
from ..errors import InputError
from ..machine.names import slug
from ..machine.places import Place
from ..runs.layout import DECISIONS_FILE, RECORD_FILE


def run_folders(out: Place, scorers: Iterable[str], sources: Sequence[Source]) -> dict[tuple[str, str], Place]:
    """(scorer, collection) -> where its run goes."""
    names = [source.name for source in sources]
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise InputError(f"{twice[0]} is given twice. Name every collection once.")
    pairs = [(name, source) for name in scorers for source in sources]
    if len(pairs) == 1:
        ((name, source),) = pairs
        return {(name, source.name): only_run_folder(out, source.collection.name, name)}
    folders = {(name, source.name): _run_folder(out, source.collection.name, name) for name, source in pairs}
    kept: dict[Place, str] = {}
    for (name, data), folder in folders.items():
        if folder in kept:
            raise InputError(f"{kept[folder]} and {name} on {data} would be kept in one folder, {folder}. Give each an --out.")
        kept[folder] = f"{name} on {data}"
    return folders


def decision_folders(out: Place, scorers: Sequence[str]) -> list[Place]:
    """Where the audit of decisions of each scorer goes; one that an earlier version began in `out` itself goes on there."""
    if len(scorers) == 1 and (out / DECISIONS_FILE).exists():
        return [out]
    return [out / slug(scorer) for scorer in scorers]


def only_run_folder(out: Place, collection: str, scorer: str) -> Place:
    """Where the run goes of an audit that has one: where earlier versions put it if it began there, in `out` itself."""
    return out if (out / RECORD_FILE).exists() else _run_folder(out, collection, scorer)


def _run_folder(out: Place, collection: str, scorer: str) -> Place:
    return out / slug(collection) / slug(scorer)
