from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import pytest

from steadyscore.errors import InputError, StorageError
from steadyscore.models.adapter import FILES
from steadyscore.training.held_out import copy_selected, curve_points, read_points, select


def history(qualities, tau=0.2, dispersion=0.2, se=0.01, overlap=0.5):
    steps = range(0, 100 * len(qualities), 100)
    return [
        {"step": s, "quality": q, "quality_se": se, "tau_psi": tau, "dispersion": dispersion if s else 0.2}
        | {"overlap": overlap, "retention": 0.3}
        for s, q in zip(steps, qualities, strict=True)
    ]


def without_retention(entries):
    """As earlier versions wrote them."""
    return [{key: value for key, value in entry.items() if key != "retention"} for entry in entries]


def grid(**runs):
    return [point for name, (weight, entries) in runs.items() for point in curve_points(name, weight, entries)]


def by_rule(points, **how):
    return {choice.rule: choice for choice in select(points, **how)}


def test_the_rules_side_by_side():
    found = by_rule(
        grid(
            light=(1, history([0.3, 0.50, 0.52, 0.51], tau=0.3)),
            middle=(3, history([0.3, 0.49, 0.515, 0.50], tau=0.2)),
            heavy=(5, history([0.3, 0.40, 0.41, 0.42], tau=0.05)),
        )
    )
    assert (found["quality"].point.folder, found["quality"].point.step) == ("light", 200)
    assert found["highest_quality"].point == found["quality"].point
    assert (found["largest_weight"].point.folder, found["largest_weight"].point.step) == ("middle", 200)
    assert found["decision"].point.folder == "middle"  # heavy is steadier, but not within one standard error


def test_the_overlap_of_earlier_versions_is_another_measure():
    runs = {"a": (1, history([0.3, 0.5, 0.5], overlap=0.8)), "b": (2, history([0.3, 0.5, 0.5], overlap=0.9))}
    assert by_rule(grid(**runs), decision="overlap")["decision"].point.folder == "b"
    old = {name: (weight, without_retention(entries)) for name, (weight, entries) in runs.items()}
    assert by_rule(grid(**old), decision="overlap_f1")["decision"].point.folder == "b"
    for points, decision in ((grid(**old), "overlap"), (grid(**runs), "overlap_f1"), (grid(a=old["a"], b=runs["b"]), "overlap")):
        with pytest.raises(InputError, match=f"a has no held-out {decision}; choose another --decision"):
            select(points, decision)
    assert by_rule(grid(**runs | {"c": (3, history([0.3, 0.5, 0.5], overlap=None))}))["decision"].point  # by tau_psi


def test_a_tie_goes_to_the_earlier_step():
    found = by_rule(grid(a=(1, history([0.3, 0.1, 0.5, 0.5])), b=(2, history([0.3, 0.1, 0.2, 0.2]))))
    assert found["quality"].point.step == 200


def test_a_collapsed_run_is_out_whatever_its_weight():
    found = by_rule(grid(a=(1, history([0.3, 0.5, 0.4])), b=(5, history([0.3, 0.5, 0.5], dispersion=0.001))))
    assert found["largest_weight"].point.folder == "a"


def test_a_flat_grid_makes_quality_abstain_and_the_others_choose():
    found = by_rule(grid(a=(1, history([0.3, 0.500, 0.501])), b=(5, history([0.3, 0.502, 0.503]))))
    assert found["quality"].point is None
    assert (found["highest_quality"].point.folder, found["highest_quality"].point.step) == ("b", 200)
    assert "abstains: 4 of 4 points lie within one standard error" in found["quality"].reason
    assert found["largest_weight"].point.weight == 5


def test_too_small_a_grid_makes_all_rules_abstain_but_the_papers():
    most = {f"dead{i}": (5, history([0.3, 0.1], dispersion=0.0)) for i in range(3)}
    highest, *others = select(grid(alive=(1, history([0.3, 0.5, 0.4])), **most))
    assert (highest.rule, highest.point.folder, highest.point.step) == ("highest_quality", "alive", 100)
    for choice in others:
        assert choice.point is None
        assert "only 1 of 4 runs are usable" in choice.reason
    assert [c.point and c.point.step for c in select(grid(a=(1, history([0.3, 0.5]))))] == [100, None, None, None]


def test_the_highest_quality_is_never_that_of_the_base_or_of_a_collapsed_run():
    highest, *_ = select(grid(a=(1, history([0.9, 0.5, 0.4])), b=(5, history([0.3, 0.8, 0.8], dispersion=0.001))))
    assert (highest.point.folder, highest.point.step) == ("a", 100)
    none, *_ = select(grid(b=(5, history([0.3, 0.8], dispersion=0.001))))
    assert none.point is None
    assert "no run has an evaluation after step 0" in none.reason


def test_wrong_folders_are_all_named(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "train.json").write_text(json.dumps({"config": {"weight": 1}}))
    with pytest.raises(InputError) as refusal:
        read_points([tmp_path / "a", tmp_path / "b"])
    assert len(refusal.value.mistakes) == 2
    with pytest.raises(InputError, match="unknown decision measure"):
        select([], "beauty")


def test_one_held_out_query_has_no_standard_error_and_chooses_nothing():
    found = by_rule(grid(a=(1, history([0.3, 0.500, 0.501], se=None)), b=(5, history([0.3, 0.502, 0.503], se=None))))
    assert found["quality"].point is None
    assert "no standard error" in found["decision"].reason


def test_a_full_disk_leaves_the_adapter_that_was_there(tmp_path, monkeypatch):
    point = curve_points(str(tmp_path / "run"), 1, history([0.3, 0.5]))[1]
    for folder, word in ((tmp_path / "run" / "checkpoints" / "step-000100", "new"), (tmp_path / "out", "old")):
        folder.mkdir(parents=True)
        for name in FILES:
            (folder / name).write_text(word)
    copyfileobj, copied = shutil.copyfileobj, []

    def fill_disk(source, target, *how):
        copied.append(source)
        if len(copied) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copyfileobj(source, target, *how)

    monkeypatch.setattr(shutil, "copyfileobj", fill_disk)
    with pytest.raises(StorageError, match="No space left on device"):
        copy_selected(point, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_text() for name in os.listdir(tmp_path / "out")} == dict.fromkeys(FILES, "old")
    copy_selected(point, tmp_path / "out")
    assert {name: (tmp_path / "out" / name).read_text() for name in os.listdir(tmp_path / "out")} == dict.fromkeys(FILES, "new")
