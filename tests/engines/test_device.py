"""The device that was asked for, or one sentence that says which there are."""

import pytest
import torch

from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local import device
from steadyscore.engines.local.device import device_of
from steadyscore.errors import InputError


@pytest.fixture
def two_gpus(monkeypatch):
    monkeypatch.setattr(device, "present", lambda: ["cpu:0", "cuda:0", "cuda:1"])


def test_without_a_word_cuda_where_there_is_one(two_gpus, monkeypatch):
    assert device_of(None) == "cuda"
    monkeypatch.setattr(device, "present", lambda: ["cpu:0"])
    assert device_of(None) == "cpu"


def test_a_build_for_gpus_without_one_is_said_once(monkeypatch, caplog):
    monkeypatch.setattr(device, "present", lambda: ["cpu:0"])
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    device.note_gpu_build.cache_clear()
    try:
        assert device_of("cpu") == "cpu"
        assert caplog.text == ""
        assert [device_of(None), device_of(None)] == ["cpu", "cpu"]
        assert caplog.text.count("torch is a build for CUDA 13.0, and no GPU is found here") == 1
    finally:
        device.note_gpu_build.cache_clear()


@pytest.mark.parametrize("asked", ["cpu", "cpu:0", "cuda", "cuda:0", "cuda:1"])
def test_what_is_there_is_taken_as_it_was_asked_for(two_gpus, asked):
    assert device_of(asked) == asked


@pytest.mark.parametrize("asked", ["gpu", "cuda:2", "cuda:", "cuda:x", "mps", "meta", ""])
def test_what_is_not_there_is_refused_with_what_is(two_gpus, asked):
    with pytest.raises(InputError, match=rf"^this machine has no device '{asked}'\. Choose from: cpu, cuda, cuda:1\.$"):
        device_of(asked)


def test_this_machine_has_a_cpu():
    assert device.present()[0] == "cpu:0"


@pytest.mark.parametrize("asked", ["gpu", "cuda:99"])
def test_an_engine_is_not_loaded_for_a_device_that_is_not_there(tiny_folder, asked, monkeypatch):
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    with pytest.raises(InputError, match=f"this machine has no device '{asked}'"):
        open_engine(f"hf:{tiny_folder}", EngineOptions(device=asked))
