"""Windows that wait and windows that are scored together: what they cost, and until when they are wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.serve.batcher import SMALL_TOKENS, Abandoned, Job, Pass, check_wanted, cost_of, current_pass
from steadyscore.terms import Prompt


def job(*costs, items=None):
    return Job((0, False), list, items or range(len(costs)), costs, None, "m")


def test_orders_of_one_set_cost_one_reading():
    prompt = Prompt((1, 2), (3, 4, 5), (3, 4), (6,), ((2, 3, 4), (4, 5, 5)), segment=1)
    assert cost_of(prompt) == cost_of(replace(prompt, slots=(4, 3)))
    assert sum(cost_of(replace(prompt, segment=0, candidates=())).values()) == 5
    assert cost_of("a text") == {}


def test_what_windows_have_in_common_counts_once_and_decides_who_is_small():
    assert job({1: 100, 2: 5}, {1: 100, 3: 5}).tokens == 110
    assert not job({1: SMALL_TOKENS}).is_large
    assert job({1: SMALL_TOKENS}, {2: 1}).is_large
    assert job({1: SMALL_TOKENS}).lane != job({1: SMALL_TOKENS + 1}).lane


@given(st.permutations(range(5)), st.integers(0, 5))
def test_results_come_in_any_order_and_the_last_one_answers(order, first):
    asked = job(*[{}] * 5)
    asked.finish({i: 10 * i for i in order[:first]})
    assert asked.is_wanted == (first < 5)
    asked.finish({i: 10 * i for i in order[first:]})
    assert asked.future.result(timeout=0) == [0, 10, 20, 30, 40]


def test_a_pass_is_wanted_as_long_as_one_of_its_requests_waits():
    one, other = job({}, {}), job({})
    shared = Pass([(one, 0), (other, 0), (one, 1)])
    assert [len(alone.windows) for alone in shared.split()] == [2, 1]
    one.future.cancel()
    assert shared.is_wanted
    other.finish({0: 1})
    assert not shared.is_wanted
    one.finish({0: 1, 1: 2})  # too late: nothing is raised, nothing is answered
    one.fail(ValueError())
    assert one.future.cancelled()


def test_only_the_thread_of_a_pass_is_stopped():
    check_wanted()  # no pass at all
    gone = job({})
    gone.future.cancel()
    current_pass.value = Pass([(gone, 0)])
    try:
        with pytest.raises(Abandoned):
            check_wanted()
    finally:
        current_pass.value = None
