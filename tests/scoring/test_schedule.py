"""The simulated scheduler: what must hold of every schedule, and the cases that can be worked out by hand."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.scoring.schedule import Pace, simulate_schedule, workers_needed

PARTS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(PARTS, st.integers(1, 12), st.booleans(), st.floats(0.01, 5))
def test_no_schedule_beats_the_work_shared_evenly_or_its_largest_part(parts, workers, in_shares, window):
    found = simulate_schedule(parts, workers, Pace(window), in_shares=in_shares)
    work = sum(parts) * window
    assert found.busy == pytest.approx(work)
    assert found.seconds >= max(work / workers, max(parts) * window) * (1 - 1e-9)
    assert found.seconds <= work * (1 + 1e-9)
    assert 0 < found.busy_share(workers) <= 1 + 1e-9
    assert (found.lost, found.deaths, found.left) == (0, 0, 0)
    if not in_shares:  # a queue is never worse than this, whatever the parts (Graham 1966)
        assert found.seconds <= (work / workers + max(parts) * window) * (1 + 1e-9)


def test_equal_parts_take_whole_rounds():
    found = simulate_schedule([10] * 9, 4, Pace(0.5, opening=3, handing=1))
    assert found.seconds == 3 + 3 * 6  # three rounds of 10 windows and a second to hand over
    assert (found.tail, found.tail_parts) == (6, 1)


def test_shares_wait_for_the_slowest_and_a_queue_does_not():
    parts = [40, 1] * 10
    assert simulate_schedule(parts, 2, Pace(1), in_shares=True).seconds == 400
    assert simulate_schedule(parts, 2, Pace(1)).seconds == pytest.approx(205, abs=40)


def test_deaths_cost_what_was_begun_and_a_new_opening():
    calm, rough = (simulate_schedule([60] * 200, 8, Pace(1, opening=30, deaths=rate), seed=1) for rate in (0, 4))
    assert rough.deaths > 0
    assert rough.busy == calm.busy
    assert rough.seconds == pytest.approx(calm.seconds + (rough.lost + 30 * rough.deaths) / 8, rel=0.25)


def test_a_part_that_is_lost_too_often_is_left_to_the_command_that_collects():
    found = simulate_schedule([3600], 1, Pace(1, deaths=1000), retries=3)
    assert (found.deaths, found.left) == (4, 1)
    assert found.seconds >= 3600


def test_the_spread_of_windows_averages_out_over_a_part():
    even, spread = (simulate_schedule([128] * 400, 4, Pace(1, spread=share)).seconds for share in (0, 0.5))
    assert spread == pytest.approx(even, rel=0.05)
    assert spread != even


@settings(max_examples=40)
@given(PARTS, st.floats(5, 500))
def test_the_workers_needed_are_enough(parts, seconds):
    found = workers_needed(parts, seconds, Pace(1, opening=2))
    if found is None:
        assert max(parts) + 2 > seconds
    else:
        assert simulate_schedule(parts, found, Pace(1, opening=2)).seconds <= seconds
        assert found <= math.ceil(sum(parts) / max(seconds - 2 - max(parts), 1e-9)) or found <= len(parts)


def test_the_workers_needed_are_no_more_than_needed():
    assert workers_needed([10] * 100, 100, Pace(1)) == 10
    assert workers_needed([10] * 100, 99.9, Pace(1)) == 12  # nine parts each: 100 / 9, rounded up
    assert workers_needed([10], 9, Pace(1)) is None
