"""The last line of a command that went well is another that runs as printed."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from steadyscore.cli import main
from tests.helpers.pools import some_instances, write_collection


@pytest.fixture
def pools(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_collection(tmp_path / "pools.jsonl", some_instances(12))
    return ["--data", "pools.jsonl"]


def following(capsys, *words: str) -> list[str]:
    """The command that a command ends with."""
    assert main([*words]) == 0
    *_, last = capsys.readouterr().err.splitlines()
    program, *command = shlex.split(last.removeprefix("next: "))
    assert (last[:6], program) == ("next: ", "steadyscore")
    return command


AUDIT = ("audit", "--permutations", "3", "--no-report")


def test_one_scorer_is_held_to_a_bound_and_then_looked_at(pools, capsys):
    audit = [*AUDIT, *pools, "--scorer", "synthetic:none", "--out", "a run"]
    gate = following(capsys, *audit)
    assert gate == ["gate", "a run", "--min", "overlap=0.8"]
    report = following(capsys, *gate)
    assert report == ["report", "a run"]
    assert main(report) == 0
    assert Path("a run/report/index.html").exists()


def test_several_scorers_are_compared_and_measured_alike(pools, capsys):
    audit = [*AUDIT, *pools, "--scorer", "synthetic:none", "--scorer", "synthetic:none:0.3", "--out", "runs"]
    compare = following(capsys, *audit, "--keep", "2", "--permutations", "4", "--serving-permutations", "2")
    assert compare == ["compare", "runs", "--baseline", "synthetic:none:0.2", "--keep", "2", "--serving-permutations", "2"]
    gate = following(capsys, *compare)
    assert gate == ["gate", "runs", "--min", "overlap=0.8", "--keep", "2", "--serving-permutations", "2"]
    assert main(gate) == 0


def test_the_bound_is_on_the_first_decision_that_all_runs_have(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_collection(tmp_path / "pools.jsonl", some_instances(12), task="response_ranking")
    gate = following(capsys, *AUDIT, "--data", "pools.jsonl", "--scorer", "synthetic:none", "--out", "run")
    assert gate == ["gate", "run", "--max", "pair_flip=0.2"]
    assert main(gate) == 0


def test_the_bound_is_on_a_measure_that_the_table_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_collection(tmp_path / "pairs.jsonl", some_instances(12, candidates=2), task="response_ranking")
    gate = following(capsys, *AUDIT, "--data", "pairs.jsonl", "--scorer", "synthetic:none", "--out", "run")
    assert gate == ["gate", "run", "--max", "swap_flip=0.2"]
    assert main(gate) == 0


def test_scores_that_nothing_has_kept_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"q{q},{m},d{c},{c + q}" for q in range(12) for m in range(2) for c in range(4)]
    Path("mine.csv").write_text("\n".join(["query_id,permutation,candidate_id,score", *rows]))
    keep = following(capsys, "audit", "--scores", "mine.csv", "--keep", "2")
    assert keep == ["audit", "--scores", "mine.csv", "--keep", "2", "--out", "runs/scores"]
    gate = following(capsys, *keep, "--no-report")
    assert main(gate) == 0


def test_labels_are_trained_on(pools, capsys):
    train = following(capsys, "label", "--scorer", "synthetic:none", *pools, "--pool", "3", "--queries", "8", "--out", "labels/a")
    assert train == [
        "train", "--base", "smollm2-135m", "--data", "pools.jsonl", "--queries", "8", "--pool", "3", "--labels", "labels/a",
        "--out", "adapters/a",
    ]  # fmt: skip
    assert main([*train, "--print-launch", "ddp", "--processes", "2"]) == 0


def test_a_teacher_that_can_be_trained_is_the_base_of_its_student(pools, tiny_folder, capsys):
    train = following(capsys, "label", "--scorer", f"hf:{tiny_folder}", *pools, "--width", "2", "--out", "labels")
    assert train[:3] == ["train", "--base", f"hf:{tiny_folder}"]


@pytest.mark.parametrize("words", [
    ["audit", "--scorer", "synthetic:none", "--out", "run", "--no-report", "--json"],
    ["label", "--scorer", "synthetic:none", "--out", "labels", "--json"],
], ids=lambda words: words[0])  # fmt: skip
def test_a_program_that_reads_json_is_told_nothing(pools, capsys, words):
    assert main([*words, *pools]) == 0
    assert "next: " not in capsys.readouterr().err
