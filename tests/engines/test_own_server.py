"""Our own server audited through `rerank:`: what it answers over HTTP is what the scorer behind it says."""

import json

import numpy as np
import pytest

from steadyscore.decision_models.audit import audit_decisions
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from tests.helpers.serving import DOCUMENTS, QUERY, app_of, listening, model

POOL = Instance("q", QUERY, tuple(Candidate(f"d{i}", text) for i, text in enumerate(DOCUMENTS)))


@pytest.mark.parametrize("address", ["rerank:{}/v2/rerank", "rerank+jina:tiny@{}/v1/rerank", "rerank+tei:{}/rerank"])
def test_our_server_says_over_http_what_its_engine_says(tiny_engine, address):
    direct = Scorer(tiny_engine, PASSAGE_RERANKING, Settings(label_mass=False))
    with listening(app_of(model(tiny_engine, name="tiny"))) as url:
        served = Scorer(open_engine(address.format(url), EngineOptions(retries=0)), PASSAGE_RERANKING)
        for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
            assert np.abs(served.score(POOL, order) - direct.score(POOL, order)).max() < 1e-4


@pytest.mark.parametrize("kind", ["systemone", "decisions"])
def test_our_server_is_audited_as_a_decision_model(tiny_engine, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    questions = {
        "grade": {"type": "score", "instructions": "How good is [a]?", "criteria": ["no", "partly", "fully"]},
        "keep": {"type": "noul", "instructions": "Keep [b]?", "criteria": None},
        "tone": {"type": "choice", "instructions": "Which tone?", "criteria": {"calm": None, "angry": None}},
    }
    state = {"candidates": [{"id": "a", "text": DOCUMENTS[0]}, {"id": "b", "text": DOCUMENTS[1]}]}
    file = tmp_path / "states.jsonl"
    file.write_text(json.dumps({"state": state, "candidates": "$.candidates", "questions": questions}))
    with listening(app_of(model(tiny_engine, name="tiny"))) as url:
        address = f"{kind}:tiny@{url}"
        audit = audit_decisions(address, file, tmp_path / "run", permutations=2, options=EngineOptions(retries=0), quiet=True)
        graded = Scorer(open_engine(address, EngineOptions(retries=0)), PASSAGE_RERANKING).score(POOL)
    assert audit.failed == []
    assert audit["score_move.candidates"].value > 1e-3  # a random model moves with its prompt
    assert audit["score_move.questions"].value < 1e-4  # questions do not see each other there
    assert audit["score_move.same_batch"].value < 1e-4
    assert ((graded >= 0) & (graded <= 1)).all()
