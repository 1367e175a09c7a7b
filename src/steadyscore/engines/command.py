"""A program as a scorer: one JSON line in, one JSON line out, and never the answer to another question.

Every question carries an `id`. A program whose answer returns it is kept running, and the id says which question a line
answers. A program that leaves it out is asked one question only: its input is closed, its output read to the end, and the
next question goes to a new process, so a line that comes late has nobody to reach.
"""

from __future__ import annotations

import json
import shlex
import shutil
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..collection.files import keys_once
from ..errors import InputError, UnusableScorer
from ..machine.console import say
from ..terms import JsonObject
from . import Address, Capabilities, EngineOptions, Kind, Listing, Reranker, ScorerFailed
from .answers import Malformed, number
from .program import Program, Running
from .python import named_files

SLOW = 1.0
"""Seconds from start to answer from which we say how a program that is started for every question can be kept running."""


class CommandReranker(Reranker):
    """A program that answers each line `{"id", "query", "candidates"}` on stdin with a line `{"id", "scores"}` on stdout.

    Whatever it does wrong ends its process and fails the query by name; the next query gets a new one.
    """

    def __init__(self, words: list[str], name: str, *, seconds: float = 300.0, watched: Sequence[str] = ()):
        self.words, self.name, self.seconds = words, name, seconds
        self.capabilities = Capabilities(gives="score")
        self._watched = tuple(watched)
        self._lock = threading.Lock()
        self._running = Running()
        self._returns_id = False
        self._noted = False
        weakref.finalize(self, self._running.close)

    def identity(self) -> JsonObject:
        return {"kind": "command", "program": self.words, "files": named_files(self._files())}

    def watch(self) -> dict[str, str]:
        """The files among its words, and what the user named."""
        return named_files([*self._files(), *self._watched])

    def _files(self) -> list[str]:
        return [word for word in self.words if Path(word).is_file()]

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        with self._lock:
            try:
                return self._ask(query, list(texts))
            except BaseException:  # also a stop by the user: what the program says next answers a question nobody waits for
                self._running.end()
                raise

    def _ask(self, query: str, texts: list[str]) -> list[float]:
        began, identifier = time.monotonic(), uuid.uuid4().hex
        line = self._answer(json.dumps({"id": identifier, "query": query, "candidates": texts}).encode() + b"\n")
        answer = self._read(line, identifier)
        scores = self._scores(answer["scores"], len(texts))
        if "id" in answer:
            self._returns_id = True
        else:
            self._finish(time.monotonic() - began)
        return scores

    def _answer(self, question: bytes) -> bytes:
        """One line, from the program that runs or from a new one."""
        deadline = time.monotonic() + self.seconds
        if (kept := self._running.program) is not None:
            if kept.is_waiting():
                raise self._failure("wrote to its output without being asked")
            if line := self._line(kept, question, deadline):
                return line
            self._running.end()  # it ended after its last answer, which is not this question's fault
        program = self._start()
        if line := self._line(program, question, deadline):
            return line
        raise self._failure(f"{program.ending()} instead of answering")

    def _line(self, program: Program, question: bytes, deadline: float) -> bytes:
        """The program's line, b"" where it closed its output without a byte; anything else is a failure."""
        try:
            line = program.ask(question, deadline)
        except TimeoutError:
            raise self._failure(f"did not answer within {self.seconds:g} s (timeout)") from None
        except ValueError as odd:
            raise self._failure(str(odd)) from None
        if line and not line.endswith(b"\n"):
            raise self._failure(f"{program.ending()} in the middle of its answer")
        return line

    def _read(self, line: bytes, identifier: str) -> dict[str, object]:
        """The object of a line that answers this question."""
        try:
            answer = json.loads(line, object_pairs_hook=keys_once)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict) or "scores" not in answer:
            raise self._failure(f'answered {_shorten(line)}, not {{"scores": [...]}}')
        if "id" in answer and answer["id"] != identifier:
            raise self._failure(f"answered with the id {_shorten(answer['id'])}, which is not the question's")
        if "id" not in answer and self._returns_id:
            raise self._failure("left out the id, which its earlier answers returned")
        return answer

    def _scores(self, scores: Any, count: int) -> list[float]:
        if not isinstance(scores, list):
            raise self._failure(f"gave {_shorten(scores)} as scores, not a list")
        if len(scores) != count:
            raise self._failure(f"gave {len(scores)} scores for {count} candidates")
        try:
            return [number(score, f"score {place}") for place, score in enumerate(scores, 1)]
        except (Malformed, OverflowError) as odd:
            raise self._failure(f"gave a score that cannot be used: {odd}") from None

    def _finish(self, seconds: float) -> None:
        """End the process of a program that does not return ids; a second line was its mistake."""
        program = self._running.program
        assert program is not None
        if program.finish():
            raise self._failure("wrote more than one line for one question")
        self._running.end()
        if seconds > SLOW and not self._noted:
            self._noted = True
            say(
                f'steadyscore: {self.name} leaves out the "id" of its questions, so it is started again for each one. '
                "Return the id in its answers and it is kept running."
            )

    def _start(self) -> Program:
        try:
            return self._running.start(self.words)
        except OSError as refusal:
            raise UnusableScorer(f"{self.words[0]} could not be started: {refusal.strerror}.") from refusal

    def _failure(self, what: str) -> ScorerFailed:
        """What the program did, with the last it wrote on stderr; its process is ended."""
        program = self._running.program
        self._running.end()
        complaint = program.complaint() if program else ""
        return ScorerFailed(f"{self.name} {what}" + (f"; last on its stderr: {complaint}" if complaint else ""))


def open_command(address: Address, options: EngineOptions) -> CommandReranker:
    """`<program> [arguments]`, split as a shell would; no shell runs it."""
    rest = address.rest
    try:
        words = shlex.split(rest)
    except ValueError as odd:
        raise InputError(f"command:{rest} cannot be split into words: {odd}.") from odd
    if not words:
        raise InputError("command: names no program. Write command:<program> [arguments].")
    if shutil.which(words[0]) is None:  # before a run folder is made for it
        raise UnusableScorer(f"{words[0]} could not be started: there is no such program, or it is not executable.")
    named_files(options.watch)  # a file that is not there is refused before anything is scored
    return CommandReranker(words, f"command:{rest}", seconds=options.timeout, watched=options.watch)


def _shorten(value: Any) -> str:
    text = value.decode(errors="replace").strip() if isinstance(value, bytes) else json.dumps(value)
    return repr(text[:80])


KINDS = (
    Kind("command", open_command, "pool", (Listing("command:<program>", "score"),), options=frozenset({"watch", "timeout"})),
)
