from __future__ import annotations

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from steadyscore import audit, compare, load, recommend
from steadyscore.collection import open_collection
from steadyscore.commands import adapter as verb
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine, open_local_model
from steadyscore.engines.local.shared import SharedBases
from steadyscore.errors import InputError, ModelError, StorageError
from steadyscore.integrations import Ranker
from steadyscore.models import adapter
from steadyscore.models.card import model_card, read_card
from steadyscore.paper.jobs import Need, job_of, request_of
from steadyscore.paper.library import At, Library, MissingRun
from steadyscore.paper.recipe import Side
from steadyscore.paper.scale import choices_from
from steadyscore.paper.work import Store, Workshop, do_pieces, pieces_of
from steadyscore.scoring.config import AuditConfig
from steadyscore.scoring.estimate import presentation_of
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.serve.service import instance_of, open_model
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Collection
from steadyscore.training import adapters
from steadyscore.training.recipe import TrainConfig
from tests.helpers import tiny
from tests.helpers.tiny import train_adapter


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """A base, its sister with other weights, and an adapter for the first."""
    folder = tmp_path_factory.mktemp("world")
    tiny.save(folder / "base", tiny.decoder())
    tiny.save(folder / "sister", tiny.decoder(seed=1))
    tiny.write_collection(folder / "pools.jsonl", 6, 5, seed=0)
    train_adapter(
        TrainConfig(
            base=f"hf:{folder / 'base'}",
            data=str(folder / "pools.jsonl"),
            labels="judgements",
            out=str(folder / "adapter"),
            widths=(5,),
            steps=4,
            batch=4,
            microbatch=4,
            learning_rate=1e-2,
            held_out=2,
            device="cpu",
        )
    )
    return folder


def scores(address: str, world: Path, **options) -> np.ndarray:
    instance = next(open_collection(str(world / "pools.jsonl")).instances())
    return Scorer(open_engine(address, EngineOptions(**options)), PASSAGE_RERANKING, Settings(width=5)).score(instance)


@pytest.fixture
def copy(world, tmp_path) -> Path:
    return Path(shutil.copytree(world / "adapter", tmp_path / "copy"))


def test_the_folder_is_a_peft_adapter_with_a_card(world):
    from peft import PeftModel

    names = {file.name for file in (world / "adapter").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors", "card.json", "README.md"} <= names
    card = read_card(world / "adapter")
    assert card["base"]["model"] == str(world / "base")
    assert card["grade_tokens"] == [12, 13, 14, 15]
    assert [entry["step"] for entry in card["held_out"]] == [0, 4]
    PeftModel.from_pretrained(tiny.decoder(), str(world / "adapter"))
    text = (world / "adapter" / "README.md").read_text()
    assert text.startswith("---\nbase_model: ")
    assert "| objective | oc_sft |" in text
    assert "## Held-out evaluation" in text


def test_an_adapter_changes_scores_and_belongs_to_a_runs_identity(world):
    address = f"hf:{world / 'base'}+{world / 'adapter'}"
    assert np.abs(scores(address, world) - scores(f"hf:{world / 'base'}", world)).max() > 1e-4
    identity = open_engine(address).identity()["adapter"]
    assert identity["prompt_hash"] == read_card(world / "adapter").prompt_hash


def test_folding_gives_the_weights_that_peft_gives_and_rounds_them_last(world):
    address = f"hf:{world / 'base'}"
    base = open_local_model(address, EngineOptions(dtype="float32")).model
    before = {name: weight.clone() for name, weight in base.named_parameters()}
    by_peft = PeftModel.from_pretrained(base, str(world / "adapter")).merge_and_unload()
    exact = open_local_model(f"{address}+{world / 'adapter'}", EngineOptions(dtype="float32")).model
    half = open_local_model(f"{address}+{world / 'adapter'}", EngineOptions(dtype="bfloat16")).model
    ways = [dict(model.named_parameters()) for model in (by_peft, exact, half)]
    assert any(not torch.equal(weight, ways[1][name]) for name, weight in before.items())
    for name, weight in ways[0].items():
        assert torch.equal(weight, ways[1][name])
        assert torch.equal(weight.to(torch.bfloat16), ways[2][name])


@pytest.mark.parametrize(
    "change",
    [{"use_dora": True}, {"bias": "lora_only"}, {"rank_pattern": {"q_proj": 2}}, {"init_lora_weights": "pissa"}],
    ids=str,
)
def test_what_is_not_plain_lora_is_left_to_peft(world, change):
    config = json.loads((world / "adapter" / "adapter_config.json").read_text())
    tensors = load_file(world / "adapter" / adapter.WEIGHTS)
    assert adapter.is_foldable(config, tensors)
    assert not adapter.is_foldable(config | change, tensors)
    assert not adapter.is_foldable(config, tensors | {"base_model.model.lm_head.lora_A.weight": torch.zeros(1)})
    assert not adapter.is_foldable(config, tensors | {"base_model.model.q_proj.lora_magnitude_vector": torch.zeros(1)})


def test_prefix_sharing_is_exact_with_an_adapter(world):
    address = f"hf:{world / 'base'}+{world / 'adapter'}"
    np.testing.assert_allclose(scores(address, world, share_prefix=True), scores(address, world, share_prefix=False), atol=1e-5)


def test_an_integration_presents_an_adapter_as_its_card_says_and_refuses_a_mismatch(world, copy):
    card = read_card(copy).to_json()
    (copy / "card.json").write_text(json.dumps(card | {"settings": card["settings"] | {"chars": 7, "width": 3}}))
    settings = Ranker(f"hf:{world / 'base'}+{copy}").scorer.settings
    assert (settings.chars, settings.width) == (7, 3)
    (copy / "card.json").write_text(json.dumps(card | {"prompt_hash": "other"}))
    with pytest.raises(ModelError, match="was trained with prompt other"):
        Ranker(f"hf:{world / 'base'}+{copy}")


def test_another_base_is_refused_by_name_and_can_be_allowed(world):
    address = f"hf:{world / 'sister'}+{world / 'adapter'}"
    with pytest.raises(
        ModelError, match=r"adapter was trained for base @ \w{7}, this is sister @ \w{7}\. Pass --set allow_base_mismatch=yes"
    ):
        open_engine(address)
    open_engine(address, EngineOptions(allow_base_mismatch=True))


def test_another_prompt_or_other_grade_tokens_are_mistakes():
    mine = {"prompt_hash": "abc", "grade_tokens": [1, 2, 3, 4]}
    assert adapter.prompt_mistakes(mine, "abc", (1, 2, 3, 4)) == []
    found = adapter.prompt_mistakes(mine, "xyz", (1, 2, 3, 5))
    assert "trained with prompt abc, this is prompt xyz" in found[0]
    assert "grade tokens [1, 2, 3, 4], this tokenizer has [1, 2, 3, 5]" in found[1]
    with pytest.raises(ModelError, match="Pass --set allow_base_mismatch=yes"):
        adapter.refuse_mismatches(found, allowed=False)
    adapter.refuse_mismatches(found, allowed=True)


def test_verify_opens_the_adapter_and_finds_a_changed_prompt(world, copy):
    found = adapters.verify(world / "adapter")
    assert found["tensors"] == len(load_file(world / "adapter" / adapter.WEIGHTS))
    assert found["largest change of a probe score"] > 0
    card = json.loads((copy / "card.json").read_text())
    (copy / "card.json").write_text(json.dumps(card | {"prompt_hash": "0" * 16}))
    with pytest.raises(ModelError, match="trained with prompt 0000"):
        adapters.verify(copy)


def test_damage_is_said_and_never_loaded(copy):
    weights = load_file(copy / adapter.WEIGHTS)
    weights[next(iter(weights))][0] = float("nan")
    save_file(weights, copy / adapter.WEIGHTS)
    with pytest.raises(ModelError, match="NaN or infinite weights in 1 tensors"):
        adapter.read_weights(copy)
    (copy / adapter.WEIGHTS).write_bytes(b"short")
    with pytest.raises(StorageError, match="cannot be read"):
        adapter.read_weights(copy)
    (copy / adapter.WEIGHTS).unlink()
    torch.save({}, copy / "adapter_model.bin")
    with pytest.raises(ModelError, match="pickled weights"):
        adapter.refuse_pickles(copy)
    (copy / "card.json").write_text("{}")
    with pytest.raises(InputError, match=r"base: field required; task: field required; objective"):
        read_card(copy)
    (copy / "card.json").unlink()
    with pytest.raises(InputError, match=r"has no card\.json"):
        read_card(copy)
    with pytest.raises(InputError, match=r"adapter folder .*nowhere does not exist\. Shipped: smollm2-135m-oc"):
        read_card(copy / "nowhere")


def open_by_address(world, folder):
    open_engine(f"hf:{world / 'base'}+{folder}")


def merge_it(world, folder):
    adapters.merge(folder, folder / "merged")


def serve_it(world, folder):
    SharedBases().open(f"hf:{world / 'base'}+{folder}", EngineOptions())


def start_from_it(world, folder):
    base, data = f"hf:{world / 'base'}", str(world / "pools.jsonl")
    settings = {"widths": (5,), "steps": 1, "batch": 1, "device": "cpu"}
    config = TrainConfig(base=base, data=data, labels="judgements", out=str(folder / "out"), initial=str(folder), **settings)
    train_adapter(config)


@pytest.mark.parametrize("opened", [open_by_address, merge_it, serve_it, start_from_it])
def test_every_way_to_an_adapter_makes_the_same_checks(world, copy, opened):
    card = json.loads((copy / "card.json").read_text())
    (copy / "card.json").write_text(json.dumps(card | {"base": card["base"] | {"weights": "other"}}))
    with pytest.raises(ModelError, match=r"adapter was trained for base @ other, this is base @ \w{7}"):
        opened(world, copy)
    (copy / adapter.WEIGHTS).unlink()
    torch.save({}, copy / "adapter_model.bin")
    with pytest.raises(ModelError, match="pickled weights"):
        opened(world, copy)
    (copy / "adapter_config.json").unlink()
    with pytest.raises(InputError, match=r"is not an adapter folder: it has no adapter_config\.json"):
        opened(world, copy)


def test_merged_scores_equal_unmerged_and_the_merged_folder_opens(world, tmp_path):
    assert adapters.merge(world / "adapter", tmp_path / "merged") < adapters.AGREEMENT
    merged = scores(f"hf:{tmp_path / 'merged'}", world)
    np.testing.assert_allclose(merged, scores(f"hf:{world / 'base'}+{world / 'adapter'}", world), atol=1e-4)


@pytest.fixture(scope="module")
def merged(world, tmp_path_factory) -> tuple[str, str]:
    """The addresses of an adapter that is shown three candidates at once, 19 characters of each, and of its merged model."""
    folder = tmp_path_factory.mktemp("merged")
    trained = Path(shutil.copytree(world / "adapter", folder / "adapter"))
    card = read_card(trained).to_json()
    (trained / "card.json").write_text(json.dumps(card | {"settings": card["settings"] | {"chars": 19, "width": 3}}))
    adapters.merge(trained, folder / "model")
    return f"hf:{world / 'base'}+{trained}", f"hf:{folder / 'model'}"


def pool_of(world) -> tuple[str, list[str]]:
    instance = next(open_collection(str(world / "pools.jsonl")).instances())
    return instance.query, [candidate.text for candidate in instance.pool]


def rank_in_python(address, query, texts):
    return Ranker(address).scores(query, texts)


def rank_in_a_server(address, query, texts):
    return open_model("m", address).scorer().score(instance_of(query, texts))


@pytest.mark.parametrize("rank", [rank_in_python, rank_in_a_server])
def test_a_merged_model_is_presented_as_its_adapter_was_trained(world, merged, rank):
    apart, together = (np.array(rank(address, *pool_of(world))) for address in merged)
    np.testing.assert_allclose(together, apart, atol=1e-5)
    assert np.array_equal(np.argsort(-together), np.argsort(-apart))
    plain = Ranker(merged[1], width=5, chars=200).scores(*pool_of(world))
    assert np.abs(plain - apart).max() > 1e-4  # the settings matter for this pool


def test_a_merged_model_has_the_checks_of_its_adapter(world, merged):
    apart, together = (open_engine(address).identity()["adapter"] for address in merged)
    assert together == apart | {"sha256": together["sha256"]}
    planned = [presentation_of(address, Collection("texts", "passage_reranking"), AuditConfig()) for address in merged]
    assert planned[0] == planned[1]
    with pytest.raises(ModelError, match="adapter was trained with prompt"):
        Ranker(merged[1], prompt="compact")


def test_a_merged_model_with_a_damaged_card_is_refused_by_its_file(merged, tmp_path):
    folder = Path(shutil.copytree(merged[1].removeprefix("hf:"), tmp_path / "model"))
    (folder / "merged.json").write_text('{"adapter": ["no card"]}')
    with pytest.raises(InputError, match=r"merged\.json cannot be used"):
        open_engine(f"hf:{folder}")


TRANSFER = "is an adapter that was trained for passage reranking, and this is response ranking"


@pytest.fixture(scope="module")
def transferred(world, merged, tmp_path_factory):
    """The passage adapter and its merged model on responses, and the base, which was trained for nothing."""
    folder = tmp_path_factory.mktemp("transferred")
    lines = (world / "pools.jsonl").read_text().replace("passage_reranking", "response_ranking")
    (folder / "responses.jsonl").write_text(lines)
    scorers = [f"hf:{world / 'base'}", *merged]
    return audit(scorers, folder / "responses.jsonl", permutations=2, out=folder / "runs", quiet=True)


def test_an_adapter_of_another_task_is_said_in_every_table(transferred, tmp_path):
    plain, apart, together = transferred
    assert "trained for" not in str(plain)
    for audited in (apart, together):
        assert TRANSFER in "\n".join(audited.remarks())
        assert TRANSFER in str(audited.to_json()["warnings"])
        assert TRANSFER in str(load(audited.folder))
        assert TRANSFER in str(compare(plain.folder, audited.folder))
        assert TRANSFER in str(recommend(audited.folder, target="overlap=0.5"))
        assert TRANSFER in load(audited.folder).report(tmp_path / audited.name.replace("/", "-")).read_text()


def test_claims_are_scored_by_the_prompt_of_passages():
    scored = {"scorer": {"adapter": {"task": "claim_verification"}}, "task": "passage_reranking"}
    assert adapter.other_task(scored) is None
    assert adapter.other_task({"scorer": {"kind": "python"}, "task": "response_ranking"}) is None


def test_the_paper_s_tables_take_no_adapter_of_another_task(world, transferred, tmp_path):
    choices = choices_from("tiny", base=f"hf:{world / 'base'}", adapters={"oc-sft": str(world / "adapter")})
    side = Side(system="oc-sft", base="qwen3-4b", seeds=(42,), collections="rewardbench2")
    job = job_of(request_of(side, "qwen3-4b", 42, "rewardbench2"), frozenset({Need(1)}), choices)
    [said] = do_pieces(pieces_of([job]), Workshop(Store(tmp_path), choices, EngineOptions(), quiet=True), print)
    assert said.startswith(f"oc-sft on rewardbench2: the scorer {TRANSFER}. Name an adapter of this task")
    given = replace(choices, collections={"rewardbench2": "pools"}, runs={"oc-sft/rewardbench2": str(transferred[1].folder)})
    with pytest.raises(MissingRun, match="was scored by an adapter that was trained for passage reranking"):
        Library(Store(tmp_path), given).run(At(side, "qwen3-4b", 42, "rewardbench2"))


def test_a_merge_that_changes_scores_is_not_written(world, tmp_path, monkeypatch):
    monkeypatch.setattr(adapters, "AGREEMENT", -1.0)
    with pytest.raises(ModelError, match="The merged model was not written"):
        adapters.merge(world / "adapter", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_halved_adapters_score_the_same_to_a_thousandth(world, tmp_path):
    adapter.halve(world / "adapter", tmp_path / "half")
    sizes = [(folder / adapter.WEIGHTS).stat().st_size for folder in (world / "adapter", tmp_path / "half")]
    assert sizes[1] < 0.7 * sizes[0]
    half = scores(f"hf:{world / 'base'}+{tmp_path / 'half'}", world)
    np.testing.assert_allclose(half, scores(f"hf:{world / 'base'}+{world / 'adapter'}", world), atol=1e-3)


def test_who_may_read_an_adapter_follows_the_umask(world, merged, tmp_path):
    (tmp_path / "plain").touch()
    adapter.halve(world / "adapter", tmp_path / "half")
    folders = [world / "adapter", tmp_path / "half", Path(merged[1].removeprefix("hf:"))]
    written = [file for folder in folders for file in folder.rglob("*.*") if file.is_file()]
    assert {"adapter_model.safetensors", "optimizer.safetensors", "model.safetensors"} <= {file.name for file in written}
    assert {file.stat().st_mode for file in written} == {(tmp_path / "plain").stat().st_mode}


def test_no_adapter_names_a_place_of_the_machine_that_trained_it(world, merged, tmp_path, monkeypatch):
    named = json.loads((world / "adapter" / "adapter_config.json").read_text())["base_model_name_or_path"]
    assert named == read_card(world / "adapter").base.model == str(world / "base")  # as the user wrote it
    monkeypatch.setattr("steadyscore.models.embedded.model_path", lambda name: world / "base")
    settings = {"widths": (5,), "steps": 1, "batch": 1, "device": "cpu", "out": str(tmp_path / "own")}
    train_adapter(TrainConfig(base="smollm2-135m", data=str(world / "pools.jsonl"), labels="judgements", **settings))
    for shared in (file for name in adapter.FILES for file in (tmp_path / "own").rglob(name)):
        assert bytes(world) not in shared.read_bytes()
    assert np.isfinite(scores(f"smollm2-135m+{tmp_path / 'own'}", world)).all()
    model = Path(merged[1].removeprefix("hf:"))
    assert not [file for file in model.iterdir() if file.name != "merged.json" and bytes(world) in file.read_bytes()]


def test_an_adapter_is_not_halved_in_its_own_place(copy):
    before = {file.name: file.read_bytes() for file in copy.iterdir() if file.is_file()}
    for out in (copy, copy / ".." / copy.name):
        with pytest.raises(InputError, match="is the folder to halve, and would lose its weights"):
            adapter.halve(copy, out)
    assert {file.name: file.read_bytes() for file in copy.iterdir() if file.is_file()} == before


def test_the_verb_shows_and_a_hub_out_of_reach_is_said(world, capsys):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    assert verb.run(parser.parse_args(["show", str(world / "adapter")])) == 0
    assert "oc_sft" in capsys.readouterr().out
    with pytest.raises(StorageError, match=r"could not be pushed to somebody/thing"):
        verb.run(parser.parse_args(["push", str(world / "adapter"), "somebody/thing"]))


def test_a_shipped_adapter_is_shown_by_its_name_and_figures_as_they_are(capsys):
    parser = argparse.ArgumentParser()
    verb.arguments(parser)
    assert verb.run(parser.parse_args(["show", "smollm2-135m-oc"])) == 0
    lines = {line.split("  ", 1)[0]: line for line in capsys.readouterr().out.splitlines()}
    assert lines["learning_rate"].split() == ["learning_rate", "0.0005"]
    assert lines["base model"].split() == ["base", "model", "smollm2-135m"]
    assert "q_proj, k_proj" in lines["lora projections"]
    assert not any("{" in line for line in lines.values())


def test_the_held_out_curve_has_a_line_for_each_step():
    rows = verb.value_rows({"held_out": [{"step": 2, "quality": 0.51234}, {"step": 4, "quality": 0.6}], "measured": {}})
    assert rows == [["held_out 1", "step 2, quality 0.51234"], ["held_out 2", "step 4, quality 0.6"], ["measured", "-"]]


def test_a_card_from_before_a_setting_was_written_has_a_page_all_the_same(tmp_path):
    card = json.loads((Path(adapter.__file__).parent / "shipped" / "smollm2-135m-oc" / "card.json").read_text())
    del card["settings"]["prompt"], card["settings"]["chars"]
    (tmp_path / "card.json").write_text(json.dumps(card))
    assert "| prompt | paper, all characters of each candidate |" in model_card(read_card(tmp_path))
