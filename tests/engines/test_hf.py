"""Engine `hf` equals a plain forward over the whole vocabulary, however windows are batched."""

import numpy as np
import pytest

from steadyscore.engines import Engine, EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import compare_readout, probe_prompts
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.errors import InputError, ModelError
from steadyscore.window import readout
from tests.helpers.models import byte_tokenizer, tiny_causal

FAMILIES = ["llama", "qwen3", "gemma2", "gemma3", "granite"]


def engine(family="llama", **options):
    return TransformersEngine(tiny_causal(family), byte_tokenizer(), family, EngineOptions(**options), {})


def scores(readings):
    return np.concatenate([readout.score(readout.grade_distribution(r.logits)) for r in readings])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options", [{}, {"share_prefix": False}, {"batch_tokens": 1}, {"share_prefix": False, "batch_tokens": 1}]
)
def test_every_way_equals_the_plain_forward(family, options):
    e = engine(family, **options)
    prompts = probe_prompts(e)
    plain = scores([e.plain_logits(p) for p in prompts])
    assert np.ptp(plain) > 0.01, "the probe must tell prompts apart"
    assert np.abs(scores(e.grade_logits(prompts)) - plain).max() < 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_label_mass_is_the_share_of_the_four_grades(family):
    import torch

    e = engine(family)
    prompt = probe_prompts(e)[0]
    with torch.inference_mode():
        full = e.model(input_ids=torch.tensor([(*prompt.prefix, *prompt.body)])).logits[0, list(prompt.slots)].softmax(-1)
    found = e.grade_logits([prompt], label_mass=True)[0]
    assert found.label_mass == pytest.approx(full[:, list(prompt.grade_tokens)].sum(-1).numpy(), abs=1e-5)
    assert e.grade_logits([prompt])[0].label_mass is None


def test_the_same_inputs_give_bit_identical_scores():
    first, second = (scores(engine().grade_logits(probe_prompts(engine()))) for _ in range(2))
    assert np.array_equal(first, second)


def test_the_vocabulary_is_projected_at_slots_only(monkeypatch):
    e = engine()
    seen = []
    real = e.project
    monkeypatch.setattr(e, "project", lambda states, rows=None: seen.append((len(states), rows)) or real(states, rows))
    prompts = probe_prompts(e)
    e.grade_logits(prompts)
    assert sum(count for count, _ in seen) == sum(len(p.slots) for p in prompts)
    assert all(len(rows) == 4 for _, rows in seen)


def test_the_prefix_is_computed_once_per_query(monkeypatch):
    e = engine()
    calls = []
    real = e._prefix_cache
    monkeypatch.setattr(e, "_prefix_cache", lambda prefix: calls.append(prefix) or real(prefix))
    e.grade_logits(probe_prompts(e))
    assert len(calls) == 1


def test_an_engine_opens_from_a_folder(tiny_folder):
    found = open_engine(f"hf:{tiny_folder}")
    assert isinstance(found, Engine)
    assert found.context == 4096
    assert found.identity()["weights"] == open_engine(f"hf:{tiny_folder}").identity()["weights"]
    assert compare_readout(found).difference < 1e-4


def test_another_models_weights_have_another_identity(tiny_folder, tmp_path):
    tiny_causal(seed=1).save_pretrained(tmp_path)
    byte_tokenizer().save_pretrained(tmp_path)
    assert open_engine(f"hf:{tmp_path}").identity()["weights"] != open_engine(f"hf:{tiny_folder}").identity()["weights"]


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("hf:/no/such/folder", "folder .* does not exist"),
        ("hf:missing.gguf", "file .* does not exist"),
        ("hf:somebody/no-such-model", "could not be loaded"),
        ("no-such-model", "unknown scorer"),
        ("teapot:x", "unknown kind of scorer"),
        ("python:nowhere", "names no function"),
        ("python:no_such_module_here:f", "could not be imported"),
        ("synthetic:magic", "unknown synthetic effect"),
    ],
)
def test_what_cannot_be_opened_says_why(address, message):
    with pytest.raises((InputError, ModelError), match=message):
        open_engine(address)


def test_pickled_weights_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="pickled weights"):
        open_engine(f"hf:{tmp_path}")


def test_a_model_without_chat_template_is_refused(tmp_path):
    tiny_causal().save_pretrained(tmp_path)
    byte_tokenizer(chat_template=None).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no chat template"):
        open_engine(f"hf:{tmp_path}")


@pytest.mark.model
def test_the_embedded_model_passes_the_parity_gate(smollm2):
    found = compare_readout(smollm2)
    assert found.difference < 1e-4
    assert found.repeatable
    assert found.label_mass > 0.5


@pytest.mark.model
@pytest.mark.slow
def test_batch_sizes_agree_on_the_embedded_model(smollm2):
    prompts = probe_prompts(smollm2)
    longest = max(map(len, prompts))
    found = []
    for size in (1, 4, 8):
        smollm2.options = EngineOptions(batch_tokens=size * longest)
        found.append(scores(smollm2.grade_logits(prompts)))
    smollm2.options = EngineOptions()
    assert np.ptp(found, axis=0).max() < 1e-4
