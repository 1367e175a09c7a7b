"""Engine `llamacpp` against a module that mimics llama.cpp's C interface and computes with transformers."""

import ctypes
import os
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from steadyscore.engines import Engine, llamacpp
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import compare, probe_prompts, slot_scores
from steadyscore.errors import InputError, ModelError
from steadyscore.readers.prompt import VERDICTS, build_question, encode_question
from steadyscore.readers.reader import Reader
from steadyscore.tasks import TASKS
from steadyscore.terms import Candidate, Instance


@pytest.fixture
def library(monkeypatch, tiny_engine):
    """A context is the list of tokens in its KV cache; a batch extends it, and logits exist only where they were asked for."""
    module = ModuleType("llama_cpp")
    module.memory, module.decoded, module.logits, module.code = [], [], {}, 0

    class Llama:
        def __init__(self, path, n_ctx, **options):
            module.options = options
            self.ctx, self.metadata = object(), {"general.architecture": "llama", "llama.context_length": "4096"}
            self.n_ctx, self.n_vocab = (lambda: n_ctx), (lambda: 272)
            self.token_eos = lambda: 257

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
    assert np.abs(slot_scores(found) - slot_scores([tiny_engine.plain_logits(p) for p in prompts])).max() < 1e-5
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


def test_it_reads_verdicts_and_answers_as_hf_does(engine, tiny_engine, library, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    pool = Instance("q1", "Is it so?", tuple(Candidate(f"d{i}", f"evidence {i}") for i in range(3)), answers=("yes",))
    for task in ("claim_verification", "multidoc_qa"):
        evidence = [[0, 1], [2, 0], [1]]
        assert Reader(engine, TASKS[task]).read(pool, evidence) == Reader(tiny_engine, TASKS[task]).read(pool, evidence)
    prompts = [encode_question(engine.encoder, build_question(TASKS["multidoc_qa"], "Is it so?", pool.pool))]
    labels = [engine.encoder.plain(label) for label in VERDICTS]
    plain = tiny_engine.label_log_probabilities(prompts, labels)
    assert engine.label_log_probabilities(prompts, labels) == pytest.approx(plain, abs=1e-4)
    library.decoded.clear()
    engine.generate(prompts, 5)
    assert sum(library.decoded) <= len(prompts[0]) + 5  # each token is evaluated once


def test_a_failed_call_leaves_no_false_memory(engine, library):
    prompts = probe_prompts(engine)
    clean = slot_scores(engine.grade_logits(prompts))
    library.code = 1
    with pytest.raises(ModelError, match="llama_decode gave 1"):
        engine.grade_logits(prompts[1:2])
    library.code = 0
    library.memory[:] = engine._cached  # what a real context keeps of a batch it refused
    assert np.allclose(slot_scores(engine.grade_logits(prompts)), clean)


def test_the_reference_of_the_embedded_file_is_the_embedded_model(engine, monkeypatch):
    model = SimpleNamespace(name="smollm2-135m", gguf_sha256="abc")
    monkeypatch.setattr(llamacpp, "EMBEDDED", {"smollm2-135m": model})
    monkeypatch.setattr(llamacpp, "is_present", lambda m: m is model)
    assert llamacpp._embedded_name("abc") == "smollm2-135m"
    assert llamacpp._embedded_name("abd") is None
    assert engine.capabilities.parity.startswith("not checked: ")  # its file is no model that hf could open


def test_threads_are_as_torch_counts_them(library, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    open_engine(f"llamacpp:{tmp_path / 'm.gguf'}")
    assert (library.options["n_threads"], library.options["n_threads_batch"]) == (3, 3)


def test_a_file_that_is_not_there(library):
    with pytest.raises(InputError, match=r"file .* does not exist"):
        open_engine("llamacpp:none.gguf")


@pytest.mark.slow
@pytest.mark.model
def test_the_real_llama_cpp_agrees_with_hf_within_quantisation():
    """Needs llama-cpp-python and a GGUF file: $STEADYSCORE_GGUF."""
    pytest.importorskip("llama_cpp")
    file = os.environ.get("STEADYSCORE_GGUF") or pytest.skip("there is no file")
    found = compare(open_engine(f"llamacpp:{file}"), open_engine(f"hf:{file}"))
    assert found.passed, f"differs by {found.difference:.1e}"
