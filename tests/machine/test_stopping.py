"""A stop waits for the piece of work at hand, once."""

import os
import signal
import threading
import time

import pytest

from steadyscore.machine import process
from steadyscore.machine.process import STOPS, finishing


@pytest.fixture(autouse=True)
def raising_handlers():
    """Every stop raises, as under the command line."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in STOPS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def stop_in_the_middle(done, *numbers):
    with finishing("query q7"):
        for number in numbers:
            os.kill(os.getpid(), number)
        done.append("rest of the block")


@pytest.mark.parametrize("number", STOPS)
def test_the_block_ends_before_the_stop(number, capsys):
    done = []
    with pytest.raises(KeyboardInterrupt):
        stop_in_the_middle(done, number)
    assert done == ["rest of the block"]
    assert capsys.readouterr().err == "stopping after query q7, or in 10 s; a second signal stops at once\n"
    assert signal.getsignal(number) is signal.default_int_handler


def test_work_that_does_not_end_is_left_after_a_while(monkeypatch):
    monkeypatch.setattr(process, "PATIENCE", 0.1)
    done = []

    def hang():
        with finishing("query q7"):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
            done.append("waited for")

    with pytest.raises(KeyboardInterrupt):
        hang()
    assert done == []


def test_a_second_one_stops_at_once():
    done = []
    with pytest.raises(KeyboardInterrupt):
        stop_in_the_middle(done, signal.SIGTERM, signal.SIGINT)
    assert done == []


def test_an_ignored_signal_stays_ignored_and_handlers_are_put_back():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with finishing("it"):
        os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_other_threads_are_left_alone():
    done = []

    def work():
        with finishing("it"):
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


def test_a_host_s_handler_that_returns_lets_the_block_end():
    heard, done = [], []
    before = signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        stop_in_the_middle(done, signal.SIGTERM, signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done == ["rest of the block"]
    assert heard == [signal.SIGTERM] * 2
