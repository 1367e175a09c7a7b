"""The report: audits to one self-contained page and its Markdown twin. No model is needed.

The page states first what reordering does to decisions, then shows one query where it can be seen, a table per collection,
the figures, and how the runs were made. It holds no script and loads nothing, which its own content policy enforces.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..machine.extras import PAGE, check_installed
from ..machine.places import Place
from ..results.audit import Audit
from ..results.names import with_distinct_names
from ..results.screen import by_collection
from .figures import Style, choose_styles
from .section import Section, make_section
from .settings import describe_settings
from .templating import write_page


@dataclass(frozen=True, slots=True)
class Page:
    """Everything both templates show."""

    version: str
    styles: dict[str, Style]
    collections: list[Section]
    runs: list[tuple[Audit, list[tuple[str, str]], str]]
    """Each run, how it was made as (term, text), and the command."""


def write_report(audits: Sequence[Audit], folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no run was given to report. Name at least one run folder.")
    check_installed("The report page", *PAGE)
    return write_page("report", folder, _make_page(with_distinct_names(audits)))


def _make_page(audits: Sequence[Audit]) -> Page:
    from .. import __version__

    styles = choose_styles(list(dict.fromkeys(audit.name for audit in audits)))
    return Page(
        version=__version__,
        styles=styles,
        collections=[make_section(members, styles) for members in by_collection(audits)],
        runs=[(audit, describe_settings(audit), shlex.join(audit.record.command)) for audit in audits],
    )
