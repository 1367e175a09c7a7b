"""`steadyscore.train`: one function for a config, a dict, a recipe and a file."""

from __future__ import annotations

import subprocess
import sys

import pandas as pd
import polars as pl
import pytest

import steadyscore
from steadyscore.errors import InputError
from steadyscore.training.check import config_mistakes
from steadyscore.training.objectives import OBJECTIVES
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


RECIPE = {"objective": "oc_sft", "weight": 5, "weight_convention": "pairwise", "ramp": 0.2, "views": 2, "steps": 7}


def test_another_objective_leaves_out_what_was_chosen_for_the_recipes_own_and_says_so(caplog):
    plain = read_config({"objective": "single_order", "steps": 7})
    assert read_config(RECIPE, {"objective": "single_order"}) == plain
    assert read_config(TrainConfig(**RECIPE), {"objective": "single_order"}) == plain
    told = "single_order leaves out what was chosen for the recipe's objective: weight 5, weight_convention pairwise, ramp 0.2."
    assert caplog.messages == [told, told]
    assert read_config(RECIPE, {"objective": "mean_teacher", "weight": 2.0}).weight == 2.0
    assert read_config(RECIPE, {"objective": "single_order", "weight": 5.0}).weight == 5.0  # typed: the check refuses it


def test_the_same_objective_keeps_everything(caplog):
    assert read_config(RECIPE, {"objective": "oc_sft"}) == read_config(RECIPE)
    assert not caplog.messages


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_is_a_baseline_of_a_recipe(objective, tmp_path):
    tiny.save(tmp_path / "base", tiny.decoder())
    data = tiny.write_collection(tmp_path / "pools.jsonl", 6, 5, seed=0)
    steadyscore.label("synthetic:none", str(data), tmp_path / "labels", scale="rank", teacher_orders=2, quiet=True)
    places = {"base": f"hf:{tmp_path / 'base'}", "data": str(data), "labels": str(tmp_path / "labels"), "layers": None}
    assert config_mistakes(read_config("smollm2_passages", {**places, "objective": objective})) == []


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


@pytest.mark.parametrize("form", [list, pd.DataFrame, pl.DataFrame], ids=["list", "pandas", "polars"])
def test_rows_in_memory_are_labelled_and_trained_on_as_the_same_data(form, tmp_path, caplog):
    tiny.save(tmp_path / "base", tiny.decoder())
    rows = [
        {"question": pool["query"], "body": c["text"], "grade": c["relevance"]}
        for pool in tiny.instances(4, 5, seed=0)
        for c in pool["candidates"]
    ]
    columns = {"query": "question", "text": "body"}
    steadyscore.label(f"hf:{tmp_path / 'base'}", form(rows), tmp_path / "labels", columns=columns, width=5, quiet=True)
    trained = steadyscore.train(
        base=f"hf:{tmp_path / 'base'}", data=form(rows), columns=columns, labels=str(tmp_path / "labels"),
        objective="single_order", widths=(5,), steps=1, batch=2, held_out=1, device="cpu", out=str(tmp_path / "out"), quiet=True,
    )  # fmt: skip
    assert trained.card["data"]["queries"] == 3
    assert "with other contents" not in caplog.text


def test_mistakes_are_named_before_torch_is_loaded(tmp_path):
    """Of the data and the labels too; in a process of its own, where nothing has loaded it before."""
    tiny.save(tmp_path / "base", tiny.decoder())
    data = tiny.write_collection(tmp_path / "pools.jsonl", 4, 5, seed=0)
    given = f"base='hf:{tmp_path / 'base'}', data='{data}', labels='judgements', out='{tmp_path / 'out'}', held_out=4"
    code = (
        "import steadyscore, sys\n"
        f"try: steadyscore.train({given}, quiet=True)\n"
        "except steadyscore.errors.InputError as refusal: print(refusal)\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "held_out 4 leaves nothing of 4 queries to train on" in done.stdout


def test_the_function_is_there_without_torch():
    code = "import steadyscore, sys; steadyscore.train; steadyscore.label; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
