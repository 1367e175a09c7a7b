"""Engine `llamacpp` against a module that mimics llama.cpp's C interface and computes with transformers."""

import ctypes
import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from steadyscore.engines import Engine, llamacpp, open_engine
from steadyscore.errors import InputError, ModelError
from steadyscore.parity import plain_reading, probe, probe_prompts, scores


@pytest.fixture
def library(monkeypatch, tiny_engine):
    """A context is the list of tokens in its KV cache; a batch extends it, and logits exist only where they were asked for."""
    module = ModuleType("llama_cpp")
    module.memory, module.decoded, module.logits, module.code = [], [], {}, 0

    class Llama:
        def __init__(self, path, n_ctx, **options):
            self.ctx, self.metadata = object(), {"general.architecture": "llama", "llama.context_length": "4096"}
            self.n_ctx, self.n_vocab = (lambda: n_ctx), (lambda: 272)

    def decode(context, batch):
        ids = [batch.token[i] for i in range(batch.n_tokens)]
        assert [batch.pos[i] for i in range(batch.n_tokens)] == list(range(len(module.memory), len(module.memory) + len(ids)))
        module.memory += ids
        module.decoded.append(len(ids))
        with torch.inference_mode():
            rows = tiny_engine.model(torch.tensor([module.memory])).logits[0, -len(ids) :].float().numpy()
        module.logits = {i: np.ascontiguousarray(rows[i]) for i in range(len(ids)) if batch.logits[i]}
        return module.code

    def remove(memory, sequence, start, stop):
        del module.memory[start:]
        return True

    def batch(size, embedding, sequences):
        return SimpleNamespace(
            n_tokens=0,
            token=[0] * size,
            pos=[0] * size,
            n_seq_id=[0] * size,
            seq_id=[[0] for _ in range(size)],
            logits=[0] * size,
        )

    module.Llama, module.llama_decode, module.llama_batch_init = Llama, decode, batch
    module.llama_batch_free = lambda batch: None
    module.llama_get_memory = lambda context: None
    module.llama_memory_seq_rm = remove
    module.llama_get_logits_ith = lambda context, i: module.logits[i].ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    monkeypatch.setitem(sys.modules, "llama_cpp", module)
    monkeypatch.setattr(llamacpp, "gguf_tokenizer", lambda file: tiny_engine.encoder.tokenizer)
    return module


@pytest.fixture
def engine(library, tmp_path):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    return open_engine(f"llamacpp:{tmp_path / 'm.gguf'}")


def test_it_reads_what_a_plain_forward_says(engine, tiny_engine):
    assert isinstance(engine, Engine)
    assert engine.context == 4096
    prompts = probe_prompts(engine)
    found = engine.grade_logits(prompts, label_mass=True)
    assert np.abs(scores(found) - scores([plain_reading(tiny_engine, p) for p in prompts])).max() < 1e-5
    plain = tiny_engine.grade_logits(prompts, label_mass=True)
    assert np.concatenate([r.label_mass for r in found]) == pytest.approx(np.concatenate([r.label_mass for r in plain]), abs=1e-5)


def test_logits_are_made_at_slots_only_and_a_shared_prefix_once(engine, library):
    prompts = probe_prompts(engine)
    engine.grade_logits(prompts[:1])
    assert sum(library.decoded) == prompts[0].slots[-1] + 1
    library.decoded.clear()
    engine.grade_logits(prompts)
    shared = len(prompts[0].prefix)
    assert sum(library.decoded) < sum(p.slots[-1] + 1 - shared for p in prompts) + shared


def test_a_failed_call_leaves_no_false_memory(engine, library):
    prompts = probe_prompts(engine)
    clean = scores(engine.grade_logits(prompts))
    library.code = 1
    with pytest.raises(ModelError, match="llama_decode gave 1"):
        engine.grade_logits(prompts[1:2])
    library.code = 0
    library.memory[:] = engine._cached  # what a real context keeps of a batch it refused
    assert np.allclose(scores(engine.grade_logits(prompts)), clean)


def test_a_file_that_is_not_there(library):
    with pytest.raises(InputError, match="there is no file"):
        open_engine("llamacpp:none.gguf")


@pytest.mark.slow
@pytest.mark.model
def test_the_real_llama_cpp_agrees_with_hf_within_quantisation():
    """Needs llama-cpp-python and the GGUF of the embedded model in $STEADYSCORE_GGUF."""
    pytest.importorskip("llama_cpp")
    file = os.environ.get("STEADYSCORE_GGUF") or pytest.skip("STEADYSCORE_GGUF names no file")
    found = probe(open_engine(f"llamacpp:{file}"))
    assert found.passed, f"differs by {found.difference:.1e}"
