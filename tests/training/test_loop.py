from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local import device
from steadyscore.errors import InputError, ModelError, RunMismatch, StorageError, WindowTooLong
from steadyscore.machine.disk import lock_folder, write_json
from steadyscore.models.card import model_card, read_card
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance, Window
from steadyscore.training import checkpoints, loop, recipe, record, student
from steadyscore.training.cost import estimate, rate_name
from steadyscore.training.examples import training_data
from steadyscore.training.labels import write_labels
from steadyscore.training.objectives import OBJECTIVES
from steadyscore.training.recipe import TrainConfig
from tests.helpers import tiny
from tests.helpers.tiny import train_adapter
from tests.training.test_examples import graded


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    tiny.save(folder / "base", tiny.decoder())
    tiny.write_collection(folder / "pools.jsonl", 10, 10, seed=0)
    return folder


def config(world: Path, out: Path, **changes) -> TrainConfig:
    plain = TrainConfig(
        base=f"hf:{world / 'base'}",
        data=str(world / "pools.jsonl"),
        labels="judgements",
        out=str(out),
        widths=(5,),
        steps=3,
        batch=4,
        microbatch=2,
        learning_rate=1e-2,
        rank=4,
        device="cpu",
    )
    return replace(plain, **changes)


def losses(out: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (out / "log.jsonl").read_text().splitlines()]


def adapter(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "adapter_model.safetensors")


def difference(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> float:
    assert a.keys() == b.keys()
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "order_averaged"])
def test_every_objective_trains_and_its_adapter_scores(world, tmp_path, objective):
    card = train_adapter(config(world, tmp_path / "out", objective=objective, held_out=2, views=2))
    assert card["objective"] == objective
    assert [entry["step"] for entry in card["held_out"]] == [0, 3]
    engine = open_engine(f"hf:{world / 'base'}+{tmp_path / 'out'}")
    instance = tiny_instance(world)
    scores = Scorer(engine, PASSAGE_RERANKING, Settings(width=5)).score(instance)
    untrained = Scorer(open_engine(f"hf:{world / 'base'}"), PASSAGE_RERANKING, Settings(width=5)).score(instance)
    assert np.abs(scores - untrained).max() > 1e-4


def tiny_instance(world: Path):
    from steadyscore.collection import open_collection

    return next(open_collection(str(world / "pools.jsonl")).instances())


def test_weight_zero_is_single_order_step_for_step(world, tmp_path):
    """Dropout off: its masks depend on how many views share a pass. Both anchor the first hashed view."""
    plain = config(world, tmp_path / "a", objective="single_order", shuffle="window", dropout=0.0)
    train_adapter(plain)
    train_adapter(replace(plain, out=str(tmp_path / "b"), objective="oc_sft", shuffle=None, weight=0.0))
    np.testing.assert_allclose(losses(tmp_path / "a"), losses(tmp_path / "b"), atol=1e-6)
    assert difference(adapter(tmp_path / "a"), adapter(tmp_path / "b")) < 1e-5


def test_the_conventions_differ_by_four_at_two_views(world, tmp_path):
    train_adapter(config(world, tmp_path / "a", weight=8.0, dropout=0.0))
    train_adapter(config(world, tmp_path / "b", weight=2.0, weight_convention="pairwise", dropout=0.0))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_a_relative_weight_in_isolated_windows_trains_and_its_card_says_how_to_read(world, tmp_path):
    train_adapter(config(world, tmp_path / "a", weight=1.0, weight_convention="relative", prompt="isolated"))
    card = read_card(tmp_path / "a")
    assert (card["weight_convention"], card["settings"]["prompt"]) == ("relative", "isolated")
    scorer = Scorer(open_engine(f"hf:{world / 'base'}+{tmp_path / 'a'}"), PASSAGE_RERANKING, Settings(width=5))
    assert scorer.settings.prompt == "isolated"
    assert scorer.identity()["prompt_hash"] == card["prompt_hash"]
    with pytest.raises(RunMismatch, match="prompt"):
        train_adapter(config(world, tmp_path / "a", weight=1.0, weight_convention="relative", prompt="compact"))


def test_a_card_names_a_convention_only_where_a_term_has_one_and_says_how_windows_were_taught(world, tmp_path):
    scorer = Scorer(open_engine(f"hf:{world / 'base'}"), PASSAGE_RERANKING, Settings(width=5))

    def card(**changes):
        data = training_data(config(world, tmp_path, **changes))
        return record.new_card(data, scorer)

    for objective in OBJECTIVES:
        if objective != "order_averaged":
            has_one = objective in ("oc_sft", "dropout_views", "marker_consistency")
            found = card(objective=objective, weight_convention="pairwise")
            assert found["weight_convention"] == ("pairwise" if has_one else "none")
            assert ("convention" in model_card(found)) == has_one
    write_labels(tmp_path, graded(3)[1].values())
    data = tiny.write_collection(tmp_path / "pools.jsonl", 3, 4, seed=0)
    found = card(
        data=str(data), labels=str(tmp_path), objective="single_order", teacher_orders=3, grade_share=0.25, shuffle="pool"
    )
    assert (found["grade_share"], found["shuffle"], found["views"]) == (0.25, "pool", 1)


def test_a_base_that_carries_an_adapter_is_refused(world, tmp_path):
    train_adapter(config(world, tmp_path / "a", steps=1))
    with pytest.raises(InputError, match="carries an adapter"):
        train_adapter(config(world, tmp_path / "b", base=f"hf:{world / 'base'}+{tmp_path / 'a'}"))


def test_slot_gradients_equal_those_of_the_full_vocabulary(world):
    """The slots' four logits, against logits of every token at every position."""
    engine = open_engine(f"hf:{world / 'base'}")
    scorer = Scorer(engine, PASSAGE_RERANKING, Settings(width=5))
    prompt = scorer.prompt(tiny_instance(world), Window(0, (4, 0, 2, 1, 3)))
    target, found = torch.tensor([0.0, 1.0, 2.0, 3.0, 1.5]), []
    for full in (False, True):
        engine.model.zero_grad()
        if full:
            logits = engine.model(input_ids=torch.tensor([(*prompt.prefix, *prompt.body)])).logits[0]
            logits = logits[list(prompt.slots)][:, list(prompt.grade_tokens)]
        else:
            (logits,) = engine.slot_logits([prompt])
        ((logits.softmax(-1) @ torch.arange(4.0) - target) ** 2).mean().backward()
        found.append({name: p.grad.clone() for name, p in engine.model.named_parameters() if p.grad is not None})
    assert max(float(g.abs().max()) for g in found[1].values()) > 1e-3
    assert difference(found[0], found[1]) < 1e-5


def test_microbatches_and_checkpointing_do_not_change_the_step(world, tmp_path):
    plain = config(world, tmp_path / "a", dropout=0.0, weight=4.0)
    train_adapter(plain)
    train_adapter(replace(plain, out=str(tmp_path / "b"), microbatch=1))
    train_adapter(replace(plain, out=str(tmp_path / "c"), gradient_checkpointing=True))
    assert difference(adapter(tmp_path / "a"), adapter(tmp_path / "b")) < 1e-5
    assert difference(adapter(tmp_path / "a"), adapter(tmp_path / "c")) < 1e-5


def test_upper_layers_mixed_widths_and_an_initial_adapter(world, tmp_path):
    train_adapter(config(world, tmp_path / "a", layers="1-1", widths=(1, 2, 5), objective="single_order"))
    assert all(".layers.1." in name for name in adapter(tmp_path / "a"))
    card = train_adapter(
        config(world, tmp_path / "b", initial=str(tmp_path / "a"), layers="1-1", learning_rate=1e-12, dropout=0.0)
    )
    assert difference(adapter(tmp_path / "a"), adapter(tmp_path / "b")) < 1e-6
    assert card["initial"] == {"adapter": "a"}
    assert json.loads((tmp_path / "b/adapter_config.json").read_text())["lora_dropout"] == 0.0


# -- interruption


def flags_of(config: TrainConfig) -> list[str]:
    values = {k: v for k, v in recipe.to_json(config).items() if v is not None and v != recipe.to_json(TrainConfig())[k]}
    words: list[str] = []
    for name, value in values.items():
        words += [
            f"--{'width' if name == 'widths' else name.replace('_', '-')}",
            ",".join(map(str, value)) if isinstance(value, list) else str(value),
        ]
    return words


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1"}


KILLED_AT = """
import os, signal, sys
from steadyscore.cli import main
from steadyscore.training import record
write, most = record.Log.write, int(sys.argv.pop(1))
def kill_after(self, row, seconds):
    write(self, row, seconds)
    if self.file.read_text().count("\\n") > most:
        os.kill(os.getpid(), signal.SIGKILL)
record.Log.write = kill_after
sys.exit(main())
"""
"""The command, killed as soon as its log holds more than so many steps."""


def test_kill_at_any_step_and_go_on_gives_the_same_losses_and_adapter(world, tmp_path):
    """The mean teacher carries the most state: weights, moments, EMA and history."""
    whole = config(
        world, tmp_path / "whole", objective="mean_teacher", steps=14, checkpoint_every=3, held_out=2, evaluate_every=5
    )
    train_adapter(whole)
    killed = replace(whole, out=str(tmp_path / "killed"))
    for at in (2, 7):
        words = [sys.executable, "-c", KILLED_AT, str(at), "train", *flags_of(killed)]
        assert subprocess.run(words, env=environment(), capture_output=True).returncode == -signal.SIGKILL
    assert 0 < len(losses(tmp_path / "killed")) < 14
    train_adapter(killed)
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    files = [(out / "adapter_model.safetensors").read_bytes() for out in (tmp_path / "whole", tmp_path / "killed")]
    assert files[0] == files[1]
    curves = [json.loads((out / "evaluations.json").read_text()) for out in (tmp_path / "whole", tmp_path / "killed")]
    assert curves[0] == curves[1]
    assert not list((tmp_path / "killed").rglob("*.pt"))


def test_a_finished_folder_is_not_trained_again_and_another_command_is_refused(world, tmp_path):
    first = train_adapter(config(world, tmp_path / "out"))
    before = (tmp_path / "out" / "adapter_model.safetensors").stat().st_mtime_ns
    assert train_adapter(config(world, tmp_path / "out")) == first
    assert (tmp_path / "out" / "adapter_model.safetensors").stat().st_mtime_ns == before
    with pytest.raises(RunMismatch, match=r"seed was 42, now 43"):
        train_adapter(config(world, tmp_path / "out", seed=43))


def test_a_second_process_in_the_folder_is_refused(world, tmp_path):
    with lock_folder(tmp_path / "out"), pytest.raises(InputError, match=r"another process works in .*out"):
        train_adapter(config(world, tmp_path / "out"))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("line", "is_kept"),
    [
        (b'{"step": 4, "loss": 1.0}\n', True),
        (b'{"step": 5, "loss": 1.0}\n', False),
        (b'{"step": 4, "loss": 1.0}', False),
        (b"\0\0\0\0\n", False),
        (b"[4]\n", False),
        (b'"step"\n', False),
    ],
    ids=["before", "after", "cut", "zeros", "list", "string"],
)
def test_a_log_keeps_the_rows_before_the_checkpoint_whatever_a_power_cut_left_behind_them(line, is_kept):
    assert record._is_row_before(5, line) == is_kept


# -- bad input


def test_a_nan_loss_names_its_window_and_keeps_the_last_checkpoint(world, tmp_path):
    """One word of the vocabulary breaks the model: only windows that hold it are NaN."""
    broken = tmp_path / "world"
    tiny.save(broken / "base", tiny.decoder())
    word = tiny.tokenizer().convert_tokens_to_ids(tiny.WORDS[0])
    weights = load_file(broken / "base" / "model.safetensors")
    weights["model.embed_tokens.weight"][word] = float("nan")
    save_file(weights, broken / "base" / "model.safetensors", metadata={"format": "pt"})
    lines = [json.loads(line) for line in (world / "pools.jsonl").read_text().splitlines()]
    clean = [line for line in lines if "collection" in line or tiny.WORDS[0] not in json.dumps(line).replace('"', " ").split()]
    for line in clean[1:]:
        line["candidates"] = line["candidates"][:5]
    poisoned = json.loads(json.dumps(clean[1])) | {"id": "bad"}
    poisoned["candidates"][0]["text"] = tiny.WORDS[0]
    (broken / "pools.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*clean, poisoned]))
    with pytest.raises(ModelError, match=r"loss of step \d+ is nan at window 1 of query bad. The last checkpoint is kept"):
        train_adapter(
            config(broken, tmp_path / "out", batch=1, microbatch=1, steps=60, checkpoint_every=1, objective="single_order")
        )
    done = len(losses(tmp_path / "out"))
    assert (checkpoints.latest(tmp_path / "out") is None) == (done == 0)
    if done:
        assert all(bool(t.isfinite().all()) for t in adapter(checkpoints.latest(tmp_path / "out")).values())


def test_windows_too_long_for_the_base_are_refused_before_the_first_step_wherever_they_stand(world, tmp_path):
    lines = [json.loads(line) for line in (world / "pools.jsonl").read_text().splitlines()]
    for query, candidate in ((9, 7), (10, 0), (10, 9)):  # line 0 is the collection's
        lines[query]["candidates"][candidate]["text"] = f"{tiny.WORDS[0]} " * 600
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    refused = (
        r"^width 5 does not fit: window 2 of query q0-8 needs \d+ tokens, the model takes 512; "
        r"3 of \d+ windows are too long\. Lower --width or --chars\.$"
    )
    with pytest.raises(InputError, match=refused):
        train_adapter(config(world, tmp_path / "out", data=str(tmp_path / "long.jsonl"), chars=2000))
    assert not (tmp_path / "out").exists()


def test_what_surely_fits_by_its_bytes_fits_by_its_tokens(tiny_engine):
    scorer, window = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(width=2, chars=None)), Window(0, (0, 1))

    def instance(count: int) -> Instance:
        return Instance("q", "ask", (Candidate("a", "é" * count), Candidate("b", "b")))

    fitting = [count for count in range(0, 2048, 8) if scorer.surely_fits(instance(count), window)]
    assert 0 < len(fitting) < 256
    scorer.prompt(instance(fitting[-1]), window)  # a window that does not fit would be refused
    with pytest.raises(WindowTooLong):
        scorer.prompt(instance(2048), window)


def test_a_full_disk_keeps_the_last_checkpoint(world, tmp_path, monkeypatch):
    real, calls = os.rename, []

    def full(source, target):
        calls.append(target)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(source, target)

    monkeypatch.setattr(os, "rename", full)
    with pytest.raises(StorageError, match="No space left on device"):
        train_adapter(config(world, tmp_path / "out", checkpoint_every=1))
    assert checkpoints.steps_on_disk(tmp_path / "out") == [1]
    assert not list((tmp_path / "out" / "checkpoints").glob(".step-*"))
    monkeypatch.undo()
    train_adapter(config(world, tmp_path / "out", checkpoint_every=1))
    train_adapter(config(world, tmp_path / "whole", checkpoint_every=1))
    assert losses(tmp_path / "out") == losses(tmp_path / "whole")


def test_mistakes_are_told_before_anything_is_loaded(world, tmp_path):
    with pytest.raises(InputError) as refusal:
        train_adapter(config(world, tmp_path / "out", batch=5, views=1, ramp=50, layers="x"))
    text = str(refusal.value)
    assert "batch 5 does not divide into 1 process(es) x microbatch 2" in text
    assert "views is 1, give at least 2" in text
    assert "ramp 50 is longer than the run of 3 steps" in text
    assert "layers is 'x'" in text


@pytest.mark.parametrize("asked", ["gpu", "cpuu", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(world, tmp_path, asked):
    with pytest.raises(InputError, match=f"this machine has no device '{asked}'"):
        train_adapter(config(world, tmp_path / "out", device=asked))
    assert not (tmp_path / "out").exists()


class FakeAccelerator:
    """Accelerate on a machine with two GPUs: the current device for one process, one each for several."""

    processes = 1

    def __init__(self, cpu=False, **_):
        self.num_processes = self.processes
        several = torch.device("cuda:0") if self.processes > 1 else torch.device("cuda")
        self.device = torch.device("cpu") if cpu else several


def test_accelerate_gets_the_device_that_was_asked_for(monkeypatch):
    """It has a switch for the CPU and no word for the second GPU, so that one is made the current one."""
    chosen = []
    monkeypatch.setattr(device, "present", lambda: ["cpu:0", "cuda:0", "cuda:1"])
    monkeypatch.setattr(student, "Accelerator", FakeAccelerator)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for asked, expected in (("cpu", "cpu"), ("cuda", "cuda"), ("cuda:1", "cuda"), (None, "cuda")):
        assert str(student.make_accelerator(TrainConfig(device=asked)).device) == expected
    assert chosen == [torch.device("cuda:1")]
    monkeypatch.setattr(FakeAccelerator, "processes", 2)
    with pytest.raises(InputError, match=r"device cuda:1 is one, and the 2 processes take one each\. Leave out its number"):
        student.make_accelerator(TrainConfig(device="cuda:1"))
    student.make_accelerator(TrainConfig(device="cuda"))


def test_a_device_that_accelerate_does_not_take_is_refused(monkeypatch):
    monkeypatch.setattr(device, "present", lambda: ["cpu:0", "cuda:0"])
    monkeypatch.setattr(student, "Accelerator", lambda **_: FakeAccelerator(cpu=True))  # as `accelerate config` may say
    with pytest.raises(InputError, match="Accelerate is set up for cpu here, not for cuda"):
        student.make_accelerator(TrainConfig(device="cuda"))


def test_a_base_without_the_named_projections_is_refused(world, tmp_path):
    with pytest.raises(ModelError, match=r"has no c_attn. Its linear layers are down_proj, gate_proj"):
        train_adapter(config(world, tmp_path / "out", projections=("c_attn",)))
    with pytest.raises(InputError, match=r"layers 1-5 go beyond the 2 layers"):  # told from its files, before it is loaded
        train_adapter(config(world, tmp_path / "out2", layers="1-5"))


def test_collapse_is_detected_and_said(world, tmp_path):
    """Without an anchor and with a strong penalty, scores of a model that told candidates apart become equal."""
    tiny.save(tmp_path / "base", spread_out())
    tiny.write_collection(tmp_path / "pools.jsonl", 10, 10, seed=0)
    out, file = tmp_path / "out", tmp_path / "out" / "train.json"
    asked = config(tmp_path, out, anchor=0.0, weight=50.0, steps=60, held_out=3, evaluate_every=10, learning_rate=3e-2)
    with pytest.raises(ModelError, match=r"training collapsed: at step .* It became consistent and relevance-free"):
        train_adapter(asked)
    record = json.loads(file.read_text())
    assert record.pop("status") == "collapsed"
    assert record.pop("reason")
    write_json(file, record | {"status": "training"})  # as after a kill between the checkpoint and the word for it
    with pytest.raises(ModelError, match="training collapsed"):
        train_adapter(asked)
    assert not (out / "card.json").exists()


def spread_out():
    """A random decoder with a loud output matrix, so that its scores differ."""
    model = tiny.decoder()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.mul_(12)
    return model


# -- while it runs

SHORT_MINUTE = (
    "import sys; from steadyscore.machine import console; console.INTERVAL = 0.01; "
    "from steadyscore.cli import main; sys.exit(main())"
)


def test_without_a_terminal_training_says_what_it_loads_evaluates_and_learns(world, tmp_path):
    words = ["train", "--base", f"hf:{world / 'base'}", "--data", str(world / "pools.jsonl"), "--labels", "judgements"]
    words += [
        "--width",
        "5",
        "--steps",
        "2",
        "--batch",
        "40",
        "--held-out",
        "4",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "out"),
    ]
    done = subprocess.run([sys.executable, "-c", SHORT_MINUTE, *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    json.loads(done.stdout)
    said = done.stderr.splitlines()
    base = f"hf:{world / 'base'}"
    began = [
        said.index(f"steadyscore: {what}") for what in (f"loading {world / 'pools.jsonl'}", "loading torch", f"loading {base}")
    ]
    assert began == sorted(began)
    assert began[0] == 0
    assert "steadyscore: evaluation at step 0 of 2: 0 of 32 windows" in said
    assert f"steadyscore: training {base} with oc_sft: 0 of 2 steps" in said
    learning = (
        rf"steadyscore: training {re.escape(base)} with oc_sft: step \d of 2, microbatch \d+ of 40, .* a minute, about .* left"
    )
    assert any(re.match(learning, line) for line in said)


def test_the_log_counts_the_tokens_of_both_views_of_a_mean_teacher(world, tmp_path):
    for objective in ("oc_sft", "mean_teacher"):
        train_adapter(config(world, tmp_path / objective, objective=objective, steps=1))
    counted = [json.loads((tmp_path / o / "log.jsonl").read_text())["tokens"] for o in ("oc_sft", "mean_teacher")]
    assert counted[0] == counted[1]


def test_the_rates_that_are_remembered_are_of_the_steps_and_of_the_evaluations(world, tmp_path, monkeypatch):
    kept = {}
    monkeypatch.setattr(record, "remember_speed", lambda name, tokens, seconds: kept.update({name: (tokens, seconds)}))
    asked = config(world, tmp_path / "out", held_out=2, evaluate_every=1)
    slow, taken = loop.evaluate, []

    def evaluate(*given):
        began = time.monotonic()
        try:
            return slow(*given)
        finally:
            taken.append(time.monotonic() - began)

    monkeypatch.setattr(loop, "evaluate", evaluate)
    began = time.monotonic()
    train_adapter(asked)
    whole = time.monotonic() - began
    data = training_data(asked)
    cost = estimate(data)
    (tokens, seconds), (evaluated, evaluating) = (kept[rate_name(data.plan, 1, what)] for what in ("train", "evaluate"))
    assert (tokens, evaluated) == (cost.tokens, cost.evaluated_tokens)
    assert 0 < seconds < whole - sum(taken)
    assert sum(taken) <= evaluating < whole - seconds
