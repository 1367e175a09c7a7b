"""The report: audits to one self-contained page and its Markdown twin. No model is needed.

The page states first what reordering does to decisions, then the table, then one query where it can be seen, then the
figures, every measure, and what was measured. It holds no script and loads nothing, which its own content policy enforces.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..audits.first_stage import NAME as FIRST_STAGE
from ..audits.names import with_distinct_names
from ..audits.result import Audit
from ..audits.table import CHANCE
from ..errors import InputError
from ..machine.extras import PAGE, check_installed
from ..machine.places import Place
from .figures import Style, choose_styles
from .section import Cell, Section, make_section
from .settings import describe_left_out, describe_settings
from .templating import write_page


@dataclass(frozen=True, slots=True)
class TableRow:
    """A scorer in the first table, or what it is read against: its cells on every collection."""

    name: str
    cells: list[list[Cell | None]]
    is_baseline: bool = False


@dataclass(frozen=True, slots=True)
class RunNotes:
    """How a run was made."""

    name: str
    collection: str
    settings: list[tuple[str, str]]
    left_out: list[str]
    command: str


@dataclass(frozen=True, slots=True)
class Page:
    """Everything both templates show."""

    version: str
    styles: dict[str, Style]
    collections: list[Section]
    table: list[TableRow]
    has_floor: bool
    has_lead: bool
    runs: list[RunNotes]


def write_report(audits: Sequence[Audit], folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no run was given to report. Name at least one run folder.")
    check_installed("The report page", *PAGE)
    return write_page("report", folder, _make_page(with_distinct_names(audits)))


def _make_page(audits: Sequence[Audit]) -> Page:
    from .. import __version__

    names = list(dict.fromkeys(audit.name for audit in audits))
    styles = choose_styles(names)
    by_collection: dict[str, list[Audit]] = {}
    for audit in audits:
        by_collection.setdefault(audit.collection, []).append(audit)
    sections = [make_section(members, styles) for members in by_collection.values()]
    return Page(
        version=__version__,
        styles=styles,
        collections=sections,
        table=[
            *(
                TableRow(name, [section.baseline(name) for section in sections], is_baseline=True)
                for name in (FIRST_STAGE, CHANCE)
                if any(name in section.baselines for section in sections)
            ),
            *(TableRow(name, [section.row(name) for section in sections]) for name in names),
        ],
        has_floor=any(figure.floor is not None for audit in audits for figure in audit.figures.values()),
        has_lead=any(cell.leads for section in sections for row in section.cells.values() for cell in row if cell),
        runs=[_make_notes(audit) for audit in audits],
    )


def _make_notes(audit: Audit) -> RunNotes:
    command = shlex.join(audit.record.get("command") or [])
    return RunNotes(audit.name, audit.collection, describe_settings(audit), describe_left_out(audit), command)
