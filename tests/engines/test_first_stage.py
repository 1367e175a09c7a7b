"""`first-stage:` is a row like any other: the pool's own order, the same under every presentation."""

import json

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines.address import open_engine
from steadyscore.errors import InputError
from steadyscore.measures.ranking import ndcg
from steadyscore.scoring.score import AuditConfig, open_scorer
from tests.helpers.pools import some_instances


def test_an_audit_has_the_quality_of_the_pools_order_and_moves_nowhere(collection_file):
    audit = steadyscore.audit("first-stage:", str(collection_file), permutations=3, quiet=True)[0]
    relevance = np.array([[c["relevance"] for c in one["candidates"]] for one in some_instances()])
    own_order = -np.arange(6.0)[None]
    expected = np.mean([ndcg(own_order, gold, 10)[0] for gold in relevance])
    assert audit["ndcg@10"].value == pytest.approx(expected, abs=1e-12)
    assert (audit["tau_psi"].value, audit["pair_flip"].value, audit["overlap@10"].value) == (0, 0, 1)
    assert "overlap" not in audit.figures  # a ranking has no threshold


def test_it_stands_beside_other_scorers(collection_file):
    audits = steadyscore.audit(["first-stage:", "synthetic:slot"], str(collection_file), permutations=2, quiet=True)
    assert steadyscore.compare(*audits).baseline == "first-stage:"


def test_a_single_pool_is_ranked_as_it_came(collection_file, capsys):
    assert main(["score", "--scorer", "first-stage:", "--data", str(collection_file), "--format", "jsonl"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["candidate_id"] for row in rows[:6]] == [f"d{c}" for c in range(6)]


def test_a_recording_scores_only_the_order_it_holds(collection_file, tmp_path):
    steadyscore.audit("synthetic:slot", str(collection_file), out=tmp_path / "run", permutations=2, report=False, quiet=True)
    source = open_collection(str(collection_file))
    instance = next(iter(source.instances()))
    replay, live = (
        open_scorer(address, source.collection, AuditConfig()) for address in (f"scores:{tmp_path / 'run'}", "synthetic:slot")
    )
    assert replay.score(instance).tolist() == live.score(instance).tolist()
    with pytest.raises(InputError, match="holds no scores of this order of query q0"):
        replay.score(instance, [1, 0, 2, 3, 4, 5])


def test_words_after_the_colon_are_refused():
    with pytest.raises(InputError, match="takes nothing after its colon"):
        open_engine("first-stage:bm25")
