"""The default engine on a CPU: measured once, said aloud, and kept by a run that has begun."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.errors import ModelError
from steadyscore.runs.folder import find_run
from steadyscore.scoring import engine_choice
from steadyscore.scoring.engine_choice import HEADROOM, faster, scoring_address
from steadyscore.scoring.estimate import speeds

CPU = EngineOptions(device="cpu")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A CPU with llama.cpp and the embedded file; `seen.rates` are its speeds, `seen.opened` what was timed."""
    seen = SimpleNamespace(rates={"hf": 100.0, "llamacpp": 300.0}, opened=[], file=tmp_path / "m.gguf")
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(engine_choice, "find_spec", lambda name: object())
    monkeypatch.setattr(engine_choice, "embedded_gguf", lambda name: seen.file)

    def opened(address, options):
        seen.opened.append(address)
        return "llamacpp" if address.startswith("llamacpp:") else "hf"

    monkeypatch.setattr(engine_choice, "open_engine", opened)
    monkeypatch.setattr(engine_choice, "_measure_rate", lambda kind: seen.rates[kind])
    return seen


def test_the_faster_engine_is_taken_measured_once_and_named(machine):
    address, why = scoring_address("smollm2-135m", CPU)
    assert address == f"llamacpp:{machine.file}"
    assert "100 tokens a second through hf and 300 through llama.cpp" in why
    assert "hf:smollm2-135m" in why
    machine.rates = {"hf": 300.0, "llamacpp": 100.0}  # a busier machine does not change its mind
    assert scoring_address("smollm2-135m", CPU).address == address
    assert machine.opened == ["smollm2-135m", address]
    assert len(speeds()) == 2


@given(st.floats(1, 1e4), st.floats(1, 1e4))
def test_hf_stays_unless_llama_cpp_is_clearly_faster(hf, llamacpp):
    assert (faster({"hf": hf, "llamacpp": llamacpp}) == "llamacpp") == (llamacpp >= HEADROOM * hf)


@pytest.mark.parametrize("kind", ["hf", "llamacpp"])
def test_a_run_keeps_the_engine_it_began_with(machine, tmp_path, kind):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(json.dumps({"fingerprint": {"scorer": {"kind": kind}}}))
    address, why = scoring_address("smollm2-135m", CPU, [tmp_path / "new", tmp_path / "run"])
    assert address == {"hf": "smollm2-135m", "llamacpp": f"llamacpp:{machine.file}"}[kind]
    assert f"through {kind}, as the run in --out began" in why
    assert machine.opened == []


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("hf:smollm2-135m", CPU),
        ("smollm2-135m+adapter", CPU),
        ("synthetic:slot", CPU),
        ("smollm2-135m", EngineOptions(device="cuda")),
        ("smollm2-135m", EngineOptions(device="cpu", dtype="bfloat16")),
    ],
)
def test_what_says_how_it_runs_is_left_alone(machine, address, options):
    assert scoring_address(address, options) == (address, "")
    assert machine.opened == []


def test_without_the_library_or_the_file_there_is_nothing_to_choose(machine, monkeypatch):
    machine.file = None
    assert scoring_address("smollm2-135m", CPU) == ("smollm2-135m", "")
    machine.file = Path("m.gguf")
    monkeypatch.setattr(engine_choice, "find_spec", lambda name: None)
    assert scoring_address("smollm2-135m", CPU) == ("smollm2-135m", "")


def test_an_engine_that_the_gate_refuses_is_not_chosen(machine, monkeypatch):
    def refused(address, options):
        if address.startswith("llamacpp:"):
            raise ModelError("it differs from hf by 0.3.")
        return "hf"

    monkeypatch.setattr(engine_choice, "open_engine", refused)
    assert scoring_address("smollm2-135m", CPU) == (
        "smollm2-135m",
        "smollm2-135m is scored through hf: it differs from hf by 0.3.",
    )


def test_a_probe_counts_tokens_against_its_better_try(monkeypatch, tiny_engine):
    ticks = iter([0.0, 5.0, 5.0, 7.0])
    monkeypatch.setattr(engine_choice.time, "perf_counter", lambda: next(ticks))
    tokens = sum(map(len, engine_choice.probe_prompts(tiny_engine)))
    assert engine_choice._measure_rate(tiny_engine) == tokens / 2.0


def test_audit_scores_through_the_choice_and_says_so(monkeypatch, collection_file, tmp_path, capsys):
    asked, out = [], tmp_path / "run"

    def chosen(address, options, begun):
        asked.append((address, [*begun]))
        return engine_choice.EngineChoice("synthetic:slot", "it is faster here")

    monkeypatch.setattr("steadyscore.audits.audit.scoring_address", chosen)
    command = ["audit", "--scorer", "smollm2-135m", "--data", str(collection_file), "--permutations", "2", "--no-report"]
    assert main([*command, "--out", str(out)]) == 0
    run = find_run(out)
    assert asked == [("smollm2-135m", [run.folder])]
    assert "it is faster here" in capsys.readouterr().err
    assert run.record["name"].startswith("synthetic:slot")
