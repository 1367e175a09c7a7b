"""Half precision: chosen where it is native, with rotations and grades in float32, and said by what is scored with it."""

import json

import numpy as np
import pytest
import torch

from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_local_model
from steadyscore.engines.local import device as precision
from steadyscore.engines.local.checks import examine, order_mistake, plain_mistake, probe_prompts, slot_scores
from steadyscore.engines.local.model import TransformersEngine
from steadyscore.errors import InputError
from steadyscore.runs.folder import find_run
from tests.helpers.models import byte_tokenizer, tiny_causal

FAMILIES = ["llama", "qwen3", "gemma2", "gemma3", "granite"]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def native(monkeypatch):
    """A machine that computes bfloat16 natively, wherever the tests run."""
    monkeypatch.delenv(precision.VARIABLE)
    monkeypatch.setattr(precision, "computes_bfloat16", lambda device: True)


def engine(family="llama", dtype=torch.bfloat16):
    return TransformersEngine(tiny_causal(family).to(dtype), byte_tokenizer(), family, EngineOptions(), {"kind": "hf"})


def test_auto_is_what_the_device_computes_natively_or_the_environment_says(monkeypatch):
    monkeypatch.delenv(precision.VARIABLE)
    for is_native, dtype in ((True, "bfloat16"), (False, "float32")):
        monkeypatch.setattr(precision, "computes_bfloat16", lambda device, answer=is_native: answer)
        assert precision.precision_of("auto", "cpu") == dtype
        assert precision.precision_of("float32", "cpu") == "float32"
    monkeypatch.setenv(precision.VARIABLE, "bfloat16")
    assert precision.precision_of("auto", "cpu") == "bfloat16"
    monkeypatch.setenv(precision.VARIABLE, "half")
    with pytest.raises(InputError, match=r"STEADYSCORE_DTYPE is 'half'. Choose from: auto, float32, bfloat16"):
        precision.precision_of("auto", "cpu")


@pytest.mark.parametrize(
    ("can", "answer"), [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False)]
)
def test_a_processor_is_asked_for_its_own_instructions(can, answer, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: can)
    assert precision.computes_bfloat16("cpu") is answer
    assert precision.computes_bfloat16("meta") is False


@pytest.mark.parametrize("family", FAMILIES)
def test_only_products_of_matrices_are_in_half_precision(family):
    half, again = engine(family), engine(family)
    same_weights = TransformersEngine(engine(family).model.float(), byte_tokenizer(), family, EngineOptions(), {"kind": "hf"})
    carried, multiplied = [], []
    for name, module in half.model.named_modules():
        if name.endswith("input_layernorm"):
            module.register_forward_hook(lambda module, given, states: carried.extend([given[0].dtype, states.dtype]))
        if name.endswith("q_proj"):
            module.register_forward_hook(lambda module, given, states: multiplied.append(states.dtype))
    prompts = probe_prompts(half)
    scores = slot_scores(half.grade_logits(prompts))
    assert (set(carried), set(multiplied)) == ({torch.float32}, {torch.bfloat16})
    assert 0 < np.abs(scores - slot_scores(same_weights.grade_logits(prompts))).max() < 0.02
    assert np.array_equal(slot_scores(again.grade_logits(prompts)), scores)


def test_frequencies_and_lora_stay_float32():
    model = precision.in_precision(tiny_causal(), "bfloat16")
    assert model.dtype == torch.bfloat16
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}


def test_a_set_in_half_precision_is_a_set():
    narrow = engine()
    with torch.inference_mode():
        assert plain_mistake(narrow, narrow.model) is None
        assert order_mistake(narrow, narrow.model) is None  # sorted: not by a bit


def test_grades_are_projected_in_float32_a_part_of_the_vocabulary_at_a_time(monkeypatch):
    monkeypatch.setattr(precision, "VOCABULARY_ROWS", 3)
    states, weight = torch.randn(2, 8, dtype=torch.bfloat16), torch.randn(10, 8, dtype=torch.bfloat16)
    found = precision.float32_product(states, weight)
    assert found.dtype == torch.float32
    assert torch.allclose(found, states.float() @ weight.float().T, atol=1e-6)


def test_doctors_gate_compares_half_precision_with_float32(tiny_folder):
    half = open_local_model(f"hf:{tiny_folder}", EngineOptions(dtype="bfloat16"))
    parity = examine(half, EngineOptions(dtype="bfloat16"), None, open_local_model)
    assert (parity.reference, parity.tolerance) == ("a plain forward in float32", 2e-2)
    assert parity.difference > 1e-4


def test_a_run_says_its_precision_and_goes_on_in_it(tiny_folder, collection_file, tmp_path, native, monkeypatch):
    out = tmp_path / "run"
    command = ["audit", "--scorer", f"hf:{tiny_folder}", "--data", str(collection_file), "--permutations", "2", "--no-report"]
    assert main([*command, "--queries", "2", "--out", str(out), "--set", "dtype=float32"]) == 0
    assert main([*command, "--queries", "4", "--out", str(out)]) == 0  # more queries of the same run
    assert find_run(out).record.fingerprint.scorer["dtype"] == "float32"
    assert main([*command, "--queries", "2", "--out", str(tmp_path / "new")]) == 0
    record = json.loads((find_run(tmp_path / "new").folder / "run.json").read_text())
    assert record["fingerprint"]["scorer"]["dtype"] == "bfloat16"


def test_another_precision_than_the_runs_is_refused_where_it_is_asked_for(tiny_folder, collection_file, tmp_path, capsys):
    command = ["audit", "--scorer", f"hf:{tiny_folder}", "--data", str(collection_file), "--permutations", "2", "--no-report"]
    assert main([*command, "--queries", "2", "--out", str(tmp_path / "run")]) == 0
    assert main([*command, "--queries", "2", "--out", str(tmp_path / "run"), "--set", "dtype=bfloat16"]) == 1
    assert "dtype" in capsys.readouterr().err


def test_a_study_goes_on_in_the_precision_of_its_runs(tiny_folder, collection_file, tmp_path, native):
    command = [
        "study",
        "width",
        "--scorer",
        f"hf:{tiny_folder}",
        "--data",
        str(collection_file),
        "--out",
        str(tmp_path / "study"),
    ]
    command += ["--queries", "2"]
    assert main([*command, "--set", "dtype=float32"]) == 0
    assert main(command) == 0
    records = [json.loads(file.read_text()) for file in (tmp_path / "study").glob("*/run.json")]
    assert {record["fingerprint"]["scorer"]["dtype"] for record in records} == {"float32"}
