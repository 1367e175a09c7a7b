"""Bounds on figures, as a function and as typed."""

from __future__ import annotations

import json

import numpy as np
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
    checked = steadyscore.gate(audits[0], max={"ndcg@10": 0, "overlap": 0.5})
    assert not checked
    with pytest.raises(GateFailed, match=r"ndcg@10 <= 0 fails with .*; .*overlap <= 0.5 fails with 1.0000"):
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
        ({"min": 0.8}, "min is 0.8: give a bound for each measure, for example min={"),
        ({"max_drop": ["overlap"], "baseline": "runs/main"}, "max_drop is .*: give a bound for each measure"),
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


@pytest.mark.parametrize("number", [7, -0.5, 1.001])
def test_a_bound_that_no_mean_can_miss_or_reach_is_refused(audits, number):
    said = f"overlap lies between 0 and 1, so a bound of {number:g} says nothing"
    for flag in ("min", "max"):
        with pytest.raises(InputError, match=said):
            steadyscore.gate(audits, **{flag: {"overlap": number}})
    with pytest.raises(UsageError, match=f"^--min overlap={number}: {said}: give one between these.$"):
        parse_bounds([f"overlap={number}"], [])
    with pytest.raises(UsageError, match="lies between 0 and 1"):
        parse_bounds([], [], drops=["overlap=7"])


def test_a_measure_that_is_no_share_is_bounded_by_any_number():
    typed = [
        "score_variance=7",
        "pool_delta_ndcg@10=-0.1",
        "forced_primacy@10=-0.1",
        "overlap=0",
        "ndcg@10=1",
        "agreement.order=2",
    ]
    assert [bound.number for bound in parse_bounds(typed, [], is_known=lambda name: True)] == [7, -0.1, -0.1, 0, 1, 2]


# ---- drops from a baseline


def overlaps(values, *, name="mine"):
    """An audit whose queries have these overlaps: of four orders of two candidates each, one kept by a cutoff."""
    steady, turned = [[1, 0]] * 4, [[1, 0], [0, 1]] * 2
    scores = {f"q{i}": steady if value else turned for i, value in enumerate(values)}
    return steadyscore.audit(scores=scores, name=name, cutoff=0.5)


def test_a_drop_beyond_the_bound_fails_and_one_within_it_passes():
    before, after = overlaps([1] * 40), overlaps([0, 1] * 20)
    lost = gate_value(before, after)
    assert lost == pytest.approx(before[0]["overlap"].value - after[0]["overlap"].value)
    assert not steadyscore.gate(after, max_drop={"overlap": lost / 2}, baseline=before)
    assert steadyscore.gate(after, max_drop={"overlap": lost}, baseline=before)
    assert steadyscore.gate(before, max_drop={"overlap": 0}, baseline=after)
    with pytest.raises(GateFailed, match=r"drop of overlap <= 0.01 fails with 0.\d+ \[0.\d+, 0.\d+\] on 40 queries"):
        steadyscore.gate(after, max_drop={"overlap": 0.01}, baseline=before).raise_if_failed()


def gate_value(before, after):
    return steadyscore.gate(after, max_drop={"overlap": 0}, baseline=before).checks[0].value


def test_a_measure_that_is_better_lower_drops_by_rising():
    before, after = overlaps([1] * 30), overlaps([0, 1] * 15)
    checked = steadyscore.gate(after, max_drop={"tau_psi": 0.01}, baseline=before)
    assert not checked
    assert str(checked.checks[0].bound) == "rise of tau_psi <= 0.01"
    assert steadyscore.gate(before, max_drop={"tau_psi": 0.01}, baseline=after)


def test_the_drop_is_that_of_the_paired_difference_and_prints_with_its_interval():
    before, after = overlaps([1, 1, 0, 1] * 8), overlaps([0, 1, 1, 1] * 8)
    difference = (
        steadyscore.compare(before, overlaps([0, 1, 1, 1] * 8, name="other"), measures=["overlap"]).contrasts[0].difference
    )
    row = steadyscore.gate(after, max_drop={"overlap": 0.5}, baseline=before).to_json()[0]
    assert (row["value"], row["low"], row["high"]) == pytest.approx(
        (-difference.value, -difference.high, -difference.low), abs=0.01
    )
    assert row["queries"] == 32
    shown = str(steadyscore.gate(after, max_drop={"overlap": 0.5}, baseline=before))
    assert f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" in shown
    assert f"with 32 queries a drop of overlap of {row['smallest_seen']:.3f} fails in four of five cases" in shown


@pytest.mark.slow
def test_the_smallest_drop_that_is_seen_fails_four_times_in_five():
    """Queries of two kinds, drawn: how often the gate fails where the true drop is the one that it names."""
    rng, before = np.random.default_rng(5), overlaps([1] * 60)
    share = gate_value(before, overlaps([0] * 60))

    def check(true_drop):
        after = overlaps(rng.random(60) > true_drop / share)
        return steadyscore.gate(after, max_drop={"overlap": 0.05}, baseline=before).checks[0]

    truth = float(np.mean([check(0.15).smallest_seen for _ in range(20)]))
    assert 0.65 < np.mean([not check(truth).ok for _ in range(60)]) < 0.95


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"max_drop": {"overlap": 0.1}}, "give both"),
        ({"baseline": "self"}, "at least one bound"),
        ({"min": {"overlap": 0}, "baseline": "self"}, "give both"),
        ({"max_drop": {"retention": 0.1}, "baseline": "self"}, "neither direction of retention is better"),
        ({"max_drop": {"overlap": -0.1}, "baseline": "self"}, "below zero"),
        ({"max_drop": {"beauty": 0.1}, "baseline": "self"}, "unknown measure 'beauty'"),
    ],
)
def test_a_drop_that_cannot_be_checked_is_refused(given, sentence):
    mine = overlaps([1] * 6)
    with pytest.raises(InputError, match=sentence):
        steadyscore.gate(mine, **{name: mine if value == "self" else value for name, value in given.items()})


def test_what_differs_from_the_baseline_besides_the_scorer_is_said():
    sides = [
        steadyscore.audit(
            "synthetic:slot:0.2", some_instances(9), permutations=4, seed=seed, queries=queries, keep_first=2, quiet=True
        )
        for seed, queries in ((0, 9), (1, 7))
    ]
    said = steadyscore.gate(sides[1], max_drop={"overlap": 1}, baseline=sides[0]).remarks
    assert any("7 of 9 queries are shared by the baseline and synthetic:slot:0.2" in remark for remark in said)
    assert any("the runs differ in seed (0, 1), which moves measures by itself" in remark for remark in said)


def test_a_drop_on_too_few_shared_queries_is_refused():
    with pytest.raises(InputError, match="share fewer than 5 queries that have overlap"):
        steadyscore.gate(overlaps([1] * 9), max_drop={"overlap": 0.1}, baseline=overlaps([1] * 4))


def test_a_baseline_of_another_collection_or_another_threshold_is_refused(audits):
    with pytest.raises(InputError, match="the baseline has no runs to hold mine on scores against; it has steady on data"):
        steadyscore.gate(overlaps([1] * 6), max_drop={"overlap": 0.1}, baseline=audits)
    other = steadyscore.audit(scores=[[[1, 0], [0, 1]]] * 6, cutoff=0.25)
    with pytest.raises(InputError, match="different thresholds"):
        steadyscore.gate(overlaps([1] * 6), max_drop={"overlap": 0.1}, baseline=other)


def test_a_drop_is_typed_with_its_baseline(tmp_path, capsys):
    from steadyscore.cli import main

    for name, size in (("main", 0.0), ("pr", 3.0)):  # planted slot effects
        steadyscore.audit(
            f"synthetic:slot:{size}", some_instances(12), permutations=4, out=tmp_path / name, report=False, quiet=True
        )
    main_run, pr = str(tmp_path / "main"), str(tmp_path / "pr")
    assert main(["gate", pr, "--baseline", main_run, "--max-drop", "tau_psi=0.05", "--format", "markdown"]) == 3
    out = capsys.readouterr()
    assert "| synthetic:slot:3 on data | rise of tau_psi &lt;= 0.05 |" in out.out
    assert "| FAILED |" in out.out
    assert "rise of tau_psi <= 0.05 fails with" in out.err
    assert main(["gate", main_run, "--baseline", pr, "--max-drop", "tau_psi=0.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["queries"] == 12
    assert main(["gate", pr, "--max-drop", "tau_psi=0.05"]) == 2
    assert "--max-drop NAME=X and --baseline RUN go together" in capsys.readouterr().err
    assert main(["gate", pr, "--baseline", main_run, "--max-drop", "tau_psi=-1"]) == 2
    assert "a drop that is allowed is 0 or more" in capsys.readouterr().err
    assert main(["gate", pr, "--baseline", main_run, "--max-drop", "retention=0.1"]) == 1
    assert capsys.readouterr().err == "steadyscore: neither direction of retention is better, so it cannot drop.\n"


def test_a_score_file_is_held_to_bounds_as_its_audit_is(tmp_path, capsys):
    from steadyscore.cli import main

    rng = np.random.default_rng(1)
    rows = [f"q{q},{p},d{c},{rng.random()}" for q in range(12) for p in range(3) for c in range(5)]
    file = tmp_path / "mine.csv"
    file.write_text("\n".join(["query_id,permutation,candidate_id,score", *rows]))
    assert main(["gate", str(file), "--max", "tau_psi=1", "--keep", "2", "--min", "overlap=0", "--json"]) == 0
    overlap, tau_psi = (row["value"] for row in json.loads(capsys.readouterr().out))
    audit = steadyscore.audit(scores=file, keep_first=2)[0]
    assert (overlap, tau_psi) == (audit["overlap"].value, audit["tau_psi"].value)
    assert main(["gate", str(file), str(tmp_path), "--max", "tau_psi=1"]) == 2
    assert "Give runs, or score files" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["table", "markdown", "latex", "csv", "json"])
def test_a_gate_is_printed_in_every_form(tmp_path, capsys, form):
    from steadyscore.cli import main

    steadyscore.audit(scores=[[[1, 0], [0, 1]]] * 6, cutoff=0.5, out=tmp_path)
    assert main(["gate", str(tmp_path), "--max", "tau_psi=1", "--format", form]) == 0
    said = capsys.readouterr()
    beginning = {"table": "run ", "markdown": "| run |", "latex": r"\begin{table}", "csv": "run,", "json": "[\n  {"}
    assert said.out.startswith(beginning[form])
    assert ("next:" in said.err) is (form == "table")
