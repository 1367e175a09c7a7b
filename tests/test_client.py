"""Our own client against a real server."""

from __future__ import annotations

import threading

import pytest

from steadyscore.client import Client, ServerError
from steadyscore.errors import InputError
from steadyscore.serve.settings import Limits
from tests.helpers.serving import DOCUMENTS, QUERY, Double, app_of, listening, model, planted


@pytest.fixture(scope="module")
def url():
    with listening(app_of(planted(), planted("none", name="steady", cutoff=0.4), keys=("k",))) as address:
        yield address


def test_every_verb(url):
    client = Client(url, token="k", model="steady")
    assert client.models() == ["planted", "steady"]
    ranked = client.rerank(QUERY, DOCUMENTS, top_n=2)
    assert ranked[0].index == 1
    assert ranked[0].score > ranked[1].score
    assert len(client.rerank(QUERY, DOCUMENTS, permutations=3)) == 4
    assert client.score(QUERY, DOCUMENTS)[1] == ranked[0].score
    assert client.audit(QUERY, DOCUMENTS, permutations=3, threshold=0.5)["measures"]["tau_psi"] == 0


def test_decisions(url):
    client = Client(url, token="k")
    found = client.decide(QUERY, DOCUMENTS, top_k=1, permutations=8, adaptive=False)
    assert found.kept == (found.documents[0].index,)
    assert found.stability.permutations == 8
    assert 0 <= found.documents[0].agreement <= 1
    pair = client.decide(QUERY, DOCUMENTS, pair=True)
    assert pair.rejected == pair.documents[-1].index
    assert Client(url, token="k", model="steady").decide(QUERY, DOCUMENTS).cutoff == 0.4
    with pytest.raises(InputError, match="not several"):
        client.decide(QUERY, DOCUMENTS, top_k=1, pair=True)


def test_refusals_are_the_server_s_sentence(url):
    with pytest.raises(ServerError, match="needs a token") as refusal:
        Client(url).rerank(QUERY, DOCUMENTS)
    assert refusal.value.status == 401
    with pytest.raises(ServerError, match="is not served here"):
        Client(url, token="k", model="none").score(QUERY, DOCUMENTS)
    with pytest.raises(ServerError, match="cannot be reached") as refusal:
        Client("http://127.0.0.1:9").models()
    assert refusal.value.status == 0


def test_a_full_queue_is_asked_again():
    hold = threading.Event()

    def slow(query, texts):
        if query == "hold":
            hold.wait(5)
        return [0.5] * len(texts)

    with listening(app_of(model(Double(slow)), limits=Limits(requests=1))) as url:
        first = threading.Thread(target=Client(url).rerank, args=("hold", ["a"]))
        first.start()
        threading.Timer(0.5, hold.set).start()
        while (status := refused(url)) == 0:  # until the first one is in
            pass
        assert status == 429
        assert len(Client(url).rerank("q", ["a"])) == 1
        first.join()


def refused(url):
    """Status of a refusal, 0 where there was none."""
    try:
        Client(url, retries=0).rerank("q", ["a"])
    except ServerError as refusal:
        return refusal.status
    return 0
