"""Held-out evaluation: what it calls as an audit does is what an audit measures."""

from __future__ import annotations

import pytest

from steadyscore import audit
from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.training.held_out import evaluate
from tests.helpers import tiny

SCORER = "synthetic:slot:0.4"


def evaluate_on(file, permutations=4, seed=3):
    source = open_collection(str(file))
    scorer = scorer_for(open_engine(SCORER), source.collection, AuditConfig())
    return evaluate(scorer, list(source.instances()), permutations, seed)


def test_figures_of_an_audit_are_the_audit_s_own(tmp_path):
    file = tiny.write_collection(tmp_path / "pools.jsonl", 12, 8, seed=0)
    held_out = evaluate_on(file)
    [audited] = audit(SCORER, file, permutations=4, seed=3, quiet=True)
    for measure in ("tau_psi", "overlap", "retention"):
        assert held_out[measure] == pytest.approx(audited[measure].value, abs=1e-12)
    assert held_out["quality"] == pytest.approx(audited["ndcg@10"].value, abs=1e-12)
    assert 0 < held_out["overlap"] < 1


def test_one_query_has_no_cutoff_and_no_overlap(tmp_path):
    held_out = evaluate_on(tiny.write_collection(tmp_path / "pools.jsonl", 1, 8, seed=0))
    assert (held_out["overlap"], held_out["retention"]) == (None, None)
    assert held_out["tau_psi"] >= 0
