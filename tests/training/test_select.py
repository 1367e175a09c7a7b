from __future__ import annotations

import json
from pathlib import Path

import pytest

from steadyscore.errors import InputError
from steadyscore.training.select import curve_points, read_points, select


def history(qualities, tau=0.2, dispersion=0.2, se=0.01):
    steps = range(0, 100 * len(qualities), 100)
    return [
        {"step": s, "quality": q, "quality_se": se, "tau_psi": tau, "overlap": 0.5, "dispersion": dispersion if s else 0.2}
        for s, q in zip(steps, qualities, strict=True)
    ]


def grid(**runs):
    return [point for name, (weight, entries) in runs.items() for point in curve_points(name, weight, entries)]


def by_rule(points, **how):
    return {choice.rule: choice for choice in select(points, **how)}


def test_the_three_rules_side_by_side():
    found = by_rule(
        grid(
            light=(1, history([0.3, 0.50, 0.52, 0.51], tau=0.3)),
            middle=(3, history([0.3, 0.49, 0.515, 0.50], tau=0.2)),
            heavy=(5, history([0.3, 0.40, 0.41, 0.42], tau=0.05)),
        )
    )
    assert (found["quality"].point.folder, found["quality"].point.step) == ("light", 200)
    assert (found["largest_weight"].point.folder, found["largest_weight"].point.step) == ("middle", 200)
    assert found["decision"].point.folder == "middle"  # heavy is steadier, but not within one standard error


def test_a_tie_goes_to_the_earlier_step():
    found = by_rule(grid(a=(1, history([0.3, 0.1, 0.5, 0.5])), b=(2, history([0.3, 0.1, 0.2, 0.2]))))
    assert found["quality"].point.step == 200


def test_a_collapsed_run_is_out_whatever_its_weight():
    found = by_rule(grid(a=(1, history([0.3, 0.5, 0.4])), b=(5, history([0.3, 0.5, 0.5], dispersion=0.001))))
    assert found["largest_weight"].point.folder == "a"


def test_a_flat_grid_makes_quality_abstain_and_the_others_choose():
    found = by_rule(grid(a=(1, history([0.3, 0.500, 0.501])), b=(5, history([0.3, 0.502, 0.503]))))
    assert found["quality"].point is None
    assert "abstains: 4 of 4 points lie within one standard error" in found["quality"].reason
    assert found["largest_weight"].point.weight == 5


def test_too_small_a_grid_makes_all_rules_abstain():
    most = {f"dead{i}": (5, history([0.3, 0.1], dispersion=0.0)) for i in range(3)}
    for choice in select(grid(alive=(1, history([0.3, 0.5, 0.4])), **most)):
        assert choice.point is None
        assert "only 1 of 4 runs are usable" in choice.reason
    assert all(c.point is None for c in select(grid(a=(1, history([0.3, 0.5])))))


def test_wrong_folders_are_all_named(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "train.json").write_text(json.dumps({"config": {"weight": 1}}))
    with pytest.raises(InputError) as refusal:
        read_points([tmp_path / "a", tmp_path / "b"])
    assert len(refusal.value.mistakes) == 2
    with pytest.raises(InputError, match="unknown decision measure"):
        select([], "beauty")
