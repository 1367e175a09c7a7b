"""The parity check of an engine's first use: once per version and weights, refused with a figure, and never a silent pass."""

import re
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from steadyscore.cli import main
from steadyscore.engines import Capabilities, Engine, EngineOptions, kinds
from steadyscore.engines.kinds import kind_of, open_engine, open_local_model
from steadyscore.engines.local import checks, windows
from steadyscore.engines.local.checks import admit, probe_prompts, remembered, subject_of, weight_files
from steadyscore.errors import ModelError
from steadyscore.runs.folder import find_run
from steadyscore.window.readout import SlotLogits


class Shifted(Engine):
    """An engine that reads what `hf` reads, grade 3 raised by `shift`; counts how often it is asked."""

    needs_parity = True

    def __init__(self, plain, reference, shift=0.0, kind="llamacpp"):
        self.name, self.encoder, self.context = f"{kind}:m.gguf", plain.encoder, plain.context
        self.capabilities = Capabilities(gives="distribution", distribution="exact")
        self.plain, self.reference, self.shift, self.kind, self.asked = plain, reference, shift, kind, 0

    def identity(self):
        return {"kind": self.kind, "model": "m.gguf", "weights": "abc"}

    def grade_logits(self, prompts, *, label_mass=False):
        self.asked += 1
        return [SlotLogits(r.logits + np.array([0, 0, 0, self.shift])) for r in self.plain.grade_logits(prompts)]


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "llamacpp", ModuleType("llamacpp"))
    sys.modules["llamacpp"].__version__ = "1.0"


@pytest.fixture
def engine(tiny_engine, tiny_folder):
    return lambda **how: Shifted(tiny_engine, f"hf:{tiny_folder}", **how)


def test_an_engine_is_compared_on_its_first_use_and_not_again(engine, tiny_folder):
    first, second = engine(), engine()
    told = admit(first, EngineOptions(), open_local_model).capabilities.parity
    assert f"differs from hf:{tiny_folder} by" in told
    assert first.asked == 2  # the second time to see whether it repeats itself
    assert admit(second, EngineOptions(), open_local_model).capabilities.parity == told
    assert second.asked == 0


def test_another_version_or_other_weights_are_another_first_use(engine, monkeypatch):
    admit(engine(), EngineOptions(), open_local_model)
    other = engine()
    other.identity = lambda: {"kind": "llamacpp", "weights": "other"}
    assert admit(other, EngineOptions(), open_local_model).asked == 2
    monkeypatch.setattr(sys.modules["llamacpp"], "__version__", "1.1")
    assert admit(newer := engine(), EngineOptions(), open_local_model) is newer
    assert newer.asked == 2
    assert len(remembered()) == 3


def test_what_has_no_version_is_compared_every_time(engine, monkeypatch):
    monkeypatch.delattr(sys.modules["llamacpp"], "__version__")
    assert [admit(engine(), EngineOptions(), open_local_model).asked for _ in range(2)] == [2, 2]
    assert remembered() == {}


def test_an_engine_that_reads_something_else_is_refused_with_the_figure_and_not_remembered(engine):
    with pytest.raises(ModelError, match=r"differs from hf:.* by 0\.\d+ in score .* 0\.05 is allowed.* --accept"):
        admit(engine(shift=5.0), EngineOptions(), open_local_model)
    assert remembered() == {}


def test_other_tokens_are_another_model(engine, monkeypatch):
    altered = engine()
    real = probe_prompts
    monkeypatch.setattr(
        checks, "probe_prompts", lambda e, *how: [replace(p, body=(*p.body, 1)) if e is altered else p for p in real(e, *how)]
    )
    with pytest.raises(ModelError, match="different tokens"):
        admit(altered, EngineOptions(), open_local_model)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (None, "does not say where its weights are.*--reference"),
        ("hf:nobody/nothing", "is not on this disk"),
        ("hf:/no/such/folder", "is not on this disk"),
    ],
)
def test_without_a_counterpart_the_record_says_so(engine, reference, reason):
    unmatched = engine()
    unmatched.reference = reference
    told = admit(unmatched, EngineOptions(), open_local_model).capabilities.to_json()["parity"]
    assert told.startswith("not checked: ")
    assert re.search(reason, told)
    assert unmatched.asked == 0
    assert remembered() == {}


def test_a_counterpart_that_does_not_open_or_is_too_large_is_named(engine, tmp_path, monkeypatch):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    broken = engine()
    broken.reference = f"hf:{tmp_path / 'broken.gguf'}"
    assert "does not open (" in admit(broken, EngineOptions(), open_local_model).capabilities.parity
    monkeypatch.setattr(checks, "MAX_REFERENCE_BYTES", 1)
    assert "GB of memory; steadyscore doctor --scorer" in admit(engine(), EngineOptions(), open_local_model).capabilities.parity


def test_a_server_is_known_by_its_address_and_weights_by_their_files(engine, tiny_folder, tmp_path):
    served = engine()
    served.endpoint, served.name = object(), "vllm:m@http://x"
    assert subject_of(served) == "vllm:m@http://x"
    assert [f.parent for f in weight_files(f"hf:{tiny_folder}")] == [tiny_folder]
    (tmp_path / "adapter.safetensors").write_bytes(b"x")
    assert len(weight_files(f"hf:{tiny_folder}+{tmp_path}")) == 1 + len(weight_files(f"hf:{tiny_folder}"))
    assert weight_files(f"hf:nobody/nothing+{tmp_path}") == []


@pytest.fixture
def shifted(engine, monkeypatch):
    """`llamacpp:` opens a shifted engine."""
    opened = SimpleNamespace(shift=0.0)
    shifted = replace(kind_of("llamacpp:m.gguf"), open=lambda address, options: engine(shift=opened.shift))
    monkeypatch.setattr(kinds, "KINDS", (shifted, *kinds.KINDS))
    return opened


def test_what_has_hf_for_a_reference_is_checked_and_nothing_else(shifted, tiny_folder, monkeypatch):
    assert "differs from" in open_engine("llamacpp:m.gguf").capabilities.parity
    assert open_engine("llamacpp:m.gguf", check_parity=False).capabilities.parity is None
    monkeypatch.setattr(checks, "admit", lambda *given: pytest.fail("hf is the reference itself"))
    for address in (f"hf:{tiny_folder}", "synthetic:slot"):
        assert "parity" not in open_engine(address).capabilities.to_json()


def test_a_run_records_the_result_of_the_check(shifted, collection_file, tmp_path):
    out = tmp_path / "run"
    command = ["audit", "--scorer", "llamacpp:m.gguf", "--data", str(collection_file), "--permutations", "2", "--no-report"]
    assert main([*command, "--out", str(out)]) == 0
    assert "differs from hf:" in find_run(out).record.capabilities.parity


def test_doctor_accepts_what_the_check_refuses_and_runs_say_so(shifted, capsys):
    shifted.shift = 5.0
    with pytest.raises(ModelError):
        open_engine("llamacpp:m.gguf")
    assert main(["doctor", "--scorer", "llamacpp:m.gguf"]) == 1
    assert main(["doctor", "--scorer", "llamacpp:m.gguf", "--accept"]) == 0
    assert "accepted all the same" in open_engine("llamacpp:m.gguf").capabilities.parity
    shifted.shift = 0.0
    assert main(["doctor", "--scorer", "llamacpp:m.gguf"]) == 0  # a later pass replaces the acceptance
    assert "accepted" not in open_engine("llamacpp:m.gguf").capabilities.parity
    capsys.readouterr()


def test_scores_of_all_slots_stand_one_after_the_other():
    found = checks.slot_scores([SlotLogits(np.array([[0.0, 0, 0, 100]])), SlotLogits(np.array([[100.0, 0, 0, 0], [0, 0, 0, 0]]))])
    assert found == pytest.approx([1, 0, 0.5])


# -- sets


def test_a_model_that_reads_sets_is_examined_once_for_its_weights(tiny_folder, monkeypatch):
    looked = []
    monkeypatch.setattr(checks, "turn_mistake", lambda engine, model: looked.append(model))
    for options in (EngineOptions(), EngineOptions(batch_tokens=99), EngineOptions(dtype="bfloat16")):
        open_local_model(f"hf:{tiny_folder}", options).check_sets()
    assert len(looked) == 2  # in another precision it is another model
    other = open_local_model(f"hf:{tiny_folder}")
    monkeypatch.setattr(other, "identity", lambda: {"kind": "hf", "weights": None})
    other.check_sets()
    assert len(looked) == 3  # nobody knows which weights these are


@pytest.mark.parametrize("kept", [b"{", b"[1]", b"\xff\xfe"], ids=["cut", "a list", "no text"])
def test_a_damaged_file_of_verdicts_is_written_anew(kept, tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "parity.json").write_bytes(kept)
    assert remembered() == {}
    open_local_model(f"hf:{tiny_folder}").check_sets()
    assert len(remembered()) == 1


def test_a_cache_that_cannot_be_written_is_said_and_the_model_checked_again(tiny_folder, tmp_path, monkeypatch, caplog):
    (tmp_path / "cache").write_text("a file, where the folder should be")
    for _ in range(2):
        open_local_model(f"hf:{tiny_folder}").check_sets()
    assert caplog.text.count("is made again at the next start") == 2


def test_the_examination_reads_words_in_half_precision_too(tiny_folder, monkeypatch):
    engine = open_local_model(f"hf:{tiny_folder}", EngineOptions(dtype="bfloat16"))
    read = []
    real = windows.read_behind
    monkeypatch.setattr(
        windows, "read_behind", lambda model, cache, rows, *how: read.append(rows) or real(model, cache, rows, *how)
    )
    with torch.inference_mode():
        assert checks.turn_mistake(engine, engine.model) is None
    assert engine.encoder.tokenizer.decode(read[0][0]) == checks.TEXTS[0][:8]  # a token is a byte


def test_a_model_that_does_not_read_sets_is_not_remembered(tiny_folder, monkeypatch):
    engine = open_local_model(f"hf:{tiny_folder}")
    monkeypatch.setattr(checks, "turn_mistake", lambda engine, model: "no such luck.")
    with pytest.raises(ModelError, match="cannot read a window as a set: no such luck"):
        engine.check_sets()
    assert remembered() == {}
