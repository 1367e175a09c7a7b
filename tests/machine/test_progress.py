"""Long work says how far it is: a bar on a terminal and in a notebook, a line a minute elsewhere."""

from __future__ import annotations

import io
import sys
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.machine import console
from steadyscore.machine.console import Job, bar, duration, innermost_jobs, job, progress_line


class Written(io.StringIO):
    """A stream that wakes who waits for lines."""

    def __init__(self, is_terminal: bool = False):
        super().__init__()
        self.is_terminal, self.changed = is_terminal, threading.Condition()

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        with self.changed:
            self.changed.notify_all()
            return super().write(text)

    def wait_for(self, text: str, times: int = 1) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.getvalue().count(text) >= times, timeout=120), self.getvalue()


@pytest.fixture
def stderr(monkeypatch):
    """Not a terminal, and a minute that takes two hundredths of a second."""
    written = Written()
    # Its own name for `sys`: pytest changes the real stderr between a fixture and its test.
    monkeypatch.setattr(console, "sys", types.SimpleNamespace(stderr=written, modules=sys.modules))
    monkeypatch.setattr(console, "INTERVAL", 0.02)
    monkeypatch.setattr(console, "FIRST", 0.01)
    monkeypatch.setattr(console, "_lines", console._Lines())  # nobody else's jobs
    return written


def begun(count, total, unit="query", what="smollm2-135m on passages", seconds=0.0, **how) -> Job:
    work = Job(what, total, unit, **how)
    work.began, work.count = -seconds, work.initial + count
    return work


def test_a_line_says_what_how_far_rate_and_time_left():
    work = begun(12, 54, seconds=12 / 3.1 * 60)
    assert progress_line([work], 0.0) == "smollm2-135m on passages: 12 of 54 queries, 3.1 a minute, about 14 min left"


def test_a_step_is_told_with_its_microbatch_and_the_time_that_all_steps_will_take():
    steps = begun(0, 2, "step", "training", seconds=60.0)
    parts = begun(16, 64, "microbatch", "", seconds=60.0, is_part=True)
    assert progress_line([steps, parts], 0.0) == "training: step 1 of 2, microbatch 16 of 64, 16 a minute, about 7 min left"


def test_work_of_which_nothing_is_done_yet_says_how_long_it_takes_already():
    assert progress_line([begun(0, 54, seconds=600.0)], 0.0) == "smollm2-135m on passages: 0 of 54 queries, 10 min so far"
    assert progress_line([begun(0, None, "", "loading it", seconds=90.0)], 0.0) == "loading it: 2 min so far"
    assert progress_line([begun(0, None, "", "loading it")], 0.0) == "loading it"


def test_a_slow_rate_is_said_as_the_time_of_one():
    assert (
        progress_line([begun(2, 4, seconds=1200.0)], 0.0)
        == "smollm2-135m on passages: 2 of 4 queries, one in 10 min, about 20 min left"
    )


def test_what_was_done_before_is_in_the_place_but_not_in_the_rate():
    work = begun(10, 100, "step", "training", seconds=600.0, initial=50)
    assert progress_line([work], 0.0) == "training: 60 of 100 steps, 1.0 a minute, about 40 min left"


@given(st.integers(0, 70), st.integers(0, 64), st.integers(1, 70), st.floats(0, 1e7), st.booleans())
def test_any_state_makes_one_line_without_a_negative_time(count, part, total, seconds, is_nested):
    chain = [begun(count, total, "step", "training", seconds)]
    if is_nested:
        chain.append(begun(part, 64, "microbatch", "", seconds / 2, is_part=True))
    said = progress_line(chain, 0.0)
    assert "\n" not in said
    assert "-" not in said


def test_an_evaluation_inside_training_is_told_alone_and_a_part_with_its_whole():
    steps, part, aside = Job("training", 2, "step"), Job("", 4, "microbatch", is_part=True), Job("evaluation", 9, "window")
    assert innermost_jobs([steps, part]) == [steps, part]
    assert innermost_jobs([steps, aside]) == [aside]
    assert innermost_jobs([]) == []


def test_one_slow_query_is_told_of_again_and_again(stderr):
    for _ in bar("slow on passages")(["one"], 1):
        stderr.wait_for("steadyscore: slow on passages: 0 of 1 queries", times=3)
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_after_the_work_no_line_comes(stderr):
    with job("some work", 3):
        stderr.wait_for("some work")
    said = stderr.getvalue()
    with job("other work", 3):
        stderr.wait_for("other work", times=3)
    assert stderr.getvalue().removeprefix(said).count("some work") == 0


def test_an_iterator_that_is_left_early_ends_its_job(stderr):
    items = bar("left early")(range(9), 9)
    next(iter(items))
    items.close()
    assert not any(thread.name == "progress" for thread in threading.enumerate())


def test_short_work_says_nothing_and_long_work_that_is_announced_says_so_at_once(stderr, monkeypatch):
    monkeypatch.setattr(console, "FIRST", 600.0)
    monkeypatch.setattr(console, "INTERVAL", 600.0)
    assert list(bar("short")(range(3), 3)) == [0, 1, 2]
    assert stderr.getvalue() == ""
    with job("loading a base", unit="", at_once=True):
        assert stderr.getvalue() == "steadyscore: loading a base\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_quiet_says_nothing(stderr, is_terminal, monkeypatch):
    monkeypatch.setattr(console, "FIRST", 0.0)
    stderr.is_terminal = is_terminal
    for _ in bar("counted", quiet=True)(["one"], 1):
        assert not any(thread.name == "progress" for thread in threading.enumerate())
    assert stderr.getvalue() == ""


def test_a_terminal_has_a_bar_and_no_thread_of_lines(stderr):
    stderr.is_terminal = True
    for _ in bar("on a terminal")(range(3), 3):
        assert not any(thread.name == "progress" for thread in threading.enumerate())
    assert "on a terminal: 100%" in stderr.getvalue()
    assert "3/3" in stderr.getvalue()
    assert "steadyscore:" not in stderr.getvalue()


@pytest.mark.parametrize("has_widgets", [True, False])
def test_a_notebook_has_a_bar_of_widgets_where_they_are_installed_and_else_that_of_a_terminal(has_widgets, stderr, monkeypatch):
    import tqdm.notebook

    seen = []

    class Bar(tqdm.tqdm):
        def __init__(self, **how):
            seen.append(how["desc"])
            super().__init__(**how)

    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setattr("steadyscore.machine.console.find_spec", lambda name: has_widgets or None)
    monkeypatch.setattr(tqdm.notebook, "tqdm", Bar)
    assert list(bar("in a notebook")(range(3), 3)) == [0, 1, 2]
    assert seen == ["in a notebook"] * has_widgets
    assert "3/3" in stderr.getvalue()


def test_a_hidden_job_counts_and_shows_nothing(stderr):
    with job("on another process", 3, hidden=True) as work:
        work.advance(2)
    assert (work.count, stderr.getvalue()) == (2, "")


@pytest.mark.parametrize(("seconds", "said"), [(40, "40 s"), (840, "14 min"), (12_000, "3 h 20 min")])
def test_durations_are_said_as_one_says_them(seconds, said):
    assert duration(seconds) == said
