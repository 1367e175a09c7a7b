from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.errors import InputError
from steadyscore.scoring import perturb
from steadyscore.window.presentation import generator


@given(st.integers(1, 40), st.data(), st.sampled_from(["top", "middle", "bottom"]))
def test_forced_position_moves_one_candidate_and_keeps_the_rest(n, data, place):
    candidate = data.draw(st.integers(0, n - 1))
    order = perturb.forced_position(n, candidate, place)
    assert order[{"top": 0, "middle": n // 2, "bottom": n - 1}[place]] == candidate
    assert list(order[order != candidate]) == [i for i in range(n) if i != candidate]


def test_strongest_is_the_highest_grade_then_the_smallest_id():
    assert perturb.strongest([0, 3, 1, 3], ["a", "d", "b", "c"]) == 3
    assert perturb.strongest([0, np.nan, 0], ["a", "b", "c"]) is None


def test_placement_by_thirds():
    assert [perturb.placement(np.arange(7), i) for i in range(7)] == ["top"] * 3 + ["middle"] * 2 + ["bottom"] * 2
    assert perturb.placement(np.arange(7), None) == "middle"


def test_drop_and_replace_as_released():
    assert perturb.pool_drop(5, 1).tolist() == [0, 2, 3, 4]
    assert perturb.pool_replace(5, 1).tolist() == [0, 2, 3, 4, 5]
    assert perturb.pool_replace(5, 1, in_place=True).tolist() == [0, 5, 2, 3, 4]


@pytest.mark.parametrize("rank", [-1, 5])
def test_a_rank_outside_the_pool_is_refused(rank):
    with pytest.raises(InputError, match="rank"):
        perturb.pool_drop(5, rank)


def test_perturbed_rank_belongs_to_the_query_and_is_uniform():
    ranks = [perturb.perturbed_rank(10, seed=0, query_id=str(i)) for i in range(5000)]
    assert ranks == [perturb.perturbed_rank(10, seed=0, query_id=str(i)) for i in range(5000)]
    assert np.allclose(np.bincount(ranks) / 5000, 0.1, atol=0.02)
    assert ranks != [perturb.perturbed_rank(10, seed=1, query_id=str(i)) for i in range(5000)]


def test_query_sample_grows_without_changing():
    ids = [f"q{i}" for i in range(50)]
    assert perturb.sampled_queries(ids[::-1], 30, seed=0)[:10] == perturb.sampled_queries(ids, 10, seed=0)
    assert len(perturb.sampled_queries(ids, 100, seed=0)) == 50


@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 99))
def test_neighbour_swaps_permute_and_move_at_most_that_many_pairs(n, swaps, seed):
    order = perturb.neighbour_swaps(n, swaps, generator(seed, "q", "jitter"))
    assert sorted(order) == list(range(n))
    inversions = sum(order[i] > order[j] for i in range(n) for j in range(i + 1, n))
    assert inversions <= swaps
    assert (inversions - swaps) % 2 == 0 or n < 2


def test_score_noise_moves_more_with_scale_and_nothing_without():
    scores = np.linspace(10, 0, 50)
    moved = [
        np.abs(perturb.score_noise(scores, scale, generator(0, "q", "noise")) - np.arange(50)).mean() for scale in (0, 0.05, 0.5)
    ]
    assert moved[0] == 0
    assert 0 < moved[1] < moved[2]
    assert perturb.score_noise(np.ones(5), 1.0, generator(0, "q", "noise")).tolist() == [0, 1, 2, 3, 4]
