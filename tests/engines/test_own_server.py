"""Our own server audited through `rerank:`: what it answers over HTTP is what the scorer behind it says."""

import numpy as np
import pytest

from steadyscore.engines import EngineOptions
from steadyscore.engines.address import open_engine
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
