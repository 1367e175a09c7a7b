import numpy as np
import pytest

from steadyscore.audits.load import load_run
from steadyscore.collection import open_collection
from steadyscore.scoring.perturbed import score_perturbed
from steadyscore.scoring.score import AuditConfig, Cut, open_scorer, score_collection
from steadyscore.scoring.scorer import Settings
from tests.helpers.pools import some_instances, write_collection


def run(tmp_path, address, pool=6, **settings):
    file = write_collection(tmp_path / "pools.jsonl", some_instances(queries=5, candidates=8))
    config = AuditConfig(permutations=2, cut=Cut(pool=pool), settings=Settings(**settings))
    scorer = open_scorer(address, open_collection(str(file)).collection, config)
    return scorer, score_collection(scorer, str(file), tmp_path / "run", config), str(file), config


def moved(scorer, found, source, config, kinds):
    score_perturbed(scorer, found, source, config, kinds)
    return load_run(found).measured.values


def test_a_scorer_without_order_effect_ignores_the_pool(tmp_path):
    values = moved(*run(tmp_path, "synthetic:none"), ["replace", "drop"])
    for name in ("pool_psi", "pool_psi_drop", "top10_changed", "pool_absolute_delta_ndcg@10"):
        assert values[name].tolist() == [0.0] * 5


def test_a_companion_effect_shows_when_companions_change(tmp_path):
    values = moved(*run(tmp_path, "synthetic:companion:1"), ["replace", "drop"])
    assert values["pool_psi"].mean() > 0
    assert values["pool_psi_drop"].mean() > 0


def test_without_a_next_candidate_nothing_is_replaced(tmp_path):
    values = moved(*run(tmp_path, "synthetic:none", pool=8), ["replace"])
    assert "pool_psi" not in values


def test_markers_move_a_language_model_and_not_a_reranker(tmp_path, tiny_folder):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert moved(*run(tmp_path / "a", "synthetic:slot"), ["markers"])["marker_tau_psi"].tolist() == [0.0] * 5
    assert np.mean(moved(*run(tmp_path / "b", f"hf:{tiny_folder}", pool=3, width=3), ["markers"])["marker_tau_psi"]) > 0


def test_what_was_perturbed_is_kept(tmp_path, monkeypatch):
    scorer, found, source, config = run(tmp_path, "synthetic:companion:1")
    first = moved(scorer, found, source, config, ["drop"])
    monkeypatch.setattr(scorer, "score_orders", lambda *_: pytest.fail("scored again"))
    again = moved(scorer, found, source, config, ["drop"])
    assert all(np.array_equal(first[name], again[name], equal_nan=True) for name in first)
