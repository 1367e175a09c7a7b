from __future__ import annotations

import argparse
import itertools
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from steadyscore.cli import main
from steadyscore.collection.catalogue import CATALOGUE
from steadyscore.commands import train as verb
from steadyscore.errors import InputError, ModelError, RunMismatch
from steadyscore.machine.disk import write_json
from steadyscore.machine.extras import install_line
from steadyscore.models.card import CardBase, CardData
from steadyscore.models.embedded import shipped_adapters
from steadyscore.paper.names import BASES, TRAINING_DATA
from steadyscore.scoring.estimate import remember_speed
from steadyscore.terms import Collection
from steadyscore.training import loop, recipe
from steadyscore.training.check import checked_data, config_mistakes, make_config
from steadyscore.training.cost import estimate as estimate_data
from steadyscore.training.cost import rate_name
from steadyscore.training.examples import training_data
from steadyscore.training.recipe import Plan, TrainConfig, make_schedule, resolve_plan
from steadyscore.training.record import fingerprint
from steadyscore.training.step import Loop
from tests.helpers import tiny

PASSAGES = Collection("pools", "passage_reranking")


@pytest.fixture
def good(tmp_path) -> TrainConfig:
    tiny.save(tmp_path / "base", tiny.decoder())
    file = tiny.write_collection(tmp_path / "pools.jsonl", 6, 10, seed=0)
    return TrainConfig(
        base=f"hf:{tmp_path / 'base'}", data=str(file), labels="judgements", out=str(tmp_path / "out"), widths=(5,)
    )


def plan(config: TrainConfig) -> Plan:
    return resolve_plan(config, PASSAGES)


def estimate(config: TrainConfig, processes: int = 1):
    return estimate_data(training_data(config), processes)


def flags(*words: str) -> TrainConfig:
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    return verb.config_of(parser.parse_args(words))


@pytest.mark.parametrize("name", ["passage_reranking", "multidoc_qa", "response_ranking"])
def test_the_shipped_recipes_are_the_papers_table(name):
    from steadyscore.tasks import TASKS

    config = make_config(recipe.read_recipe(name))
    task = TASKS[name]
    assert (config.widths, config.weight, config.weight_convention) == ((task.width,), task.weight, "pairwise")
    assert (config.rank, config.alpha, plan(config).dropout, config.batch, config.learning_rate) == (16, 32, 0.05, 64, 2e-4)
    assert config.projections == recipe.PROJECTIONS
    assert (config.data, config.held_out, config.held_out_data) == (TRAINING_DATA[name], 0, f"{TRAINING_DATA[name]}.held-out")
    assert CATALOGUE[config.data].parts["held-out"] == 500  # held out once: the part train is trained on whole
    # What is missing on a bare machine is the data, nothing else.
    assert all("steadyscore data get" in m or "holds no labels.parquet" in m for m in config_mistakes(config))


@pytest.mark.parametrize("name", ["passage_reranking", "multidoc_qa", "response_ranking"])
def test_the_shipped_recipes_name_bases_of_the_paper(name):
    """`hf:OWNER/NAME, -ENDING, ...` names one base and the other endings of its family."""
    text = (recipe.RECIPES / f"{name}.yaml").read_text().replace("\n#", "")
    known = [base.address for base in BASES.values()]
    assert recipe.read_recipe(name)["base"] in known
    for family in re.findall(r"hf:[^;:]+", text.partition("with --base:")[2].partition("base:")[0]):
        first, *endings = (part.strip(" .\n") for part in family.split(","))
        assert first in known
        for ending in endings:
            assert any(address.endswith(ending) and address.startswith(first.split("-")[0]) for address in known), ending


def test_the_recipe_for_any_machine_has_no_mistakes():
    config = make_config(recipe.read_recipe("smollm2_passages"))
    assert config_mistakes(config, processes=2) == []
    assert estimate(config).steps > 1


def test_flags_and_yaml_give_the_same_config(tmp_path):
    (tmp_path / "r.yaml").write_text("base: smollm2-135m\nwidth: [1, 2, 5]\nweight: 4\nlayers: 6-29\ntrackers: [tensorboard]\n")
    from_file = make_config(recipe.read_recipe(str(tmp_path / "r.yaml")))
    assert from_file == flags(
        "--base", "smollm2-135m", "--width", "1,2,5", "--weight", "4", "--layers", "6-29", "--trackers", "tensorboard"
    )
    overridden = flags("--recipe", str(tmp_path / "r.yaml"), "--weight", "2")
    assert overridden == replace(from_file, weight=2.0)


def test_every_field_has_a_flag():
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    spelt = {action.dest for action in parser._actions} | {"widths"}
    assert set(TrainConfig.__dataclass_fields__) <= spelt


def test_unknown_keys_and_wrong_kinds_are_named_at_once():
    with pytest.raises(InputError) as refusal:
        make_config(
            {"lamda": 5, "weigth": 2, "views": "two", "objective": "supcon", "widths": [5, "x"], "shuffle": "all", "rank": True}
        )
    text = str(refusal.value)
    assert len(refusal.value.mistakes) == 7
    assert "unknown key 'weigth': did you mean 'weight'?" in text
    assert "views is 'two'; give int" in text
    assert "objective is 'supcon'; use one of single_order" in text
    assert "shuffle is 'all'; use one of none, window, pool" in text


def test_a_good_config_has_no_mistakes_and_every_bad_one_is_named(good):
    assert config_mistakes(good) == []
    bad = {
        "ramp 900 is longer": {"ramp": 900, "steps": 10},
        "does not divide": {"batch": 63, "microbatch": 2},
        "views is 1": {"views": 1},
        "one order only": {"widths": (1,)},
        "cannot compare": {"shuffle": "pool"},
        "is single_order": {"objective": "order_averaged", "teacher_orders": 1},
        "order_averaged has no penalty, so weight 5 would": {"objective": "order_averaged", "weight": 5.0},
        "holds no labels.parquet": {"labels": "nowhere"},
        "is not an adapter folder": {"initial": "nowhere"},
        "no collection is named nowhere": {"data": "nowhere"},
        "weight is -1": {"weight": -1.0},
        "it must lie in [0, 1)": {"dropout": 1.0},
        "evaluate_every needs queries": {"evaluate_every": 5},
        "weight is nan; give a finite number": {"weight": float("nan")},
        "learning_rate is inf; give a finite number": {"learning_rate": float("inf")},
        "chars is -4; it must be above 0": {"chars": -4},
        "pool is 0; it must be above 0": {"pool": 0},
        "leave grade_share and preference_share at 0": {"objective": "debias_first", "grade_share": 0.5, "preference_share": 0.1},
        "0.5 and 0.6 are more than 1 together": {"grade_share": 0.5, "preference_share": 0.6},
        "preference_share is 1.5; it must lie in [0, 1]": {"preference_share": 1.5},
        "layers 1-2 go beyond the 2 layers": {"layers": "1-2"},
        "did you mean 'smollm2-135m'?": {"base": "smolm2-135m"},
        "base is 'hf:smolm2', which names no model": {"base": "hf:smolm2"},
        "base is 'hf:/no/such/folder', which names no model": {"base": "hf:/no/such/folder"},
        "base is 'synthetic:slot', which names no model": {"base": "synthetic:slot"},
        "base is 'smollm2-135m-oc', which carries an adapter": {"base": "smollm2-135m-oc"},
        "base is 'hf:some/model+adapters/mine', which carries an adapter": {"base": "hf:some/model+adapters/mine"},
    }
    for words, change in bad.items():
        assert any(words in mistake for mistake in config_mistakes(replace(good, **change))), words
    assert "does not divide into 3 process(es)" in config_mistakes(good, processes=3)[0]
    for queries, held_out in ((None, 6), (2, 2)):
        with pytest.raises(InputError, match=f"held_out {held_out} leaves nothing of {held_out} queries to train on"):
            checked_data(replace(good, queries=queries, held_out=held_out))
    for base in ("smollm2-135m", "hf:smollm2-135m", "hf:Qwen/Qwen3-4B"):
        assert config_mistakes(replace(good, base=base)) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shuffle", "all"], "argument --shuffle: invalid choice: 'all'"),
        (["--markers", "stars"], "argument --markers: invalid choice: 'stars'"),
        (["--weight", "nan"], "argument --weight: nan is not a finite number"),
        (["--weight", "-1"], "argument --weight: -1 is below 0"),
        (["--pool", "0"], "argument --pool: 0 is not above 0"),
        (["--dropout", "1"], "argument --dropout: 1 is not below 1"),
        (["--grade-share", "1.5"], "argument --grade-share: 1.5 is above 1"),
        (["--views", "two"], "argument --views: invalid int value: 'two'"),
        (["--width", "5,0"], "argument --width: 0 is not above 0"),
    ],
)
def test_a_flag_with_a_wrong_value_is_wrong_usage(words, message, capsys):
    with pytest.raises(SystemExit) as stop:
        flags(*words)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


def test_training_data_is_refused_that_is_not_apart_from_what_is_named(good):
    assert config_mistakes(replace(good, apart_from=("passages",))) == []
    (mistake,) = config_mistakes(replace(good, queries=2, apart_from=("passages", good.data)))
    assert mistake.startswith(f"{good.data} is not apart from {good.data}: it shares 2 queries and 20 of 20 candidates with it")
    assert "no collection is named nowhere" in config_mistakes(replace(good, apart_from=("nowhere",)))[0]
    assert flags("--apart-from", "a", "b").apart_from == ("a", "b")


def test_a_config_made_in_python_is_checked_as_a_recipe_is(good):
    found = config_mistakes(replace(good, views="two", shuffle="all", objective="oc_sft", widths=(0,), batch=63, microbatch=2))
    assert found[:3] == [
        "views is 'two'; give int",
        "widths is [0]; it must be above 0",
        "shuffle is 'all'; use one of none, window, pool",
    ]
    assert "batch 63 does not divide" in found[3]


def test_a_wrong_choice_hides_no_other_mistake():
    with pytest.raises(InputError) as refusal:
        make_config({"shuffle": "all", "weight": float("nan"), "pool": 0, "base": "smolm2-135m", "data": "nowhere"})
    for words in ("shuffle is 'all'", "weight is nan", "pool is 0", "base is 'smolm2-135m'", "no collection is named nowhere"):
        assert words in str(refusal.value)


@pytest.mark.parametrize("markers", ["roman", "random3"])
def test_markers_that_are_kept_for_tests_are_not_trained_on(good, markers):
    (mistake,) = config_mistakes(replace(good, objective="marker_consistency", markers=markers))
    assert mistake.startswith(f"marker_consistency keeps the markers {markers} for tests, it trains with numeric, letters, doc;")
    assert config_mistakes(replace(good, objective="marker_consistency", markers="letters")) == []
    assert config_mistakes(replace(good, markers=markers)) == []


def test_a_ramp_is_a_number_of_steps_or_a_fraction(good):
    assert config_mistakes(replace(good, ramp=1.9))[0].startswith("ramp 1.9 is neither a number of steps nor a fraction")
    for ramp in (0.0, 0.9, 1.0, 2.0):
        assert config_mistakes(replace(good, ramp=ramp)) == []


@pytest.mark.parametrize("layers", ["0-", "²", "0-²", "-1", "1-0"])
def test_layers_that_are_no_range_are_a_mistake(good, layers):
    (mistake,) = config_mistakes(replace(good, layers=layers))
    assert mistake.startswith(f"layers is {layers!r}; write FIRST-LAST")


def test_the_command_that_makes_missing_labels_runs_as_printed(good, capsys, tmp_path):
    import shlex

    from steadyscore.cli import parser

    config = replace(good, labels=str(tmp_path / "own labels"), pool=4)
    (mistake,) = config_mistakes(config)
    words = shlex.split(mistake.partition("make it with: ")[2])
    asked = parser("label").parse_args(words[1:])
    assert (asked.scorer, asked.data, asked.out, asked.pool) == (config.base, config.data, config.labels, 4)


def test_a_width_that_is_not_a_number_is_named(capsys):
    with pytest.raises(SystemExit):
        flags("--width", "a,b")
    assert "argument --width: 'a,b' is not a width; write numbers with commas, for example 5 or 1,2,5" in capsys.readouterr().err


def test_the_default_weight_is_the_papers_in_either_convention(good):
    assert plan(good).weight == 20
    assert plan(replace(good, weight_convention="pairwise")).weight == 5
    assert plan(replace(good, objective="single_order")).weight == 0
    assert plan(replace(good, objective="kl_to_base")).weight == 0.05


def test_without_a_ramp_the_consistency_weight_grows_as_the_papers_did(good):
    def schedule(**how):
        return make_schedule(plan(replace(good, **how)), 0)

    assert schedule(steps=2305).ramp_steps == 500
    assert (schedule(steps=100).ramp_steps, schedule(steps=100).weight_at(0), schedule(steps=100).weight_at(22)) == (22, 0, 20)
    assert schedule(steps=100, ramp=0).weight_at(0) == 20  # whoever wants none says so
    assert schedule(steps=100, objective="marker_consistency").ramp_steps == 22
    for objective in ("single_order", "order_averaged", "permutation_augmentation", "mean_teacher", "kl_to_base"):
        assert schedule(steps=100, objective=objective).ramp_steps == 0


def test_a_folder_from_before_the_default_ramp_goes_on_unless_its_weight_would_change(good):
    """Earlier versions stored a ramp of 0 where none was given."""
    card = SimpleNamespace(base=CardBase("m", "w"), data=CardData("d", 1), labels={}, prompt_hash="h")

    def stored(**how):
        return fingerprint(plan(replace(good, **how)), card)

    assert stored(objective="single_order")["ramp"] == stored(objective="single_order", ramp=0)["ramp"] == 0
    assert stored(objective="oc_sft")["ramp"] == pytest.approx(500 / 2305)  # refused there; --ramp 0 goes on
    assert stored(objective="oc_sft", ramp=0)["ramp"] == 0


def test_an_explicit_dropout_is_respected_and_folders_from_before_go_on(good):
    card = SimpleNamespace(base=CardBase("m", "w"), data=CardData("d", 1), labels={}, prompt_hash="h")

    def dropout(**how):
        asked = plan(replace(good, **how))
        stored = fingerprint(asked, card)
        return asked.dropout, stored["dropout"], stored.get("lora dropout")

    assert dropout() == (0.05, 0.05, None)
    assert dropout(dropout=0.0) == (0, 0, None)
    assert dropout(objective="dropout") == (0.2, 0.05, None)  # as earlier versions trained and stored
    assert dropout(objective="dropout", dropout=0.3) == (0.3, 0.3, None)
    assert dropout(objective="dropout", dropout=0.1) == (0.1, 0.1, 0.1)  # they trained with 0.2
    assert config_mistakes(replace(good, objective="single_order", dropout=0.0, ramp=0.0, weight=0.0)) == []


def test_the_estimate_counts_windows_and_steps(good):
    cost = estimate(replace(good, held_out=1, batch=2, epochs=2))
    assert (cost.queries, cost.windows, cost.steps) == (5, 10, 10)
    assert cost.tokens > 0
    assert cost.memory > 0
    assert estimate(replace(good, objective="single_order", batch=2)).tokens * 2 == pytest.approx(
        estimate(replace(good, batch=2)).tokens, rel=0.01
    )


@pytest.mark.parametrize("shuffle", ["window", "pool"])
def test_the_estimate_is_of_the_windows_that_are_trained(good, shuffle):
    """Each shuffled pool gives windows of its own, seen once; shuffles inside a window are views of one."""
    config = replace(good, objective="permutation_augmentation", shuffle=shuffle, views=3, batch=2)
    cost, windows = estimate(config), len(training_data(config).examples)
    assert (cost.windows, cost.steps) == (windows, make_schedule(plan(config), windows).steps)
    assert cost.tokens == pytest.approx(estimate(replace(config, shuffle="window")).tokens, rel=0.01)


def test_an_objective_of_one_view_trains_on_one_shuffled_pool_of_each_query(good):
    config = replace(good, objective="single_order", shuffle="pool")
    assert (plan(config).views, plan(config).pool_views, plan(config).window_views) == (1, 1, 1)
    windows = [example.window.candidates for example in training_data(config).examples]
    assert (len(windows), estimate(config).windows) == (12, 12)
    assert windows[:2] != [(0, 1, 2, 3, 4), (5, 6, 7, 8, 9)]
    assert plan(replace(config, objective="permutation_augmentation", views=3)).pool_views == 3


def test_the_papers_steps():
    passage = make_config(recipe.read_recipe("passage_reranking"))
    whole = make_schedule(plan(passage), 29_500 * 5)
    assert (whole.steps, whole.ramp_steps) == (2305, 500)  # the paper's passage run
    short = make_schedule(plan(replace(passage, ramp=0.1)), 30_000)
    assert (short.steps, short.ramp_steps) == (469, 47)


def test_a_dry_run_prints_the_cost_or_the_mistakes(good, tmp_path, capsys):
    file = tmp_path / "r.yaml"
    file.write_text(f"base: {good.base}\ndata: {good.data}\nlabels: judgements\nout: {good.out}\nwidth: 5\n")
    assert main(["train", "--recipe", str(file), "--dry-run"]) == 0
    assert "steps" in capsys.readouterr().out
    assert main(["train", "--recipe", str(file), "--dry-run", "--processes", "2", "--batch", "4", "--microbatch", "1"]) == 0
    assert "unknown: a dry run is one process; the rate of several is remembered from a run" in capsys.readouterr().out
    file.write_text("nothing")
    assert main(["train", "--recipe", str(file), "--dry-run"]) == 1
    assert "holds no keys" in capsys.readouterr().err
    assert main(["train", "--recipe", "nowhere", "--dry-run"]) == 1
    shipped = "multidoc_qa, passage_reranking, response_ranking, smollm2_passages"
    assert f"recipe nowhere does not exist. Shipped: {shipped}" in capsys.readouterr().err


def test_labels_of_other_data_are_no_plan(good, tmp_path):
    from steadyscore.training.labels import Label, write_labels

    write_labels(tmp_path / "labels", [Label("elsewhere", ("a",), np.ones((1, 1)))])
    with pytest.raises(InputError, match=r"no training query of .*pools.jsonl has a label in .*labels. Name labels of"):
        verb.dry_run(argparse.Namespace(json=False, processes=None), replace(good, labels=str(tmp_path / "labels")))


# -- the time that a run will take


@pytest.fixture
def fresh_machine(tmp_path, monkeypatch):
    """A cache without a remembered rate."""
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


def dry_run(config: TrainConfig, capsys) -> dict:
    assert verb.dry_run(argparse.Namespace(json=True, processes=None), config) == 0
    return json.loads(capsys.readouterr().out)


def test_a_base_that_was_not_trained_here_is_measured_before_its_time_is_said(good, fresh_machine, capsys):
    config = replace(good, batch=4, microbatch=2, device="cpu")
    cost = dry_run(config, capsys)
    assert cost["rate_from"] == "measured"
    assert cost["seconds"] > 0
    assert verb.dry_run(argparse.Namespace(json=False, processes=None), config) == 0
    out, err = capsys.readouterr()
    assert "no held-out evaluation, by the rate of a few microbatches that were trained just now" in out
    assert err == f"steadyscore: opening {config.base} as the run would\n"
    assert not Path(config.out).exists()


@pytest.mark.parametrize("objective", ["mean_teacher", "kl_to_base", "marker_consistency", "debias_first"])
def test_every_kind_of_objective_can_be_measured(good, objective, fresh_machine):
    data = checked_data(replace(good, objective=objective, batch=2, device="cpu"))
    assert loop.rehearse(data, estimate_data(data)).seconds > 0


@pytest.mark.parametrize("known", [False, True], ids=["measured", "remembered"])
def test_a_dry_run_refuses_what_the_run_would_refuse_with_the_base_at_hand(good, fresh_machine, capsys, known):
    """A window that is too long, weights that are not there, a folder of another run, one that collapsed."""
    if known:
        remember_speed(rate_name(plan(good)), 500, 10.0)
    config = replace(good, batch=4, device="cpu", steps=1)
    with pytest.raises(ModelError, match="has no c_attn"):
        verb.dry_run(argparse.Namespace(json=True, processes=None), replace(config, projections=("c_attn",)))
    long = [json.loads(line) for line in Path(good.data).read_text().splitlines()]
    long[6]["candidates"][0]["text"] = f"{tiny.WORDS[0]} " * 600
    file = Path(good.data).with_name("long.jsonl")
    file.write_text("".join(json.dumps(line) + "\n" for line in long))
    for held_out in (0, 1):
        with pytest.raises(InputError, match=r"needs \d+ tokens, the model takes 512"):
            verb.dry_run(
                argparse.Namespace(json=True, processes=None), replace(config, data=str(file), chars=4000, held_out=held_out)
            )
    tiny.train_adapter(config)
    with pytest.raises(RunMismatch, match="seed was 42, now 43"):
        verb.dry_run(argparse.Namespace(json=True, processes=None), replace(config, seed=43))
    record = json.loads((Path(config.out) / "train.json").read_text())
    write_json(Path(config.out) / "train.json", record | {"status": "collapsed", "reason": "training collapsed: so."})
    with pytest.raises(ModelError, match="training collapsed"):
        verb.dry_run(argparse.Namespace(json=True, processes=None), config)


def test_the_estimate_counts_the_evaluations_and_their_windows(good, fresh_machine):
    """Before the first step, when they are due, and after the last; each query in first-stage order and in three more."""
    assert (estimate(good).evaluations, estimate(good).evaluated_windows) == (0, 0)
    cost = estimate(replace(good, held_out=2, steps=7, evaluate_every=3))
    assert (cost.evaluations, cost.evaluated_windows) == (4, 4 * 2 * 4 * 2)
    assert estimate(replace(good, held_out=2, steps=6, evaluate_every=3)).evaluations == 3
    one = estimate(replace(good, held_out=2, steps=7))
    assert (one.evaluations, one.evaluated_tokens * 2) == (2, pytest.approx(cost.evaluated_tokens, abs=2))
    asked = replace(good, held_out=2, steps=7)
    remember_speed(rate_name(plan(asked)), 500, 10.0)
    assert estimate(asked).seconds is None  # evaluation was not timed here
    remember_speed(rate_name(plan(asked), 1, "evaluate"), 1000, 10.0)
    known = estimate(asked)
    assert known.evaluation_seconds == known.evaluated_tokens / 100
    assert known.seconds == known.tokens / 50 + known.evaluation_seconds


def test_held_out_queries_without_judgements_are_refused_before_anything_is_loaded(good):
    rows = [json.loads(line) for line in Path(good.data).read_text().splitlines()]
    for candidate in rows[6]["candidates"]:
        del candidate["relevance"]
    file = Path(good.data).with_name("unjudged.jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match="no held-out query has judgements"):
        checked_data(replace(good, data=str(file), held_out=1))


def test_a_recipe_is_printed_as_it_ships(capsys):
    assert main(["list", "recipes", "smollm2_passages"]) == 0
    assert capsys.readouterr().out == (recipe.RECIPES / "smollm2_passages.yaml").read_text()


def test_a_measurement_ends_after_its_seconds(good, fresh_machine, monkeypatch):
    taken = []
    monkeypatch.setattr(Loop, "learn", lambda self, step, number, chosen, weight: taken.append(number))
    monkeypatch.setattr(loop.time, "monotonic", itertools.count(step=10.0).__next__)
    data = checked_data(replace(good, device="cpu"))
    cost = estimate_data(data)
    assert loop.rehearse(data, cost).seconds == pytest.approx(10.0 * cost.steps * data.plan.config.batch)  # 10 s a window
    assert taken == [0, 1, 2]


def test_a_remembered_rate_is_of_the_same_base_precision_objective_and_layers(good, fresh_machine, capsys):
    remember_speed(rate_name(plan(good)), 500, 10.0)
    cost = dry_run(good, capsys)
    assert (cost["rate_from"], cost["seconds"]) == ("remembered", cost["tokens"] / 50)
    others = [{"dtype": "bfloat16"}, {"objective": "single_order"}, {"layers": "1-1"}, {"microbatch": 2}, {"views": 3}]
    assert all(estimate(replace(good, **other)).seconds is None for other in others)
    assert estimate(good, processes=2).seconds is None
    assert estimate(replace(good, batch=2, seed=1, weight=2.0)).rate_from == "remembered"


def test_what_a_measurement_lacks_is_said_with_the_command_that_brings_it(good, fresh_machine, capsys, monkeypatch):
    cost = dry_run(replace(good, base="smollm2-135m"), capsys)
    assert (cost["seconds"], cost["rate_from"]) == (None, None)
    assert cost["unknown"] == "smollm2-135m is not on this disk: steadyscore data get smollm2-135m"
    cost = dry_run(replace(good, base="hf:nobody/nothing"), capsys)
    assert cost["unknown"] == "hf:nobody/nothing is not on this disk: hf download nobody/nothing"
    monkeypatch.setitem(sys.modules, "torch", None)
    assert dry_run(good, capsys)["unknown"] == f"measuring it needs torch: {install_line(['torch'])}"


def test_names_that_no_file_can_have_are_mistakes_of_the_recipe():
    long = "9" * 5000
    found = config_mistakes(make_config({"base": long, "data": long, "labels": long, "initial": long}))
    assert len(found) >= 4


def test_a_start_with_another_lora_is_refused_by_what_differs(good):
    start = str(shipped_adapters()["smollm2-135m-set"])
    asked = replace(good, initial=start, rank=16, alpha=16, dropout=0.0, layers="8-29")
    assert [m for m in config_mistakes(asked) if "keeps its LoRA" in m] == [
        f"{start} was trained with rank 8 and not 16; a run that starts from it keeps its LoRA"
    ]
    assert not [m for m in config_mistakes(replace(asked, rank=8)) if "keeps its LoRA" in m]


def test_a_start_whose_projections_are_not_all_names_is_a_mistake(good, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 16, "lora_alpha": 32, "target_modules": ["q_proj", 3, None]}))
    (mistake,) = config_mistakes(replace(good, initial=str(tmp_path)))
    assert "was trained with projections ['3', 'None', 'q_proj'] and not" in mistake


def test_one_order_cannot_be_held_out_for_a_change_of_order(good):
    assert any("needs 2 or more" in m for m in config_mistakes(replace(good, held_out=2, held_out_permutations=1)))
    assert not config_mistakes(replace(good, held_out_permutations=1))
