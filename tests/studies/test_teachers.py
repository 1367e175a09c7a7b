"""Labels held against students: planted movement and quality give the planted correlation back."""

import json
from dataclasses import replace

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.errors import InputError
from steadyscore.training.labels import Label, write_labels
from tests.helpers.pools import some_instances, write_collection

IDS = tuple(f"d{c}" for c in range(6))


def some_labels(folder, movement):
    """Labels of four queries under two orders, `movement` apart."""
    base = np.linspace(0.5, 2.0, 6)
    write_labels(folder, [Label(f"q{q}", IDS, np.stack([base, base + movement])) for q in range(4)], {"from": "a test"})
    return folder


def a_student(quality):
    audit = steadyscore.audit(lambda query, texts: list(range(len(texts))), some_instances(4), permutations=2, quiet=True)[0]
    values = audit.measured.values | {"ndcg@10": np.full(4, quality)}
    return replace(audit, measured=replace(audit.measured, values=values))


def test_movement_and_quality_correlate_as_planted(tmp_path):
    moved, quality = [0.1, 0.2, 0.4], [0.9, 0.7, 0.3]
    pairs = [(some_labels(tmp_path / f"{m}", m), a_student(q)) for m, q in zip(moved, quality, strict=True)]
    study = steadyscore.study_teachers(pairs)
    assert [teacher.silver_beta for teacher in study.teachers] == pytest.approx([m / np.sqrt(2) for m in moved])
    assert study.correlations["silver_beta and student_quality"] == pytest.approx(-1)
    assert study.correlations["label_quality and student_quality"] is None
    assert "-1.000" in str(study)


def test_the_quality_of_labels_needs_the_training_collection(tmp_path, capsys):
    data = str(write_collection(tmp_path / "train.jsonl", some_instances(4)))
    steadyscore.audit("synthetic:none", data, permutations=2, out=tmp_path / "run", report=False, quiet=True)
    pairs = [("--pair", str(some_labels(tmp_path / name, 0.1)), str(tmp_path / "run")) for name in "ab"]
    words = ["study", "teachers", *(word for pair in pairs for word in pair)]
    assert main([*words, "--data", data, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert 0 < printed["teachers"][0]["label_quality"] <= 1
    assert printed["correlations"]["silver_beta and student_quality"] is None  # two teachers make no correlation
    assert main(words) == 0
    assert "not defined" in capsys.readouterr().out


def test_what_cannot_be_held_together_is_refused(tmp_path):
    labels, student = some_labels(tmp_path / "one", 0.1), a_student(0.5)
    with pytest.raises(InputError, match="needs two or more"):
        steadyscore.study_teachers([(labels, student)])
    other = steadyscore.audit("synthetic:none", "responses", queries=2, permutations=2, quiet=True)[0]
    with pytest.raises(InputError, match="several tasks"):
        steadyscore.study_teachers([(labels, student), (labels, other)])
