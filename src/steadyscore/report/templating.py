"""The templates of all pages: one environment, its filters, and what makes a hostile text harmless."""

from __future__ import annotations

import re
from typing import Any

from . import sentences

INVISIBLE = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that reorder what stands beside them: after U+202E in a name, 0.33 would read 33.0."""
MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
"""What Markdown takes for markup inside a line; an underscore within a word is none."""


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
