"""The reader consumer's arithmetic: answers, verdicts and the same-evidence control."""

from __future__ import annotations

import numpy as np
import pytest

from steadyscore.measures.answers import (
    answer_flip,
    evidence,
    exact_match,
    normalize_answer,
    normalize_verdict,
    same_evidence,
    same_evidence_reduction,
    token_f1,
    verdict_accuracy,
    verdict_flip,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel Tower.", "eiffel tower"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.A.", "usa"),
        ("rock-and-roll", "rockandroll"),
        ("The", ""),
        ("\n", ""),
    ],
)
def test_normalize_answer(text, expected):
    assert normalize_answer(text) == expected


def test_exact_match_takes_the_best_alias():
    assert exact_match("the Eiffel tower", ["Paris", "Eiffel Tower!"]) == 1
    assert exact_match("Eiffel", ["Paris", "Eiffel Tower"]) == 0
    assert np.isnan(exact_match("anything", []))


def test_token_f1():
    assert token_f1("Barack Hussein Obama", ["Barack Obama", "Obama"]) == pytest.approx(0.8)
    assert token_f1("to be or not to be", ["to be"]) == pytest.approx(2 * 2 / 8)
    assert token_f1("Rome", ["Paris"]) == 0
    assert token_f1("the", [""]) == 1  # empty only matches empty
    assert token_f1("", ["Paris"]) == 0


@pytest.mark.parametrize(("answer", "gold", "expected"), [("yes", "Yes.", 1), ("yes it is", "yes", 0), ("no", "no one", 0)])
def test_yes_and_no_earn_all_or_nothing(answer, gold, expected):
    assert token_f1(answer, [gold]) == expected


def test_answer_flip_compares_normalised_answers():
    answers = ["Paris", "paris.", "the Paris", "Lyon"]
    assert answer_flip(answers) == pytest.approx(3 / 6)
    assert answer_flip(answers, "modal") == pytest.approx(1 / 4)
    assert np.isnan(answer_flip(["Paris"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SUPPORTED", "SUPPORTED"),
        ("supports", "SUPPORTED"),
        ("Entailment.", "SUPPORTED"),
        ("The evidence refutes it", "REFUTED"),
        ("CONTRADICT", "REFUTED"),
        ("not_enough-info", "NOT ENOUGH INFO"),
        ("Not enough information!", "NOT ENOUGH INFO"),
        ("insufficient", "NOT ENOUGH INFO"),
        ("NEI", "NOT ENOUGH INFO"),
        ("SUPPORTED or REFUTED", None),
        ("not supported", None),
        ("doesn't support", None),
        ("unsupported", None),
        ("", None),
        ("maybe", None),
    ],
)
def test_normalize_verdict(text, expected):
    assert normalize_verdict(text) == expected


def test_verdict_measures_count_invalid_output_as_its_own_label():
    verdicts = ["SUPPORTED", "supports", "what", "hm", "REFUTED"]
    assert verdict_accuracy(verdicts, "SUPPORTED") == pytest.approx(0.4)
    assert verdict_flip(verdicts) == pytest.approx(8 / 10)
    assert verdict_flip(verdicts, "modal") == pytest.approx(3 / 5)
    assert np.isnan(verdict_accuracy([], "SUPPORTED"))


def test_evidence_and_same_evidence():
    first = np.array([9.0, 8, 7, 6, 5, 4])
    reordered, other = first[[1, 0, 2, 3, 4, 5]], first[[0, 1, 2, 3, 5, 4]]
    assert evidence(first[None]).tolist() == [[0, 1, 2, 3, 4]]
    assert same_evidence(first, reordered)  # a set: its order inside the prompt may differ
    assert not same_evidence(first, other)
    assert same_evidence(np.stack([first, first]), np.stack([reordered, other])).tolist() == [True, False]


def test_same_evidence_control_is_the_reduction_on_matched_queries():
    share, reduction = same_evidence_reduction([0.5, 0.4, 0.9], [0.2, 0.5, 0.0], [True, True, False])
    assert share == pytest.approx(2 / 3)
    assert reduction == pytest.approx((0.3 - 0.1) / 2)
    share, reduction = same_evidence_reduction([0.5], [0.2], [False])
    assert share == 0
    assert np.isnan(reduction)
