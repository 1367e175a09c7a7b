"""Verdict labels from miniatures of SciFact's and Climate-FEVER's own files."""

from __future__ import annotations

import json

from steadyscore.collection.files import Report
from steadyscore.collection.layouts import read_verdicts


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_scifact_claims(tmp_path):
    support, against = [{"sentences": [1], "label": "SUPPORT"}], [{"sentences": [2], "label": "CONTRADICT"}]
    path = write(
        tmp_path / "claims_dev.jsonl",
        {"id": 1, "claim": "A", "evidence": {}, "cited_doc_ids": [3]},
        {"id": 2, "claim": "B", "evidence": {"3": support, "4": support}, "cited_doc_ids": [3]},
        {"id": 3, "claim": "C", "evidence": {"3": against}, "cited_doc_ids": [3]},
        {"id": 4, "claim": "D", "evidence": {"3": support, "4": against}, "cited_doc_ids": [3]},
        {"id": 5, "claim": "E", "evidence": {"3": [{"label": "MAYBE"}]}},
        {"id": 6, "claim": "F"},
    )
    report = Report()
    assert read_verdicts(path, report) == {"1": "NOT ENOUGH INFO", "2": "SUPPORTED", "3": "REFUTED"}
    assert [mistake.split(": ")[0] for mistake in report.mistakes] == [f"{path}:{line}" for line in (4, 5, 6)]


def test_climate_fever_claims_leave_out_the_disputed(tmp_path):
    labels = ["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED", 1, "UNSURE"]
    rows = [{"claim_id": str(i), "claim": "C", "claim_label": label, "evidences": []} for i, label in enumerate(labels)]
    path = write(tmp_path / "climate-fever.jsonl", *rows, {**rows[0], "claim_label": "REFUTES"})
    report = Report()
    assert read_verdicts(path, report) == {"0": "SUPPORTED", "1": "REFUTED", "2": "NOT ENOUGH INFO", "4": "REFUTED"}
    assert report.notes == {"DISPUTED claims, which carry no verdict": 1}
    assert [mistake.split(": ")[0] for mistake in report.mistakes] == [f"{path}:6", f"{path}:7"]
