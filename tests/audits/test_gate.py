"""Bounds on figures, as a function and as typed."""

from __future__ import annotations

import json

import pytest

import steadyscore
from steadyscore.audits.gate import Check, Gate, parse_bounds
from steadyscore.audits.recommend import parse_target
from steadyscore.errors import GateFailed, InputError, UsageError
from tests.helpers.pools import some_instances


def test_bounds_are_read_as_typed():
    low, high = parse_bounds(["overlap=0.8"], ["tau_psi=0.1"])
    assert (str(low), str(high)) == ("overlap >= 0.8", "tau_psi <= 0.1")
    assert low.holds(0.8)
    assert not low.holds(0.79)
    assert not high.holds(0.2)


def test_every_bad_bound_is_told_at_once():
    with pytest.raises(UsageError, match=r"unknown measure 'beauty'(.|\n)*write a number"):
        parse_bounds(["beauty=1"], ["tau_psi=low"])
    with pytest.raises(UsageError, match="at least one bound"):
        parse_bounds([], [])
    with pytest.raises(UsageError, match=r"--min overlap=0.9: overlap has such a bound already"):
        parse_bounds(["overlap=0.8", "overlap=0.9"], ["overlap=1"])


def test_a_bound_is_met_where_only_the_sum_of_fractions_misses_it():
    # Sets that share one of three candidates on three queries and none on the fourth.
    sets = {"a": [[1, 1, 0, 0], [0, 1, 1, 0]], "b": [[1, 0, 0, 1], [0, 1, 0, 1]], "c": [[0, 0, 1, 1], [1, 0, 1, 0]]}
    audits = steadyscore.audit(scores=sets | {"d": [[1, 0, 0, 0], [0, 1, 0, 0]]}, cutoff=0.5)
    value = audits[0]["overlap"].value
    assert value != 0.25
    assert value == pytest.approx(0.25, abs=1e-15)
    assert steadyscore.gate(audits, min={"overlap": 0.25})
    assert steadyscore.gate(audits, max={"overlap": 0.25})
    assert not steadyscore.gate(audits, min={"overlap": 0.25 + 2e-9})


@pytest.mark.parametrize(
    ("bound", "value", "said"),
    [
        ("overlap=0.8", 0.79996, "overlap >= 0.8 fails with 0.79996"),
        ("overlap=0.8", 0.7, "overlap >= 0.8 fails with 0.7000"),
        ("overlap=0.7999996", 0.79999957, "overlap >= 0.7999996 fails with 0.79999957"),
    ],
    ids=["near", "far", "nearer"],
)
def test_a_bound_that_fails_is_told_with_enough_digits_to_see_it(bound, value, said):
    check = Check("run", parse_bounds([bound], [])[0], value, 0)
    assert check.reason == said
    assert str(value) in str(Gate((check,)))
    assert parse_target(bound) == check.bound


def test_what_must_be_known_of_a_run_stands_in_every_row_and_in_a_notebook():
    everything = steadyscore.audit(scores=[[[3, 2, 1], [1, 2, 3]]] * 2, cutoff=0)
    remark = "scores: the cutoff keeps 100% of the pool, so its overlap says little. Try --match-retention 0.25 or --cutoff."
    checked = steadyscore.gate(everything, min={"overlap": 0.5}, max={"tau_psi": 1})
    assert all(remark in row["remarks"] for row in checked.to_json())
    assert checked.remarks.count(remark) == 1
    assert remark in checked._repr_html_()


@pytest.fixture(scope="module")
def audits():
    scorers = {"steady": lambda query, texts: [float(len(text)) for text in texts]}
    return steadyscore.audit(scorers, some_instances(6), permutations=3, match_retention=0.4, quiet=True)


def test_a_gate_on_audits_is_a_value_that_is_true_where_every_bound_holds(audits):
    checked = steadyscore.gate(audits, min={"overlap": 0.8}, max={"tau_psi": 0.1})
    assert checked
    assert [check.ok for check in checked.checks] == [True, True]
    row = {"run": "steady on data", "bound": "overlap >= 0.8", "value": 1.0, "ok": True, "missing": 0}
    assert checked.to_json()[0] == row | {"remarks": audits.remarks()}
    assert "overlap >= 0.8" in str(checked)
    assert "<td>ok</td>" in checked._repr_html_()
    checked.raise_if_failed()


def test_a_gate_that_fails_names_every_bound(audits):
    checked = steadyscore.gate(audits[0], min={"ndcg@10": 1.1, "overlap": 2})
    assert not checked
    with pytest.raises(GateFailed, match=r"ndcg@10 >= 1.1 fails with .*; .*overlap >= 2 fails with 1.0000"):
        checked.raise_if_failed()
    assert checked.to_junit().count(b"<failure") == 2


def test_a_gate_on_a_folder_gives_what_the_command_gives(tmp_path, capsys):
    from steadyscore.cli import main

    steadyscore.audit("synthetic:slot:0.3", some_instances(6), permutations=3, out=tmp_path, report=False, quiet=True)
    assert main(["gate", str(tmp_path), "--max", "tau_psi=1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == steadyscore.gate(tmp_path, max={"tau_psi": 1}).to_json()


@pytest.mark.parametrize(
    ("bounds", "sentence"),
    [
        ({}, "at least one bound"),
        ({"min": {"beauty": 1}, "max": {"ugliness": 1}}, r"(?s)'beauty'.*'ugliness'"),
        ({"min": {"answer_flip": 1}}, "steady on data has no answer_flip; it has"),
        ({"min": {"overlap": 1}, "serving_permutations": 2}, "for run folders"),
    ],
)
def test_a_gate_that_cannot_be_checked_is_refused(audits, bounds, sentence):
    with pytest.raises(InputError, match=sentence):
        steadyscore.gate(audits, **bounds)


def test_a_gate_on_nothing_is_refused():
    for nothing in ((), (steadyscore.Audits([]),)):
        with pytest.raises(InputError, match="there is nothing to check"):
            steadyscore.gate(*nothing, min={"overlap": 0.9})


def test_queries_that_could_not_be_scored_fail_a_gate_until_they_are_allowed():
    def breaks(query, texts):
        if query.endswith("2"):
            raise ValueError("no")
        return [float(len(text)) for text in texts]

    audits = steadyscore.audit(breaks, some_instances(4), permutations=2, quiet=True)
    checked = steadyscore.gate(audits, max={"tau_psi": 1})
    assert [str(check.bound) for check in checked.checks if not check.ok] == ["missing queries <= 0"]
    assert "could not be scored: q2 (ValueError: no)." in str(checked)
    assert steadyscore.gate(audits, max={"tau_psi": 1}, allow_missing=1)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_bound_that_is_no_number_is_refused(number):
    with pytest.raises(UsageError, match="write a number"):
        parse_bounds([f"overlap={number}"], [])
