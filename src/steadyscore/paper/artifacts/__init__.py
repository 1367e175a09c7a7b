"""The 36 tables and 11 figures of the paper as data, in the order in which they appear."""

from __future__ import annotations

from ...errors import InputError
from ...machine.names import nearest
from ..recipe import Artifact
from .consumers import CONSUMERS
from .main import MAIN
from .mechanisms import MECHANISMS
from .mitigations import MITIGATIONS
from .reference import REFERENCE
from .tasks import TASK_TRANSFER
from .widths import WIDTHS

ARTIFACTS: dict[str, Artifact] = {
    artifact.name: artifact for artifact in (*MAIN, *MECHANISMS, *MITIGATIONS, *TASK_TRANSFER, *CONSUMERS, *WIDTHS, *REFERENCE)
}


def artifact_of(name: str) -> Artifact:
    """A table or figure by its name or by the paper's label."""
    key = name.removeprefix("tab:").removeprefix("fig:")
    if key not in ARTIFACTS:
        near = nearest(key, ARTIFACTS)
        hint = f"Did you mean {near}?" if near else "`steadyscore reproduce list` prints all names."
        raise InputError(f"the paper has no table or figure {name!r}. {hint}")
    return ARTIFACTS[key]
