"""`steadyscore.train`: one function for a config, a dict, a recipe and a file."""

from __future__ import annotations

import subprocess
import sys

import pytest

import steadyscore
from steadyscore.errors import InputError
from steadyscore.training.recipe import TrainConfig, to_json
from steadyscore.training.train import read_config
from tests.helpers import tiny

VALUES = {"base": "smollm2-135m", "data": "passages", "labels": "judgements", "out": "o", "widths": (1, 5), "weight": 4.0}


def test_a_config_a_dict_and_a_file_are_the_same_run(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text("base: smollm2-135m\ndata: passages\nlabels: judgements\nout: o\nwidth: [1, 5]\nweight: 4\n")
    expected = TrainConfig(**VALUES)
    assert [read_config(form) for form in (expected, VALUES, to_json(expected), file, str(file))] == [expected] * 5
    assert read_config(None, VALUES) == expected
    assert read_config(expected, {"weight": 2.0, "width": 5}).widths == (5,)
    assert read_config("smollm2_passages", {"out": "elsewhere"}).out == "elsewhere"


def test_mistakes_of_every_form_are_named_at_once():
    with pytest.raises(InputError) as refusal:
        steadyscore.train({"weigth": 2, "views": "two"}, shuffle="all")
    assert [mistake.partition(";")[0] for mistake in refusal.value.mistakes] == [
        "unknown key 'weigth': did you mean 'weight'?",
        "views is 'two'",
        "shuffle is 'all'",
    ]


def test_a_trained_adapter_is_a_scorer(tmp_path):
    tiny.save(tmp_path / "base", tiny.decoder())
    data = tiny.write_collection(tmp_path / "pools.jsonl", 6, 5, seed=0)
    settings = {"base": f"hf:{tmp_path / 'base'}", "data": str(data), "labels": "judgements", "widths": (5,), "device": "cpu"}
    trained = steadyscore.train(settings, steps=1, batch=2, held_out=2, out=str(tmp_path / "adapter"))
    found = trained.to_json()
    assert list(found)[:4] == ["out", "objective", "weight", "steps"]
    assert (found["out"], found["objective"], found["steps"]) == (str(tmp_path / "adapter"), "oc_sft", 1)
    assert found["queries"] == 2
    audits = steadyscore.audit(trained.address, str(data), permutations=2, queries=2, cutoff=0.5)
    assert audits[0]["tau_psi"].queries == 2


def test_the_function_is_there_without_torch():
    code = "import steadyscore, sys; steadyscore.train; steadyscore.label; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
