"""Gains query by query, and permutations that reverse a leader: planted values come back."""

import numpy as np
import pytest

from steadyscore.measures.pairing import correlation, gains, leader_reversals, leaders


def test_gains_count_what_improves_and_regresses():
    found = gains([0.1, 0.5, 0.5, 0.9], [0.3, 0.5, 0.4, 1.0], [0.9, 0.4, 0.1, 0.7])
    assert (found.improving, found.regressing) == (0.75, 0.25)
    assert found.correlation == pytest.approx(abs(np.corrcoef([0.2, 0.0, -0.1, 0.1], [0.9, 0.4, 0.1, 0.7])[0, 1]))


def test_a_correlation_needs_three_places_that_vary():
    assert np.isnan(correlation([1, 2, np.nan], [1, 2, 3]))
    assert np.isnan(correlation([1, 1, 1], [1, 2, 3]))
    assert correlation([1, 2, 3, np.nan], [2, 4, 6, 9]) == pytest.approx(1.0)


def test_who_leads_a_collection_is_named_with_whoever_shares_the_lead():
    table = np.array([[1, 2, 3], [1, 3, 1], [0, 0, np.nan]])
    assert leaders(table, "abc", "higher") == [("a", "b"), ("b",), ("a",)]
    assert leaders(table, "abc", "lower") == [("c",), ("c",), ("b",)]


def test_permutations_that_reverse_a_leader_are_counted():
    assert leader_reversals([0.6, 0.7, 0.4], 0.5) == 1
    assert leader_reversals([0.6, 0.7, 0.8], 0.5) == 0
