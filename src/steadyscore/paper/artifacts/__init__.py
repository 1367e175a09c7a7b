"""The 36 tables and 11 figures of the paper as data, in the order in which they appear."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from ...errors import InputError
from ...machine.names import nearest
from ..recipe import Artifact
from .main import MAIN
from .mechanisms import MECHANISMS
from .mitigations import MITIGATIONS
from .tasks import CONSUMERS, TASK_TRANSFER
from .widths import REFERENCE, WIDTHS


def _numbered(artifacts: Iterable[Artifact]) -> Iterator[Artifact]:
    """Tables and figures, each with its number among its own kind."""
    counts = {"Table": count(1), "Figure": count(1)}
    for artifact in artifacts:
        kind = "Figure" if artifact.is_figure else "Table"
        yield replace(artifact, number=f"{kind} {next(counts[kind])}")


ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact
    for artifact in _numbered((*MAIN, *MECHANISMS, *MITIGATIONS, *TASK_TRANSFER, *CONSUMERS, *WIDTHS, *REFERENCE))
}


def artifact_of(name: str) -> Artifact:
    """A table or figure by its name or by the paper's label."""
    key = name.removeprefix("tab:").removeprefix("fig:")
    if key not in ARTIFACTS:
        near = nearest(key, ARTIFACTS)
        hint = f"Did you mean {near}?" if near else "`steadyscore reproduce list` prints all names."
        raise InputError(f"the paper has no table or figure {name!r}. {hint}")
    return ARTIFACTS[key]
