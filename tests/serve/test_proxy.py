"""A server in front of a scorer that order moves: decisions that hold, and what they cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from starlette.testclient import TestClient

from steadyscore.commands import serve
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError
from steadyscore.serve import service
from steadyscore.serve.service import ModelOptions, open_model
from steadyscore.window.presentation import permutations
from tests.helpers import decision_server
from tests.helpers.endpoint import Server
from tests.helpers.serving import QUERY, Double, app_of, listening, model, planted
from tests.helpers.waiting import until

TEXTS = [f"note {i} " + " ".join(QUERY.split()[: i % 5]) for i in range(10)]
ORDERS = permutations(10, 12, seed=0, query_id="proxy")


@contextmanager
def in_front_of(size: float, *flags: str, counted: list[int] | None = None) -> Iterator[TestClient]:
    """A proxy of a rerank server on loopback whose scores have a planted slot effect."""
    scorer = SyntheticReranker("slot", size)

    def score(query: str, texts: list[str]) -> list[float]:
        if counted is not None:
            counted.append(len(texts))
        return scorer.score(query, texts)

    with listening(app_of(model(Double(score)))) as url:
        parser = argparse.ArgumentParser()
        serve.arguments(parser)
        args = parser.parse_args([f"steady=rerank+cohere:{url}/v2/rerank", *flags])
        with TestClient(app_of(*serve.open_models(args.scorers, args).values())) as client:
            yield client


def kept(client: TestClient, places: np.ndarray, **asked: object) -> set[str]:
    answer = client.post("/v2/rerank", json={"query": QUERY, "documents": [TEXTS[i] for i in places], "top_n": 3} | asked)
    assert answer.status_code == 200, answer.text
    return {TEXTS[places[row["index"]]] for row in answer.json()["results"]}


def test_a_proxy_turns_decisions_that_flip_into_ones_that_hold():
    with in_front_of(0.1) as plain:
        before = [kept(plain, order) for order in ORDERS]
    with in_front_of(0.1, "--mitigation", "adaptive:10") as steady:
        after = [kept(steady, order) for order in ORDERS]
        stated = [kept(steady, order, order={"permutations": 2}) for order in ORDERS]
    assert any(each != before[0] for each in before)
    assert all(each == after[0] for each in after), "its orders depend on the documents alone"
    assert any(each != stated[0] for each in stated), "a request that states its orders gets those"


def test_equal_scores_do_not_depend_on_who_was_sent_first():
    """A hosted model that writes whole grades gives many of them."""
    tied = planted("ties", mitigation=open_model("m", "synthetic:slot", ModelOptions(mitigation="adaptive:4")).mitigation)
    with TestClient(app_of(tied)) as client:
        assert len({frozenset(kept(client, order)) for order in ORDERS}) == 1
        decided = []
        for order in ORDERS:
            asked = {"query": QUERY, "documents": [TEXTS[i] for i in order], "decision": {"top_k": 3}}
            answer = client.post("/v1/decide", json=asked).json()
            assert answer["decision"]["kept"] == [row["index"] for row in answer["results"] if row["role"] == "kept"]
            decided.append([TEXTS[order[i]] for i in answer["decision"]["kept"]])
    assert all(each == decided[0] for each in decided)


def test_a_proxy_of_a_decision_model_holds_too(monkeypatch, tmp_path):
    decision_server.ask_in_a_hurry(monkeypatch, tmp_path)
    behind = decision_server.DecisionServer(slot=0.5)
    with Server(behind.answer, decision_server.spoiled) as server:
        parser = argparse.ArgumentParser()
        serve.arguments(parser)
        args = parser.parse_args([f"steady=systemone:m@{server.url}", "--mitigation", "adaptive:6"])
        with TestClient(app_of(*serve.open_models(args.scorers, args).values())) as client:
            decided = [kept(client, order) for order in ORDERS[:4]]
    assert all(each == decided[0] for each in decided)


def test_a_pool_of_one_is_served_where_pairs_are_decided():
    with in_front_of(0.1, "--mitigation", "adaptive:4:pair") as client:
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS[:1]})
    assert [row["index"] for row in answer.json()["results"]] == [0]


def test_headers_and_metrics_say_what_a_decision_cost():
    counted: list[int] = []
    with in_front_of(0.02, "--mitigation", "adaptive:10", counted=counted) as client:
        until(lambda: client.get("/ready").status_code == 200)  # before, warming up may be counted
        del counted[:]
        answer = client.post("/v1/rerank", json={"query": QUERY, "documents": TEXTS, "top_n": 1})
        made = len(counted)
        assert 2 <= made < 10
        assert answer.headers["steadyscore-presentations"] == answer.headers["steadyscore-windows"] == str(made)
        page = client.get("/metrics").text
        assert f'steadyscore_presentations_total{{model="steady"}} {made}.0' in page
        assert f'steadyscore_presentations_spared_total{{model="steady"}} {10 - made}.0' in page


@pytest.mark.parametrize(
    ("asked", "kind"),
    [({"order": {"threshold": 0.5}}, "cutoff"), ({"top_n": 2}, "top"), ({}, "own"), ({"order": {}}, "own")],
)
def test_the_decision_is_the_requests_else_the_servers(monkeypatch, asked, kind):
    seen = []
    real = service.present_until_decided
    monkeypatch.setattr(
        "steadyscore.serve.service.present_until_decided",
        lambda score, orders, rule, places: seen.append(rule) or real(score, orders, rule, places),
    )
    own = planted(mitigation=open_model("m", "synthetic:slot", ModelOptions(mitigation="adaptive:8:share=0.4")).mitigation)
    with TestClient(app_of(own)) as client:
        answer = client.post("/rerank", json={"query": QUERY, "documents": TEXTS} | asked)
        assert client.post("/score", json={"queries": QUERY, "documents": TEXTS}).status_code == 200
    told = answer.json().get("order", {})
    assert [getattr(rule, "k", None) for rule in seen[:1]] == [{"cutoff": None, "top": 2, "own": 4}[kind]]
    assert seen[1].k == 4
    if "order" in asked:
        assert told["asked"] == 8
        assert told["permutations"] <= 8


def test_a_request_can_ask_for_it_on_any_server():
    with TestClient(app_of(planted(size=0.02))) as client:
        asked = {"query": QUERY, "documents": TEXTS, "top_n": 1, "order": {"permutations": 10, "adaptive": True}}
        told = client.post("/v1/rerank", json=asked).json()["order"]
        all_ten = client.post("/v1/rerank", json=asked | {"order": {"permutations": 10}}).json()["order"]
    assert (told["asked"], told["stopped"]) == (10, "settled")
    assert told["permutations"] < all_ten["permutations"] == 10
    assert "stopped" not in all_ten


def test_a_share_of_the_documents_is_a_decision():
    with TestClient(app_of(planted())) as client:
        asked = {"query": QUERY, "documents": TEXTS, "decision": {"share": 0.25}, "permutations": 4}
        answer = client.post("/v1/decide", json=asked).json()
        refused = client.post("/v1/decide", json=asked | {"decision": {"share": 1.5}})
    assert answer["decision"]["k"] == len(answer["decision"]["kept"]) == 3
    assert refused.status_code == 422
    assert refused.json()["message"] == "decision.share: input should be less than 1."


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("borda:3", "a server does not offer borda:3. Give adaptive:K or self-consistency:K."),
        ("adaptive:65", "adaptive:65 presents a pool 65 times, the server takes 64."),
        ("adaptive:8:best", "'best' is not a decision."),
        ("magic", "unknown mitigation 'magic'."),
    ],
)
def test_what_a_server_does_not_offer_is_refused_before_anything_is_opened(name, words):
    with pytest.raises(InputError, match=words.replace(".", r"\.")):
        open_model("m", "synthetic:nothing", ModelOptions(mitigation=name))
