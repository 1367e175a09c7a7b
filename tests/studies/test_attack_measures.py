"""What a hostile candidate moves, on planted rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from steadyscore.studies.attack_result import ATTACK_MEASURES, measure_attack

ROWS = np.array([[0.9, 0.7, 0.5, 0.4, 0.3, 0.2, 0.1], [0.9, 0.7, 0.25, 0.4, 0.3, 0.2, 0.95]])
COMPANIONS = np.array([True, False, True, False, False, False, False])


def test_a_candidate_that_climbs_from_last_to_first():
    found = measure_attack(ROWS, 6, COMPANIONS, ROWS >= 0.45)
    assert list(found) == list(ATTACK_MEASURES)
    assert found["own_gain"] == pytest.approx(0.85)
    assert found["places_gained"] == 6
    assert found["companion_change"] == pytest.approx(0.125)  # one of two moved by a quarter
    assert found["companion_overlap"] == pytest.approx(2 / 3)  # of three that were kept one is not any more
    assert (found["enters_set"], found["becomes_first"], found["enters_evidence"], found["pair_change"]) == (1, 1, 1, 1)


def test_who_was_inside_before_cannot_enter():
    found = measure_attack(ROWS, 0, COMPANIONS, ROWS >= 0.45)
    assert all(np.isnan(found[name]) for name in ("enters_set", "becomes_first", "enters_evidence"))
    assert found["places_gained"] == -1


def test_without_a_cutoff_or_companions_their_measures_are_undefined():
    found = measure_attack(ROWS, 6, np.zeros(7, bool), None)
    assert all(np.isnan(found[name]) for name in ("enters_set", "companion_overlap", "companion_change"))
    assert found["own_gain"] == pytest.approx(0.85)


@given(arrays(float, st.integers(1, 12), elements=st.floats(-5, 5)), st.data())
def test_words_that_move_nothing_are_measured_as_nothing(row, data):
    attacker = data.draw(st.integers(0, len(row) - 1))
    others = np.arange(len(row)) != attacker
    found = measure_attack(np.stack([row, row]), attacker, others, np.stack([row, row]) >= 0)
    for name, value in found.items():
        assert np.isnan(value) or value == (1 if name == "companion_overlap" else 0)
