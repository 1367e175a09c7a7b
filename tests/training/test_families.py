"""LoRA on tiny models of the classes that the paper's bases have, and what it does not reach in them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from steadyscore.engines.kinds import open_engine
from steadyscore.errors import ModelError
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.training.recipe import PROJECTIONS
from tests.helpers import tiny
from tests.helpers.tiny import train_adapter
from tests.training.test_loop import adapter, config, losses, tiny_instance

ATTENTION = PROJECTIONS[:4]


@pytest.fixture
def world(tmp_path):
    def make(family):
        tiny.save(tmp_path / "base", tiny.decoder(family))
        tiny.write_collection(tmp_path / "pools.jsonl", 4, 5, seed=0)
        return tmp_path

    return make


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "gemma4", "granite"])
def test_the_papers_families_train(world, tmp_path, family):
    card = train_adapter(config(world(family), tmp_path / "out", steps=2, gradient_checkpointing=True))
    touched = {name.split(".")[-3] for name in adapter(tmp_path / "out")}
    assert touched >= set(PROJECTIONS)
    assert all(np.isfinite(losses(tmp_path / "out")))
    assert "frozen" not in card["lora"]


def test_gemma_4_is_trained_in_its_language_model_only(world, tmp_path):
    card = train_adapter(config(world("gemma4"), tmp_path / "out", steps=3, layers="1-1"))
    weights = adapter(tmp_path / "out")
    assert all(".language_model.layers.1." in name for name in weights)
    assert any(weight.abs().max() > 0 for name, weight in weights.items() if "lora_B" in name)
    assert json.loads((tmp_path / "base/config.json").read_text())["architectures"] == ["Gemma4ForConditionalGeneration"]
    engine, plain = (open_engine(f"hf:{tmp_path / 'base'}{more}") for more in (f"+{tmp_path / 'out'}", ""))
    instance = tiny_instance(tmp_path)
    scores, before = (Scorer(one, PASSAGE_RERANKING, Settings(width=5)).score(instance) for one in (engine, plain))
    assert not np.allclose(scores, before)
    assert card["lora"]["layers"] == "1-1"


def test_a_run_on_gemma_4_goes_on_after_its_checkpoint(world, tmp_path):
    folder = world("gemma4")
    whole = config(folder, tmp_path / "whole", steps=4, checkpoint_every=2)
    train_adapter(whole)
    half = tmp_path / "half"
    half.mkdir()
    for name in ("train.json", "log.jsonl"):
        (half / name).write_text((tmp_path / "whole" / name).read_text().replace('"complete"', '"training"'))
    (half / "checkpoints").mkdir()
    (tmp_path / "whole/checkpoints/step-000002").rename(half / "checkpoints/step-000002")
    train_adapter(config(folder, half, steps=4, checkpoint_every=2))
    assert losses(half) == losses(tmp_path / "whole")


@pytest.mark.parametrize("family", ["gemma4-moe", "qwen3-moe"])
def test_experts_stay_as_they_are_and_the_card_says_so(world, tmp_path, family):
    """Gemma 4 has a dense MLP beside its experts, so all seven projections are there; Qwen3's mixtures have attention only."""
    projections = PROJECTIONS if family == "gemma4-moe" else ATTENTION
    card = train_adapter(config(world(family), tmp_path / "out", steps=2, projections=projections))
    assert card["lora"]["frozen"] == ["experts.down_proj", "experts.gate_up_proj"]
    assert "frozen experts: experts.down_proj, experts.gate_up_proj" in (tmp_path / "out/README.md").read_text()
    weights = adapter(tmp_path / "out")
    assert {name.split(".")[-3] for name in weights} == set(projections)
    assert not any("experts" in name for name in weights)


def test_a_mixture_without_the_papers_projections_says_what_it_has(world, tmp_path):
    said = r"has no gate_proj, up_proj, down_proj\. It is a mixture of experts, and LoRA does not reach its experts\.down_proj"
    with pytest.raises(ModelError, match=said) as refusal:
        train_adapter(config(world("qwen3-moe"), tmp_path / "out"))
    assert "Its linear layers are k_proj, o_proj, q_proj, v_proj; name some with --projections." in str(refusal.value)
