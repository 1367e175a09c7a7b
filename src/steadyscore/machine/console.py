"""The terminal: stdout carries results and nothing else, and what came from outside is shown there and never obeyed."""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What a terminal obeys instead of showing it, but for tabs and line ends."""


def harmless(text: str) -> str:
    """A text with such characters written as JSON writes them, so that JSON stays what it is."""
    return CONTROL.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def one_line(words: str) -> str:
    """What somebody else said, to be quoted in a sentence."""
    return harmless(" ".join(words.split()))


def say(text: str) -> None:
    """A remark or an error, on stderr. Its further lines are indented: none can pass for a message of its own."""
    print(harmless(text).replace("\n", "\n  "), file=sys.stderr, flush=True)


class _Foreign(threading.local):
    depth = 0
    """How many calls of somebody else's code this thread is inside."""


_foreign = _Foreign()


class _Stdout:
    """Stands for `sys.stdout` and chooses at every use: the commands' own stream, or stderr for foreign code and its threads."""

    def __init__(self, results: TextIO):
        self._results = results

    def _stream(self) -> TextIO:
        is_ours = threading.current_thread() is threading.main_thread() and not _foreign.depth
        return self._results if is_ours else sys.stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    def write(self, text: str) -> int:
        stream = self._stream()
        return stream.write(harmless(text) if stream is self._results and stream.isatty() else text)


@contextmanager
def foreign_code() -> Iterator[None]:
    """Inside, this thread runs code that is not ours."""
    _foreign.depth += 1
    try:
        yield
    finally:
        _foreign.depth -= 1


@contextmanager
def results_only() -> Iterator[None]:
    """Until it ends, stdout takes what the main thread prints outside `foreign_code`; all else goes to stderr."""
    with _separate_stdout(sys.stdout) as results, redirect_stdout(_Stdout(results)):
        yield


@contextmanager
def _separate_stdout(stdout: TextIO) -> Iterator[TextIO]:
    """stdout through a descriptor of its own, while descriptor 1, which libraries and child processes write to, is stderr's."""
    if not _is_descriptor(stdout, 1) or not _is_descriptor(sys.stderr, 2):  # captured by a test or a notebook
        yield stdout
        return
    stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with open(kept, "w", encoding=stdout.encoding, errors=stdout.errors, closefd=False) as results:
            yield results
    finally:
        stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def _is_descriptor(stream: TextIO, number: int) -> bool:
    try:
        return stream.fileno() == number
    except (AttributeError, OSError, ValueError):  # no file behind it, or closed
        return False
