"""A child process that is asked line by line: bounded in time and memory, in a process group of its own, never left behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress

GRACE = 1.0
"""Seconds for a program to end by itself when its input is closed, and again when it is asked to."""
LONGEST_ANSWER = 16 * 2**20
"""Bytes of one line."""
KEPT = 2000
"""Bytes of stderr that are remembered."""
CHUNK = 1 << 16


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


class Guard:
    """A shell that waits for our end, however it comes, and ends the process group it was given last."""

    SCRIPT = 'while read -r line; do group=$line; done; [ -z "$group" ] || kill -s KILL -- "-$group"'

    def __init__(self) -> None:
        nowhere = subprocess.DEVNULL
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", self.SCRIPT], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, start_new_session=True
        )

    def hold(self, group: int | None) -> None:
        """From now on it is this group; None: no group."""
        assert self._shell.stdin
        with suppress(BrokenPipeError):
            self._shell.stdin.write(f"{group or ''}\n".encode())
            self._shell.stdin.flush()

    def close(self) -> None:
        assert self._shell.stdin
        with suppress(BrokenPipeError):
            self._shell.stdin.close()
        self._shell.wait()


class Running:
    """The process of a command, where there is one, and the guard that ends it with us."""

    def __init__(self) -> None:
        self.program: Program | None = None
        self._guard: Guard | None = None

    def start(self, words: list[str]) -> Program:
        self._guard = self._guard or Guard()
        self.program = Program(words)
        self._guard.hold(self.program.pid)
        return self.program

    def end(self) -> None:
        if self.program is not None:
            self.program.end()
            self.program = None
            if self._guard:
                self._guard.hold(None)

    def close(self) -> None:
        self.end()
        if self._guard:
            self._guard.close()


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
