"""Several processes: the printed commands start, take the steps of one process, and go on where any other number stopped."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.training import loop
from steadyscore.training.train import launch_command
from tests.helpers import tiny
from tests.helpers.paths import TESTS
from tests.helpers.tiny import train_adapter
from tests.training.test_loop import adapter, config, difference, environment, flags_of, losses

STEPS, HALF = 4, 2
LAUNCH = [sys.executable, "-m", "accelerate.commands.launch"]


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("world")
    tiny.save(folder / "base", tiny.decoder())
    tiny.write_collection(folder / "pools.jsonl", 10, 10, seed=0)
    return folder


@pytest.fixture(scope="module")
def one(world):
    """A run of one process, with a penalty, dropout and held-out evaluation, which the others must equal."""
    plain = config(world, world / "one", weight=4.0, steps=STEPS, microbatch=1, checkpoint_every=HALF, held_out=2, keep=4)
    train_adapter(plain)
    return plain


def printed(capsys, config, kind: str, *more: str) -> list[str]:
    """The command that `train --print-launch` prints, as words for this environment's Accelerate."""
    capsys.readouterr()
    assert main(["train", *flags_of(config), "--print-launch", kind, *more]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[:2] == ["accelerate", "launch"]
    return [*LAUNCH, *words[2:]]


def start(words: list[str]) -> subprocess.Popen:
    return subprocess.Popen(words, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(*processes: subprocess.Popen) -> str:
    try:
        said = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(text[-3000:] for text in said)
    return said[0]


def rewind(whole: Path, out: Path) -> None:
    """A folder as a run leaves it that was killed after its checkpoint at half."""
    (out / "checkpoints").mkdir(parents=True)
    for name in ("train.json", "log.jsonl"):
        (out / name).write_text((whole / name).read_text().replace('"complete"', '"training"'))
    name = f"checkpoints/step-{HALF:06d}"
    shutil.copytree(whole / name, out / name)


def same(one: Path, other: Path) -> None:
    np.testing.assert_allclose(losses(one), losses(other), atol=1e-4)
    assert difference(adapter(one), adapter(other)) < 1e-4  # of weights that one step moves by up to 1e-2
    curves = [json.loads((out / "evaluations.json").read_text()) for out in (one, other)]
    for a, b in zip(*curves, strict=True):
        assert a["quality"] == pytest.approx(b["quality"], abs=1e-4)


def sharded(words: list[str]) -> list[str]:
    """The same launch with a command line that shards on the CPU."""
    at = words.index("-m", len(LAUNCH))
    return [*words[:at], str(TESTS / "helpers" / "sharded_verb.py"), *words[at + 2 :]]


def test_the_printed_ddp_command_takes_the_steps_of_one_process(world, one, tmp_path, capsys):
    two = replace(one, out=str(tmp_path / "two"))
    finish(start(printed(capsys, two, "ddp", "--processes", "2")))
    same(world / "one", tmp_path / "two")
    rewind(tmp_path / "two", tmp_path / "fewer")  # two processes began, one goes on
    train_adapter(replace(one, out=str(tmp_path / "fewer")))
    same(world / "one", tmp_path / "fewer")


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["oc_sft", "mean_teacher"])
def test_the_printed_fsdp_command_takes_the_steps_of_one_process(world, tmp_path, capsys, objective):
    """The paper's objective, and the one with the most state; in float32, where both must be equal."""
    shape = {"steps": STEPS, "microbatch": 1, "checkpoint_every": HALF, "held_out": 2, "keep": 4}
    plain = config(world, tmp_path / "one", objective=objective, **shape)
    train_adapter(plain)
    whole = replace(plain, out=str(tmp_path / "sharded"))
    said = finish(start(sharded(printed(capsys, whole, "fsdp", "--processes", "2"))))
    assert "sharded units: 3" in said  # two layers and the rest
    same(tmp_path / "one", tmp_path / "sharded")
    rewind(tmp_path / "one", tmp_path / "more")  # one process began, two shards go on
    finish(start(sharded(printed(capsys, replace(plain, out=str(tmp_path / "more")), "fsdp", "--processes", "2"))))
    same(tmp_path / "one", tmp_path / "more")
    rewind(tmp_path / "sharded", tmp_path / "fewer")  # and the other way round
    train_adapter(replace(plain, out=str(tmp_path / "fewer")))
    same(tmp_path / "one", tmp_path / "fewer")


@pytest.mark.slow
def test_two_machines_start_with_one_command(world, one, tmp_path, capsys):
    """Two launchers on this host, at a port that is free. Accelerate's rank 0 refuses a port that the other one has opened,
    which two machines never see, so both are called 1; c10d gives them their numbers.
    """
    two = replace(one, out=str(tmp_path / "two"))
    words = printed(capsys, two, "ddp", "--processes", "2", "--machines", "2", "--host", "127.0.0.1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        words[words.index("--main_process_port") + 1] = str(free.getsockname()[1])
    words[len(LAUNCH) : len(LAUNCH)] = ["--machine_rank", "1"]
    finish(start(words), start(words))
    same(world / "one", tmp_path / "two")


class Gathering:
    """The part of Accelerate that a check needs, with a second process that sees another folder."""

    device = "cpu"

    def __init__(self, other):
        self.other = torch.tensor([other])

    def gather(self, own):
        return torch.cat([own, self.other])


def test_processes_that_see_different_folders_do_not_go_on(tmp_path):
    last = tmp_path / "checkpoints/step-000100"
    loop._check_shared(tmp_path, "training", last, Gathering([100, 1]))
    for other in ([-1, 1], [100, 0]):
        with pytest.raises(InputError, match=r"is not the same folder for every process: .* Put --out on storage that all"):
            loop._check_shared(tmp_path, "training", last, Gathering(other))


# -- what is printed


def test_the_command_is_the_typed_one_behind_the_launcher(world, one, capsys):
    words = printed(capsys, one, "fsdp", "--processes", "4")
    assert words[words.index("--num_processes") + 1] == "4"
    assert words[-len(flags_of(one)) - 3 :] == ["-m", "steadyscore", "train", *flags_of(one)]
    assert Path(words[words.index("--config_file") + 1]).read_text().startswith("#")
    assert main(["train", *flags_of(one), "--print-launch", "ddp", "--processes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"].endswith(shlex.join(flags_of(one)))


def test_what_cannot_be_launched_is_refused_with_all_its_mistakes(one, capsys):
    with pytest.raises(InputError) as refusal:
        launch_command("ddp", [], 3, 2)
    assert len(refusal.value.mistakes) == 2
    assert main(["train", *flags_of(one), "--print-launch", "ddp", "--processes", "3"]) == 1
    assert "does not divide into 3 process(es)" in capsys.readouterr().err
    assert main(["train", *flags_of(one), "--processes", "2"]) == 2
    assert "--print-launch ddp or fsdp and --processes N belong together" in capsys.readouterr().err


def test_sharding_on_a_cpu_is_refused_and_not_quietly_something_else(world, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(InputError, match=r"shards a model over accelerators only, and this run is on cpu\. Start it as"):
        train_adapter(config(world, tmp_path / "out"))
