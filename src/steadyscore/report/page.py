"""The report: audits to one self-contained page and its Markdown twin. No model is needed.

The page states first what reordering does to decisions, then the table, then one query where it can be seen, then the
figures, every measure, and what was measured. It holds no script and loads nothing, which its own content policy enforces.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..audits.names import with_distinct_names
from ..audits.result import Audit
from ..errors import InputError
from ..machine.disk import atomic
from ..machine.extras import PAGE, check_installed
from . import sentences
from .figures import Style, choose_styles
from .section import Cell, Section, make_section
from .settings import describe_left_out, describe_settings

INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that reorder what stands beside them: after U+202E in a name, 0.33 would read 33.0."""
MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
"""What Markdown takes for markup inside a line; an underscore within a word is none."""


@dataclass(frozen=True, slots=True)
class TableRow:
    """A scorer in the first table: its cells on every collection."""

    name: str
    cells: list[list[Cell | None]]


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


def write_report(audits: Sequence[Audit], folder: Path) -> Path:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not audits:
        raise InputError("no run was given to report. Name at least one run folder.")
    check_installed("The report page", *PAGE)
    page = _make_page(with_distinct_names(audits))
    html, markdown = (render(name, page) for name in ("report.html.jinja", "report.md.jinja"))
    for name, text in (("report.md", markdown), ("index.html", html)):
        with atomic(folder / name) as stream:
            stream.write(text.encode())
    return folder / "index.html"


def render(template: str, page: Any) -> str:
    """A page by its template; what a text holds cannot act as markup."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("steadyscore.report", "templates"),
        autoescape=lambda name: ".html" in (name or ""),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=lambda value: type(value)(show_invisible(value)) if isinstance(value, str) else value,
    )
    environment.filters |= {
        "fixed": sentences.format_number,
        "percent": lambda share: "–" if share is None else sentences.percent(share),
        "plain": markdown_text,
        "code": markdown_code,
        "tied": lambda text: text.replace(" %", "\u00a0%"),
    }
    return environment.get_template(template).render(page=page)


def show_invisible(text: str) -> str:
    """Text in which characters that hide or reorder others are named by their number."""
    return INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def markdown_text(text: str) -> str:
    """Text that Markdown shows as it is: on one line, without markup, links, images or table cells of its own."""
    line = MARKUP.sub(r"\\\g<0>", " ".join(text.split()))
    return re.sub(r"&(?=#?\w+;)", "&amp;", line).replace("<", "&lt;")


def markdown_code(text: str) -> str:
    """A line of code: fenced by more backticks than it holds in a row."""
    line = " ".join(text.splitlines())
    if "`" not in line:
        return f"`{line}`"
    fence = "`" * (max(map(len, re.findall("`+", line))) + 1)
    return f"{fence} {line} {fence}"


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
        table=[TableRow(name, [section.row(name) for section in sections]) for name in names],
        has_floor=any(figure.floor is not None for audit in audits for figure in audit.figures.values()),
        has_lead=any(cell.leads for section in sections for row in section.cells.values() for cell in row if cell),
        runs=[_make_notes(audit) for audit in audits],
    )


def _make_notes(audit: Audit) -> RunNotes:
    command = shlex.join(audit.record.get("command") or [])
    return RunNotes(audit.name, audit.collection, describe_settings(audit), describe_left_out(audit), command)
