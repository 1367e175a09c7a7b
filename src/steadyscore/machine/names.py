"""Names as files (on one level, visible, of characters that every file system takes) and as Markdown, names that tell several
apart, the name that was meant, and what a REPL shows of a value."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
"""What Windows takes for a device, whatever the ending."""
PLAIN_RULE = "up to 100 letters, digits, dots, dashes and underscores, and a letter or digit first"


def is_plain_name(name: str) -> bool:
    """Whether a name can be that of a file as it is, and then leads nowhere else."""
    return bool(PLAIN.fullmatch(name)) and not DEVICE.fullmatch(name) and not name.endswith(".")


def slug(name: str) -> str:
    """Any name as that of a folder."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name)[-80:].strip("-.") or "run"
    return f"run-{plain}" if DEVICE.fullmatch(plain) else plain


def without_common(names: Sequence[Sequence[str]]) -> Sequence[Sequence[str]]:
    """Names in parts, each without those that all begin with and those that all end with."""
    for _ in ("beginnings", "ends"):
        while all(names) and len({name[0] for name in names}) == 1:
            names = [name[1:] for name in names]
        names = [name[::-1] for name in names]
    return names


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None where none is like it."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1)), None)


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """The question with the known name that is nearest; another sentence where none is near."""
    near = nearest(word, known)
    return f"did you mean {near}?" if near else otherwise


def no_such(what: str, word: str, known: Iterable[str]) -> KeyError:
    """What looking up a name that does not exist raises: it says which one was probably meant."""
    names = list(known)
    return KeyError(f"no {what} {word}; " + did_you_mean(word, names, f"there are {', '.join(names)}"))


LONGEST_REPR = 200


def short_repr(value: object, words: str) -> str:
    """What a REPL shows of a result: its kind and some words on one line; `print` shows the whole."""
    return shorten(f"<{type(value).__name__} {' '.join(words.split())}", LONGEST_REPR - 1) + ">"


def shorten(text: str, most: int, end: str = "…") -> str:
    """The beginning of a text, where it has more than so many characters."""
    return text if len(text) <= most else text[: most - len(end)] + end


# -- as Markdown

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
