"""Cutoffs that are matched to another run: on each collection, at the same serving budget, from both command line and Python."""

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.machine.disk import lock_folder
from steadyscore.measures.measurement import fitted_retention, measure
from steadyscore.measures.threshold import Threshold
from steadyscore.measures.views import ScoreView
from steadyscore.results.load import match_threshold
from steadyscore.runs.folder import find_run
from tests.helpers.pools import some_instances


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matched")
    how = {"permutations": 6, "report": False, "quiet": True}
    for name, scorer in (("first", "synthetic:slot:0.6"), ("other", "synthetic:companion:0.4")):
        steadyscore.audit(scorer, ["passages", "responses"], out=folder / name, **how)
    return folder


@pytest.mark.parametrize("budget", [1, 3])
def test_a_matched_cutoff_keeps_what_the_other_runs_own_cutoff_keeps(runs, budget):
    own = steadyscore.load(runs / "first", threshold=Threshold(cutoff="f1"), serving_permutations=budget)
    matched = steadyscore.load(runs / "other", threshold=Threshold(retention_of=str(runs / "first")), serving_permutations=budget)
    for one, other in zip(own, matched, strict=True):
        share = fitted_retention(one.queries, one.measured.cutoff.value, one.threshold)
        served = [q.permuted[0] if q.first_stage is None else q.first_stage for q in other.queries]
        kept = np.mean([(row >= other.measured.cutoff.value).mean() for row in served])
        assert share == pytest.approx(kept, abs=1 / len(other.queries[0].candidate_ids))
        assert other.measured.cutoff.how.startswith("retention-matched")


@pytest.mark.parametrize(
    ("stored", "meant"), [({}, {"cutoff": "f1"}), ({"retention": 0.4}, {"retention": 0.4, "half": True})], ids=["f1", "matched"]
)
def test_a_folder_from_before_there_were_folds_gives_the_numbers_that_it_gave(tmp_path, stored, meant):
    steadyscore.audit("synthetic:slot:0.6", "passages", queries=8, permutations=3, scheme="hashed", out=tmp_path, quiet=True)
    run = find_run(tmp_path)
    blank = {"cutoff": None, "protocol": "midpoints", "seed": 0, "retention": None, "keep_first": None, "keep_share": None}
    with lock_folder(run.folder):
        run.update_record(threshold=blank | stored)
    (old,) = steadyscore.load(tmp_path)
    assert old.threshold == Threshold(**meant)
    expected = measure(run.read_queries(), Threshold(**meant))
    assert old.measured.cutoff == expected.cutoff
    assert (old.measured.cutoff.fitted_on, old.measured.cutoff.measured_on, old.measured.cutoff.folds) == (4, 4, None)
    np.testing.assert_array_equal(old.measured.values["overlap"], expected.values["overlap"])
    (new,) = steadyscore.audit("synthetic:companion:0.4", "passages", queries=8, permutations=3, quiet=True)
    with pytest.raises(InputError, match="audited with different thresholds"):
        steadyscore.compare(old, new, measures=["overlap"])


def test_each_budget_has_a_share_of_its_own(runs):
    by = Threshold(retention_of=str(runs / "first"))
    shares = [match_threshold(by, "passages", ScoreView(serving_permutations=budget)).retention for budget in (1, 2, 3)]
    assert len(set(shares)) > 1


def test_the_curve_of_an_audit_is_matched_at_every_budget(runs, tmp_path, capsys):
    words = ["audit", "--scorer", "synthetic:companion:0.4", "--data", "passages", "--permutations", "6", "--no-report", "--json"]
    assert main([*words, "--set", "curve=yes", "--match-retention", str(runs / "first"), "--out", str(tmp_path / "run")]) == 0
    curve = json.loads(capsys.readouterr().out)["runs"][0]["curve"]
    for budget in ("1", "3"):
        how = {"threshold": Threshold(retention_of=str(runs / "first")), "serving_permutations": int(budget)}
        passages = steadyscore.load(runs / "other" / "passages", **how)[0]
        assert curve[budget]["overlap"] == pytest.approx(passages["overlap"].value)
    kept = steadyscore.load(tmp_path / "run")[0].threshold  # the run keeps the share, and not the way to it
    assert (kept.retention, kept.retention_of) == (pytest.approx(match_threshold(
        Threshold(retention_of=str(runs / "first")), "passages", ScoreView()).retention), None)  # fmt: skip


def test_compare_matches_every_collection(runs, capsys):
    first, other = str(runs / "first"), str(runs / "other")
    assert main(["compare", first, other, "--measures", "overlap", "--match-retention", first, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [row["task"] for row in printed["contrasts"]] == ["passage_reranking", "response_ranking"]


def test_what_cannot_be_matched_is_refused(runs, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["gate", str(runs / "first"), "--min", "overlap=0", "--match-retention", "nowhere"])
    assert "not a share and not a run folder" in capsys.readouterr().err
    only = runs / "first" / "passages"
    with pytest.raises(InputError, match="holds no run on responses to match"):
        steadyscore.load(runs / "other" / "responses", threshold=Threshold(retention_of=str(only)))
    with pytest.raises(InputError, match="belong to no collection"):
        steadyscore.audit(scores=[[[0.1, 0.2], [0.2, 0.1]]], match_retention=str(only), quiet=True)


def test_a_scorer_that_only_noise_moves_is_not_above_its_floor(tmp_path):
    rng = np.random.default_rng(0)
    outside = {f"x{i}": 1 for i in range(8)}
    rows = [
        {
            "id": f"q{q:02}", "query": f"query {q}", "judged": outside,
            "candidates": [{"id": f"{c}", "text": f"text {c}", "relevance": int(c < 2)} for c in range(8)],
        }
        for q in range(30)
    ]  # fmt: skip

    def noisy(query: str, texts: list[str]) -> list[float]:
        return [int(text[5:]) / 8 + 0.3 * rng.standard_normal() for text in texts]

    (audit,) = steadyscore.audit(
        {"noisy": noisy}, rows, permutations=8, keep_first=3, noise_floor=True, out=tmp_path, report=False, quiet=True
    )
    beside = {name: figure for name, figure in audit.figures.items() if figure.floor is not None}
    assert {"tau_psi", "overlap", "order_spread@10", "score_variance", "gold_crossing"} <= beside.keys()
    assert [name for name, figure in beside.items() if figure.is_above_floor] == []
    few = steadyscore.audit({"noisy": noisy}, rows[:3], permutations=2, noise_floor=True, out=tmp_path / "few", quiet=True)[0]
    assert few["tau_psi"].is_above_floor is None


def test_a_slot_effect_is_above_a_floor_of_nothing(tmp_path):
    how = {"permutations": 4, "keep_first": 3, "noise_floor": True, "report": False, "quiet": True}
    (audit,) = steadyscore.audit("synthetic:slot:0.6", "passages", out=tmp_path, **how)
    assert audit["tau_psi"].floor == 0
    assert audit["tau_psi"].is_above_floor
    assert audit["overlap"].is_above_floor


def test_measures_of_pairs_of_balanced_orders_come_with_a_warning():
    how = {"data": some_instances(queries=6, candidates=8), "permutations": 4, "quiet": True}
    plain, balanced = (steadyscore.audit("synthetic:slot:0.6", scheme=scheme, **how)[0] for scheme in ("hashed", "balanced"))
    assert not [warning for warning in plain.warnings() if "balanced" in warning]
    (said,) = [warning for warning in balanced.warnings() if "was shown balanced orders" in warning]
    assert "tau_psi" in said


def test_folders_may_come_in_a_list_and_anything_else_is_refused(tmp_path):
    for name, scorer in (("one", "synthetic:slot"), ("two", "synthetic:none")):
        steadyscore.audit(scorer, some_instances(4), permutations=3, out=tmp_path / name, report=False)
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert str(steadyscore.compare(folders)) == str(steadyscore.compare(*folders))
    assert steadyscore.gate(folders, max={"tau_psi": 1})
    for odd in ([1, 2], 7, {"a": 1}):
        with pytest.raises(InputError, match="is not an audit and not a folder of runs"):
            steadyscore.compare(odd, folders[0])
