"""Collection to report with the double we ship: six queries, one fixed table, seconds, no network."""

import json

import pytest

from steadyscore.cli import main
from steadyscore.runs.folder import find_run

EXPECTED = {
    # steadyscore audit --scorer synthetic:companion:0.3 --data passages --queries 6 --permutations 5 --seed 3 --cutoff 0.5
    "ndcg@10": 0.414533,
    "tau_psi": 0.196842,
    "overlap": 0.776624,
    "pair_flip": 0.733333,
    "order_spread@10": 0.086264,
}


def test_six_queries_from_collection_to_report(capsys, tmp_path):
    words = (
        "audit --scorer synthetic:companion:0.3 --data passages --queries 6 --permutations 5 --seed 3 --cutoff 0.5 --json --out"
    )
    assert main([*words.split(), str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name: round(found["measures"][name]["value"], 6) for name in EXPECTED} == EXPECTED
    page = (tmp_path / "run" / "report" / "index.html").read_text()
    assert "another order changes 22\u00a0% of what the threshold keeps in either order" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


@pytest.mark.model
def test_a_real_language_model_end_to_end(capsys, tmp_path, smollm2):
    """The one end-to-end run on the embedded model: two queries, four candidates, three orders."""
    words = (
        "audit --scorer smollm2-135m --data responses --queries 2 --pool 4 --permutations 3 --match-retention 0.5 --json --out"
    )
    assert main([*words.split(), str(tmp_path / "run")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 0 < found["measures"]["tau_psi"]["value"] <= 1
    record = find_run(tmp_path / "run").record
    assert record.capabilities.distribution == "exact"
    assert record.fingerprint.prompt_hash
