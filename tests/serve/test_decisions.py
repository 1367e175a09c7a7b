"""Decisions on arrays: roles, distances, and when they count as settled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from steadyscore.errors import InputError
from steadyscore.serve.decisions import (
    Decision,
    cutoff,
    distances,
    looks,
    margins,
    outcome,
    refuse_impossible,
    roles,
    settled,
    stability,
    student_tail,
)

SCORES = np.array([0.2, 0.9, 0.5, 0.5])
decisions = st.one_of(
    st.floats(0, 1).map(lambda c: Decision("threshold", c)),
    st.integers(1, 6).map(lambda k: Decision("top_k", k)),
    st.just(Decision("pair")),
)
tables = st.tuples(st.integers(2, 6), st.integers(2, 5)).flatmap(
    lambda s: arrays(float, s, elements=st.integers(0, 8).map(lambda i: i / 8))
)


def test_the_three_decisions():
    assert outcome(SCORES, Decision("threshold", 0.5)) == {"kind": "threshold", "kept": [1, 2, 3], "cutoff": 0.5}
    assert outcome(SCORES, Decision("top_k", 2)) == {"kind": "top_k", "kept": [1, 2], "k": 2, "cutoff": 0.5}
    assert outcome(SCORES, Decision("pair")) == {"kind": "pair", "chosen": 1, "rejected": 0}


def test_ties_go_to_the_document_named_first():
    assert outcome(np.full(4, 0.5), Decision("top_k", 2))["kept"] == [0, 1]
    assert outcome(np.full(3, 0.5), Decision("pair")) == {"kind": "pair", "chosen": 0, "rejected": 2}


def test_distances_are_positive_where_kept():
    assert np.allclose(distances(SCORES, Decision("threshold", 0.4)), [-0.2, 0.5, 0.1, 0.1])
    assert cutoff(SCORES, Decision("top_k", 1)) == pytest.approx(0.7)
    assert distances(SCORES, Decision("top_k", 4)) is None
    assert np.allclose(distances(SCORES, Decision("pair")), [-0.7, 0.4, -0.4, -0.4])


def test_a_pair_of_one_is_refused():
    with pytest.raises(InputError, match="two documents"):
        refuse_impossible(Decision("pair"), 1)


@given(st.floats(0, 60), st.integers(1, 40))
def test_the_tail_is_students(t, freedom):
    # Near 0 it loses digits (2e-9 at worst in 4,000 draws); a p-value needs far fewer.
    assert student_tail(np.array([t]), freedom)[0] == pytest.approx(stats.t.sf(t, freedom), abs=1e-7)


@given(tables, decisions)
def test_the_mean_margin_supports_the_role(scores, decision):
    assert (margins(scores, decision).mean(axis=0) >= -1e-12).all()


@given(tables, decisions)
def test_a_margin_tells_whether_a_presentation_agrees_on_a_threshold(scores, decision):
    """For a cutoff the margin of one presentation and its role say the same thing."""
    if decision.kind != "threshold":
        return
    same = roles(scores, decision) == roles(scores.mean(axis=0), decision)
    support = margins(scores, decision)
    assert (support[same] >= 0).all()
    assert (support[~same] <= 0).all()


@given(tables, decisions)
def test_agreement_of_the_decision_is_at_most_that_of_any_document(scores, decision):
    found = stability(scores, decision)
    assert found.agreement <= found.by_document.min() + 1e-12
    assert 0 <= found.agreement <= 1


def test_scores_that_never_move_are_settled_at_once():
    assert settled(margins(np.tile(SCORES, (2, 1)), Decision("threshold", 0.4)), 3).all()
    assert not settled(margins(SCORES[None], Decision("threshold", 0.4)), 3).any()


def test_a_wrong_settlement_is_as_rare_as_the_error_says():
    """Documents whose true mean lies exactly on the cutoff are called settled in at most 5 % of requests."""
    rng, wrong, plan = np.random.default_rng(1), 0, looks(16)
    for _ in range(1500):
        scores = 0.5 + 0.1 * rng.standard_normal((16, 4))
        wrong += any(settled(margins(scores[:stop], Decision("threshold", 0.5)), len(plan)).any() for stop in plan)
    assert wrong / 1500 <= 0.05


def test_far_from_the_cutoff_few_permutations_are_enough():
    rng = np.random.default_rng(0)
    scores = np.array([0.9, 0.1, 0.8]) + 0.01 * rng.standard_normal((64, 3))
    plan = looks(64)
    first = next(stop for stop in plan if settled(margins(scores[:stop], Decision("threshold", 0.5)), len(plan)).all())
    assert first <= 8


def test_looks_grow_by_half_and_end_at_all():
    assert looks(20) == [3, 5, 8, 12, 18, 20]
    assert looks(2) == [2]
