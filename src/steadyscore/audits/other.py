"""Audits of other things than scores, which `compare` and `gate` take too. Their package comes later in the list of packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

from ..machine.names import did_you_mean
from ..machine.places import Place
from ..measures.registry import MEASURES
from ..results.audit import Audit
from ..results.figure import Figure
from ..runs.folder import find_decision_folders
from ..terms import Array, Failure
from .audits import Audits

DECISION_AUDITS = "steadyscore.decision_models.result"
"""The module that knows what a decision model decided: its `DecisionAudit`, how one is loaded, what it measures."""


class OtherAudit(Protocol):
    """What is compared and checked of an audit that measured no scores."""

    @property
    def name(self) -> str: ...
    @property
    def collection(self) -> str: ...
    @property
    def folder(self) -> Place | None: ...
    @property
    def query_ids(self) -> list[str]: ...
    @property
    def values(self) -> dict[str, Array]: ...
    @property
    def figures(self) -> dict[str, Figure]: ...
    @property
    def failed(self) -> Sequence[Failure]: ...
    @property
    def remarks(self) -> tuple[str, ...]:
        """What must be known to read the figures."""

    @property
    def compared(self) -> list[str]:
        """What is compared where no measure is named."""


def split_audits(given: Sequence[Any]) -> tuple[list[OtherAudit], list[Any]]:
    """The audits of decisions among audits and folders, and the rest, which are audits of scores."""
    decided: list[OtherAudit] = []
    rest: list[Any] = []
    for one in given:
        if isinstance(one, str | Place) and (folders := find_decision_folders([one])):
            decided += map(_decision_audits().load_decisions, folders)
        elif not isinstance(one, Audits | Audit | str | Place) and isinstance(one, _decision_audits().DecisionAudit):
            decided.append(one)
        else:
            rest.append(one)
    return decided, rest


def is_measure(name: str) -> bool:
    """Whether a gate or a comparison may name it: a measure of scores, or `measure.channel` of decisions."""
    return name in MEASURES or ("." in name and bool(_decision_audits().is_decision_measure(name)))


def unknown_measure(
    name: str, is_known: Callable[[str], bool] = is_measure, listed: str = "`steadyscore list measures` prints them"
) -> str:
    """What is said of a measure that does not exist: the nearest one, or where all are listed."""
    return f"unknown measure {name!r}; {did_you_mean(name, filter(is_known, MEASURES), f'{listed}.')}"


def _decision_audits() -> Any:
    return import_module(DECISION_AUDITS)
