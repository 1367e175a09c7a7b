"""What must be known to read a table: in Python, in a notebook, on the page and in JSON as on the terminal."""

from __future__ import annotations

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.measures.threshold import Threshold
from tests.helpers.pools import some_instances, write_collection

FAILING = """
def score(query, texts):
    if query.endswith("2"):
        raise ValueError("no")
    return [float(len(text)) for text in texts]
"""


def test_queries_that_failed_are_named_wherever_the_figures_are(tmp_path, monkeypatch, capsys):
    (tmp_path / "failing.py").write_text(FAILING)
    monkeypatch.chdir(tmp_path)
    data = str(write_collection(tmp_path / "small.jsonl", some_instances(4)))
    command = ["audit", "--scorer", "python:failing:score", "--data", data, "--permutations", "2", "--out", "run"]
    sentence = "1 of 4 queries of python:failing:score could not be scored: q2 (ValueError: no)."
    assert main(command) == 4
    assert capsys.readouterr().out.count(f"small: {sentence}\n") == 1
    assert main([*command, "--json"]) == 4
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert f"small: {sentence}" in found["remarks"]
    assert f"small: {sentence}" in found["runs"][0]["remarks"]
    assert found["coverage"]["failed"] == {"q2": "ValueError: no"}
    assert sentence in printed.err
    audits = steadyscore.load("run")
    assert f"small: {sentence}" in audits.remarks()
    assert sentence in audits._repr_html_()
    assert audits[0].measured.coverage.failed == {"q2": "ValueError: no"}
    assert sentence.replace(" ", "") in (tmp_path / "run/report/index.html").read_text().replace("\u00a0", "").replace(" ", "")


def test_the_json_of_given_scores_has_every_remark(tmp_path, capsys):
    file = tmp_path / "mine.csv"
    rows = [f"q{q},{m},d{c},{(m + c) % 3}" for q in range(3) for m in range(2) for c in range(3)]
    file.write_text("\n".join(["query_id,permutation,candidate_id,score", *rows]))
    assert main(["audit", "--scores", str(file), "--cutoff", "0", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [remark for remark in found["remarks"] if "the cutoff keeps 100% of the pool" in remark]
    assert {"measures", "coverage", "cutoff"} < found.keys()


def test_the_json_of_a_comparison_has_every_sentence_that_it_prints():
    scorers = {"length": lambda query, texts: [len(text) for text in texts], "first": lambda query, texts: range(len(texts))}
    compared = steadyscore.compare(steadyscore.audit(scorers, some_instances(6), permutations=3, quiet=True))
    remarks = compared.to_json()["remarks"]
    assert remarks
    assert str(compared).endswith("\n".join(remarks))


def pairs(count: int = 200, flipping: int = 95) -> list[dict]:
    """Pools of two; of the marked ones, whoever stands first wins, or second in every fifth."""
    return [
        {
            "query": f"question {q} {'flips' if q < flipping else 'stays'} {'second' if q % 5 == 0 else 'first'}",
            "candidates": [{"id": "a", "text": "good", "relevance": 1}, {"id": "b", "text": "bad", "relevance": 0}],
        }
        for q in range(count)
    ]


def judge(query: str, texts: list[str]) -> list[float]:
    if "flips" not in query:
        return [float(text == "good") for text in texts]
    return [0.0, 1.0] if "second" in query else [1.0, 0.0]


@pytest.fixture(scope="module")
def judged():
    return steadyscore.audit(judge, pairs(), quiet=True)


def test_a_planted_swap_effect_comes_back(judged):
    figures = judged[0].figures
    assert figures["swap_flip"].value == figures["pair_flip"].value == figures["tau_psi"].value == 0.475
    assert figures["first_place_bias"].value == pytest.approx((76 - 19) / 200)
    assert figures["swap_accuracy"].value == pytest.approx(105 / 200)
    assert "swap_flip" in judged.table
    assert "200 pools of 2 candidates have only 2 orders; each was shown once." in " ".join(judged.remarks())
    assert judged[0].measured.coverage.fewer_permutations == {}


def test_the_papers_scheme_compares_orders_with_themselves_and_says_so():
    (found,) = steadyscore.audit(judge, pairs(20, 10), scheme="hashed", quiet=True)
    assert found.figures["pair_flip"].value < 0.5 == found.figures["swap_flip"].value
    assert [
        remark for remark in found.remarks() if "20 pools of 2 candidates have only 2 orders; some were shown again" in remark
    ]


def test_pools_of_one_are_counted_and_move_nothing():
    several = [{"query": f"many {q}", "candidates": [f"text {i}" for i in range(6)]} for q in range(6)]
    single = [{"query": f"one {q}", "candidates": ["text"]} for q in range(6)]

    def by_place(query, texts):
        return [float(len(texts) - place) for place in range(len(texts))]

    (alone,), (both,) = (steadyscore.audit(by_place, rows, permutations=4, quiet=True) for rows in (several, several + single))
    for name in ("tau_psi", "pair_flip", "selection_flip", "score_variance"):
        assert both.figures[name] == alone.figures[name]
    assert len(both.measured.coverage.left_out["moves"]) == 6
    assert [remark for remark in both.remarks() if "6 of 12 queries have one candidate, which no order moves" in remark]
    assert both.measured.coverage.fewer_permutations == {}


def constant(query, texts):
    return [0.5] * len(texts)


def test_a_constant_scorer_shows_no_quality_without_a_word():
    rows = [
        {"query": f"q{q}", "candidates": [{"id": f"d{c}", "text": f"text {c}", "relevance": int(c < 2)} for c in range(12)]}
        for q in range(4)
    ]
    (found,) = steadyscore.audit(constant, rows, permutations=3, quiet=True)
    assert found.figures["ndcg@10"].value == 1
    (said,) = [warning for warning in found.warnings() if "equal scores" in warning]
    reversed_ = found.ties_reversed["ndcg@10"]
    assert reversed_ == 0
    assert f"ndcg@10 1.000 and {reversed_:.3f} with ties to the smaller and to the larger id" in said
    assert "tau_psi" not in said
    (by_input,) = steadyscore.audit(constant, rows, permutations=3, quiet=True, ties="input")
    assert by_input.ties_reversed == {}


def test_scores_that_do_not_tie_are_measured_once():
    (found,) = steadyscore.audit(scores=np.random.default_rng(0).random((4, 3, 5)))
    assert found.ties_reversed == {}
    assert not [warning for warning in found.warnings() if "equal scores" in warning]


def test_sets_that_agree_as_random_ones_do_are_said_to():
    random, steady = np.random.default_rng(3).random((40, 6, 20)), np.random.default_rng(3).random((40, 1, 20))
    (found,) = steadyscore.audit(scores=random)
    (said,) = [warning for warning in found.warnings() if "random sets" in warning]
    assert f"{found.figures['overlap'].value:.3f} against {found.figures['chance_overlap'].value:.3f}, difference" in said
    (other,) = steadyscore.audit(scores=np.repeat(steady, 6, axis=1))
    assert not [warning for warning in other.warnings() if "random sets" in warning]


@pytest.mark.parametrize(("queries", "is_said"), [(3, True), (9, True), (10, False), (1, False)])
def test_intervals_of_few_queries_are_said_to_be_too_narrow(queries, is_said):
    audits = steadyscore.audit(scores=np.random.default_rng(0).random((queries, 3, 5)))
    assert str(audits).count("intervals of fewer than 10 queries are too narrow") == is_said


def test_the_default_cutoff_keeps_a_share_and_measures_every_query():
    (found,) = steadyscore.audit(scores=np.random.default_rng(0).random((20, 3, 10)))
    assert found.threshold == Threshold(retention=0.3)
    assert found.figures["overlap"].queries == 20
    assert found.figures["retention"].value == pytest.approx(0.3, abs=0.02)
    assert "fitted on 20 queries in permutation 0, each of them measured with one fitted on the other 4 of 5 folds" in str(
        found.remarks()
    )


def test_an_order_that_two_schemes_draw_alike_is_no_difference(tmp_path):
    for scheme in ("hashed", "distinct"):
        steadyscore.audit(
            "synthetic:slot:0.3", "passages", queries=3, permutations=3, scheme=scheme, out=tmp_path / scheme, quiet=True
        )
    found = steadyscore.compare(tmp_path / "hashed", tmp_path / "distinct", measures=["tau_psi"])
    assert "differ in scheme" not in str(found)
