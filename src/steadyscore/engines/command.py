"""A program as a scorer: one JSON line in, one JSON line out, and never the answer to another question.

Every question carries an `id`. A program whose answer returns it is kept running, and the id says which question a line
answers. A program that leaves it out is asked one question only: its input is closed, its output read to the end, and the
next question goes to a new process, so a line that comes late has nobody to reach. The process is bounded in time and memory, in
a process group of its own, and never left behind.
"""

from __future__ import annotations

import json
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..collection.files import keys_once
from ..errors import InputError, UnusableScorer
from ..machine.console import say
from ..terms import JsonObject
from . import Address, Capabilities, EngineOptions, Kind, Listing, Reranker, ScorerFailed
from .answers import Malformed, number
from .python import named_files

SLOW = 1.0
"""Seconds from start to answer from which we say how a program that is started for every question can be kept running."""
GRACE = 1.0
"""Seconds for a program to end by itself when its input is closed, and again when it is asked to."""
LONGEST_ANSWER = 16 * 2**20
"""Bytes of one line."""
KEPT = 2000
"""Bytes of stderr that are remembered."""
CHUNK = 1 << 16


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


# -- its process


class Program:
    """One process with its three pipes. Nothing here blocks beyond the deadline it is given."""

    def __init__(self, words: list[str]):
        pipe = subprocess.PIPE
        # A session of its own: a Ctrl-C reaches us alone, and its children can be ended with it.
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True)
        assert self._process.stdin and self._process.stdout and self._process.stderr  # noqa: PT018
        self._stdin, self._stdout, self._stderr = self._process.stdin, self._process.stdout, self._process.stderr
        for stream in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(stream.fileno(), False)
        self._output = b""
        self._closed_output = False
        self._complaint = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_waiting(self) -> bool:
        """Whether there is output that nobody asked for."""
        self._read_output()
        return bool(self._output)

    def ask(self, question: bytes, deadline: float) -> bytes:
        """Send a line and take the line that follows; less than a line where the program closed its output.

        Raises TimeoutError at the deadline and ValueError for output that cannot be one answer to this question.
        """
        unsent = memoryview(question)

        def send() -> bool:
            nonlocal unsent
            with suppress(BlockingIOError):
                unsent = unsent[os.write(self._stdin.fileno(), unsent[:CHUNK]) :]
            return bool(unsent)

        self._exchange(deadline, lambda: b"\n" in self._output, send)
        line, end, rest = self._output.partition(b"\n")
        if rest:
            raise ValueError("wrote more than one line for one question")
        if line and end and unsent:
            raise ValueError("answered before it had read the question")
        self._output = b""
        return line + end

    def finish(self) -> bytes:
        """Close its input and read what else it writes until it closes its output, for a moment."""
        self._stdin.close()
        with suppress(TimeoutError, ValueError):
            self._exchange(time.monotonic() + GRACE, lambda: False)
        return self._output

    def _exchange(self, deadline: float, is_done: Callable[[], bool], send: Callable[[], bool] | None = None) -> None:
        """Read both outputs, and send while there is something to send, until it is done or its output is closed."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stdout, selectors.EVENT_READ, self._read_output)
            selector.register(self._stderr, selectors.EVENT_READ, self._read_complaint)
            if send:
                selector.register(self._stdin, selectors.EVENT_WRITE, send)
            while not (is_done() or self._closed_output):
                if (left := deadline - time.monotonic()) <= 0:
                    raise TimeoutError
                for key, _ in selector.select(left):
                    if not _goes_on(key.data):
                        selector.unregister(key.fileobj)
                if len(self._output) > LONGEST_ANSWER:
                    raise ValueError(f"wrote more than {LONGEST_ANSWER:,} bytes")

    def _read_output(self) -> bool:
        chunk = _available(self._stdout.fileno())
        self._closed_output = chunk == b""
        self._output += chunk or b""
        return chunk != b""

    def _read_complaint(self) -> bool:
        """Show what the program writes on stderr, as it comes, and remember the end of it."""
        chunk = _available(self._stderr.fileno())
        if chunk:
            self._complaint = (self._complaint + chunk)[-KEPT:]
            with suppress(OSError):
                os.write(2, chunk)
        return chunk != b""

    def complaint(self) -> str:
        """The last lines that it wrote on stderr, as one."""
        lines = [line.strip() for line in self._complaint.decode(errors="replace").splitlines() if line.strip()]
        return " | ".join(lines[-3:])[-400:]

    def ending(self) -> str:
        """How a program that closed its output ended, if it did."""
        try:
            code = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "closed its output and stayed"
        return f"ended with code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    def end(self) -> None:
        """End it and whatever it started: asked first, then forced."""
        self._stdin.close()
        _signal_group(self.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE)
        _signal_group(self.pid, signal.SIGKILL)
        self._process.wait()
        while self._read_complaint_left():
            pass
        self._stdout.close()
        self._stderr.close()

    def _read_complaint_left(self) -> bool:
        before = self._complaint
        return self._read_complaint() and self._complaint != before


class Running:
    """The process of a command, where there is one, and a shell that waits for our end, however it comes, and ends it with us."""

    GUARD = 'while read -r line; do group=$line; done; [ -z "$group" ] || kill -s KILL -- "-$group"'

    def __init__(self) -> None:
        self.program: Program | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def start(self, words: list[str]) -> Program:
        if self._guard is None:
            nowhere, guard = subprocess.DEVNULL, ["/bin/sh", "-c", self.GUARD]
            self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True)
        self.program = Program(words)
        self._tell_guard(f"{self.program.pid}\n")
        return self.program

    def end(self) -> None:
        if self.program is not None:
            self.program.end()
            self.program = None
            self._tell_guard("\n")

    def _tell_guard(self, group: str) -> None:
        """A line with the process group to end with us; an empty one: none."""
        assert self._guard
        assert self._guard.stdin
        with suppress(BrokenPipeError):
            self._guard.stdin.write(group.encode())
            self._guard.stdin.flush()

    def close(self) -> None:
        self.end()
        if self._guard:
            self._guard.communicate()


def _goes_on(act: Callable[[], bool]) -> bool:
    try:
        return act()
    except BrokenPipeError:  # it closed its input; what it wrote is still read
        return False


def _available(descriptor: int) -> bytes | None:
    """What can be read at once: b"" at the end, None where there is nothing yet."""
    try:
        return os.read(descriptor, CHUNK)
    except BlockingIOError:
        return None


def _signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it is gone; macOS says the second of a group of ended processes
        os.killpg(group, number)


KINDS = (
    Kind("command", open_command, "pool", (Listing("command:<program>", "score"),), options=frozenset({"watch", "timeout"})),
)
