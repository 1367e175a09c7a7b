"""Audits in trackers: what is read back from each is what the audit says. Trackers that are not installed are skipped."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys

import pytest

from steadyscore.cli import main
from steadyscore.machine.extras import is_installed
from tests.helpers.paths import ROOT


def audited(folder, tracker):
    """By the command line in a process of its own: trackers warn of what is theirs, and start threads."""
    command = [
        sys.executable,
        "-m",
        "steadyscore",
        "audit",
        "--scorer",
        "synthetic:slot:0.3",
        "--data",
        "passages",
        "--queries",
        "6",
    ]
    command += ["--permutations", "3", "--no-report", "--out", str(folder), "--track", tracker, "--format", "json"]
    known = os.environ | {"PYTHONPATH": str(ROOT / "src"), "WANDB_SILENT": "true"}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=folder.parent, env=known)
    assert ran.returncode == 0, ran.stderr
    (run,) = json.loads(ran.stdout)["runs"]
    return run["measures"] | {"flips/slot": {"value": run["causes"]["counts"]["slot"]}}


def test_tensorboard_reads_the_figures_back(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    measures = audited(tmp_path / "run", "tensorboard")
    (events,) = (tmp_path / "run").rglob("events.out.tfevents.*")
    read = EventAccumulator(str(events.parent)).Reload()
    found = {tag: read.Scalars(tag)[0].value for tag in read.Tags()["scalars"]}
    assert found["overlap"] == pytest.approx(measures["overlap"]["value"])
    assert found["ndcg_at_10/low"] == pytest.approx(measures["ndcg@10"]["low"])
    assert found["flips/slot"] == measures["flips/slot"]["value"]


def test_mlflow_reads_the_figures_back(tmp_path):
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("mlflow")
    measures = audited(tmp_path / "run", "mlflow")
    code = """if True:
        import json, sys, mlflow
        mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
        (run,) = mlflow.search_runs(experiment_names=["steadyscore"], output_format="list")
        print(json.dumps({"metrics": run.data.metrics, "params": run.data.params, "name": run.info.run_name}))"""
    database = str(tmp_path / "run" / "mlflow.db")
    ran = subprocess.run([sys.executable, "-c", code, database], capture_output=True, text=True, timeout=300, check=True)
    read = json.loads(ran.stdout.splitlines()[-1])
    assert read["metrics"]["overlap"] == pytest.approx(measures["overlap"]["value"])
    assert read["metrics"]["tau_psi/high"] == pytest.approx(measures["tau_psi"]["high"])
    assert read["params"]["permutations"] == "3"
    assert read["name"] == "synthetic:slot:0.3 on passages"


def records(data):
    """The records of a W&B file: seven bytes, then blocks of 32 KiB of pieces, each behind checksum, length and kind."""
    whole, place = b"", 7
    while place + 7 <= len(data):
        if place % 32768 > 32768 - 7:
            place += -place % 32768
        length, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        whole = (b"" if kind in (1, 2) else whole) + data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or its last piece
            yield whole


def test_wandb_keeps_an_offline_run_with_the_figures(tmp_path):
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    measures = audited(tmp_path / "run", "wandb")
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    summary = {}
    for data in records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        summary |= {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.summary.update}
    assert summary["overlap"] == pytest.approx(measures["overlap"]["value"])
    assert summary["flips/slot"] == measures["flips/slot"]["value"]


@pytest.mark.parametrize("tracker", ["mlflow", "wandb"])
def test_a_tracker_that_is_not_installed_is_said_before_anything_is_scored(tmp_path, capsys, tracker):
    if is_installed(tracker):
        pytest.skip(f"{tracker} is installed")
    flags = ["--scorer", "synthetic:none", "--data", "passages", "--out", str(tmp_path / "run"), "--track", tracker]
    assert main(["audit", *flags]) == 1
    assert f"--track {tracker} needs {tracker}, which is not installed. Install with:" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
