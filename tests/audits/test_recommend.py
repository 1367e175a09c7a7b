import argparse
import json

import numpy as np
import pytest

import steadyscore
from steadyscore.audits.gate import Bound
from steadyscore.audits.recommend import parse_target, recommend, windows_per_query
from steadyscore.commands import compare as command
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError, UsageError
from steadyscore.machine.disk import sha256
from steadyscore.measures.views import ScoreView
from steadyscore.models.adapter import WEIGHTS
from steadyscore.models.card import read_card
from steadyscore.models.embedded import shipped_adapters
from steadyscore.results.load import load_run
from steadyscore.runs.folder import Run
from steadyscore.scoring.config import AuditConfig
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING, RESPONSE_RANKING


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def made(name, effect, mitigations=(), permutations=12):
        scorer = Scorer(SyntheticReranker(effect, 0.3), PASSAGE_RERANKING, Settings(width=5))
        return score_collection(mitigate(scorer, mitigations), "passages", folder / name, AuditConfig(permutations=permutations))

    return {
        "pilot": made("pilot", "slot"),
        "steady": made("steady", "none", permutations=3),
        "canonical": made("canonical", "slot", ["canonical-order"], permutations=3),
        "averaged": made("averaged", "slot", ["self-consistency:4"], permutations=3),
    }


def test_a_target_is_a_measure_and_a_side():
    assert parse_target("overlap=0.8") == Bound("overlap", least=0.8)
    assert parse_target("overlap=0.8").holds(0.8 - 1e-10)
    assert not parse_target("tau_psi=0.1").holds(0.11)
    with pytest.raises(UsageError, match=r"(?s)is not a measure.*has no value"):
        parse_target("retention")
    with pytest.raises(UsageError, match="has no value"):
        parse_target("overlap=nan")
    with pytest.raises(UsageError, match=r"target 'overlap=7': overlap lies between 0 and 1, so a bound of 7 says nothing"):
        parse_target("overlap=7")
    assert parse_target("slot_rms=7") == Bound("slot_rms", most=7)


def test_the_curve_is_the_one_the_audit_measures(runs):
    found = recommend(runs["pilot"], target="tau_psi=0.1").options
    assert [option.serving_permutations for option in found] == [1, 2, 3, 4, 5, 6]
    values = [option.value for option in found]
    assert values[0] > values[2] > values[5]
    three = load_run(runs["pilot"], view=ScoreView(serving_permutations=3)).measured
    assert values[2] == pytest.approx(np.nanmean(three.values["tau_psi"]))
    first = found[0].windows
    assert [option.windows for option in found] == [first * K for K in range(1, 7)]


def test_the_cheapest_way_that_reaches_the_target_is_named(runs):
    curve = recommend(runs["pilot"], target="tau_psi=0.5").options
    between = (curve[2].value + curve[3].value) / 2
    best = recommend(runs["pilot"], target=f"tau_psi={between}").best
    assert best.serving_permutations == 4
    beside = recommend(*(runs[name] for name in ("pilot", "steady", "canonical", "averaged")), target=f"tau_psi={between}")
    assert beside.best.value == 0  # a scorer without order effect costs one pass
    assert beside.best.windows == curve[0].windows
    assert [o.windows for o in beside.options] == sorted(o.windows for o in beside.options)


def test_cost_knows_the_mitigation_a_run_was_made_with(runs):
    plain = windows_per_query(load_run(runs["pilot"]))
    assert windows_per_query(load_run(runs["canonical"])) == plain
    assert windows_per_query(load_run(runs["averaged"])) == 4 * plain


def test_a_target_out_of_reach_is_said_to_be(runs):
    assert recommend(runs["pilot"], target="tau_psi=0").best is None
    with pytest.raises(InputError, match="no run measures answer_flip"):
        recommend(runs["pilot"], target="answer_flip=0.1")


def test_runs_of_another_collection_are_refused_by_name(runs, tmp_path):
    scorer = Scorer(SyntheticReranker("slot", 0.3), RESPONSE_RANKING)
    other = score_collection(scorer, "responses", tmp_path / "other", AuditConfig(permutations=2))
    with pytest.raises(InputError, match=r"other is a run on responses, the pilot .*pilot one on passages"):
        recommend(runs["pilot"], runs["steady"], other, target="tau_psi=0.1")


@pytest.mark.parametrize(
    ("has_places", "windows", "cells"), [(True, [2.0, 4.0], ["2.0", "4.0"]), (False, [None, None], ["-", "-"])]
)
def test_scores_of_a_file_cost_the_windows_that_it_names(tmp_path, has_places, windows, cells):
    random = np.random.default_rng(0)
    rows = [
        {"query_id": f"q{q}", "permutation": m, "candidate_id": f"d{c}", "score": random.random(), "relevance": int(c == 0)}
        | ({"slot": place % 2, "window": place // 2} if has_places else {})
        for q in range(4) for m in range(4) for place, c in enumerate(random.permutation(4))
    ]  # fmt: skip
    steadyscore.audit(scores=rows, out=tmp_path, report=False, quiet=True)
    found = recommend(tmp_path, target="tau_psi=1")
    by_budget = sorted(found.options, key=lambda option: option.serving_permutations)
    assert [(option.serving_permutations, option.windows) for option in by_budget] == [*zip((1, 2), windows, strict=True)]
    assert [row[2] for row in sorted(found.tables()[0].shown_rows(), key=lambda row: int(row[1]))] == cells
    assert found.conclusion.endswith("2.0 windows a query." if has_places else "its windows not known.")
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["recommended"]["windows"] == windows[0]


def test_two_runs_of_one_scorer_are_told_apart_by_the_settings_that_differ(tmp_path):
    for width in (2, 3):
        steadyscore.audit(
            "synthetic:slot:0.3", "passages", queries=4, permutations=4, width=width, out=tmp_path / f"{width}", report=False
        )
    found = recommend(tmp_path / "2", tmp_path / "3", target="tau_psi=1")
    assert [(option.scorer, option.serving_permutations) for option in found.options] == [
        ("synthetic:slot:0.3 (width 3)", 1),
        ("synthetic:slot:0.3 (width 2)", 1),
        ("synthetic:slot:0.3 (width 2)", 2),
    ]
    assert found.conclusion == "tau_psi at most 1: synthetic:slot:0.3 (width 3), one permutation, 7.0 windows a query."


def typed(*words):
    parser = argparse.ArgumentParser()
    command.arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_the_command_prints_a_table_and_a_sentence(runs, capsys):
    pilot, steady = (runs[name].folder for name in ("pilot", "steady"))
    assert command.run(typed(pilot, "--target", "tau_psi=0.0")) == 0
    out = capsys.readouterr().out
    assert "tau_psi at most 0: not reached by any run, nor by averaging up to K = 6" in out
    assert command.run(typed(pilot, steady, "--target", "tau_psi=0.0")) == 0
    assert "synthetic:none:0.3, one permutation" in capsys.readouterr().out
    assert command.run(typed(pilot, steady, "--target", "overlap=0.8", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["target"] == {"measure": "overlap", "value": 0.8}
    assert {"scorer", "serving_permutations", "windows", "value", "is_reached"} <= told["options"][0].keys()
    assert Run.open(pilot).is_complete


def some_pools() -> list[dict]:
    """Pools whose first stage is right."""
    pool = [{"id": f"{i}", "text": str(i), "relevance": int(i == 0)} for i in range(4)]
    return [{"id": f"q{q}", "query": "q", "candidates": pool} for q in range(6)]


def test_a_scorer_that_no_order_moves_and_that_is_better_is_named(tmp_path):
    def made(name, score, **settings):
        steadyscore.audit({name: score}, some_pools(), permutations=4, out=tmp_path / name, report=False, **settings)
        return tmp_path / name

    alone = made("alone", lambda query, texts: [-float(text) for text in texts], width=1)
    batched = made("batched", lambda query, texts: [float(place) for place, _ in enumerate(texts)])
    found = recommend(batched, alone, target="tau_psi=0.1")
    better = [sentence for sentence in found.advice if "is steadier than" in sentence]
    assert len(better) == 1
    assert "alone, which scores every candidate alone, is steadier than batched (tau_psi 0.000 against 0." in better[0]
    assert "and better (ndcg@10 +" in better[0]
    assert better[0] in str(found)
    assert found.to_json()["advice"] == list(found.advice)
    assert not [sentence for sentence in recommend(alone, target="tau_psi=0.1").advice if "is steadier than" in sentence]


def test_a_scorer_below_its_first_stage_is_named(tmp_path):
    last_first = {"last first": lambda query, texts: [float(text) for text in texts]}
    steadyscore.audit(last_first, some_pools(), permutations=2, out=tmp_path / "run", report=False)
    found = recommend(tmp_path / "run", target="tau_psi=0.1")
    assert "ranks below its first stage: ndcg@10 0.431 against 1.000" in found.advice[0]


def test_what_two_thresholds_keep_is_not_compared(tmp_path):
    for name, rule in (("wide", {"keep_share": 0.9}), ("narrow", {"keep_first": 1})):
        steadyscore.audit(f"synthetic:slot:{0.1 * len(name)}", "passages", queries=6, out=tmp_path / name, report=False, **rule)
    with pytest.raises(InputError, match="different thresholds"):
        recommend(tmp_path / "wide", tmp_path / "narrow", target="overlap=0.5")
    assert recommend(tmp_path / "wide", tmp_path / "narrow", target="tau_psi=0.5").options  # needs no threshold


def test_what_the_card_of_a_shipped_scorer_says_of_other_collections_stands_beside_its_run(tmp_path, monkeypatch):
    folder = shipped_adapters()["smollm2-135m-set"]
    identity = SyntheticReranker.identity
    adapter = {"sha256": sha256(folder / WEIGHTS)[:16]}
    monkeypatch.setattr(SyntheticReranker, "identity", lambda self: identity(self) | {"adapter": adapter})
    steadyscore.audit("synthetic:slot:0.3", "passages", queries=6, permutations=2, out=tmp_path / "run", report=False)
    found = recommend(tmp_path / "run", target="tau_psi=0.1")
    findings = read_card(folder).findings
    purpose, *told = found.findings
    assert purpose == "synthetic:slot:0.3 shows the method on two cores and does not compete with larger scorers."
    assert len(findings) > 1
    for sentence, finding in zip(told, findings, strict=True):
        verdict = "helps" if finding.helps else "does not help"
        assert sentence == f"synthetic:slot:0.3 {verdict} on {finding.collection}: {finding.sentence}"
        assert sentence in str(found)
    assert found.to_json()["findings"] == list(found.findings)
    adapter["sha256"] = "0" * 16
    steadyscore.audit("synthetic:slot:0.3", "passages", queries=6, permutations=2, out=tmp_path / "other", report=False)
    assert recommend(tmp_path / "other", target="tau_psi=0.1").findings == ()
