"""`change`, the one definition behind every flip."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.measures.flips import change


@pytest.mark.parametrize(
    ("counts", "pairwise", "modal"),
    [((9, 1), 0.200, 0.100), ((8, 2), 16 / 45, 0.200), ((5, 5), 25 / 45, 0.500), ((1,) * 10, 1.0, 0.9), ((10,), 0, 0)],
)
def test_golden_values_of_protocol(counts, pairwise, modal):
    outputs = [f"output {i}" for i, count in enumerate(counts) for _ in range(count)]
    assert change(outputs) == pytest.approx(pairwise)
    assert change(outputs, "modal") == pytest.approx(modal)


def test_arrays_of_codes_keep_their_leading_axes():
    codes = np.array([[[1, 1, 2], [3, 3, 3]]])
    assert change(codes) == pytest.approx(np.array([[2 / 3, 0]]))
    assert change(codes, "modal") == pytest.approx(np.array([[1 / 3, 0]]))


@pytest.mark.parametrize("estimator", ["pairwise", "modal"])
def test_one_permutation_is_nan(estimator):
    assert np.isnan(change(["only"], estimator))
    assert np.isnan(change(np.zeros((2, 1), int), estimator)).all()


def test_an_unknown_estimator_is_refused():
    with pytest.raises(InputError, match='"mode" is unknown'):
        change([1, 2], "mode")


def test_any_hashable_output_will_do():
    assert change([frozenset({1, 2}), frozenset({2, 1}), None, ("a", 1)]) == pytest.approx(5 / 6)


@given(st.lists(st.integers(0, 4), min_size=2, max_size=12), st.randoms())
def test_change_is_the_literal_disagreement_and_ignores_order(outputs, random):
    literal = np.mean([a != b for a, b in combinations(outputs, 2)])
    assert change(outputs) == pytest.approx(literal)
    assert change(np.array(outputs)) == pytest.approx(literal)
    shuffled = random.sample(outputs, len(outputs))
    assert change(shuffled) == pytest.approx(change(outputs))
    assert 0 <= change(outputs, "modal") <= change(outputs) <= 1
