"""The terminal: stdout carries results and nothing else, and what came from outside is shown there and never obeyed.

Progress of long work goes to stderr: a bar on a terminal or in a notebook; where there is neither, a line a minute. The lines
come from a thread of their own, so they also come while one query or one training step takes ten minutes.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TextIO, TypeVar

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


# -- progress

INTERVAL = 60.0
"""Seconds between two lines."""
FIRST = 5.0
"""Seconds until the first line: work that ends sooner says nothing."""

PLURALS = {"query": "queries", "microbatch": "microbatches"}

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Job:
    """A piece of long work: what it is and how far it is."""

    what: str
    total: int | None = None
    unit: str = "query"
    initial: int = 0
    """Units that were done before it began."""
    is_part: bool = False
    """Whether it is one unit of the job around it; their places are then said together."""
    remark: str = ""
    about: Callable[[], str] = lambda: ""
    """What is true of the work now, such as what it waits for; empty where there is nothing to say."""
    count: int = field(init=False)
    began: float = field(default_factory=time.monotonic)
    bar: Any = None

    def __post_init__(self) -> None:
        self.what, self.count = one_line(self.what), self.initial

    def advance(self, count: int = 1, remark: str = "") -> None:
        self.count += count
        self.remark = one_line(remark) or self.remark
        if self.bar is not None:
            self.bar.set_postfix_str(self.remark or self.about(), refresh=False)
            self.bar.update(count)


@contextmanager
def job(
    what: str,
    total: int | None = None,
    unit: str = "query",
    *,
    initial: int = 0,
    is_part: bool = False,
    hidden: bool = False,
    at_once: bool = False,
) -> Iterator[Job]:
    """Show a job while the block runs, which calls `advance`; without a unit there is nothing to count, and no bar.

    `at_once`: its first line comes immediately.
    """
    begun = Job(what, total, unit, initial, is_part)
    if hidden or (has_bar() and not unit):
        yield begun
    elif has_bar():
        with _bar(begun):
            yield begun
    else:
        with _lines.telling(begun, at_once):
            yield begun


def bar(description: str, quiet: bool = False, unit: str = "query") -> Callable[[Iterable[T], int | None], Iterator[T]]:
    """Progress over items and their number, with what `items.about()` says where they have it; none with `quiet`."""

    def wrap(items: Iterable[T], total: int | None) -> Iterator[T]:
        with job(description, total, unit, hidden=quiet) as work:
            work.about = getattr(items, "about", work.about)
            for item in items:
                yield item
                work.advance()

    return wrap


# -- as a bar


def has_bar() -> bool:
    """Whether progress is a bar here, and not lines."""
    return sys.stderr.isatty() or _in_notebook()


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel; a shell of IPython is a terminal."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell"


@contextmanager
def _bar(work: Job) -> Iterator[None]:
    if _in_notebook() and find_spec("ipywidgets"):  # without widgets tqdm warns, and the bar of a terminal does as well
        from tqdm.notebook import tqdm
    else:
        from tqdm import tqdm
    how: dict[str, Any] = {"leave": False, "delay": 2} if work.is_part else {}
    work.bar = tqdm(
        total=work.total, initial=work.initial, desc=work.what or None, unit=f" {plural(work.unit)}", file=sys.stderr, **how
    )
    try:
        yield
    finally:
        work.bar.close()


# -- as lines


class _Lines:
    """The jobs under way, and the thread that tells of the innermost one."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._lock = threading.RLock()  # an abandoned iterator ends its job when it is collected: in any thread, at any moment
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @contextmanager
    def telling(self, work: Job, at_once: bool) -> Iterator[None]:
        with self._lock:
            self._jobs.append(work)
            if len(self._jobs) == 1:
                self._start(at_once)
        try:
            yield
        finally:
            with self._lock:
                self._jobs.remove(work)
                thread = None if self._jobs else self._thread
                if thread is not None:
                    self._stop.set()
            if thread is not None and thread is not threading.current_thread():
                thread.join()

    def _start(self, at_once: bool) -> None:
        if at_once:
            self._tell()
        self._stop = threading.Event()
        how = (self._stop, INTERVAL if at_once else FIRST)
        self._thread = threading.Thread(target=self._keep_telling, args=how, name="progress", daemon=True)
        self._thread.start()

    def _keep_telling(self, stop: threading.Event, wait: float) -> None:
        while not stop.wait(wait):
            self._tell()
            wait = INTERVAL

    def _tell(self) -> None:
        with self._lock:
            chain = innermost_jobs(self._jobs)
        if chain:
            say(f"steadyscore: {progress_line(chain, time.monotonic())}")


_lines = _Lines()


def innermost_jobs(jobs: Sequence[Job]) -> list[Job]:
    """The innermost job, after the one that it is a part of."""
    return list(jobs[-2:] if jobs and jobs[-1].is_part else jobs[-1:])


def progress_line(chain: Sequence[Job], now: float) -> str:
    """What is being done, how far it is, its rate and the time left: of the innermost job, inside those it is a part of."""
    outer, inner = chain[0], chain[-1]
    places = [f"{job.unit} {job.count + 1} of {job.total}" for job in chain[:-1]]
    parts = [*places, _place(inner, len(chain) > 1), *_pace(chain, now), outer.remark, inner.about()]
    text = ", ".join(filter(None, parts))
    return f"{outer.what}: {text}" if text else outer.what


def _place(work: Job, is_inside: bool) -> str:
    if work.total is None:
        return f"{work.count:,} {plural(work.unit)}" if work.count else ""
    return f"{work.unit} {work.count} of {work.total}" if is_inside else f"{work.count:,} of {work.total:,} {plural(work.unit)}"


def _pace(chain: Sequence[Job], now: float) -> list[str]:
    outer, inner = chain[0], chain[-1]
    spent, gained = now - outer.began, inner.count - inner.initial
    parts = [_rate(60 * gained / (now - inner.began))] if gained and now > inner.began else []
    done = outer.count - outer.initial + (0.0 if inner is outer else gained / max(inner.total or 1, 1))
    if outer.total is not None and done:
        parts.append(f"about {duration(spent * max(outer.total - outer.initial - done, 0) / done)} left")
    elif spent >= 60 and not gained:
        parts.append(f"{duration(spent)} so far")
    return parts


def _rate(a_minute: float) -> str:
    if a_minute < 1:
        return f"one in {duration(60 / a_minute)}"
    return f"{a_minute:,.0f} a minute" if a_minute >= 10 else f"{a_minute:.1f} a minute"


def duration(seconds: float) -> str:
    """A time as one says it: 40 s, 14 min, 3 h 20 min."""
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{round(seconds)} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def plural(unit: str) -> str:
    return PLURALS.get(unit, f"{unit}s")
