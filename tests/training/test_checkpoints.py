"""What is kept of a run on disk, and what a folder must have for the run to go on."""

from __future__ import annotations

import pytest

from steadyscore.errors import RunMismatch
from steadyscore.training import checkpoints

LABELS = {"sha256": "0123", "teacher_orders_used": 1}


def test_only_folders_of_steps_are_checkpoints(tmp_path):
    for name in ("step-000100", "step-1000000", "step-000100.bak", "step-0000200", "step-", "step-last"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    assert checkpoints.steps_on_disk(tmp_path) == [100, 1_000_000]
    assert checkpoints.latest(tmp_path) == tmp_path / "checkpoints" / "step-1000000"


def test_labels_may_move_and_other_labels_are_refused(tmp_path):
    described = LABELS | {"source": "here", "teacher": {"kind": "hf"}, "teacher_orders": 3}

    def begin(labels):
        record = checkpoints.TrainRecord("training", {"seed": 1, "labels": labels}, {"out": "here"}, 0.4, ["train"], {})
        return checkpoints.begin(tmp_path, record)

    begin(described)  # as earlier versions stored it
    assert begin(LABELS).fingerprint == {"seed": 1, "labels": described}
    with pytest.raises(RunMismatch, match="labels was"):
        begin(LABELS | {"sha256": "4567"})


def test_the_base_has_no_checkpoint_and_takes_no_place_among_the_best():
    history = [{"step": step, "quality": quality} for step, quality in ((0, 0.9), (100, 0.5), (200, 0.4), (300, 0.3))]
    assert checkpoints.steps_to_keep(300, history, [100, 200], keep=1) == {100, 300}
    assert checkpoints.steps_to_keep(300, history, [100, 200], keep=2) == {100, 200, 300}
