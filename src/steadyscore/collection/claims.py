"""Verdict labels beside the retrieval collections of SciFact and Climate-FEVER (§5: 300 and 1,381 claims)."""

from __future__ import annotations

from pathlib import Path

from ..terms import JsonObject, Verdict
from .files import Report, field_value, records

CLIMATE_FEVER: dict[str, Verdict | None] = {
    "SUPPORTS": "SUPPORTED", "REFUTES": "REFUTED", "NOT_ENOUGH_INFO": "NOT ENOUGH INFO", "DISPUTED": None,
}  # fmt: skip
SCIFACT: dict[str, Verdict] = {"SUPPORT": "SUPPORTED", "CONTRADICT": "REFUTED"}


def read_verdicts(path: Path, report: Report) -> dict[str, Verdict]:
    """Claim id -> verdict, from SciFact's claims_*.jsonl or climate-fever.jsonl.

    SciFact: a claim without evidence is NOT ENOUGH INFO, evidence of both kinds is a mistake. Climate-FEVER: DISPUTED claims
    carry no verdict (1,535 -> 1,381) and stay in the retrieval collection.
    """
    verdicts: dict[str, Verdict] = {}
    for where, record in records([path], report):
        try:
            id = str(field_value(record, "claim_id" if "claim_id" in record else "id", (str, int)))
            verdict = _climate_fever(record) if "claim_label" in record else _scifact(record)
        except (ValueError, AttributeError, TypeError) as mistake:
            report.mistakes.append(f"{where}: {mistake}")
            continue
        if verdict is None:
            report.notes["DISPUTED claims, which carry no verdict"] += 1
        elif verdicts.setdefault(id, verdict) != verdict:
            report.mistakes.append(f"{where}: claim {id} occurs twice with different verdicts")
    return verdicts


def _climate_fever(record: JsonObject) -> Verdict | None:
    label = field_value(record, "claim_label", (str, int))
    if isinstance(label, int) and 0 <= label < len(CLIMATE_FEVER):  # the hub keeps the label's place in this list
        label = list(CLIMATE_FEVER)[label]
    if label not in CLIMATE_FEVER:
        raise ValueError(f'"claim_label" is {label}, not one of {", ".join(CLIMATE_FEVER)}')
    return CLIMATE_FEVER[label]


def _scifact(record: JsonObject) -> Verdict:
    evidence = field_value(record, "evidence", dict)
    labels = {field_value(rationale, "label", str) for document in evidence.values() for rationale in document}
    if unknown := labels - set(SCIFACT):
        raise ValueError(f"evidence is labelled {', '.join(sorted(unknown))}, not {' or '.join(SCIFACT)}")
    if len(labels) > 1:
        raise ValueError("evidence both supports and contradicts the claim")
    return SCIFACT[labels.pop()] if labels else "NOT ENOUGH INFO"
