"""The templates of all pages: one environment, its filters, and what makes a hostile text harmless."""

from __future__ import annotations

import re
from typing import Any

from ..machine.disk import atomic
from ..machine.extras import check_installed
from ..machine.names import markdown_code, markdown_text
from ..machine.places import Place
from . import sentences

INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that reorder their neighbours: after U+202E in a name, 0.33 would read 33.0."""


def render(template: str, **values: Any) -> str:
    """A template of `templates/` with values; text in HTML is escaped, and characters that hide are named."""
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
    return environment.get_template(template).render(**values)


def write_page(kind: str, folder: Place, **shown: Any) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page. Both show the same values."""
    from .. import __version__

    check_installed("The report page", "jinja2")
    page = shown | {"version": __version__}
    texts = {name: render(f"{kind}.{ending}.jinja", page=page) for name, ending in (("report.md", "md"), ("index.html", "html"))}
    for name, text in texts.items():
        with atomic(folder / name) as stream:
            stream.write(text.encode())
    return folder / "index.html"


def show_invisible(text: str) -> str:
    """Text in which characters that hide or reorder others are named by their number."""
    return INVISIBLE.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)
