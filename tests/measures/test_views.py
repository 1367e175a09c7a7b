"""Readouts, tie rules and means of K orders from a stored table: what was planted comes back in every measure that ranks."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.measures.instability import tau_psi
from steadyscore.measures.ir_library import library_values
from steadyscore.measures.measurement import Threshold, measure
from steadyscore.measures.ranking import rank
from steadyscore.measures.views import ScoreView, borda, ensembles, ranked_permuted
from steadyscore.runs.folder import find_run
from steadyscore.runs.table import FIRST_STAGE, Scored


def shown_in(orders, scores, **facts) -> Scored:
    """A query of n candidates in one window per order; orders are position -> column, the first is the first stage's."""
    orders = np.asarray(orders)
    slots = np.argsort(orders, axis=1)
    n = orders.shape[1]
    return Scored(
        query_id="q", candidate_ids=tuple("abcdefgh"[:n]), permutations=np.arange(len(orders)) - 1,
        scores=np.asarray(scores, float), slots=slots, windows=np.zeros_like(slots), **facts,
    )  # fmt: skip


ORDERS = [[2, 1, 0], [0, 1, 2], [1, 2, 0], [2, 0, 1]]
TIED = shown_in(ORDERS, np.zeros((4, 3)), relevance=np.array([1.0, 0, 0]))
"""Three candidates that the scorer cannot tell apart; only `a` is relevant."""


def values(query, **how):
    return {name: float(found[0]) for name, found in measure([ScoreView(**how).of(query)]).values.items()}


def test_ties_by_input_position_reach_every_measure_that_ranks_or_selects():
    by_id, by_input = values(TIED), values(TIED, ties="input")
    assert (by_id["ndcg@1"], by_id["pair_flip"], by_id["tau_psi"], by_id["gold_crossing"]) == (1, 0, 0, 0)
    assert by_input["ndcg@1"] == 0  # the first stage shows c first
    assert by_input["mean_ndcg@1"] == by_input["label_accuracy"] == pytest.approx(1 / 3)
    assert by_input["pair_flip"] == by_input["selection_flip"] == by_input["gold_crossing"] == 1
    assert by_input["mrr"] == pytest.approx(1 / 3)
    assert by_input["tau_psi"] == by_input["tau_psi_input_position"] == pytest.approx(2 / 3)
    assert by_input["rank_variance"] == pytest.approx(2 / 3)


def test_a_budget_follows_the_rule_and_a_cutoff_does_not():
    by_id, by_input = (measure([ScoreView(ties=rule).of(TIED)], Threshold(keep_first=1)).values for rule in ("id", "input"))
    assert (by_id["overlap"][0], by_input["overlap"][0]) == (1, 0)
    kept = [measure([ScoreView(ties=rule).of(TIED)], Threshold(cutoff=0.0)).values for rule in ("id", "input")]
    assert kept[0]["overlap"][0] == kept[1]["overlap"][0] == 1


def test_measures_of_scores_do_not_see_the_tie_rule():
    query = shown_in(ORDERS, [[0.2, 0.2, 0.5]] * 4, relevance=np.array([1.0, 0, 0]))
    by_id, by_input = values(query), values(query, ties="input")
    for name in ("tied_pairs", "adjacent_ties", "tau_b_psi", "score_variance", "tie_sensitivity_pair", "label_accuracy_averaged"):
        assert by_id[name] == by_input[name], name


@given(st.integers(0, 10_000))
def test_without_ties_the_rule_changes_nothing(seed):
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.arange(12.0).reshape(4, 3), axis=None).reshape(4, 3)
    query = shown_in(ORDERS, scores, relevance=np.array([2.0, 0, 1]))
    assert values(query) == pytest.approx(values(query, ties="input"))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=12, max_size=12))
def test_equal_scores_follow_the_order_shown_and_others_stay(scores):
    query = ScoreView(ties="input").of(shown_in(ORDERS, np.reshape(scores, (4, 3))))
    for row, old, order in zip(ranked_permuted(query), query.permuted, query.orders(), strict=True):
        position = np.argsort(order)
        assert np.argsort(-row).tolist() == np.lexsort((position, -old)).tolist()


def test_further_ranking_measures_follow_the_rule():
    pytest.importorskip("ir_measures")
    assert library_values([TIED], ["RR"])["RR"] == 1
    assert library_values([ScoreView(ties="input").of(TIED)], ["RR"])["RR"] == pytest.approx(1 / 3)


def test_readouts_come_from_the_stored_distribution():
    grades = np.tile([[0.4, 0.1, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4], [0.0, 1.0, 0.0, 0.0]], (4, 1, 1))
    query = replace(TIED, grades=grades)
    assert ScoreView("argmax").of(query).scores[0] == pytest.approx([0, 1, 1 / 3])
    assert ScoreView("p2").of(query).scores[0] == pytest.approx([0.5, 0.7, 0])
    assert ScoreView().of(query).scores is query.scores
    with pytest.raises(InputError, match="no stored grade distribution"):
        ScoreView("argmax").of(TIED)


def test_what_is_not_stored_is_refused():
    bare = replace(TIED, slots=None, windows=None)
    with pytest.raises(InputError, match="equal scores and no stored places"):
        ScoreView(ties="input").of(bare)
    distinct = replace(bare, scores=np.tile([0.1, 0.2, 0.3], (4, 1)))
    assert ScoreView(ties="input").of(distinct).scores is distinct.scores
    with pytest.raises(InputError, match='ties "position" is unknown'):
        ScoreView(ties="position")


# -- from a run folder


@pytest.fixture(scope="module")
def tied_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tied") / "run"
    steadyscore.audit("synthetic:ties", "responses", out=folder, permutations=4, queries=8, report=False, quiet=True)
    return folder


def test_every_verb_reads_a_run_as_it_is_told(tied_run, tmp_path, capsys):
    pytest.importorskip("jinja2", reason="the page needs the extra reports")
    plain, by_input = steadyscore.load(tied_run)[0], steadyscore.load(tied_run, ties="input")[0]
    assert plain["tau_psi"].value == 0 < by_input["tau_psi"].value == plain["tau_psi_input_position"].value
    assert "read with ties input" in " ".join(by_input.remarks())
    assert by_input.to_json()["reading"] == {"readout": "expected", "ties": "input"}
    assert main(["gate", str(tied_run), "--max", "tau_psi=0", "--set", "ties=input"]) == 3
    assert main(["gate", str(tied_run), "--max", "tau_psi=0"]) == 0
    assert not steadyscore.gate(tied_run, max={"tau_psi": 0}, ties="input")
    capsys.readouterr()
    assert main(["report", str(tied_run), "--set", "readout=argmax", "--out", str(tmp_path)]) == 1
    assert "no stored grade distribution" in capsys.readouterr().err


def test_what_an_audit_was_read_with_stays_with_the_run(tmp_path, capsys):
    command = [
        "audit",
        "--scorer",
        "synthetic:ties",
        "--data",
        "responses",
        "--queries",
        "4",
        "--permutations",
        "3",
        "--no-report",
    ]
    assert main([*command, "--set", "ties=input", "--out", str(tmp_path / "run"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["measures"]["tau_psi"]["value"]
    assert told > 0
    assert steadyscore.load(tmp_path / "run")[0]["tau_psi"].value == told
    assert steadyscore.load(tmp_path / "run", ties="id")[0]["tau_psi"].value == 0
    assert steadyscore.load(tmp_path / "run", serving_permutations=3)[0].view.ties == "id"
    assert main([*command, "--set", "ties=input", "--set", "curve=yes", "--out", str(tmp_path / "other")]) == 2
    with pytest.raises(InputError, match="mean of 3 orders"):
        steadyscore.load(tmp_path / "run", serving_permutations=3, ties="input")


def test_a_first_stage_row_has_its_own_order(tied_run):
    query = find_run(tied_run).read_queries()[0]
    assert query.presented()[query.permutations == FIRST_STAGE].shape == (1, len(query.candidate_ids))


SCORES = np.random.default_rng(0).random((5, 40, 8))


def test_four_disjoint_ensembles_of_ten():
    groups = ensembles(SCORES, 10)
    assert groups.shape == (5, 4, 8)
    assert groups[:, 1] == pytest.approx(SCORES[:, 10:20].mean(axis=1))


def test_one_permutation_is_the_scores_and_a_remainder_is_left_out():
    assert np.array_equal(ensembles(SCORES, 1), SCORES)
    assert ensembles(SCORES[:, :10], 3).shape == (5, 3, 8)
    assert ensembles(SCORES[:, :10], 3)[:, 0] == pytest.approx(SCORES[:, :3].mean(axis=1))


@pytest.mark.parametrize("size", [0, 41])
def test_an_impossible_ensemble_is_refused(size):
    with pytest.raises(InputError, match="score more permutations"):
        ensembles(SCORES, size)


def test_averaging_more_permutations_of_a_noisy_scorer_lowers_instability():
    rng = np.random.default_rng(1)
    noisy = np.arange(8.0) + rng.normal(0, 4, (50, 40, 8))
    values = [tau_psi(ensembles(noisy, size)).mean() for size in (1, 2, 5, 10)]
    assert values == sorted(values, reverse=True)


def test_borda_counts_the_candidates_below():
    assert borda([[0.1, 0.9, 0.5]]).tolist() == [[0, 2, 1]]
    tied = borda([[1.0, 1.0]], "input_position", [[1, 0]])
    assert tied.tolist() == [[0, 1]]
    expected = 7 - rank(SCORES[:, :10]).mean(axis=1)
    assert ensembles(borda(SCORES[:, :10]), 10)[:, 0] == pytest.approx(expected)
