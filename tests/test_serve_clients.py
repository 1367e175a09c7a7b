"""Clients that people already run, unmodified, against a real server on loopback; and schemathesis over the OpenAPI."""

from __future__ import annotations

import json
import shutil
import subprocess
import warnings
from collections.abc import Iterator

import pytest

from serving import DOCUMENTS, QUERY, app_of, listening, planted

# Other people's clients leave their sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
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
    with pytest.raises(cohere.errors.NotFoundError, match="there is no model"):
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


def test_schemathesis_finds_no_5xx_and_no_violation():
    schemathesis = pytest.importorskip("schemathesis", reason="pip install schemathesis")
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance, status_code_conformance

    app = app_of(planted())
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    checks = [
        schemathesis.checks.not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_schema_conformance,
    ]
    asked: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path == "/metrics":
            continue

        @settings(max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.explicit, Phase.generate],
                  suppress_health_check=list(HealthCheck))  # fmt: skip
        @given(case=operation.as_strategy())
        def holds(case):
            answer = case.call_and_validate(checks=checks)
            asked.setdefault(case.path, set()).add(answer.status_code)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            holds()
    assert {"/v1/rerank", "/v2/rerank", "/rerank", "/score", "/v1/decide", "/v1/audit"} <= asked.keys()
    assert all(200 in asked[path] for path in ("/v1/rerank", "/v2/rerank", "/v1/audit", "/v1/models")), asked
    app.state.service.close()
