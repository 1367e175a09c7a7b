from __future__ import annotations

import numpy as np
import pytest

from steadyscore.errors import InputError
from steadyscore.measures.stopping import Capital, Evidence, Until, decide


def test_capital_follows_the_bets_literally():
    values, bound = np.random.default_rng(0).random(30), 0.4
    capital, seen, squares, expected = 1.0, [0.5], 0.25, []
    for x in values:
        mean, variance = np.mean(seen), squares / len(seen)
        stake = np.clip((mean - bound) / (variance + (mean - bound) ** 2), 0, 1 / (2 * bound))
        capital *= 1 + stake * (x - bound)
        expected.append(np.log(capital))
        seen.append(x)
        squares += (x - np.mean(seen)) ** 2
    assert np.allclose(log_capital(values, bound), expected)


def log_capital(values, bound):
    """log K_t after every value, (..., Q), of studies side by side."""
    capital, logs = Capital(np.full(np.shape(values)[:-1], bound)), []
    for value in np.moveaxis(np.asarray(values), -1, 0):
        capital.add(value)
        logs.append(capital.log)
    return np.stack(logs, axis=-1)


NULLS = {
    "coins": lambda rng, shape: (rng.random(shape) < 0.8).astype(float),
    "overlaps": lambda rng, shape: rng.beta(4, 1, shape),
    "constant": lambda rng, shape: np.full(shape, 0.8),
}


@pytest.mark.parametrize("name", NULLS)
def test_capital_is_fair_and_wrong_answers_are_rare_however_long_one_looks(name):
    values = NULLS[name](np.random.default_rng(0), (4000, 500))
    for side, bound in ((values, 0.8), (1 - values, 0.2)):
        capital = log_capital(side, bound)
        assert np.exp(capital[:, 5]).mean() == pytest.approx(1, abs=0.05)
        assert (capital >= np.log(20)).any(axis=1).mean() <= 0.05 + 0.007  # two standard errors of 4,000 studies


def test_stopping_is_right_and_early_when_the_answer_is_clear():
    rng = np.random.default_rng(1)
    below = [decide(rng.beta(6, 4, 1000), 0.8) for _ in range(100)]
    above = [decide(rng.beta(9.5, 0.5, 1000), 0.8) for _ in range(100)]
    assert {d.answer for d in below} == {"below"}
    assert {d.answer for d in above} == {"at_least"}
    assert np.median([d.queries for d in below]) < 60
    assert np.median([d.queries for d in above]) < 100


def test_stopping_passes_over_missing_values_and_refuses_unbounded_ones():
    values = np.array([np.nan] + [0.1] * 50)
    found = decide(values, 0.8)
    assert (found.answer, found.undefined) == ("below", 1)
    assert found.queries < 20
    assert decide(values[:3], 0.8) == ("undecided", 2, 1)
    assert decide([], 0.8).answer == "undecided"
    with pytest.raises(InputError, match="between 0 and 1"):
        decide([0.5, 1.5], 0.8)
    with pytest.raises(InputError, match="bound"):
        decide([0.5], 1.0)


# -- bounds and limits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("overlap>=0.8", Until("overlap", ">=", 0.8)),
        (" tau_psi <= .1 ", Until("tau_psi", "<=", 0.1)),
        ("pair_flip=±0.03", Until("pair_flip", "±", 0.03)),
        ("pair_flip=+-0.03", Until("pair_flip", "±", 0.03)),
        ("choice_flip.candidates<=0.2", Until("choice_flip.candidates", "<=", 0.2)),
    ],
)
def test_a_bound_is_read_as_it_is_written(text, expected):
    assert Until.parse(text) == expected
    assert Until.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "overlap", "overlap>0.8", "overlap=0.8", ">=0.8", "overlap>=high", "overlap>=0.8 or so"])
def test_what_is_no_bound_is_refused(text):
    with pytest.raises(InputError, match=r"is not a bound\. Write overlap>=0\.8"):
        Until.parse(text)


@pytest.mark.parametrize("text", ["overlap>=1", "overlap>=0", "tau_psi<=1.5", "pair_flip=±0.5", "pair_flip=±0"])
def test_a_bound_outside_the_range_is_refused(text):
    with pytest.raises(InputError, match=r"can never be decided: give a (bound on|width)"):
        Until.parse(text)


def evidence_of(text, values, error=0.05):
    """What is known when the answer falls, or after all values."""
    evidence = Evidence(Until.parse(text), error)
    for value in values:
        evidence.add(value)
        if evidence.answer != "undecided":
            break
    return evidence


@pytest.mark.parametrize(
    ("text", "mean", "answer"),
    [("overlap>=0.8", 0.95, "holds"), ("overlap>=0.8", 0.5, "fails"), ("flip<=0.2", 0.05, "holds"), ("flip<=0.2", 0.5, "fails")],
)
def test_an_answer_agrees_with_its_limits_and_with_the_decision(text, mean, answer):
    values = np.random.default_rng(3).beta(20 * mean, 20 * (1 - mean), 300)
    evidence, bound = evidence_of(text, values), Until.parse(text).number
    low, high = evidence.limits
    assert evidence.answer == answer
    assert low >= bound if mean > bound else high <= bound
    assert low < mean < high
    assert decide(values, bound).queries == evidence.queries


def test_a_width_is_known_when_both_limits_are_so_near():
    values = np.random.default_rng(4).random(5000)
    evidence = evidence_of("flip=±0.05", values)
    low, high = evidence.limits
    assert evidence.answer == "holds"
    assert 0.09 < high - low <= 0.1
    assert 100 < evidence.queries < 1000


def test_nothing_is_known_of_nothing():
    evidence = evidence_of("overlap>=0.8", [np.nan, np.nan])
    assert (evidence.answer, evidence.limits, evidence.queries) == ("undecided", (0.0, 1.0), 0)
    with pytest.raises(InputError, match="between 0 and 1"):
        evidence.add(1.5)


def test_limits_hold_the_mean_at_every_look():
    """Of 400 studies with 200 looks each, at most 10 % have limits that ever miss the mean: 5 % for each of the two."""
    rng, missed = np.random.default_rng(5), 0
    for _ in range(400):
        evidence = Evidence(Until.parse("overlap>=0.3"), 0.05)
        for value in rng.beta(2, 3, 200):
            evidence.add(value)
        low, high = evidence.limits  # they only ever come nearer
        missed += not low <= 0.4 <= high
    assert missed <= 40
