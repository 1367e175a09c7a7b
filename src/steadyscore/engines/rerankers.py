"""What users already run: a Python function, or a program that reads and writes JSON lines."""

from __future__ import annotations

import importlib
import inspect
import json
import shlex
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..disk import sha256
from ..errors import InputError
from . import Capabilities, EngineOptions


class PythonReranker:
    """`def score(query: str, candidates: list[str]) -> list[float]`, addressed as `python:module:function`."""

    def __init__(self, function: Callable[[str, list[str]], Sequence[float]], name: str):
        self.function, self.name = function, name
        self.capabilities = Capabilities(gives="score")

    def identity(self) -> dict[str, Any]:
        try:
            source = inspect.getsource(self.function)
        except (OSError, TypeError):
            source = ""
        return {"kind": "python", "function": self.name, "source": source}

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        return self.function(query, list(texts))


def open_python(rest: str, options: EngineOptions) -> PythonReranker:
    module_name, _, function_name = rest.partition(":")
    if not function_name:
        raise InputError(f"python:{rest} names no function. Write python:<module>:<function>.")
    if (here := str(Path.cwd())) not in sys.path:  # a user's own file, beside them
        sys.path.insert(0, here)
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (Exception, SystemExit) as fault:  # a user's module may do anything at its top
        raise InputError(f"python:{rest} could not be imported: {_told(fault)}. Mend it, or name another function.") from fault
    if not callable(function):
        raise InputError(f"python:{rest} cannot score: {function_name!r} is no function. Mend it, or name another function.")
    return PythonReranker(function, f"python:{rest}")


def _told(fault: BaseException) -> str:
    """What stopped an import, behind the line of the module that it stopped at."""
    if isinstance(fault, SyntaxError):
        place, what = [f"{fault.filename}, line {fault.lineno}: "], fault.msg
    else:
        tops = [frame for frame in traceback.extract_tb(fault.__traceback__) if frame.name == "<module>"]
        place, what = [f"{frame.filename}, line {frame.lineno}: " for frame in tops[-1:]], str(fault)
    return "".join(place) + f"{type(fault).__name__}: {' '.join(what.split())}"


class CommandReranker:
    """A program that answers each line `{"query", "candidates"}` on stdin with a line `{"scores"}` on stdout.

    It is started once and kept; one that ends is started again for the next query. What it says on stderr is shown.
    """

    def __init__(self, words: list[str], name: str):
        self.words, self.name = words, name
        self.capabilities = Capabilities(gives="score")
        self._process: subprocess.Popen[str] | None = None

    def identity(self) -> dict[str, Any]:
        files = {word: sha256(Path(word))[:16] for word in self.words if Path(word).is_file()}
        return {"kind": "command", "program": self.words, "files": files}

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        process = self._running()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"query": query, "candidates": list(texts)}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = process.wait()
            raise RuntimeError(f"{self.name} ended with code {code} instead of answering")
        try:
            return list(json.loads(line)["scores"])
        except (ValueError, KeyError, TypeError) as odd:
            raise RuntimeError(f'{self.name} answered {line.strip()[:80]!r}, not {{"scores": [...]}}') from odd

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            try:
                self._process = subprocess.Popen(self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            except OSError as refusal:
                raise InputError(f"{self.words[0]} could not be started: {refusal.strerror}.") from refusal
            weakref.finalize(self, _end, self._process)
        return self._process


def open_command(rest: str, options: EngineOptions) -> CommandReranker:
    """`<program> [arguments]`, split as a shell would; no shell runs it."""
    try:
        words = shlex.split(rest)
    except ValueError as odd:
        raise InputError(f"command:{rest} cannot be split into words: {odd}.") from odd
    if not words:
        raise InputError("command: names no program. Write command:<program> [arguments].")
    return CommandReranker(words, f"command:{rest}")


def _end(process: subprocess.Popen[str]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
    process.terminate()
    process.wait()
