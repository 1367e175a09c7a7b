"""The page of an attack: what was moved, by which words, and one query before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..audits.attack_result import HEADER, AttackAudit
from ..machine.extras import check_installed
from ..machine.places import Place
from ..measures.attacks import ATTACK_MEASURES
from ..scoring.attacks import ATTACKS, Wording
from ..tasks import TASKS
from .templating import write_page

LONGEST = 400
"""Characters shown of hostile words."""


@dataclass(frozen=True, slots=True)
class Words:
    """An attack as the page explains it."""

    name: str
    meaning: str
    text: str
    """What it says, in the paper's prompt; characters that cannot be seen are named."""


@dataclass(frozen=True, slots=True)
class Page:
    """Everything both templates show."""

    version: str
    header: tuple[str, ...]
    audit: AttackAudit
    rows: list[list[Any]]
    meanings: dict[str, str]
    attacks: list[Words]


def write_attack_report(audit: AttackAudit, folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    from .. import __version__

    check_installed("The report page", "jinja2")
    wording = Wording(TASKS[audit.task])
    attacks = [Words(name, ATTACKS[name].meaning, _visible(ATTACKS[name].words(wording))) for name in audit.effects]
    page = Page(__version__, HEADER, audit, audit.rows(), ATTACK_MEASURES, attacks)
    return write_page("attack", folder, page)


def _visible(text: str) -> str:
    """The beginning of a text, whose every character can be seen."""
    short = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "".join(c if c.isprintable() or c == "\n" else f"⟨U+{ord(c):04X}⟩" for c in short)
