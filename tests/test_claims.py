"""The paper's claims on a model small enough for every run of the tests (§4, §6).

The base (assets/make_tiny_base.py) grades well and depends on the order. Every variant distils from its own scores, with the
same data, steps and recipe; then the same audit measures them.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.errors import ModelError
from steadyscore.measures.measurement import measure
from steadyscore.measures.threshold import Threshold
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.training.labels import label_by_run
from steadyscore.training.recipe import TrainConfig
from tests.helpers import tiny
from tests.helpers.paths import ASSETS
from tests.helpers.tiny import train_adapter

BASE = f"hf:{ASSETS / 'tiny-base'}"
BASELINES = ("single_order", "order_averaged", "permutation_augmentation")
SETTINGS = Settings(width=5, label_mass=False)


def pools(folder: Path, seed: int) -> TrainConfig:
    """Training pools with labels of ten teacher orders, and pools to measure on."""
    folder.mkdir()
    file = tiny.write_collection(folder / "train.jsonl", 120, 10, seed=100 + seed)
    tiny.write_collection(folder / "test.jsonl", 40, 10, seed=7)
    config = AuditConfig(permutations=10, settings=SETTINGS)
    scorer = open_scorer(BASE, open_collection(str(file)).collection, config)
    label_by_run(score_collection(scorer, str(file), folder / "labels", config))
    return TrainConfig(
        base=BASE,
        data=str(file),
        labels=str(folder / "labels"),
        widths=(5,),
        steps=60,
        batch=16,
        microbatch=16,
        learning_rate=4e-4,
        ramp=0.1,
        seed=seed,
        device="cpu",
    )


def trained(config: TrainConfig, objective: str, **changes) -> str:
    from dataclasses import replace

    out = Path(config.data).parent / objective
    train_adapter(replace(config, objective=objective, out=str(out), **changes))
    return f"{BASE}+{out}"


def measured(config: TrainConfig, address: str) -> dict[str, float]:
    """Means over the test pools: quality, order instability, and overlap of what a frozen cutoff keeps."""
    folder, how = Path(config.data).parent, AuditConfig(permutations=6, seed=5, settings=SETTINGS)
    file = folder / "test.jsonl"
    scorer = open_scorer(address, open_collection(str(file)).collection, how)
    run = score_collection(scorer, str(file), folder / f"audit-{Path(address).name}", how)
    values = measure(run.read_queries(), Threshold(cutoff="f1")).values
    return {name: float(np.nanmean(values[name])) for name in ("mean_ndcg@10", "tau_psi", "overlap")}


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
def test_oc_sft_steadies_decisions_at_matched_quality(tmp_path, seed):
    config = pools(tmp_path / "pools", seed)
    base = measured(config, BASE)
    found = {name: measured(config, trained(config, name)) for name in (*BASELINES, "oc_sft")}
    ours = found.pop("oc_sft")
    assert base["tau_psi"] > 0.1, "the base must depend on the order, or there is nothing to show"
    for name, theirs in found.items():
        assert ours["tau_psi"] < theirs["tau_psi"], (name, ours, theirs)
        assert ours["overlap"] > theirs["overlap"], (name, ours, theirs)
        assert abs(ours["mean_ndcg@10"] - theirs["mean_ndcg@10"]) <= 0.02, (name, ours, theirs)
    assert ours["tau_psi"] < 0.6 * found["single_order"]["tau_psi"]


@pytest.mark.slow
def test_without_the_anchor_it_collapses_and_the_collapse_is_seen(tmp_path):
    config = pools(tmp_path / "pools", 0)
    with pytest.raises(ModelError, match=r"training collapsed: .* It became consistent and relevance-free"):
        trained(config, "oc_sft", anchor=0.0, weight=20.0, steps=240, learning_rate=5e-3, held_out=8, evaluate_every=20)
    history = json.loads((tmp_path / "pools" / "oc_sft" / "evaluations.json").read_text())
    assert history[0]["dispersion"] > 0.1
    assert history[-1]["dispersion"] < 0.02
    assert history[-1]["quality"] < history[0]["quality"]
