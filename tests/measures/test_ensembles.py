"""Ensembles of permutations, K curves and Borda."""

from __future__ import annotations

import numpy as np
import pytest

from steadyscore.errors import InputError
from steadyscore.measures.ensembles import borda, ensembles
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.ranking import rank

SCORES = np.random.default_rng(0).random((5, 40, 8))


def test_four_disjoint_ensembles_of_ten():
    groups = ensembles(SCORES, 10)
    assert groups.shape == (5, 4, 8)
    assert groups[:, 1] == pytest.approx(SCORES[:, 10:20].mean(axis=1))


def test_one_permutation_is_the_scores_and_a_remainder_is_left_out():
    assert np.array_equal(ensembles(SCORES, 1), SCORES)
    assert ensembles(SCORES[:, :10], 3).shape == (5, 3, 8)
    assert ensembles(SCORES[:, :10], 3)[:, 0] == pytest.approx(SCORES[:, :3].mean(axis=1))


@pytest.mark.parametrize("size", [0, 41])
def test_an_impossible_ensemble_is_refused(size):
    with pytest.raises(InputError, match="score more permutations"):
        ensembles(SCORES, size)


def test_averaging_more_permutations_of_a_noisy_scorer_lowers_instability():
    rng = np.random.default_rng(1)
    noisy = np.arange(8.0) + rng.normal(0, 4, (50, 40, 8))
    values = [tau_psi(ensembles(noisy, size)).mean() for size in (1, 2, 5, 10)]
    assert values == sorted(values, reverse=True)


def test_borda_counts_the_candidates_below():
    assert borda([[0.1, 0.9, 0.5]]).tolist() == [[0, 2, 1]]
    tied = borda([[1.0, 1.0]], "input_position", [[1, 0]])
    assert tied.tolist() == [[0, 1]]
    expected = 7 - rank(SCORES[:, :10]).mean(axis=1)
    assert ensembles(borda(SCORES[:, :10]), 10)[:, 0] == pytest.approx(expected)
