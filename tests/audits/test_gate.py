"""Bounds on figures, as a function and as typed."""

from __future__ import annotations

import json

import pytest

import steadyscore
from steadyscore.audits.gate import parse_bounds
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


@pytest.fixture(scope="module")
def audits():
    scorers = {"steady": lambda query, texts: [float(len(text)) for text in texts]}
    return steadyscore.audit(scorers, some_instances(6), permutations=3, match_retention=0.4, quiet=True)


def test_a_gate_on_audits_is_a_value_that_is_true_where_every_bound_holds(audits):
    checked = steadyscore.gate(audits, min={"overlap": 0.8}, max={"tau_psi": 0.1})
    assert checked
    assert [check.ok for check in checked.checks] == [True, True]
    assert checked.to_json()[0] == {"run": "steady on data", "bound": "overlap >= 0.8", "value": 1.0, "ok": True, "missing": 0}
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
    assert "misses 1 of 4 queries, which are in no mean: q2." in str(checked)
    assert steadyscore.gate(audits, max={"tau_psi": 1}, allow_missing=1)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_a_bound_that_is_no_number_is_refused(number):
    with pytest.raises(UsageError, match="write a number"):
        parse_bounds([f"overlap={number}"], [])
