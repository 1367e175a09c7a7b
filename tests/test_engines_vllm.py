"""Engine `vllm` offline, against a module that mimics the documented calls and computes with transformers."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from steadyscore.engines import Engine, open_engine
from steadyscore.errors import ModelError
from steadyscore.parity import probe


@pytest.fixture
def vllm(monkeypatch, tiny_engine):
    """`LLM(runner="pooling", convert="classify", hf_overrides=...).encode(..., pooling_task="token_classify")`."""
    calls = {}

    class LLM:
        def __init__(self, model, **options):
            calls.update(options, model=model)
            self.llm_engine = SimpleNamespace(model_config=SimpleNamespace(max_model_len=4096))
            tokens = options["hf_overrides"]["classifier_from_token"]
            self.rows = tiny_engine.encoder.tokenizer.convert_tokens_to_ids(tokens)

        def encode(self, prompts, *, pooling_task, lora_request=None, use_tqdm=True):
            assert pooling_task == "token_classify"
            calls["lora"] = lora_request
            return [SimpleNamespace(outputs=SimpleNamespace(data=self.pool(p["prompt_token_ids"]))) for p in prompts]

        def pool(self, ids):
            with torch.inference_mode():
                logits = tiny_engine.model(torch.tensor([ids])).logits[0]
            return logits[:, self.rows].float().softmax(-1)[calls.get("cached", 0) :]

    modules = {name: ModuleType(name) for name in ("vllm", "vllm.config", "vllm.lora", "vllm.lora.request")}
    modules["vllm"].LLM = LLM
    modules["vllm.config"].PoolerConfig = lambda **options: options
    modules["vllm.lora.request"].LoRARequest = lambda name, number, path: (name, number, path)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return calls


def test_the_model_is_loaded_as_a_classifier_over_its_grade_tokens(vllm, tiny_folder):
    engine = open_engine(f"vllm:{tiny_folder}")
    assert isinstance(engine, Engine)
    assert vllm["hf_overrides"] == {
        "architectures": ["LlamaForSequenceClassification"],
        "classifier_from_token": ["0", "1", "2", "3"],
        "method": "no_post_processing",
        "num_labels": 4,
    }
    assert (vllm["runner"], vllm["convert"]) == ("pooling", "classify")
    assert "enable_lora" not in vllm


def test_it_passes_the_parity_gate(vllm, tiny_folder):
    found = probe(open_engine(f"vllm:{tiny_folder}"))
    assert found.passed
    assert found.difference < 1e-5
    assert found.reference == f"hf:{tiny_folder}"
    assert np.isnan(found.label_mass)


def test_an_adapter_is_passed_by_path_with_its_rank(vllm, tiny_folder, tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"r": 16}')
    engine = open_engine(f"vllm:{tiny_folder}+{tmp_path}")
    assert (vllm["enable_lora"], vllm["max_lora_rank"]) == (True, 16)
    from steadyscore.parity import probe_prompts

    engine.grade_logits(probe_prompts(engine)[:1])
    assert vllm["lora"] == (tmp_path.name, 1, str(tmp_path))
    with pytest.raises(ModelError, match="not an adapter folder"):
        open_engine(f"vllm:{tiny_folder}+{tmp_path / 'none'}")


def test_rows_that_a_prefix_cache_left_out_are_noticed(vllm, tiny_folder):
    from steadyscore.parity import probe_prompts

    engine = open_engine(f"vllm:{tiny_folder}")
    vllm["cached"] = 16
    with pytest.raises(ModelError, match="vLLM gave"):
        engine.grade_logits(probe_prompts(engine))


@pytest.mark.slow
@pytest.mark.model
def test_the_real_vllm_agrees_with_hf():
    """`make test-vllm`: the third-party CPU build or a GPU; nothing here depends on it."""
    pytest.importorskip("vllm")
    from steadyscore.models import model_path

    found = probe(open_engine(f"vllm:{model_path('smollm2-135m')}"))
    assert found.passed, f"differs by {found.difference:.1e}"
