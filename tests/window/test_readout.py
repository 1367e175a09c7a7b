import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steadyscore.window.readout import argmax_grade, capcal, expected_grade, grade_at_least, grade_distribution, score

logits = arrays(np.float32, (5, 4), elements=st.floats(-80, 80, width=32))


@given(logits)
def test_a_distribution_sums_to_one_and_scores_lie_in_range(values):
    p = grade_distribution(values)
    assert np.allclose(p.sum(axis=-1), 1)
    assert ((score(p) >= 0) & (score(p) <= 1)).all()
    assert np.allclose(expected_grade(p), 3 * score(p))


@given(logits, st.floats(-50, 50))
def test_an_offset_of_all_logits_changes_nothing(values, offset):
    assert np.allclose(grade_distribution(values.astype(float) + offset), grade_distribution(values.astype(float)))


def test_the_three_readouts():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    assert score(p) == pytest.approx(2 / 3)
    assert argmax_grade(p) == 3
    assert grade_at_least(p) == pytest.approx(0.7)


def test_capcal_has_the_golden_value():
    """p' = p - H(p) (q - 1/4), clipped and renormalised, worked out by hand."""
    p = capcal(np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.7, 0.1, 0.1, 0.1]))
    assert p == pytest.approx([0, 0.26558, 0.33333, 0.40109], abs=1e-5)
    assert score(p) == pytest.approx(0.71184, abs=1e-5)


@given(logits)
def test_capcal_without_a_prior_changes_nothing(values):
    p = grade_distribution(values)
    assert np.allclose(capcal(p, np.full(4, 0.25)), p, atol=1e-7)
