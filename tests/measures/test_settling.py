"""Decisions on arrays: roles, distances, and when they count as settled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from steadyscore.errors import InputError
from steadyscore.measures import settling
from steadyscore.measures.settling import (
    CHANGED_SHARE,
    Outcome,
    PairRule,
    ThresholdRule,
    TopKRule,
    change_chances,
    check_rule,
    cutoff,
    distances,
    is_decided,
    is_settled,
    margins,
    outcome,
    place_effects,
    roles,
    stability,
    student_tail,
)
from steadyscore.window.presentation import window_places

SCORES = np.array([0.2, 0.9, 0.5, 0.5])
thresholds = st.floats(0, 1).map(ThresholdRule)
rules = st.one_of(thresholds, st.integers(1, 6).map(TopKRule), st.just(PairRule()))
tables = st.tuples(st.integers(2, 6), st.integers(2, 5)).flatmap(
    lambda s: arrays(float, s, elements=st.integers(0, 8).map(lambda i: i / 8))
)


def test_the_three_decisions():
    assert outcome(SCORES, ThresholdRule(0.5)) == Outcome("threshold", kept=[1, 2, 3], cutoff=0.5)
    assert outcome(SCORES, TopKRule(2)) == Outcome("top_k", kept=[1, 2], k=2, cutoff=0.5)
    assert outcome(SCORES, PairRule()) == Outcome("pair", chosen=1, rejected=0)


def test_ties_go_to_the_document_named_first():
    assert outcome(np.full(4, 0.5), TopKRule(2)).kept == [0, 1]
    assert outcome(np.full(3, 0.5), PairRule()) == Outcome("pair", chosen=0, rejected=2)


def test_distances_are_positive_where_kept():
    assert np.allclose(distances(SCORES, ThresholdRule(0.4)), [-0.2, 0.5, 0.1, 0.1])
    assert cutoff(SCORES, TopKRule(1)) == pytest.approx(0.7)
    assert distances(SCORES, TopKRule(4)) is None
    assert np.allclose(distances(SCORES, PairRule()), [-0.7, 0.4, -0.4, -0.4])


def test_a_pair_of_one_is_refused():
    with pytest.raises(InputError, match="two documents"):
        check_rule(PairRule(), 1)


@given(st.floats(0, 60), st.integers(1, 40))
def test_the_tail_is_students(t, freedom):
    # Near 0 it loses digits (2e-9 at worst in 4,000 draws); a p-value needs far fewer.
    assert student_tail(np.array([t]), freedom)[0] == pytest.approx(stats.t.sf(t, freedom), abs=1e-7)


@given(tables, rules)
def test_the_mean_margin_supports_the_role(scores, rule):
    assert (margins(scores, rule).mean(axis=0) >= -1e-12).all()


@given(tables, thresholds)
def test_a_margin_tells_whether_a_presentation_agrees_on_a_threshold(scores, rule):
    """For a cutoff the margin of one presentation and its role say the same thing."""
    same = roles(scores, rule) == roles(scores.mean(axis=0), rule)
    support = margins(scores, rule)
    assert (support[same] >= 0).all()
    assert (support[~same] <= 0).all()


@given(tables, rules)
def test_agreement_of_the_decision_is_at_most_that_of_any_document(scores, rule):
    found = stability(scores, rule)
    assert found.agreement <= found.by_document.min() + 1e-12
    assert 0 <= found.agreement <= 1


def test_scores_that_never_move_are_settled_at_once():
    still = np.tile(SCORES, (2, 1))
    assert is_settled(margins(still, ThresholdRule(0.4))).all()
    assert not is_settled(margins(SCORES[None], ThresholdRule(0.4))).any()
    assert is_decided(still, ThresholdRule(0.4), 10)
    assert not is_decided(SCORES[None], ThresholdRule(0.4), 10)


def decided_after(scores, rule, count, places=None):
    """Presentations that adaptive stopping takes of `count`."""
    return next((m for m in range(2, count) if is_decided(scores[:m], rule, count, places)), count)


def random_places(rng, count, n, width):
    """What `count` random orders make of the places of n documents."""
    orders = np.stack([rng.permutation(n) for _ in range(count)])
    return window_places(n, width, "contiguous")[np.argsort(orders, axis=-1)]


def test_a_wrong_settlement_is_as_rare_as_the_error_says():
    """Documents whose true mean lies exactly on the cutoff are called settled in some 5 % of requests."""
    rng, wrong, rule = np.random.default_rng(1), 0, ThresholdRule(0.5)
    for _ in range(1500):
        scores = 0.5 + 0.1 * rng.standard_normal((16, 4))
        wrong += is_settled(margins(scores[: decided_after(scores, rule, 16)], rule)).any()
    assert wrong / 1500 <= 0.06


def test_far_from_the_cutoff_two_permutations_are_enough():
    scores = np.array([0.9, 0.1, 0.8]) + 0.01 * np.random.default_rng(0).standard_normal((64, 3))
    assert decided_after(scores, ThresholdRule(0.5), 64) == 2


@given(tables, rules, st.integers(0, 8))
def test_nothing_changes_where_no_presentation_is_left(scores, rule, more):
    chances = change_chances(scores, rule, len(scores) + more)
    assert ((chances >= 0) & (chances <= 0.5 + 1e-12)).all()
    assert more or not chances.any()


@pytest.mark.parametrize("rule", [TopKRule(6), PairRule(), ThresholdRule(0.45)], ids=lambda rule: rule.kind)
@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_few_documents_get_another_role_than_all_presentations_would_give(noise, rule):
    """The share that changes is at most what is stated; the share of presentations that it costs falls with the noise."""
    rng, changed, taken = np.random.default_rng(0), [], []
    for _ in range(300):
        scores = rng.beta(1, 2, 20) + noise * rng.standard_normal((10, 20))
        taken.append(decided_after(scores, rule, 10))
        changed.append((roles(scores[: taken[-1]].mean(axis=0), rule) != roles(scores.mean(axis=0), rule)).mean())
    assert np.mean(changed) <= CHANGED_SHARE
    assert np.mean(taken) < {0.02: 4.5, 0.05: 6.5, 0.1: 8.5}[noise]


EFFECTS = {"none": (0, 0, 0), "first": (0.2, 0, 0), "last": (0, -0.1, 0), "linear": (0, 0, 0.3), "all": (0.1, 0.1, -0.2)}


@pytest.mark.parametrize("rule", [TopKRule(1), TopKRule(6), PairRule(), ThresholdRule(0.45)], ids=str)
@pytest.mark.parametrize("effects", ["first", "linear", "all"])
@pytest.mark.parametrize(("width", "noise"), [(20, 0.03), (5, 0.07)])
def test_few_documents_get_another_role_where_places_move_scores(width, noise, effects, rule):
    """The stated error holds for effects of place too, and for several windows."""
    rng, changed = np.random.default_rng(0), []
    for _ in range(60):
        places = random_places(rng, 10, 20, width)
        scores = rng.beta(1, 2, 20) + places @ EFFECTS[effects] + noise * rng.standard_normal((10, 20))
        taken = decided_after(scores, rule, 10, places)
        changed.append((roles(scores[:taken].mean(axis=0), rule) != roles(scores.mean(axis=0), rule)).mean())
    assert np.mean(changed) <= CHANGED_SHARE


@pytest.mark.parametrize("effects", EFFECTS)
@pytest.mark.parametrize("error", [0.005, 0.02, 0.05])
def test_places_save_presentations_and_cost_no_decision(monkeypatch, error, effects):
    """As many roles stay as without places, to a standard error, for fewer presentations, or as many where places do nothing."""
    monkeypatch.setattr(settling, "CHANGED_SHARE", error)
    rng, rule, taken, same = np.random.default_rng(1), TopKRule(3), {True: [], False: []}, {True: [], False: []}
    for _ in range(80):
        places = random_places(rng, 10, 10, 10)
        scores = rng.beta(1, 2, 10) + places @ EFFECTS[effects] + 0.03 * rng.standard_normal((10, 10))
        for known in (True, False):
            taken[known].append(decided_after(scores, rule, 10, places if known else None))
            first, every = scores[: taken[known][-1]].mean(axis=0), scores.mean(axis=0)
            same[known].append((roles(first, rule) == roles(every, rule)).mean())
    assert np.mean(taken[True]) <= np.mean(taken[False]) + (0.2 if effects == "none" else 0)
    assert np.mean(same[True]) >= np.mean(same[False]) - np.std(same[False]) / np.sqrt(80) - 1e-12


def test_effects_of_place_are_estimated_and_their_absence_is_seen():
    rng = np.random.default_rng(0)
    places = random_places(rng, 10, 12, 12)
    noise = rng.standard_normal(12) + 0.02 * rng.standard_normal((10, 12))
    some, none = place_effects(noise + places @ (0.2, 0, 0.1), places), place_effects(noise, places)
    assert sum(each.chance for each in some) == pytest.approx(1)
    assert np.allclose(sum(each.chance * each.effects for each in some), (0.2, 0, 0.1), atol=0.02)
    assert np.allclose(sum(each.chance * each.effects for each in none), 0, atol=0.02)
    assert some[0].chance < 1e-6 < 0.5 < none[0].chance
    assert all(0 < each.freedom <= 1 for each in some + none)


@given(tables, rules, st.integers(1, 6), st.integers(0, 99))
def test_with_places_chances_are_chances(scores, rule, more, seed):
    count, n = len(scores) + more, scores.shape[1]
    places = random_places(np.random.default_rng(seed), count, n, 3)
    chances = change_chances(scores, rule, count, places)
    assert ((chances >= 0) & (chances <= 1 + 1e-12)).all()


@pytest.mark.parametrize("rule", [TopKRule(2), PairRule(), ThresholdRule(0.1)], ids=lambda rule: rule.kind)
def test_equal_scores_that_never_move_are_decided_whatever_their_places(rule):
    still, places = np.full((3, 4), 0.1), random_places(np.random.default_rng(0), 10, 4, 4)
    assert is_decided(still, rule, 10, places)
    assert not change_chances(np.tile([0.1, 0.7, 0.3, 0.3], (3, 1)), rule, 10, places).any()


@pytest.mark.parametrize("rule", [TopKRule(2), PairRule()], ids=lambda rule: rule.kind)
def test_of_one_document_no_presentation_changes_the_choice(rule):
    assert not change_chances(np.array([[0.4], [0.5]]), rule, 10, random_places(np.random.default_rng(0), 10, 1, 4)).any()
