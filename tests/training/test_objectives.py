from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steadyscore.training import objectives as o
from steadyscore.training.recipe import Schedule

GRADES = st.floats(0, 3, width=32)
VIEWS = arrays(np.float64, st.tuples(st.integers(2, 5), st.integers(1, 6)), elements=GRADES)


def test_losses_by_hand():
    views, target = np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([0.0, 2.0])
    assert o.relevance_anchor(views[0], target) == 0.5
    assert o.order_variance(views) == 0.5  # mean of 1, 0, 1, 0
    assert o.relevance_anchor(views, target) == (1 + 0 + 9 + 0) / 4
    assert o.weighted_anchor(views, target, np.array([3.0, 1.0])) == pytest.approx((3 * 1 + 3 * 9) / (2 * 4))
    log_p, log_q = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    by_hand = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert o.kl_divergence(log_p, log_q) == pytest.approx(by_hand)
    better = math.log(1 + math.exp(-1))  # the second candidate is labelled higher, and the first view scores it one grade above
    assert o.preference(views[0], target) == pytest.approx(better)
    assert o.preference(views, target) == pytest.approx((better + math.log(1 + math.exp(1))) / 2)
    assert o.grade_cross_entropy(log_q, np.array([[1.0, 0.0]])) == pytest.approx(math.log(4))


def terms(views, target, weights) -> list:
    """Every term of every objective of one window."""
    log_p = views[..., None] * -views.mean() - 1
    seen = o.Seen(views, target, log_p, views[-1], log_p[-1] - 1, weights)
    return [term for objective in o.OBJECTIVES.values() for term in objective.loss(seen) if term is not None]


@given(VIEWS, st.data())
def test_the_same_text_serves_numpy_and_torch(views, data):
    target = data.draw(arrays(np.float64, views.shape[1], elements=GRADES))
    weights = data.draw(arrays(np.float64, views.shape[1], elements=st.floats(0.1, 3)))
    for found, twin in (
        *zip(terms(views, target, weights), terms(*map(torch.tensor, (views, target, weights))), strict=True),
        (o.preference(views, target), o.preference(torch.tensor(views), torch.tensor(target))),
    ):
        assert found == pytest.approx(float(twin), abs=1e-9)


@given(VIEWS, st.data())
def test_view_order_does_not_matter_to_the_variance_and_equal_slot_weights_change_nothing(views, data):
    target = data.draw(arrays(np.float64, views.shape[1], elements=GRADES))
    assert o.order_variance(views) == pytest.approx(o.order_variance(views[::-1]))
    assert o.order_variance(views[:1]) == 0
    assert o.weighted_anchor(views, target, np.ones(len(target))) == pytest.approx(o.relevance_anchor(views, target))


@given(VIEWS, st.data())
def test_a_preference_asks_for_the_order_of_the_labels_alone(views, data):
    target = data.draw(arrays(np.float64, views.shape[1], elements=st.integers(0, 3).map(float)))
    found = o.preference(views, target)
    assert found == pytest.approx(o.preference(views + 1, target))
    assert found == pytest.approx(o.preference(views, 2 * target - 1))
    assert o.preference(views, np.ones(len(target))) == 0
    if len(set(target)) > 1:
        assert o.preference(np.tile(target, (2, 1)), target) < math.log(2)  # what one constant for all gives
        assert o.preference(np.ones_like(views), target) == pytest.approx(math.log(2))


@given(VIEWS)
def test_the_pairwise_convention_is_the_mean_squared_difference_of_two_views(views):
    n = len(views)
    pairs = [((views[i] - views[j]) ** 2).mean() for i in range(n) for j in range(i)]
    assert o.consistency(views, "pairwise") == pytest.approx(np.mean(pairs), abs=1e-9)
    assert o.consistency(views) == o.order_variance(views)


def test_two_views_have_a_quarter_of_the_squared_difference_and_a_pairwise_factor_of_four():
    views = np.random.default_rng(0).normal(size=(2, 7))
    assert o.order_variance(views) == pytest.approx(((views[0] - views[1]) ** 2).mean() / 4)
    assert o.consistency(views, "pairwise") == pytest.approx(4 * o.order_variance(views))


def test_shrinking_the_scores_lowers_the_variance_and_not_the_relative_penalty():
    rng = np.random.default_rng(0)
    views = np.linspace(0, 3, 9) + rng.normal(0, 0.2, size=(2, 9))
    half = views.mean() + (views - views.mean()) / 2
    assert o.order_variance(half) == pytest.approx(o.order_variance(views) / 4)
    assert o.consistency(half, "relative") == pytest.approx(o.consistency(views, "relative"), rel=0.05)  # the floor's share
    assert o.consistency(np.full((2, 9), 1.0), "relative") == 0
    assert o.consistency(np.array([[1.0], [1.5]]), "relative") == o.order_variance(np.array([[1.0], [1.5]]))


def test_every_name_has_an_objective_that_is_called_so():
    assert tuple(o.OBJECTIVES) == get_args(o.ObjectiveName)
    assert all(objective.summary and objective.name == name for name, objective in o.OBJECTIVES.items())


def test_an_objective_has_a_penalty_where_it_has_a_weight_for_it():
    for objective in o.OBJECTIVES.values():
        seen = o.Seen(*(np.ones(shape) for shape in ((2, 3), 3, (2, 3, 4), 3, (3, 4), 3)))
        assert (objective.loss(seen).penalty is None) == (objective.weight is None)


def test_golden_weights_of_debias_first():
    np.testing.assert_allclose(o.inverse_propensity([8, 4, 2, 1]), [0.2668, 0.5336, 1.0669, 2.1327], atol=5e-5)


def test_ramp_counts_from_zero_and_the_released_mean_is_met():
    def weights(steps, ramp_steps, weight=1):
        schedule = Schedule(steps, ramp_steps, weight, 2e-4, 0.1)
        return [schedule.weight_at(step) for step in range(steps)]

    assert weights(6, 4, weight=4) == [0, 1, 2, 3, 4, 4]
    assert weights(2, 0, weight=4) == [4, 4]
    assert np.mean(weights(2305, 500)) == pytest.approx(0.891, abs=1e-3)  # the paper's passage run
    assert np.mean(weights(469, 500)) == pytest.approx(0.468, abs=1e-3)


def test_the_learning_rate_rises_peaks_and_ends_near_zero():
    schedule = Schedule(200, 0, 0.0, 2e-4, 0.1)
    rates = [schedule.rate_at(step) for step in range(200)]
    assert rates[0] == pytest.approx(2e-4 / 20)
    assert max(rates) == rates[20] == pytest.approx(2e-4)
    assert rates[-1] < 1e-7
    assert np.all(np.diff(rates[:20]) > 0)
    assert np.all(np.diff(rates[20:]) < 0)


def test_gradient_flows_through_every_view():
    views = torch.tensor([[1.0, 2.0], [3.0, 2.0], [0.0, 1.0]], requires_grad=True)
    o.order_variance(views).backward()
    assert (views.grad.abs().sum(-1) > 0).all()
