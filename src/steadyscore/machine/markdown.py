"""Any text as Markdown that shows it as it is."""

from __future__ import annotations

import re

MARKUP = re.compile(r"[\\`*\[\]|~]|(?<!\w)_|_(?!\w)")
"""What Markdown takes for markup inside a line; an underscore within a word is none."""


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
