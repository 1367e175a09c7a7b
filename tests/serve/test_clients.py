"""Clients that people already run, unmodified, against a real server on loopback; and schemathesis over the OpenAPI."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from steadyscore.serve.settings import Limits
from tests.helpers.serving import DOCUMENTS, FORGETFUL_CLIENTS, QUERY, app_of, listening, model, planted

pytestmark = FORGETFUL_CLIENTS
KEY = "open-sesame"


BEST = 1
"""The document that answers the query, whatever the order."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(app_of(planted("none", name="rerank-v3.5"), keys=(KEY,))) as address:
        yield address


def test_the_cohere_client_both_generations(url):
    cohere = pytest.importorskip("cohere", reason="pip install cohere")
    for client in (cohere.ClientV2(api_key=KEY, base_url=url), cohere.Client(api_key=KEY, base_url=url)):
        answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2)
        assert answer.results[0].index == BEST
        assert len(answer.results) == 2
    with pytest.raises(cohere.errors.UnauthorizedError):
        cohere.ClientV2(api_key="wrong", base_url=url).rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS)
    with pytest.raises(cohere.errors.NotFoundError, match="is not served here"):
        cohere.ClientV2(api_key=KEY, base_url=url).rerank(model="other", query=QUERY, documents=DOCUMENTS)


def test_langchain_s_cohere_reranker(url):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # langchain warns about itself
        module = pytest.importorskip("langchain_cohere", reason="pip install langchain-cohere")
        from langchain_core.documents import Document

        reranker = module.CohereRerank(model="rerank-v3.5", cohere_api_key=KEY, base_url=url, top_n=3)
        found = reranker.compress_documents([Document(page_content=text) for text in DOCUMENTS], QUERY)
    assert found[0].page_content == DOCUMENTS[BEST]
    assert len(found) == 3
    assert found[0].metadata["relevance_score"] > found[1].metadata["relevance_score"]


def test_llama_index_s_cohere_reranker(url):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(
            "llama_index.postprocessor.cohere_rerank", reason="pip install llama-index-postprocessor-cohere-rerank"
        )
        from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

        reranker = module.CohereRerank(model="rerank-v3.5", api_key=KEY, base_url=url, top_n=2)
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCUMENTS]
        found = reranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    assert found[0].node.get_content() == DOCUMENTS[BEST]
    assert len(found) == 2


def test_llama_index_s_jina_reranker(url):
    """The Jina integration that takes another address; LangChain's has Jina's own written into it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip(
            "llama_index.postprocessor.jinaai_rerank", reason="pip install llama-index-postprocessor-jinaai-rerank"
        )
        from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

        reranker = module.JinaRerank(model="rerank-v3.5", api_key=KEY, base_url=f"{url}/v1", top_n=3)
        nodes = [NodeWithScore(node=TextNode(text=text)) for text in DOCUMENTS]
        found = reranker.postprocess_nodes(nodes, QueryBundle(QUERY))
    assert found[0].node.get_content() == DOCUMENTS[BEST]
    assert len(found) == 3
    assert [node.score for node in found] == sorted((node.score for node in found), reverse=True)


def test_langchain_s_jina_reranker_sends_and_reads_these_fields(url):
    """What langchain-community's JinaRerank posts and takes out of the answer, to our address instead of Jina's."""
    import httpx

    asked = {"query": QUERY, "documents": DOCUMENTS, "model": "rerank-v3.5", "top_n": 3}
    headers = {"Authorization": f"Bearer {KEY}", "Accept-Encoding": "identity", "user-agent": "langchain"}
    answer = httpx.post(f"{url}/v1/rerank", json=asked, headers=headers).json()
    assert answer["results"][0].keys() >= {"index", "relevance_score"}
    assert answer["results"][0]["index"] == BEST
    assert answer["usage"].keys() == {"total_tokens"}


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_curl_as_the_docs_print_it(url):
    body = json.dumps({"model": "rerank-v3.5", "query": QUERY, "documents": DOCUMENTS})
    command = [
        "curl",
        "-s",
        f"{url}/v1/rerank",
        "-H",
        f"Authorization: Bearer {KEY}",
        "-H",
        "Content-Type: application/json",
        "-d",
        body,
    ]
    answer = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    assert answer["results"][0]["index"] == BEST


SMALL = Limits(candidates=4, query_chars=24, document_chars=32, permutations=10, window_tokens=10**6)
"""Limits whose edges cost little to try."""


def cannot_be_paired(case) -> bool:
    """Several queries with another number of documents, the one rule of /score that JSON Schema cannot state."""
    if case.path not in ("/score", "/v1/score") or not isinstance(case.body, dict):
        return False
    queries, documents = case.body.get("queries"), case.body.get("documents")
    return (
        isinstance(queries, list) and len(queries) > 1 and len(queries) != (len(documents) if isinstance(documents, list) else 1)
    )


def beyond_the_schema(case) -> bool:
    """What no schema states: ranks that only some documents have, a pair of one document, names and values of typed questions
    that stand twice, and an `order` that the state has no list for.
    """
    if not isinstance(case.body, dict):
        return False
    documents = case.body.get("documents")
    if any(isinstance(each, dict) and each.get("rank") for each in (documents if isinstance(documents, list) else [])):
        return True
    if case.path == "/v1/decide" and isinstance(documents, list) and len(documents) < 2:
        return True
    if None not in (top := [case.body.get(name) for name in ("top_n", "top_k")]) and top[0] != top[1]:
        return True  # two names of one number
    questions = case.body.get("questions")
    listed = [q for q in questions if isinstance(q, dict)] if isinstance(questions, list) else []
    names = [q["name"] for q in listed if isinstance(q.get("name"), str)]
    offered = [q["choices"] for q in listed if isinstance(q.get("choices"), list)]
    choices = [[str(c.get("value")).lower() for c in each if isinstance(c, dict)] for each in offered]
    twice = any(len(set(each)) < len(each) for each in (names, *choices))
    return case.path in ("/v1/systemone", "/v1/decisions") and (bool(case.body.get("order")) or twice)


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_the_specification_says_what_every_route_does(tiny_engine, mode, monkeypatch):
    """Schemathesis, with every check it has: what the specification allows is accepted, what it forbids is refused."""
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    from hypothesis import HealthCheck, Phase, assume, given, settings

    monkeypatch.setattr(tiny_engine, "context", 10**6)  # what a model's context allows, no schema can state
    app = app_of(model(tiny_engine, cutoff=0.5), limits=SMALL, keys=(KEY,))
    schema, asked = schemathesis.openapi.from_asgi("/openapi.json", app), {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if mode == "negative" and operation.method == "get":
            continue  # there is nothing to get wrong

        @settings(max_examples=15, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def holds(case):
            assume(not cannot_be_paired(case) and not beyond_the_schema(case))
            answer = case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, timeout=300)
            asked.setdefault(case.path, set()).add(answer.status_code)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holds()
        if mode == "negative":  # the same on every machine, whatever was drawn
            answer = operation.Case(body={}, media_type="application/json").call(headers={"Authorization": f"Bearer {KEY}"})
            assert answer.status_code == 422, operation.path
    app.state.service.close()
    if mode == "positive":
        assert asked.keys() == app.openapi()["paths"].keys()
        assert all(200 in statuses for statuses in asked.values()), asked
    else:
        pools = {"/v1/rerank", "/v2/rerank", "/rerank", "/score", "/v1/score", "/v1/decide", "/v1/audit"}
        assert asked.keys() == pools | {"/v1/systemone", "/v1/decisions"}


def test_every_status_a_route_can_give_is_in_the_specification():
    app = app_of(planted(), limits=Limits(body_bytes=10))
    with TestClient(app) as client:
        for path, operations in client.get("/openapi.json").json()["paths"].items():
            for method, operation in operations.items():
                declared = {int(status) for status in operation["responses"]}
                seen = {
                    client.request(method, path, headers={"Host": "elsewhere.example"}).status_code,
                    client.request(method, path, content=b"x" * 11).status_code,
                    client.request(method, path).status_code,
                }
                assert seen | {408, 413, 500, 503} <= declared, path
                assert 413 in seen
                assert path in ("/health", "/ready") or 421 in seen


def test_the_specification_states_the_limits_and_the_token_of_this_server():
    closed, open_to_all = app_of(planted(), limits=SMALL, keys=(KEY,)).openapi(), app_of(planted()).openapi()
    documents = closed["components"]["schemas"]["JinaRequest"]["properties"]["documents"]
    assert documents["maxItems"] == 4
    assert documents["items"]["anyOf"][0]["maxLength"] == 32
    assert closed["components"]["schemas"]["Order"]["properties"]["permutations"]["maximum"] == 10
    assert closed["components"]["schemas"]["Order"]["properties"]["seed"]["exclusiveMaximum"] == 2**63
    assert closed["paths"]["/score"]["post"]["security"] == [{"token": []}]
    assert "security" not in closed["paths"]["/health"]["get"]
    assert "securitySchemes" not in open_to_all["components"]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app_of(planted())) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "extra", "place"),
    [
        ("/v1/rerank", {"top_n": True}, "top_n"),
        ("/v1/rerank", {"top_n": "2"}, "top_n"),
        ("/v1/rerank", {"return_documents": 0}, "return_documents"),
        ("/v1/rerank", {"order": {"threshold": "0.5"}}, "order.threshold"),
        ("/v1/audit", {"threshold": False}, "threshold"),
        ("/v1/decide", {"decision": {"pair": 1}}, "decision"),
        ("/v1/decide", {"decision": {"top_k": 1}, "seed": "7"}, "seed"),
    ],
)
def test_a_value_of_another_kind_is_refused_and_not_converted(client, path, extra, place):
    answer = client.post(path, json={"query": QUERY, "documents": DOCUMENTS} | extra)
    assert answer.status_code == 422
    assert place in answer.json()["message"]


def test_what_the_older_names_hold_is_not_read_beside_the_newer_ones():
    with TestClient(app_of(planted(), limits=SMALL)) as client:
        body = {"queries": "a", "documents": ["b"], "text_1": "c" * 99, "text_2": ["d"] * 99}
        assert client.post("/score", json=body).status_code == 200
        assert client.post("/score", json=body | {"queries": None}).status_code == 422


def test_a_whole_number_may_be_written_with_a_point(client):
    body = {"query": QUERY, "documents": DOCUMENTS, "top_n": 2.0, "order": {"threshold": 1}}
    assert len(client.post("/v1/rerank", json=body).json()["results"]) == 2
