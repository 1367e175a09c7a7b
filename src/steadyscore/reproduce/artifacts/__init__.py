"""The 36 tables and 11 figures of the paper as data, in the order in which they appear."""

from __future__ import annotations

import difflib

from ...errors import InputError
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
        near = difflib.get_close_matches(key, ARTIFACTS, n=1)
        hint = f"Did you mean {near[0]}?" if near else "`steadyscore reproduce list` prints all names."
        raise InputError(f"the paper has no table or figure {name!r}. {hint}")
    return ARTIFACTS[key]
