"""Workers share a run folder without a lock, and its table is the one that a single process writes."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from steadyscore.audits.audit import ScorerInput, audit
from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.errors import InputError, RunMismatch
from steadyscore.runs.folder import Run, find_run
from steadyscore.runs.layout import SCORES_FILE
from steadyscore.runs.parts import Ledger
from steadyscore.scoring import parts, score
from steadyscore.scoring.config import AuditConfig, Cut
from steadyscore.scoring.parts import Cluster, Share, score_share

CONFIG = AuditConfig(permutations=2, cut=Cut(queries=12, pool=6))


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts.plan_parts, "__kwdefaults__", {"windows": 7})


def work(out, scorer="synthetic:slot", config=CONFIG):
    return ScorerInput({str(scorer): scorer}, ["passages"], config, EngineOptions(), out)


def collect(out, scorer="synthetic:slot"):
    return audit(scorer, "passages", out=out, config=CONFIG, report=False)


def table(folder):
    return (find_run(folder).folder / SCORES_FILE).read_bytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 50])
def test_any_number_of_workers_give_the_table_of_one_process(tmp_path, workers):
    alone = collect(tmp_path / "alone")
    manifests = [score_share(work(tmp_path / "shared"), Share(i, workers)) for i in range(workers, 0, -1)]
    together = collect(tmp_path / "shared")
    assert table(tmp_path / "shared") == table(tmp_path / "alone")
    assert together[0].record.coverage.windows == alone[0].record.coverage.windows
    assert sum(row.scored for manifest in manifests for row in manifest.rows) == 12
    assert together[0].figures == alone[0].figures


def test_a_part_that_is_there_is_not_scored_again(tmp_path):
    first = score_share(work(tmp_path), Share(1, 2))
    again = score_share(work(tmp_path), Share(1, 2))
    assert sum(row.scored for row in first.rows) > 0
    assert [row.scored for row in again.rows] == [0] * len(first.rows)
    assert [row.part for row in again.rows] == [row.part for row in first.rows]


def test_a_complete_run_is_left_alone(tmp_path):
    collect(tmp_path)
    before = table(tmp_path)
    assert [row.scored for row in score_share(work(tmp_path), Share(1, 1)).rows] == [0] * 4
    assert table(tmp_path) == before
    assert not list(tmp_path.glob("**/parts/scores/*/w*"))


def test_a_damaged_part_is_set_aside_and_scored_again(tmp_path):
    score_share(work(tmp_path), Share(1, 1))
    part = sorted(tmp_path.glob("**/parts/scores/*/w*.parquet"))[0]
    part.write_bytes(part.read_bytes()[:-100])
    assert sum(row.scored for row in score_share(work(tmp_path), Share(1, 1)).rows) == 3
    assert list(tmp_path.glob("**/damaged/scores/w*.parquet"))
    collect(tmp_path)
    collect(tmp_path.with_name("alone"))
    assert table(tmp_path) == table(tmp_path.with_name("alone"))


def test_the_collecting_call_scores_what_no_worker_did(tmp_path):
    score_share(work(tmp_path), Share(2, 3))
    collect(tmp_path)
    collect(tmp_path.with_name("alone"))
    assert table(tmp_path) == table(tmp_path.with_name("alone"))


def test_what_parts_cost_is_summed_once_however_often_they_are_collected(tmp_path, monkeypatch):
    score_share(work(tmp_path), Share(1, 2))
    score_share(work(tmp_path), Share(2, 2))

    def stop(*_, **how):
        raise KeyboardInterrupt

    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Run, "finish", stop)
            with pytest.raises(KeyboardInterrupt):
                collect(tmp_path)
        assert [session.windows for session in find_run(tmp_path).record.sessions] == [18, 18]
    (audited,) = collect(tmp_path)
    assert audited.record.coverage.windows == 36
    assert len(audited.record.starts) == 1


def test_a_stop_in_the_middle_of_a_part_keeps_its_queries(tmp_path, monkeypatch):
    scored, real = [], score.score_query

    def stop_at_the_fifth(scorer, instance, config, known, place):
        if len(scored) == 4:
            raise KeyboardInterrupt
        scored.append(instance.id)
        return real(scorer, instance, config, known, place=place)

    with monkeypatch.context() as patch:
        patch.setattr(score, "score_query", stop_at_the_fifth)
        with pytest.raises(KeyboardInterrupt):
            score_share(work(tmp_path), Share(1, 1))
    assert find_run(tmp_path).scored_ids() == set(scored)
    assert sum(row.scored for row in score_share(work(tmp_path), Share(1, 1)).rows) == 8


def test_a_query_that_failed_is_named_and_tried_again(tmp_path):
    broken = {"yes": True}

    def scorer(query, texts):
        if broken["yes"]:
            raise ValueError("out of order")
        return [len(text) for text in texts]

    manifest = score_share(work(tmp_path, scorer), Share(1, 1))
    assert len(manifest.failed) == 12
    assert "out of order" in manifest.failed[0].reason
    broken["yes"] = False
    assert not score_share(work(tmp_path, scorer), Share(1, 1)).failed
    assert len(find_run(tmp_path).scored_ids()) == 12


def test_a_worker_with_other_settings_is_refused(tmp_path):
    score_share(work(tmp_path), Share(1, 2))
    other = replace(CONFIG, seed=7)
    with pytest.raises(RunMismatch, match="seed was 0, now 7"):
        score_share(work(tmp_path, config=other), Share(2, 2))


@pytest.mark.parametrize(
    "larger",
    [replace(CONFIG, permutations=3), replace(CONFIG, cut=Cut(queries=14, pool=6))],
    ids=["permutations", "queries"],
)
def test_workers_add_to_a_complete_run(tmp_path, larger):
    collect(tmp_path / "grown")
    rows = [row for i in (1, 2) for row in score_share(work(tmp_path / "grown", config=larger), Share(i, 2)).rows]
    assert sum(row.windows for row in rows) == (12 if larger.permutations == 3 else 2 * 3)
    for out in ("grown", "whole"):
        audit("synthetic:slot", "passages", out=tmp_path / out, config=larger, report=False)
    assert table(tmp_path / "grown") == table(tmp_path / "whole")


def test_rows_that_two_workers_scored_are_there_once_and_cost_what_both_took(tmp_path):
    """Neither sees the other's parts before it has written its own."""
    first, second = (next(work(tmp_path).workers())[1] for _ in range(2))
    for place in range(len(first.parts)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Run, "join_stretch", lambda run, group: setattr(run, "_ledger", run._ledger or Ledger(run.parts)))
            assert first.score(place).scored == second.score(place).scored == 3
    collect(tmp_path)
    collect(tmp_path.with_name("alone"))
    assert table(tmp_path) == table(tmp_path.with_name("alone"))
    assert find_run(tmp_path).record.coverage.windows == 2 * 36


@pytest.mark.parametrize("text", ["0/2", "3/2", "2", "1/0", "-1/2", "a/b", "1/2/3", ""])
def test_a_share_that_is_none_is_wrong_usage(text, capsys):
    with pytest.raises(InputError, match="write I/N"):
        Share.parse(text)
    with pytest.raises(SystemExit) as stop:
        main(["audit", "--scorer", "synthetic:slot", "--data", "passages", f"--shard={text}", "--out", "x"])
    assert stop.value.code == 2


def test_the_command_is_a_worker_and_then_collects(tmp_path, capsys):
    command = [
        "audit",
        "--scorer",
        "synthetic:slot",
        "--data",
        "passages",
        "--queries",
        "6",
        "--permutations",
        "2",
        "--no-report",
    ]
    for share in ("1/2", "2/2"):
        assert main([*command, "--shard", share, "--json", "--out", str(tmp_path)]) == 0
        assert all(row["scored"] for row in json.loads(capsys.readouterr().out)["parts"])
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert find_run(tmp_path).is_complete


def test_workers_label_too(tmp_path, capsys):
    command = ["label", "--scorer", "synthetic:none", "--data", "passages", "--queries", "4", "--teacher-orders", "2"]
    assert main([*command, "--shard", "1/1", "--out", str(tmp_path / "shared")]) == 0
    assert main([*command, "--out", str(tmp_path / "shared")]) == 0
    assert main([*command, "--out", str(tmp_path / "alone")]) == 0
    assert (tmp_path / "shared/labels.parquet").read_bytes() == (tmp_path / "alone/labels.parquet").read_bytes()


def test_processes_that_begin_at_the_same_moment_share_a_run(tmp_path):
    command = [sys.executable, "-m", "steadyscore", "audit", "--scorer", "synthetic:slot", "--data", "passages", "--no-report"]
    command += ["--permutations", "2", "--out", str(tmp_path)]
    workers = [subprocess.Popen([*command, "--shard", f"{i}/3"], stdout=subprocess.DEVNULL) for i in (1, 2, 3)]
    assert [worker.wait(timeout=500) for worker in workers] == [0, 0, 0]
    assert len(find_run(tmp_path).scored_ids()) == 32


@pytest.mark.parametrize("text", ["local", "rays", "ray:other", ""])
def test_a_cluster_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="ray://HEAD:PORT"):
        Cluster.parse(text)
