"""The routes: exact shapes, limits, refusals, tokens, metrics and the log line."""

from __future__ import annotations

import gzip
import json
import logging
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from steadyscore.engines.command import CommandReranker
from steadyscore.engines.http import EndpointDown, EndpointRefused, TooLong
from steadyscore.errors import InputError, UsageError
from steadyscore.serve.app import create_app, first_mistakes
from steadyscore.serve.middleware import token_matches
from steadyscore.serve.monitor import Monitor
from steadyscore.serve.operations import Metrics
from steadyscore.serve.rerank_shapes import UNHONOURED
from steadyscore.serve.server import JsonLines
from steadyscore.serve.service import Service, instance_of
from steadyscore.serve.settings import Limits, ServerSettings, host_name, known_hosts, read_keys, require_token_on_public_host
from tests.helpers.serving import DOCUMENTS, QUERY, Double, app_of, listening, model, planted, service_of
from tests.helpers.waiting import until

ASKED = {"query": QUERY, "documents": DOCUMENTS}


@pytest.fixture(scope="module")
def client():
    with TestClient(app_of(planted(), planted("none", name="steady", cutoff=0.4, expected_overlap=0.97))) as made:
        yield made


def post(client, path, **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


# -- shapes of others


def test_jina_s_shape_to_the_key(client):
    answer = post(client, "/v1/rerank", **ASKED, model="planted", top_n=2)
    assert list(answer) == ["model", "object", "usage", "results"]
    assert answer["object"] == "list"
    assert [list(row) for row in answer["results"]] == [["index", "relevance_score", "document"]] * 2
    assert answer["results"][0]["document"] == {"text": DOCUMENTS[answer["results"][0]["index"]]}
    bare = post(client, "/v1/rerank", **ASKED, return_documents=False)
    assert all("document" not in row for row in bare["results"])


def test_cohere_s_shape_to_the_key(client):
    answer = post(client, "/v2/rerank", **ASKED, model="planted", max_tokens_per_doc=None, return_documents=True)
    assert list(answer) == ["id", "results", "meta"]
    assert all(list(row) == ["index", "relevance_score"] for row in answer["results"])
    scores = [row["relevance_score"] for row in answer["results"]]
    assert scores == sorted(scores, reverse=True)


def test_tei_s_shape_to_the_key(client):
    answer = post(client, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=False, truncate=True)
    assert [list(row) for row in answer] == [["index", "score"]] * 4
    assert post(client, "/rerank", query=QUERY, texts=DOCUMENTS, return_text=True)[0]["text"] in DOCUMENTS


def test_the_union_takes_vllm_s_zero(client):
    answer = post(client, "/rerank", **ASKED, top_n=0)
    assert len(answer["results"]) == 4
    assert "document" not in answer["results"][0]


def test_score_keeps_the_order_of_the_documents(client):
    answer = post(client, "/score", queries=QUERY, documents=DOCUMENTS)
    assert [row["index"] for row in answer["data"]] == [0, 1, 2, 3]
    by_index = {row["index"]: row["relevance_score"] for row in post(client, "/v2/rerank", **ASKED)["results"]}
    assert [row["score"] for row in answer["data"]] == [by_index[i] for i in range(4)]
    pairs = post(client, "/score", text_1=[QUERY, "b"], text_2=["x", "y"])
    assert len(pairs["data"]) == 2


def test_vllm_s_score_to_the_key_under_both_of_its_paths(client):
    answers = [post(client, path, queries=QUERY, documents=DOCUMENTS) for path in ("/score", "/v1/score")]
    assert answers[0]["data"] == answers[1]["data"]
    for answer in answers:
        assert list(answer) == ["id", "object", "created", "model", "data", "usage"]
        assert answer["usage"].keys() == {"prompt_tokens", "total_tokens"}
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"]


def test_pairs_are_scored_and_each_limit_has_its_own_sentence():
    sizes = Double(lambda query, texts: [len(query + text) / 100 for text in texts])
    app = app_of(model(sizes, width=2), limits=Limits(candidates=9, queue_windows=4))
    with TestClient(app) as client:
        pairs = post(client, "/score", text_1=["a", "bb", "ccc"], text_2=["x", "yy", "zzz"])
        assert [row["score"] for row in pairs["data"]] == [0.02, 0.04, 0.06]
        refused = client.post("/score", json={"queries": "q", "documents": ["d"] * 10})
        assert "10 documents were sent, the server takes 9." in refused.json()["message"]
        refused = client.post("/score", json={"queries": ["q"] * 5, "documents": ["d"] * 5})
        assert "5 queries are 5 windows, the server takes 4." in refused.json()["message"]
        assert len(post(client, "/score", queries="q", documents=["d"] * 8)["data"]) == 8


def test_pairs_have_no_rank_that_the_first_stage_could_have_given():
    sizes = Double(lambda query, texts: [len(text) / 100 for text in texts])
    with TestClient(app_of(model(sizes, first_stage=30))) as client:
        assert len(post(client, "/score", queries="q", documents=["a", "bb"])["data"]) == 2
        refused = client.post("/score", json={"queries": ["q", "r"], "documents": ["a", "bb"]})
    assert refused.status_code == 422
    assert "have no rank in a first stage" in refused.json()["message"]


@pytest.mark.parametrize("fault", [EndpointDown("ten queries failed"), EndpointRefused("http://inner/ answered HTTP 401")])
def test_a_fault_of_the_endpoint_behind_is_not_the_clients_mistake(fault):
    def fail(query, texts):
        raise fault

    with TestClient(app_of(model(Double(fail)))) as client:
        answer = client.post("/v1/rerank", json=ASKED)
    assert answer.status_code == 500
    assert answer.json()["message"] == f"the scorer of planted failed ({type(fault).__name__}). The log names the place."


def test_documents_may_be_objects_and_duplicates(client):
    answer = post(client, "/v1/rerank", query=QUERY, documents=[{"text": "a", "title": "t"}, "b", "b"], model="steady")
    assert sorted(row["index"] for row in answer["results"]) == [0, 1, 2]
    tied = [row["index"] for row in answer["results"] if row["document"]["text"] == "b"]
    assert tied == [1, 2], "equal scores stand in the order of the request"


def test_more_than_the_pool_is_fine(client):
    assert len(post(client, "/v1/rerank", **ASKED, top_n=10**30)["results"]) == 4


def test_unknown_fields_are_ignored_by_others_shapes_and_refused_by_ours(client):
    for path in ("/v1/rerank", "/v2/rerank", "/rerank"):
        post(client, path, **ASKED, user="me", priority=3, cache_salt="x", mm_processor_kwargs={"a": 1})
    assert client.post("/v1/decide", json=ASKED | {"decision": {"top_k": 1}, "priority": 3}).status_code == 422
    assert client.post("/v1/audit", json=ASKED | {"priority": 3}).status_code == 422
    misspelt = client.post("/v1/rerank", json=ASKED | {"order": {"permutatons": 8}})
    assert misspelt.status_code == 422
    assert "order.permutatons" in misspelt.json()["message"]


RERANK_PATHS = ("/v1/rerank", "/v2/rerank", "/rerank", "/score")
MEANING = [(name, harmless) for names in UNHONOURED.values() for name, harmless in names.items()]


@pytest.mark.parametrize(("name", "harmless"), MEANING, ids=[name for name, _ in MEANING])
def test_a_field_that_would_change_the_answer_is_refused_unless_it_asks_for_what_is_done_anyway(client, name, harmless):
    for path in ("/score",) if name == "top_k" else RERANK_PATHS:
        body = {"queries": QUERY, "documents": DOCUMENTS} if path == "/score" else ASKED
        other = "left" if name == "truncation_direction" else next(v for v in (False, True) if v not in harmless)
        answer = client.post(path, json=body | {name: other})
        assert answer.status_code == 422, path
        assert f"{name} is not honoured here: " in answer.json()["message"]
        for value in (None, *harmless):
            post(client, path, **body, **{name: value})


def test_every_refused_field_is_named_at_once(client):
    answer = client.post("/v1/rerank", json=ASKED | {"max_doc_length": 2, "rank_fields": ["body"]})
    assert answer.json()["message"] == (
        "the body: rank_fields is not honoured here: title and text are read, in this order. Leave it out; "
        "max_doc_length is not honoured here: say max_tokens_per_doc, or truncate with `texts` on /rerank. Leave it out."
    )


def test_tei_s_fields_go_with_its_texts(client):
    assert len(post(client, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True, top_n=2)) == 2
    assert client.post("/rerank", json=ASKED | {"raw_scores": True}).status_code == 422


def test_an_instruction_is_shown_or_refused(tiny_engine):
    """By a prompt that has a place for one; a function and a set window have none."""
    told, reads_sets = model(tiny_engine, "told"), model(tiny_engine, "reads sets", prompt="set")
    with TestClient(app_of(told, reads_sets, planted())) as client:
        bodies = [("/score", {"queries": QUERY, "documents": DOCUMENTS}), *((path, ASKED) for path in RERANK_PATHS[:3])]
        for path, body in bodies:
            plain, other, same = (
                client.post(path, json=body | {"model": "told"} | instruction).json()
                for instruction in ({}, {"instruction": "Prefer the longest document."}, {"instruction": ""})
            )
            rows = "data" if path == "/score" else "results"
            assert other[rows] != plain[rows] == same[rows], path
            for name in ("reads sets", "planted"):
                refused = client.post(path, json=body | {"model": name, "instruction": "Prefer the longest."})
                assert refused.status_code == 422, path
                assert refused.json()["message"] == (
                    f"{name} is told nothing but the query and the documents. Leave out instruction."
                )


def test_tokens_of_a_document_are_counted_on_jina_s_route_too(tiny_engine):
    with TestClient(app_of(model(tiny_engine))) as client:
        long, short = ["a" * 200, "b" * 200], ["a" * 9, "b" * 9]
        cut = post(client, "/v1/rerank", query=QUERY, documents=long, max_tokens_per_doc=9, return_documents=False)
        assert cut["results"] == post(client, "/v1/rerank", query=QUERY, documents=short, return_documents=False)["results"]


# -- ranks of a first stage


def ranked(*places, documents=DOCUMENTS):
    return [{"text": text, "rank": place} for text, place in zip(documents, places, strict=True)]


def test_ranks_that_documents_carry_have_their_share_in_whatever_order_they_are_sent():
    sizes = Double(lambda query, texts: [len(text) / 100 for text in texts])
    mixed = model(sizes, first_stage=40)
    with TestClient(app_of(model(sizes, ranked=mixed, cutoff=0.3), model(sizes, "never"))) as client:
        asked = {"queries": QUERY, "documents": ranked(4, 1, 2, 3)}
        found = [row["score"] for row in post(client, "/score", **asked)["data"]]
        own = np.array([len(text) for text in DOCUMENTS])
        scaled = (own - own.min()) / np.ptp(own)
        assert found == pytest.approx(0.6 * scaled + 0.4 * np.array([0.25, 1.0, 0.75, 0.5]))
        back = {"queries": QUERY, "documents": asked["documents"][::-1]}
        assert [row["score"] for row in post(client, "/score", **back)["data"]] == pytest.approx(found[::-1])
        answer = post(client, "/v1/rerank", query=QUERY, documents=asked["documents"], order={"permutations": 3})
        assert answer["order"]["first_stage"] == 40
        assert {row["index"]: row["relevance_score"] for row in answer["results"]} == pytest.approx(dict(enumerate(found)))
        plain = post(client, "/v1/rerank", **ASKED, order={})
        assert "first_stage" not in plain["order"]
        assert {row["index"]: row["relevance_score"] for row in plain["results"]} == pytest.approx(dict(enumerate(own / 100)))
        assert post(client, "/score", **asked, model="never")["data"][1]["score"] == pytest.approx(own[1] / 100)
        for path in ("/v1/decide", "/v1/audit"):
            body = {"query": QUERY, "documents": asked["documents"]} | ({"permutations": 2} if path == "/v1/audit" else {})
            assert client.post(path, json=body).status_code == (422 if path == "/v1/decide" else 200), "no cutoff for the mixture"


@pytest.mark.parametrize("places", [(1, 2, 3, None), (1, 2, 3, 3)], ids=["one without", "one twice"])
def test_every_document_has_a_rank_of_its_own_or_none_has_one(client, places):
    refused = client.post("/v1/rerank", json={"query": QUERY, "documents": ranked(*places)})
    assert refused.status_code == 422
    assert refused.json()["message"].startswith("some documents have no rank, or that of another.")


def test_what_no_order_can_move_is_not_said_where_the_place_in_the_request_counts(tiny_engine):
    sets = model(tiny_engine, "sets", prompt="set")
    by_place, by_rank = replace(sets, name="by place", first_stage=30), replace(sets, name="by rank")
    by_rank = replace(by_rank, ranked=replace(by_rank, first_stage=30))
    with TestClient(app_of(sets, by_place, by_rank)) as client:
        facts = {each["id"]: each["order"] for each in client.get("/v1/models").json()["data"]}
        asked = {"decision": {"top_k": 1}, "permutations": 4}
        stopped = {name: post(client, "/v1/decide", **ASKED, **asked, model=name)["stability"]["stopped"] for name in facts}
    free = {name: fact["capabilities"]["order_free"] for name, fact in facts.items()}
    assert free == {"sets": True, "by place": False, "by rank": True}
    assert {name: stop == "order_free" for name, stop in stopped.items()} == free
    assert [facts[name]["first_stage"] for name in free] == [
        {"by_place": None, "by_rank": None}, {"by_place": 30, "by_rank": 30}, {"by_place": None, "by_rank": 30},
    ]  # fmt: skip


def test_what_is_ours_travels_under_one_key_and_only_when_asked(client):
    plain = post(client, "/v2/rerank", **ASKED)
    asked = post(client, "/v2/rerank", **ASKED, order={"permutations": 6, "threshold": 0.5, "distribution": True})
    assert set(asked) - set(plain) == {"order"}
    assert asked["order"]["tie_rule"] == "index"
    assert asked["order"]["presentation"] == "permuted"
    assert len(asked["order"]["sd"]) == 4
    kept = [row["index"] for row in asked["results"] if row["relevance_score"] >= 0.5]
    assert asked["order"]["retained"] == kept


def test_the_canonical_order_does_not_see_the_request_s(client):
    there = post(client, "/v1/rerank", **ASKED, order={"canonical": True})
    back = post(client, "/v1/rerank", query=QUERY, documents=DOCUMENTS[::-1], order={"canonical": True})
    assert [r["document"] for r in there["results"]] == [r["document"] for r in back["results"]]
    assert [r["relevance_score"] for r in there["results"]] == [r["relevance_score"] for r in back["results"]]


def test_the_canonical_order_is_one_order(client):
    post(client, "/v1/rerank", **ASKED, order={"canonical": True, "permutations": 1})
    refused = client.post("/v1/rerank", json=ASKED | {"order": {"canonical": True, "permutations": 4}})
    assert refused.status_code == 422
    assert refused.json()["message"] == "order: canonical is one order and permutations are several. Give one of the two."


# -- shapes of ours


def test_decide_by_threshold(client):
    answer = post(client, "/v1/decide", **ASKED, decision={"threshold": 0.5})
    assert list(answer) == ["model", "decision", "results", "usage"]
    kept = answer["decision"]["kept"]
    assert [row["index"] for row in answer["results"] if row["role"] == "kept"] == kept
    assert all((row["distance"] >= 0) == (row["role"] == "kept") for row in answer["results"])


def test_decide_by_budget_and_pair(client):
    assert len(post(client, "/v1/decide", **ASKED, decision={"top_k": 2})["decision"]["kept"]) == 2
    assert len(post(client, "/v1/decide", **ASKED, decision={"top_k": 10**40})["decision"]["kept"]) == 4
    found = post(client, "/v1/decide", **ASKED, decision={"pair": True})
    assert found["decision"] == {
        "kind": "pair",
        "chosen": found["results"][0]["index"],
        "rejected": found["results"][-1]["index"],
    }
    assert client.post("/v1/decide", json={"query": QUERY, "documents": ["a"], "decision": {"pair": True}}).status_code == 422


def test_the_card_s_cutoff_decides_where_the_request_names_none(client):
    answer = post(client, "/v1/decide", **ASKED, model="steady")
    assert answer["decision"]["cutoff"] == 0.4
    assert answer["decision"]["expected_overlap"] == 0.97
    refused = client.post("/v1/decide", json=ASKED | {"model": "planted"})
    assert refused.status_code == 422
    assert "no cutoff of its own" in refused.json()["message"]


def test_stability_under_permutations(client):
    moved = post(client, "/v1/decide", **ASKED, decision={"top_k": 1}, permutations=16, adaptive=False)["stability"]
    assert moved["permutations"] == 16
    assert moved["stopped"] == "budget"
    steady = post(client, "/v1/decide", **ASKED, decision={"top_k": 1}, permutations=16, model="steady")["stability"]
    assert steady == {"permutations": 1, "asked": 16, "stopped": "order_free", "agreement": 1.0, "unsettled": []}


def test_adaptive_stopping_saves_permutations():
    with TestClient(app_of(planted("slot", 0.001))) as client:
        answer = post(client, "/v1/decide", **ASKED, decision={"threshold": 0.6}, permutations=32)
    assert answer["stability"]["stopped"] == "settled"
    assert answer["stability"]["permutations"] <= 8
    assert all(row["settled"] and row["agreement"] == 1.0 for row in answer["results"])


def test_grades_of_an_engine(tiny_engine):
    with TestClient(app_of(model(tiny_engine, width=3))) as client:
        answer = post(client, "/v1/decide", **ASKED, decision={"threshold": 0.5}, permutations=3)
        raw = post(client, "/rerank", query=QUERY, texts=DOCUMENTS, raw_scores=True)
        plain = post(client, "/v1/rerank", **ASKED)
    for row in answer["results"]:
        assert sum(row["grades"]) == pytest.approx(1)
        assert np.dot(row["grades"], [0, 1, 2, 3]) / 3 == pytest.approx(row["score"])
    assert raw[0]["score"] == pytest.approx(3 * plain["results"][0]["relevance_score"])
    assert plain["usage"]["total_tokens"] > 100
    assert answer["usage"]["total_tokens"] > 2 * plain["usage"]["total_tokens"]


def test_audit_of_one_pool(client):
    answer = post(client, "/v1/audit", **ASKED, permutations=6, threshold=0.5)
    assert len(answer["presentations"]) == 7
    assert answer["presentations"][0]["order"] == [0, 1, 2, 3]
    assert {"tau_psi", "overlap", "pair_flip"} <= answer["measures"].keys()
    again = post(client, "/v1/audit", **ASKED, permutations=6, threshold=0.5)
    assert again == answer


def test_a_score_is_what_the_scorer_gives_in_process(client):
    expected = planted().scorer().score(instance_of(QUERY, DOCUMENTS))
    answer = post(client, "/score", queries=QUERY, documents=DOCUMENTS)
    assert [row["score"] for row in answer["data"]] == expected.tolist()


# -- refusals


BODIES = {
    "no json": (b"{", 400),
    "not utf-8": (b'{"query": "\xff", "documents": ["a"]}', 400),
    "lone surrogate": (b'{"query": "\\ud800", "documents": ["a"]}', 422),
    "empty body": (b"", 422),
    "a list": (b"[]", 422),
    "deep": (b"[" * 100_000, 400),
    "empty list": (b'{"query": "q", "documents": []}', 422),
    "empty query": (b'{"query": "", "documents": ["a"]}', 422),
    "no documents": (b'{"query": "q"}', 422),
    "number": (b'{"query": "q", "documents": [1]}', 422),
    "top_n 0": (b'{"query": "q", "documents": ["a"], "top_n": 0}', 422),
    "nan": (b'{"query": "q", "documents": ["a"], "order": {"threshold": NaN}}', 400),
    "infinity in a field nobody reads": (b'{"query": "q", "documents": ["a"], "rank": -Infinity}', 400),
    "a float beyond all floats": (b'{"query": "q", "documents": ["a"], "order": {"threshold": 1e999}}', 422),
    "a number of 5,000 digits": (b'{"query": "q", "documents": ["a"], "top_n": ' + b"9" * 5000 + b"}", 400),
    "a seed beyond 64 bits": (b'{"query": "q", "documents": ["a"], "order": {"seed": 9223372036854775808}}', 422),
    "documents 500 deep": (b'{"query": "q", "documents": ' + b"[" * 500 + b"]" * 500 + b"}", 422),
    "documents 100,000 deep": (b'{"query": "q", "documents": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "unknown model": (b'{"query": "q", "documents": ["a"], "model": "gpt"}', 404),
    "permutations": (b'{"query": "q", "documents": ["a"], "order": {"permutations": 1000}}', 422),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_bad_body_gets_one_sentence(client, name):
    body, status = BODIES[name]
    answer = client.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert list(answer.json()) == ["message"]
    assert answer.json()["message"].endswith(".")
    assert client.get("/health").status_code == 200


MANY = 20_000
UNKNOWN = {f"unknown{i}": 0 for i in range(MANY)}
CROWDS = {
    "documents": ("/v1/rerank", {"query": "q", "documents": [0] * MANY}),
    "objects": ("/v2/rerank", {"query": "q", "documents": [{}] * MANY}),
    "texts": ("/rerank", {"query": "q", "texts": [0] * MANY}),
    "queries": ("/score", {"queries": [0] * MANY, "documents": ["a"]}),
    "older names": ("/score", {"text_1": [0] * MANY, "text_2": [0] * MANY}),
    "fields nobody knows": ("/v1/decide", ASKED | UNKNOWN),
    "fields of a decision": ("/v1/decide", ASKED | {"decision": UNKNOWN}),
    "questions by name": ("/v1/systemone", {"state": "x", "questions": UNKNOWN}),
    "sides": ("/v1/systemone", {"state": "x", "questions": {"a": {"type": "noul", "criteria": UNKNOWN}}}),
    "options": ("/v1/systemone", {"state": "x", "questions": {"a": {"type": "choice", "criteria": UNKNOWN}}}),
    "fields of a question": ("/v1/systemone", {"state": "x", "questions": {"a": {"type": "noul"} | UNKNOWN}}),
    "messages": ("/v1/decisions", {"input": [0] * MANY, "questions": []}),
    "parts": ("/v1/decisions", {"input": [{"role": "user", "content": [0] * MANY}], "questions": []}),
    "data": (
        "/v1/decisions",
        {"input": [{"role": "user", "content": [{"type": "input_json", "data": [0] * MANY}]}], "questions": []},
    ),
}


@pytest.mark.parametrize("name", CROWDS)
def test_a_body_of_many_mistakes_is_refused_at_the_first_few(client, name, monkeypatch):
    path, body = CROWDS[name]
    counted = []

    def count(error):
        counted.append(len(error.errors()))
        return first_mistakes(error)

    monkeypatch.setattr("steadyscore.serve.app.first_mistakes", count)
    assert client.post(path, json=body).status_code == 422
    assert counted[0] < 50, "each mistake takes time on the thread that answers all requests"


def test_several_unknown_fields_are_named_at_once(client):
    answer = client.post("/v1/audit", json=ASKED | {"one": 1, "two": 2})
    assert answer.json()["message"] == "one: there is no such field; two: there is no such field."


MISTAKES = {
    "a number in words": ({"decision": {"threshold": "high"}}, "decision.threshold: input should be a valid number."),
    "two decisions": (
        {"decision": {"threshold": 0.5, "top_k": 1}},
        "decision: give an object with one of threshold, top_k, share and pair.",
    ),
    "no decision": ({"decision": {}}, "decision: give an object with one of threshold, top_k, share and pair."),
    "a list": ({"decision": [1]}, "decision: give an object with one of threshold, top_k, share and pair."),
    "a document": ({"documents": ["a", 3], "decision": {"top_k": 1}}, "documents.1: give a text, or an object with one."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_once_and_not_for_every_kind_that_was_tried(client, name):
    changed, sentence = MISTAKES[name]
    answer = client.post("/v1/decide", json=ASKED | changed)
    assert (answer.status_code, answer.json()["message"]) == (422, sentence)


def test_a_body_that_is_no_object_or_no_json_by_its_header_is_told_so(client):
    sentence = "the body: give a JSON object, with the header Content-Type: application/json."
    assert client.post("/v1/rerank", json=[1, 2]).json()["message"] == sentence
    sent = json.dumps(ASKED)
    assert client.post("/v1/rerank", content=sent, headers={"content-type": "text/plain"}).json()["message"] == sentence


def test_an_unknown_route_and_a_wrong_method_name_the_list_of_routes(client):
    for answer, code in ((client.get("/nowhere"), 404), (client.get("/v1/rerank"), 405)):
        assert answer.status_code == code
        assert answer.json()["message"].endswith("GET /openapi.json lists the routes.")


HALF = "\\ud800"
SURROGATES = {
    "/v1/rerank query": ("/v1/rerank", {"query": HALF, "documents": ["a"]}, "query"),
    "/v1/rerank text": ("/v1/rerank", {"query": "q", "documents": ["a", HALF]}, "documents.1"),
    "/v1/rerank canonical": ("/v1/rerank", {"query": "q", "documents": ["a", HALF], "order": {"canonical": True}}, "documents.1"),
    "/v1/rerank object": ("/v1/rerank", {"query": "q", "documents": [{"text": HALF}]}, "documents.0.text"),
    "/v1/rerank title": ("/v1/rerank", {"query": "q", "documents": [{"text": "a", "title": HALF}]}, "documents.0.title"),
    "/v1/rerank model": ("/v1/rerank", {"query": "q", "documents": ["a"], "model": HALF}, "model"),
    "/v2/rerank text": ("/v2/rerank", {"query": "q", "documents": [HALF]}, "documents.0"),
    "/rerank texts": ("/rerank", {"query": "q", "texts": ["a", HALF]}, "texts.1"),
    "/rerank documents": ("/rerank", {"query": "q", "documents": ["a", HALF]}, "documents.1"),
    "/score query": ("/score", {"queries": HALF, "documents": "a"}, "queries"),
    "/score queries": ("/score", {"queries": ["q", HALF], "documents": ["a", "b"]}, "queries.1"),
    "/score text": ("/score", {"queries": "q", "documents": HALF}, "documents"),
    "/score text_2": ("/score", {"text_1": "q", "text_2": ["a", HALF]}, "text_2.1"),
    "/v1/decide text": ("/v1/decide", {"query": "q", "documents": [HALF], "decision": {"top_k": 1}}, "documents.0"),
    "/v1/audit text": ("/v1/audit", {"query": "q", "documents": ["a", HALF]}, "documents.1"),
}


@pytest.mark.parametrize("name", SURROGATES)
def test_half_of_a_surrogate_pair_is_refused_wherever_it_stands(client, name):
    path, body, place = SURROGATES[name]
    content = json.dumps(body).replace("\\\\ud800", "x\\ud800").encode()
    answer = client.post(path, content=content, headers={"content-type": "application/json"})
    assert answer.status_code == 422
    assert f"{place}: holds half of a surrogate pair" in answer.json()["message"]


def test_a_whole_surrogate_pair_is_a_character(client):
    body = b'{"query": "q", "documents": ["\\ud83d\\ude00"]}'
    answer = client.post("/v1/rerank", content=body, headers={"content-type": "application/json"})
    assert answer.json()["results"][0]["document"] == {"text": "\N{GRINNING FACE}"}


def test_a_mistake_of_ours_is_answered_in_the_promised_shape_and_quotes_nothing(client, caplog, monkeypatch):
    def broken(*given):
        raise KeyError("secret words")

    monkeypatch.setattr("steadyscore.serve.service.ranking", broken)
    with caplog.at_level(logging.INFO, "steadyscore.serve"):
        answer = client.post("/v1/rerank", json=ASKED)
    assert answer.status_code == 500
    assert answer.json() == {"message": "the server failed (KeyError). The log names the place."}
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any('"request failed"' in line and "in broken" in line for line in lines)
    assert not any("secret" in line for line in lines)


def test_every_limit_at_once_in_one_sentence():
    with TestClient(app_of(planted(), limits=Limits(query_chars=10, document_chars=20))) as client:
        answer = client.post("/v1/rerank", json={"query": "q" * 11, "documents": ["d" * 21] * 10_000})
        assert answer.status_code == 422
        assert answer.json()["message"] == (
            "10,000 documents were sent, the server takes 1,000. the query has 11 characters, the server takes 10. "
            "document 0 has 21 characters, the server takes 20."
        )
        assert post(client, "/v1/rerank", query="q", documents=["d"])


def test_more_windows_than_any_queue_holds():
    with TestClient(app_of(planted(width=2), limits=Limits(queue_windows=10))) as client:
        answer = client.post(
            "/v1/decide", json={"query": "q", "documents": ["d"] * 9, "decision": {"top_k": 1}, "permutations": 9}
        )
    assert answer.status_code == 422
    assert "are 45 windows, the server takes 10" in answer.json()["message"]


def test_a_body_that_is_too_large_stated_or_not():
    with TestClient(app_of(planted(), limits=Limits(body_bytes=1000))) as client:
        body = json.dumps({"query": "q", "documents": ["d" * 2000]}).encode()
        assert client.post("/v1/rerank", content=body).status_code == 413
        assert client.post("/v1/rerank", content=iter([body[:500], body[500:]])).status_code == 413
        counted = [line for line in client.get("/metrics").text.splitlines() if line.startswith("steadyscore_refused_total")]
        assert counted == ['steadyscore_refused_total{reason="size"} 2.0']
        assert post(client, "/v1/rerank", query="q", documents=["d"])


def test_a_body_that_is_packed_is_not_unpacked():
    with TestClient(app_of(planted())) as client:
        for packing in ("gzip", "zstd", "x" * 500):
            body = gzip.compress(json.dumps({"query": "q", "documents": [" " * (3 << 20)]}).encode())
            answer = client.post("/v1/rerank", content=body, headers={"Content-Encoding": packing})
            assert answer.status_code == 415
            assert "Send it without Content-Encoding." in answer.json()["message"]
        plain = json.dumps({"query": "q", "documents": ["d"]}).encode()
        headers = {"Content-Encoding": "identity", "Content-Type": "application/json"}
        assert client.post("/v1/rerank", content=plain, headers=headers).status_code == 200


def test_a_window_that_does_not_fit_is_named(tiny_engine):
    with TestClient(app_of(model(tiny_engine, chars=4000))) as client:
        answer = client.post("/v1/rerank", json={"query": "q", "documents": ["word " * 700] * 4})
        assert answer.status_code == 422
        assert "the model takes 4,096" in answer.json()["message"]
        assert 'steadyscore_window_overflow_total{model="planted"} 1.0' in client.get("/metrics").text


def test_an_engine_exception_is_a_500_that_quotes_nothing(caplog):
    def broken(query, texts):
        if "bad" in texts:
            raise KeyError(f"secret {texts}")
        return [0.5] * len(texts)

    with TestClient(app_of(model(Double(broken)))) as client, caplog.at_level(logging.INFO, "steadyscore.serve"):
        answer = client.post("/v1/rerank", json={"query": "q", "documents": ["bad"]})
        assert answer.status_code == 500
        assert answer.json() == {"message": "the scorer of planted failed (KeyError). The log names the place."}
        assert post(client, "/v1/rerank", query="q", documents=["good"])
    lines = [JsonLines().format(record) for record in caplog.records]
    assert any('"fault": "KeyError"' in line and "in broken" in line for line in lines)
    assert not any("secret" in line for line in lines)


def start_nothing(query, texts):
    return CommandReranker(["/no/such/program"], "gone").score(query, texts)


UNUSABLE = {
    "not a number": lambda query, texts: [float("nan")] * len(texts),
    "too few": lambda query, texts: [0.5],
    "does not start": start_nothing,
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_scores_that_cannot_be_used_are_the_scorer_s_fault_and_logged(name, caplog):
    with TestClient(app_of(model(Double(UNUSABLE[name])))) as client, caplog.at_level(logging.INFO, "steadyscore.serve"):
        answer = client.post("/v1/rerank", json=ASKED)
    assert answer.status_code == 500
    assert answer.json() == {"message": "the scorer of planted failed (UnusableScorer). The log names the place."}
    assert any(record.message == "engine failed" and record.facts["fault"] == "UnusableScorer" for record in caplog.records)


def test_a_window_too_long_for_an_endpoint_is_the_request_s_mistake():
    def refuse(query, texts):
        if texts[0] == "long":
            raise TooLong("http://inner/ answered HTTP 400: maximum context length is 4")
        return [0.5] * len(texts)

    with TestClient(app_of(model(Double(refuse)))) as client:
        answer = client.post("/v1/rerank", json={"query": "q", "documents": ["long"]})
        assert 'steadyscore_window_overflow_total{model="planted"} 1.0' in client.get("/metrics").text
    assert answer.status_code == 422
    assert "does not fit planted" in answer.json()["message"]
    assert "inner" not in answer.json()["message"]


def test_a_slow_scorer_times_out_and_the_queue_pushes_back():
    begun, hold = threading.Event(), threading.Event()

    def slow(query, texts):
        if query == "slow":
            begun.set()
            hold.wait(120)
        return [0.5] * len(texts)

    def ask(url, query):
        return httpx.post(f"{url}/v1/rerank", json={"query": query, "documents": ["a"]}, timeout=120)

    with listening(app_of(model(Double(slow)), limits=Limits(requests=1))) as url, ThreadPoolExecutor(1) as clients:
        first = clients.submit(ask, url, "slow")
        assert begun.wait(60)  # the one request that is let in is being scored
        busy = ask(url, "q")
        hold.set()
        assert first.result().status_code == 200
    assert busy.status_code == 429
    assert int(busy.headers["retry-after"]) >= 1
    hold.clear()
    app = app_of(model(Double(slow)), limits=Limits(requests=1, seconds=0.5))
    with listening(app) as url:
        late = ask(url, "slow")
        hold.set()
        until_idle(app)
    assert late.status_code == 504


def test_a_client_that_goes_away_stops_the_work():
    import socket

    scored, begun = [], threading.Event()

    def slow(query, texts):
        if query == "q":
            scored.append(1)
            begun.set()
            time.sleep(0.05)
        return [0.5] * len(texts)

    app = app_of(model(Double(slow), width=1))
    with listening(app) as url:
        body = json.dumps({"query": "q", "documents": ["d"] * 200}).encode()
        head = "POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1]))) as connection:
            connection.sendall(head.encode() + body)
            assert begun.wait(120)
        until_idle(app)
        assert len(scored) < 200


def until_idle(app):
    until(lambda: not app.state.service.batcher.in_flight)


# -- access


def test_a_token_opens_the_routes_and_nothing_else_does():
    with TestClient(app_of(planted(), keys=("old", "new"))) as client:
        for header in (None, "Bearer wrong", "Basic new", "Bearer", "Bearer néw"):
            headers = {} if header is None else {"Authorization": header.encode("latin-1")}
            answer = client.post("/v1/rerank", json=ASKED, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert client.get("/metrics").status_code == 401
        for key in ("old", "new"):
            assert client.post("/v1/rerank", json=ASKED, headers={"Authorization": f"Bearer {key}"}).status_code == 200
        for path in ("/health", "/ready", "/", "/openapi.json"):
            assert client.get(path).status_code == 200


def test_tokens_are_compared_in_constant_time(monkeypatch):
    import hmac

    compared = []
    monkeypatch.setattr(hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b)
    assert token_matches(b"Bearer two", ("one", "two", "three"))
    assert len(compared) == 3


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_a_public_address_needs_a_token(host):
    with pytest.raises(UsageError, match="--api-key-file"):
        require_token_on_public_host(ServerSettings(host=host))
    require_token_on_public_host(ServerSettings(host=host, keys=("k",)))
    require_token_on_public_host(ServerSettings(host=host, insecure=True))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_needs_none(host):
    require_token_on_public_host(ServerSettings(host=host))


def test_a_token_file(tmp_path):
    file = tmp_path / "keys"
    file.write_text("one\n\n two \n")
    assert read_keys(file) == ("one", "two")
    file.write_text("\n")
    with pytest.raises(InputError, match="holds no token"):
        read_keys(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_keys(tmp_path / "none")
    file.write_bytes(b"\xff\xfeo\x00n\x00e\x00")
    with pytest.raises(InputError, match="is not a text in UTF-8"):
        read_keys(file)


def test_other_sites_get_no_permission_and_the_page_asks_nobody_else(client):
    answer = client.options("/v1/rerank", headers={"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in answer.headers
    assert "default-src 'none'" in client.get("/").headers["content-security-policy"]


REBOUND = "this server does not answer for the host 'evil.example'. Start it with --allowed-host to add a name."


def test_a_page_that_points_its_own_name_at_this_machine_reads_nothing():
    paths = ("/", "/explorer.js", "/v1/models", "/metrics", "/openapi.json", "/v1/examples", "/nowhere")
    with TestClient(app_of(planted())) as client:
        for path in paths:
            answer = client.get(path, headers={"Host": "evil.example:8000"})
            assert (answer.status_code, answer.json()) == (421, {"message": REBOUND}), path
        assert client.get("/health", headers={"Host": "evil.example"}).status_code == 200
        assert f'steadyscore_refused_total{{reason="host"}} {len(paths)}.0' in client.get("/metrics").text


def test_this_machine_s_names_and_those_allowed_are_answered():
    with TestClient(app_of(planted(), allowed_hosts=("Rerank.internal",))) as client:
        for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "rerank.internal"):
            assert client.get("/v1/models", headers={"Host": host}).status_code == 200, host


def test_two_tokens_are_no_token():
    with TestClient(app_of(planted(), keys=("right",))) as client:
        for first, second in (("right", "wrong"), ("wrong", "right"), ("right", "right")):
            headers = [("Authorization", f"Bearer {first}"), ("Authorization", f"Bearer {second}")]
            answer = client.post("/v1/rerank", json=ASKED, headers=headers)
            assert answer.status_code == 400
            assert answer.json() == {"message": "the request has two Authorization headers. Send one."}


def test_metrics_need_the_token_unless_they_are_opened():
    for is_open, status in ((False, 401), (True, 200)):
        with TestClient(app_of(planted(), keys=("right",), open_metrics=is_open)) as client:
            assert client.get("/metrics").status_code == status
            assert client.get("/v1/models").status_code == 401
            assert ("security" in client.app.openapi()["paths"]["/metrics"]["get"]) == (not is_open)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "127.0.0.1:8395@evil.example",
        "[::1]@evil.example",
        "localhost:80:80",
        "localhost.evil.example",
        "evil.example#localhost",
        "127.0.0.1.evil.example",
        "[::2]",
    ],
)
def test_a_host_that_only_looks_like_this_machine_is_refused(host):
    assert host_name(host) not in known_hosts(ServerSettings())


def test_a_public_address_answers_for_any_host_until_names_are_given():
    assert known_hosts(ServerSettings(host="0.0.0.0")) is None
    named = known_hosts(ServerSettings(host="0.0.0.0", allowed_hosts=("rerank.example",)))
    assert named == {"0.0.0.0", "localhost", "127.0.0.1", "::1", "rerank.example"}


# -- operations


def test_a_busy_worker_is_seen_by_the_gauges_and_a_stuck_one_by_ready(monkeypatch):
    begun, go = threading.Event(), threading.Event()

    def held(query, texts):
        if query == QUERY:
            begun.set()
            assert go.wait(120)
        return [0.5] * len(texts)

    def gauges():
        lines = client.get("/metrics").text.splitlines()
        return {
            line.split()[0]: float(line.split()[1]) for line in lines if line.startswith(("steadyscore_busy", "steadyscore_old"))
        }

    with TestClient(app_of(model(Double(held)))) as client, ThreadPoolExecutor(1) as threads:
        until(lambda: client.get("/ready").status_code == 200)
        assert gauges() == {"steadyscore_busy_workers": 0, "steadyscore_oldest_pass_seconds": 0}
        asked = threads.submit(client.post, "/v1/rerank", json=ASKED)
        assert begun.wait(120)
        assert gauges()["steadyscore_busy_workers"] == 1
        assert client.get("/ready").status_code == 200
        monkeypatch.setattr("steadyscore.serve.batcher.time", SimpleNamespace(monotonic=lambda: time.monotonic() + 61))
        assert gauges()["steadyscore_oldest_pass_seconds"] > 60
        stuck = client.get("/ready")
        assert (stuck.status_code, stuck.json()) == (503, {"status": "busy: a pass has taken more than 60 s"})
        assert client.get("/health").status_code == 200
        go.set()
        assert asked.result().status_code == 200
        assert client.get("/ready").status_code == 200


def test_a_window_of_too_many_tokens_is_refused_with_both_numbers(tiny_engine):
    app = app_of(model(tiny_engine, prompt="set"), limits=Limits(window_tokens=300))
    with TestClient(app) as client:
        refused = client.post("/v1/rerank", json={"query": QUERY, "documents": [f"document {i} " * 3 for i in range(50)]})
        assert refused.status_code == 422
        needs, takes = re.search(r"has ([\d,]+) tokens, the server takes ([\d,]+)\.", refused.json()["message"]).groups()
        assert int(needs.replace(",", "")) > int(takes) == 300
        assert client.get("/metrics").text.count("steadyscore_engine_seconds_total") > 0


def test_models_health_and_metrics(client):
    post(client, "/v1/rerank", **ASKED)
    models = client.get("/v1/models").json()["data"]
    assert [m["id"] for m in models] == ["planted", "steady"]
    assert models[1]["order"]["cutoff"] == 0.4
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    page = client.get("/metrics").text
    for name in ("request_seconds_bucket", "windows_total", "batch_windows_bucket", "queue_windows", "tied_neighbours_total"):
        assert f"steadyscore_{name}" in page
    assert 'route="/v1/rerank"' in page


def test_an_unknown_path_does_not_grow_the_metrics(client):
    assert client.get("/" + "x" * 50).status_code == 404
    assert "xxxxx" not in client.get("/metrics").text


def test_a_log_line_counts_and_does_not_quote(client, caplog):
    with caplog.at_level(logging.INFO, "steadyscore.serve"):
        post(client, "/v1/rerank", **ASKED)
    line = json.loads(JsonLines().format(caplog.records[-1]))
    assert line["event"] == "request"
    assert line["documents"] == 4
    assert line["status"] == 200
    assert not any(word in json.dumps(line) for word in ("lisbon", "portugal"))


def test_models_are_reloaded_and_what_runs_keeps_its_own():
    """A request that is being scored while the models are opened again ends with the model it began with."""
    begun, go = threading.Event(), threading.Event()

    def first(query, texts):
        if query == QUERY:
            begun.set()
            assert go.wait(120)
        return [0.25] * len(texts)

    versions = iter([first, lambda query, texts: [0.75] * len(texts)])
    service = Service(lambda: {"planted": model(Double(next(versions)))}, Limits(workers=2))
    before = service.models["planted"]
    app = create_app(service, ServerSettings(allowed_hosts=("testserver",)), Metrics())
    with TestClient(app) as client, ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, client, "/v1/rerank", **ASKED)
        assert begun.wait(120)
        service.reload()
        assert service.models["planted"] is not before
        assert [row["relevance_score"] for row in post(client, "/v1/rerank", query="new", documents=["a"])["results"]] == [0.75]
        assert not running.done()
        go.set()
        assert [row["relevance_score"] for row in running.result()["results"]] == [0.25] * 4


def test_the_monitor_sees_a_planted_order_effect_and_none_in_a_steady_scorer():
    steady = model(Double(lambda query, texts: [len(text) / 100 for text in texts]), "steady")
    with TestClient(app_of(planted("slot", 2.0), steady, monitor_share=1.0)) as client:
        for i in range(8):
            for name in ("planted", "steady"):
                post(client, "/v1/rerank", query=f"{QUERY} {i}", documents=DOCUMENTS, top_n=1, model=name)
        for name in ("planted", "steady"):
            page = wait_for(lambda: client.get("/metrics").text, f'stability_samples_total{{model="{name}"}} 8.0')
    assert figure(page, "top1_flips_total", "planted") >= 1, "with an effect of 2.0 the first document is the first in the prompt"
    assert figure(page, "top1_flips_total", "steady") == 0
    assert figure(page, "overlap_sum", "steady") == figure(page, "overlap_count", "steady") == 8


def figure(page, name, of_model):
    """A figure of the monitor; a counter that was never raised is not on the page."""
    _, found, rest = page.partition(f'steadyscore_stability_{name}{{model="{of_model}"}} ')
    return float(rest.split()[0]) if found else 0.0


def test_the_monitor_asks_again_at_the_width_of_the_request():
    """At width 1 the effect of the slot is the same for every document, and no order can change anything."""
    with TestClient(app_of(planted("slot", 2.0), monitor_share=1.0)) as client:
        for i in range(4):
            post(client, "/v1/decide", query=f"{QUERY} {i}", documents=DOCUMENTS, decision={"top_k": 1}, width=1)
            post(client, "/v1/rerank", query=f"{QUERY} {i}", documents=DOCUMENTS, top_n=1, order={"width": 1})
        page = wait_for(lambda: client.get("/metrics").text, 'stability_samples_total{model="planted"} 8.0')
    assert figure(page, "top1_flips_total", "planted") == 0


def test_the_monitor_leaves_order_free_scorers_and_single_documents_alone():
    metrics = Metrics()
    steady, moved = planted("none", name="steady"), planted("slot")
    service = service_of(steady, moved)
    monitor = Monitor(service, metrics, 1.0, pause=0.01)
    monitor.offer(steady, instance_of(QUERY, DOCUMENTS), None, np.zeros(4))
    monitor.offer(moved, instance_of(QUERY, ["one"]), None, np.zeros(1))
    monitor.offer(moved, instance_of(QUERY, DOCUMENTS), None, np.zeros(4))
    page = wait_for(lambda: metrics.page().decode(), "stability_samples_total{")
    monitor.close()
    service.close()
    assert "steady" not in page.replace("steadyscore", "")
    assert 'stability_samples_total{model="planted"} 1.0' in page, "the last one, and those before it were never kept"


def test_the_monitor_outlives_a_scorer_that_fails_and_says_so(caplog):
    """The samples after a fault are scored, and the fault is counted and its place logged, without its message."""
    calls = []

    def fails_first(query, texts):
        calls.append(query)
        if len(calls) == 1:
            raise RuntimeError(f"cannot score {texts}")
        return [float(len(text)) for text in texts]

    metrics, service = Metrics(), service_of(model(Double(fails_first)))
    monitor = Monitor(service, metrics, 1.0, pause=0.01)
    with caplog.at_level(logging.INFO, "steadyscore.serve"):
        for _ in range(2):
            monitor.offer(service.models["planted"], instance_of(QUERY, DOCUMENTS), None, np.zeros(4))
        found = wait_for(lambda: metrics.page().decode(), 'stability_samples_total{model="planted"} 1.0')
    monitor.close()
    service.close()
    assert 'steadyscore_stability_failures_total{model="planted"} 1.0' in found
    (line,) = [json.loads(JsonLines().format(record)) for record in caplog.records]
    assert (line["event"], line["model"], line["fault"]) == ("monitor failed", "planted", "RuntimeError")
    assert "in fails_first" in line["place"]
    assert "lisbon" not in json.dumps(line)


def wait_for(look, words):
    """What is shown, once it has these words."""
    return until(lambda: shown if words in (shown := look()) else "")


def test_a_failed_warm_up_is_logged_shown_and_tried_again(caplog, monkeypatch):
    """An endpoint may come up after the server does; until then /ready says what failed, and the log in which words."""
    monkeypatch.setattr("steadyscore.serve.app.FIRST_PAUSE", 0.2)
    calls, up = [], threading.Event()

    def comes_up_late(query, texts):
        calls.append(query)
        if not up.is_set():
            raise ConnectionError("nobody listens")
        return [float(len(text)) for text in texts]

    steady = []
    other = model(Double(lambda query, texts: steady.append(query) or [0.0] * len(texts)), "other")
    app = app_of(model(Double(comes_up_late)), other)
    with caplog.at_level(logging.INFO, "steadyscore.serve"), TestClient(app) as client:
        state = wait_for(lambda: client.get("/ready").text, "ConnectionError")
        assert json.loads(state) == {"status": "warming up: the scorer of planted failed (ConnectionError) and is tried again"}
        assert client.get("/ready").status_code == 503
        until(lambda: len(calls) > 1)
        up.set()
        wait_for(lambda: client.get("/ready").text, '"ready"')
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records if record.getMessage() == "warm-up failed"]
    assert [(line["model"], line["fault"], line["words"]) for line in lines] == [
        ("planted", "ConnectionError", "nobody listens")
    ] * (len(calls) - 1)
    assert "in comes_up_late" in lines[0]["place"]
    assert len(steady) == 1, "a model that is warm is not asked again"


def test_a_server_that_never_warms_up_still_ends():
    def down(query, texts):
        raise ConnectionError("nobody listens")

    began = time.monotonic()
    with TestClient(app_of(model(Double(down)))) as client:
        wait_for(lambda: client.get("/ready").text, "ConnectionError")
    assert time.monotonic() - began < 120


# -- fields that clients send


def test_voyages_request_gets_voyages_rows_beside_those_of_jina(client):
    answer = post(client, "/v1/rerank", **ASKED, top_k=2, truncation=True, return_documents=True)
    assert [row["index"] for row in answer["data"]] == [row["index"] for row in answer["results"]]
    assert answer["data"][0]["document"] == DOCUMENTS[answer["data"][0]["index"]]
    assert len(answer["data"]) == 2
    assert "document" not in post(client, "/v1/rerank", **ASKED, truncation=True)["data"][0]
    assert "data" not in post(client, "/v1/rerank", **ASKED)
    refused = client.post("/v1/rerank", json=ASKED | {"truncation": False})
    assert "truncation is not honoured here" in refused.json()["message"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank", "/rerank"])
def test_top_k_is_another_name_of_top_n(client, path):
    by_n, by_k = (post(client, path, **ASKED, **{name: 2})["results"] for name in ("top_n", "top_k"))
    assert by_n == by_k
    refused = client.post(path, json=ASKED | {"top_n": 1, "top_k": 2})
    assert refused.json()["message"].endswith("top_n and top_k are two names of one number. Give one of them.")


def test_every_answer_says_how_long_it_took_and_what(client):
    answer = client.post("/v2/rerank", json=ASKED | {"order": {"permutations": 3}}, headers={"X-Request-Id": "order/7:a"})
    assert answer.headers["x-request-id"] == "order/7:a"
    assert re.fullmatch(r"total;dur=\d+\.\d", answer.headers["server-timing"])
    assert [answer.headers[f"steadyscore-{name}"] for name in ("presentations", "windows", "tokens")] == ["3", "3", "0"]
    assert answer.json()["meta"]["tokens"] == {"input_tokens": 0}


@pytest.mark.parametrize("sent", ["", "two words", "x" * 129, "<b>", "\xe9"])
def test_an_id_that_does_not_belong_in_a_log_is_replaced(client, sent):
    answer = client.get("/health", headers={"X-Request-Id": sent.encode("latin-1")})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])
