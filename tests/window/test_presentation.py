import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.measures.decomposition import order_marginal
from steadyscore.measures.instability import tau_psi
from steadyscore.studies import validate as simulate
from steadyscore.window.presentation import (
    align,
    balanced_orders,
    count_orders,
    markers,
    permutation,
    permutations,
    places,
    windows,
)

sizes = st.integers(1, 40)
ids = st.text(min_size=1, max_size=8)


@given(n=sizes, count=st.integers(1, 12), seed=st.integers(0, 99), query=ids)
def test_permutations_are_bijections_without_repeats_while_factorial_allows(n, count, seed, query):
    found = permutations(n, count, seed=seed, query_id=query)
    assert found.shape == (count, n)
    assert all(sorted(row) == list(range(n)) for row in found.tolist())
    distinct = len({tuple(row) for row in found.tolist()})
    assert distinct == min(count, math.factorial(n) if n < 10 else count)


@given(n=sizes, count=st.integers(1, 30), seed=st.integers(0, 99), query=ids)
def test_distinct_orders_are_the_hashed_ones_without_their_repeats(n, count, seed, query):
    found = permutations(n, count, seed=seed, query_id=query, scheme="distinct")
    assert len(found) == len({tuple(row) for row in found.tolist()}) == min(count, count_orders(n))
    assert np.array_equal(found, permutations(n, count, seed=seed, query_id=query)[: len(found)])


@given(n=sizes, seed=st.integers(0, 99), query=ids)
def test_a_permutation_depends_on_seed_query_and_index_only(n, seed, query):
    many = permutations(n, 6, seed=seed, query_id=query)
    assert np.array_equal(many[:3], permutations(n, 3, seed=seed, query_id=query))
    assert np.array_equal(many[4], permutation(n, seed=seed, query_id=query, index=4))


def test_permutations_differ_between_queries_and_seeds():
    base = permutations(20, 1, seed=0, query_id="a")
    assert not np.array_equal(base, permutations(20, 1, seed=0, query_id="b"))
    assert not np.array_equal(base, permutations(20, 1, seed=1, query_id="a"))


def test_every_slot_is_equally_likely():
    first = [permutation(5, seed=0, query_id=str(q), index=0)[0] for q in range(2000)]
    assert np.abs(np.bincount(first, minlength=5) / 2000 - 0.2).max() < 0.04


def test_the_reference_scheme_has_the_golden_vectors():
    """The released code's: global Mersenne-Twister seeds, the same for every query, repeats included."""
    ten = permutations(10, 2, seed=0, query_id="any", scheme="reference").tolist()
    assert ten == [[7, 8, 1, 5, 3, 4, 2, 0, 9, 6], [6, 8, 9, 7, 5, 3, 0, 4, 1, 2]]
    four = [tuple(row) for row in permutations(4, 10, seed=0, query_id="q", scheme="reference").tolist()]
    assert four[0] == (2, 0, 1, 3)
    assert four[1] == four[3] == (3, 0, 2, 1)
    assert four[9] == (0, 1, 2, 3)
    assert len(set(four)) == 9


@given(n=sizes, width=st.integers(1, 45), rule=st.sampled_from(["contiguous", "round_robin"]), query=ids)
def test_windows_hold_every_candidate_once_and_align_restores_identity(n, width, rule, query):
    order = permutation(n, seed=3, query_id=query, index=0)
    cut = windows(order, width, rule)
    assert sorted(i for w in cut for i in w.candidates) == list(range(n))
    assert max(len(w.candidates) for w in cut) <= width
    values = np.linspace(0, 1, n)
    assert np.array_equal(align([values[list(w.candidates)] for w in cut], cut, n), values)
    slots, index = places(cut, n)
    assert all(cut[index[i]].candidates[slots[i]] == i for i in range(n))


def test_contiguous_leaves_a_short_tail_and_round_robin_balances():
    """Pool 6 at width 4 is 4 + 2, or 3 + 3."""
    assert [w.candidates for w in windows(range(6), 4)] == [(0, 1, 2, 3), (4, 5)]
    assert [w.candidates for w in windows(range(6), 4, "round_robin")] == [(0, 2, 4), (1, 3, 5)]


@pytest.mark.parametrize("scheme", ["numeric", "letters", "roman", "doc", "random3"])
def test_markers_are_distinct(scheme):
    assert len(set(markers(scheme, 120))) == 120


def test_markers_read_as_they_should():
    assert markers("numeric", 2) == ["1", "2"]
    assert markers("letters", 28)[-2:] == ["AA", "AB"]
    assert markers("roman", 9)[3:] == ["iv", "v", "vi", "vii", "viii", "ix"]
    assert markers("doc", 1) == ["Doc-1"]
    assert all(len(m) == 3 for m in markers("random3", 5))
    assert markers("random3", 5, seed=1) != markers("random3", 5, seed=2)


@pytest.mark.parametrize(
    "call",
    [
        lambda: windows(range(3), 0),
        lambda: windows(range(3), 2, "spiral"),
        lambda: markers("runes", 2),
        lambda: permutations(3, 1, seed=0, query_id="q", scheme="x"),
    ],
)
def test_unknown_choices_are_refused(call):
    with pytest.raises(ValueError, match=r"unknown|at least"):
        call()


@given(st.sampled_from(["numeric", "letters", "roman", "doc", "random3"]), st.integers(2, 40), st.integers(0, 99))
def test_a_marker_seed_shuffles_the_labels_of_a_scheme_and_never_leaves_them_in_slot_order(scheme, width, seed):
    shuffled = markers(scheme, width, seed=seed)
    assert shuffled == markers(scheme, width, seed=seed)
    assert len(set(shuffled)) == width
    if scheme != "random3":
        assert sorted(shuffled) == sorted(markers(scheme, width))
        assert shuffled != markers(scheme, width)


def test_another_marker_seed_draws_other_labels_and_another_order():
    assert markers("random3", 5, seed=1) != markers("random3", 5, seed=2)
    assert markers("numeric", 9, seed=1) != markers("numeric", 9, seed=2)
    assert markers("random3", 5) == markers("random3", 5)


@given(st.integers(1, 40), st.integers(1, 30), st.integers(1, 12), st.integers(0, 99))
def test_balanced_orders_are_orders_and_even(n, permutations, width, seed):
    orders = balanced_orders(n, permutations, np.random.default_rng(seed), width=width)
    assert (np.sort(orders, axis=1) == np.arange(n)).all()
    if n % width == 0:
        slots, _ = simulate.layout(orders, width)
        visits = (slots[..., None] == np.arange(width)).sum(axis=0)  # (n, width)
        assert visits.max() - visits.min() <= (1 if permutations <= n else 2)
        if permutations % width == 0:
            assert (visits == permutations // width).all()


def marginal_variance(draw, permutations):
    """Variance over designs of the order-marginal of one scorer with a pure slot effect, 100 candidates at width 20."""
    marginals = [
        order_marginal(simulate.slot_effect(draw(permutations), 20, np.random.default_rng(0)).scores) for _ in range(100)
    ]
    return np.var(marginals, axis=0).mean()


def test_balance_removes_the_slot_noise_of_the_order_marginal():
    rng = np.random.default_rng(0)
    spread = {
        (design, permutations): marginal_variance(draw, permutations)
        for permutations in (10, 20)
        for design, draw in (
            ("random", lambda m: simulate.random_orders(100, m, rng)),
            ("balanced", lambda m: balanced_orders(100, m, rng, width=20)),
        )
    }
    reduction = spread["random", 10] / spread["balanced", 10]
    print(f"variance of the order-marginal falls {reduction:.1f}-fold at 10 permutations")
    assert reduction > 10
    assert spread["random", 20] > 1e-4
    assert spread["balanced", 20] < 1e-20


def test_balanced_orders_move_in_step_so_pairs_of_them_agree_more_than_random_ones():
    rng = np.random.default_rng(0)
    found = [
        np.mean([tau_psi(simulate.slot_effect(draw(), 20, np.random.default_rng(5)).scores) for _ in range(30)])
        for draw in (lambda: simulate.random_orders(100, 10, rng), lambda: balanced_orders(100, 10, rng, width=20))
    ]
    assert found == pytest.approx([0.141, 0.111], abs=0.003)


def test_balance_keeps_companions_changing():
    rng, together = np.random.default_rng(0), np.zeros((100, 100))
    for _ in range(200):
        _, windows = simulate.layout(balanced_orders(100, 2, rng, width=20), 20)
        same = windows[:, :, None] == windows[:, None, :]
        together += same[0] & same[1]
    again = together[~np.eye(100, dtype=bool)].mean() / 200
    assert again == pytest.approx((19 / 99) ** 2, rel=0.15)
