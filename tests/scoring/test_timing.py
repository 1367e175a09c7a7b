"""Timing: warm, one at a time, rotating; medians, with a clock of the test."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.engines.python import PythonReranker
from steadyscore.errors import InputError
from steadyscore.measures.intervals import median_interval
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.estimate import query_seconds, read_timings, time_requests, write_timings
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from tests.helpers.pools import some_instances, write_collection


@pytest.fixture
def source(tmp_path):
    return open_collection(str(write_collection(tmp_path / "c.jsonl", some_instances(queries=3, candidates=6))))


class Clock:
    """A clock that a request moves by a second per call of the scorer."""

    def __init__(self):
        self.now, self.seen = 0.0, []

    def score(self, query, texts):
        self.now += 1.0
        self.seen.append(len(texts))
        return [0.0] * len(texts)

    def __call__(self):
        return self.now


def ways_of(source, clock, widths=(1, 2, 3)):
    backend = PythonReranker(clock.score, "clock")
    return {width: scorer_for(backend, source.collection, AuditConfig(settings=Settings(width=width))) for width in widths}


def test_every_width_takes_the_calls_that_it_takes_and_another_comes_first_in_each_round(source):
    clock = Clock()
    found = time_requests(ways_of(source, clock), list(source.instances()), rounds=3, clock=clock)
    assert len(found) == 27
    assert {timing.way: timing.seconds for timing in found} == {1: 6.0, 2: 3.0, 3: 2.0}
    assert [timing.way for timing in found[::3]] == [1, 2, 3, 2, 3, 1, 3, 1, 2]
    assert [timing.round for timing in found[::9]] == [0, 1, 2]


def test_a_scorer_is_warm_before_the_clock_runs(source):
    clock = Clock()
    time_requests(ways_of(source, clock, (1,)), list(source.instances())[:1], rounds=1, clock=clock)
    assert len(clock.seen) == 12  # six requests that are not timed, six that are


def test_a_query_counts_with_the_median_of_its_rounds(source, tmp_path):
    config = AuditConfig(permutations=1)
    clock = Clock()
    run = score_collection(ways_of(source, clock)[2], source, tmp_path / "run", config)
    assert read_timings(run) == []
    ticks = count()
    found = time_requests(ways_of(source, clock), list(source.instances()), clock=lambda: float(next(ticks)) ** 2)
    write_timings(run, found)
    assert read_timings(run) == found
    by_hand = np.median([[t.seconds for t in found if (t.way, t.round) == (2, r)] for r in range(3)], axis=0)
    assert query_seconds(found, 2) == pytest.approx(by_hand)
    assert len(query_seconds(found, 5)) == 0


def test_nothing_to_time_is_refused(source):
    with pytest.raises(InputError, match="no query to time"):
        time_requests(ways_of(source, Clock()), [])


def test_the_interval_of_a_median_holds_it_and_is_narrow_where_values_are():
    values = np.random.default_rng(0).normal(5, 1, 200)
    found = median_interval(values)
    assert found.low < np.median(values) == found.value < found.high
    assert 0.2 < found.high - found.low < 0.6
    assert median_interval([2.0, 2.0, np.nan])[:5] == (2.0, 2.0, 2.0, 2, 1)
    assert np.isnan(median_interval([]).value)
