"""Our own client against a real server."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

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
    began, go = threading.Event(), threading.Event()

    def slow(query, texts):
        if query == "hold":
            began.set()
            go.wait(60)
        return [0.5] * len(texts)

    with listening(app_of(model(Double(slow)), limits=Limits(requests=1))) as url:
        first = threading.Thread(target=Client(url).rerank, args=("hold", ["a"]))
        first.start()
        assert began.wait(60)
        with pytest.raises(ServerError) as refusal:
            Client(url, retries=0).rerank("q", ["a"])
        assert refusal.value.status == 429
        threading.Timer(0.2, go.set).start()
        assert len(Client(url, retries=10).rerank("q", ["a"])) == 1
        first.join()


@contextmanager
def answering(status, body, **headers):
    """The address of a server that gives every request this answer, and the requests: method and token."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_): ...

        def do_GET(self):
            asked.append((self.command, self.headers["authorization"]))
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", asked
        server.shutdown()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_refused_and_the_token_stays_at_home(status):
    with (
        answering(200, b'{"results": [], "data": []}') as (elsewhere, asked),
        answering(status, b"", Location=elsewhere.replace("127.0.0.1", "localhost")) as (url, _),
    ):
        for ask in (lambda client: client.rerank(QUERY, DOCUMENTS), Client.models):
            with pytest.raises(ServerError, match=f"answered {status}, a redirect") as refusal:
                ask(Client(url, token="secret"))
            assert refusal.value.status == status
        assert asked == []


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"{}", b'"text"', b"[" * 100_000, b'{"results": [1], "data": [1], "decision": {}}'],
    ids=["html", "object", "string", "nested", "numbers for objects"],
)
def test_an_answer_that_is_not_of_serve_is_an_error_with_a_name(body):
    verbs = (
        Client.models,
        lambda client: client.rerank(QUERY, DOCUMENTS),
        lambda client: client.score(QUERY, DOCUMENTS),
        lambda client: client.decide(QUERY, DOCUMENTS),
        lambda client: client.audit(QUERY, DOCUMENTS),
    )
    with answering(200, body) as (url, _):
        for ask in verbs:
            with pytest.raises(ServerError, match="answered what steadyscore serve does not") as refusal:
                ask(Client(url))
            assert refusal.value.status == 200


@pytest.mark.parametrize("status", [200, 500])
def test_a_cut_answer_is_an_error_with_a_name(status):
    with answering(status, b"{", **{"Content-Length": "100"}) as (url, _), pytest.raises(ServerError, match="no whole answer"):
        Client(url).models()


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/ x", "http://127.0.0.1:port", "localhost", "http://[::1"])
def test_an_address_that_is_none_is_an_error_with_a_name(url):
    with pytest.raises(ServerError, match="cannot be asked"):
        Client(url).models()


def test_a_token_that_no_header_carries_is_not_repeated(url):
    with pytest.raises(ServerError, match="cannot be asked") as refusal:
        Client(url, token="secret\n").models()
    assert "secret" not in str(refusal.value)
