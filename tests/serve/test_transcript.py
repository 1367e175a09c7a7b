"""What a server answers on every route, with its refusals and its specification, against files that were frozen before.

`STEADYSCORE_FREEZE=1 pytest tests/serve/test_transcript.py` writes them anew: after a change that is meant to change answers.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from steadyscore.serve.settings import Limits
from tests.helpers.paths import TESTS
from tests.helpers.serving import DOCUMENTS, QUERY, Double, app_of, model, planted
from tests.helpers.waiting import until

FREEZE = bool(os.environ.get("STEADYSCORE_FREEZE"))
DIGITS = 1e-4
"""Numbers of a tiny model differ by less between two machines."""
NOT_FROZEN = ("content-length", "date", "x-request-id", "server-timing")

KEYED = {"Authorization": "Bearer key"}
ASKED = {"query": QUERY, "documents": DOCUMENTS}
RANKED = {"query": QUERY, "documents": [{"text": text, "rank": 4 - i, "title": f"t{i}"} for i, text in enumerate(DOCUMENTS)]}
TEI = {"query": QUERY, "texts": DOCUMENTS}
SCORE = {"queries": QUERY, "documents": DOCUMENTS}
SEVERAL = {"order": {"permutations": 3, "seed": 5, "threshold": 0.4, "distribution": True, "width": 2}}
MEMBERS = [{"id": f"d{i}", "text": text} for i, text in enumerate(DOCUMENTS)]
FOUR = ["not relevant", "background", "relevant", "answers the query"]
GRADED = {m["id"]: {"type": "score", "instructions": f"How relevant is {m['id']}?", "criteria": FOUR} for m in MEMBERS}
STATE = {"state": {"query": QUERY, "candidates": MEMBERS}}
KINDS = {
    "yes": {"type": "noul", "instructions": "Is it about Portugal?", "criteria": {"true": "it names a town there"}},
    "which": {"type": "choice", "instructions": "Which topic?", "criteria": {"towns": "towns and rivers", "bread": None}},
    "how": {"type": "score", "criteria": ["not", "somewhat", "very"]},
}
LISTED = [
    {"type": "predicate", "instructions": "Is it a greeting?"},
    {
        "type": "choice",
        "name": "which",
        "instructions": "Which?",
        "choices": [{"value": True}, {"value": "b", "description": "x"}],
    },
    {"type": "score", "name": "how", "instructions": "How?", "levels": [{"label": "lo"}, {"label": "hi", "description": "x"}]},
    {"type": "predicate", "name": "long", "instructions": "x" * 5000},
]
TALK = [
    {"role": "system", "content": "a shop"},
    {"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}, {"type": "text", "text": "hello"}]},
]
CHOICE = {"type": "choice", "instructions": "?"}
NAMED = {"type": "predicate", "name": "a", "instructions": "?"}
POSTS: dict[str, tuple[str, Any]] = {
    "jina": ("/v1/rerank", ASKED | {"model": "planted", "top_n": 2}),
    "jina, an alias": ("/v1/rerank", ASKED | {"model": "gpt-6-luna", "return_documents": False}),
    "jina, objects": ("/v1/rerank", RANKED | {"order": {}}),
    "jina, a model that counts tokens": (
        "/v1/rerank",
        ASKED | {"model": "tiny", "max_tokens_per_doc": 5, "instruction": "Towns."},
    ),
    "cohere": ("/v2/rerank", ASKED | {"top_n": 3}),
    "cohere, orders": ("/v2/rerank", ASKED | SEVERAL | {"model": "tiny"}),
    "canonical": ("/v2/rerank", ASKED | {"order": {"canonical": True}}),
    "tei": ("/rerank", TEI),
    "tei, every field": ("/rerank", TEI | {"raw_scores": True, "return_text": True, "truncate": True, "model": "tiny"}),
    "tei, cut at the left": ("/rerank", TEI | {"truncate": True, "truncation_direction": "Left", "top_n": 1, "model": "tiny"}),
    "vllm": ("/rerank", ASKED | {"top_n": 0, "return_documents": True}),
    "voyage": ("/v1/rerank", ASKED | {"top_k": 2, "truncation": True}),
    "voyage, as it is read": ("/v1/rerank", ASKED | {"truncation": True, "model": "steady"}),
    "score": ("/score", SCORE),
    "score, older names": ("/v1/score", {"text_1": [QUERY, "q"], "text_2": ["a", "b"], "model": "tiny"}),
    "score, both names": ("/score", SCORE | {"text_1": "x", "text_2": ["y"] * 9}),
    "score, newer names without a value": ("/score", {"queries": None, "text_1": "q", "documents": None, "text_2": "d"}),
    "decide, a threshold": ("/v1/decide", ASKED | {"decision": {"threshold": 0.5}, "return_documents": True}),
    "decide, a budget": ("/v1/decide", ASKED | {"decision": {"top_k": 2}, "permutations": 6, "adaptive": False}),
    "decide, a pair": ("/v1/decide", ASKED | {"decision": {"pair": True}, "permutations": 4}),
    "decide, the model's cutoff": ("/v1/decide", ASKED | {"model": "steady", "permutations": 8}),
    "decide, grades": ("/v1/decide", ASKED | {"model": "tiny", "decision": {"threshold": 0.5}, "permutations": 3, "width": 2}),
    "audit": ("/v1/audit", ASKED | {"permutations": 4, "threshold": 0.5, "seed": 3}),
    "systemone": ("/v1/systemone", STATE | {"model": "tiny", "questions": KINDS, "instructions": "Be strict."}),
    "systemone, a text": ("/v1/systemone", {"state": "Porto.", "model": "tiny", "questions": {"a": {"type": "noul"}}}),
    "systemone, orders": (
        "/v1/systemone",
        STATE | {"model": "tiny", "questions": GRADED, "order": {"permutations": 3, "threshold": 1.5}},
    ),
    "systemone, alone": ("/v1/systemone", STATE | {"model": "tiny", "questions": GRADED, "order": {"readout": "alone"}}),
    "systemone, the window": ("/v1/systemone", STATE | {"model": "tiny", "questions": GRADED, "order": {"readout": "window"}}),
    "decisions": ("/v1/decisions", {"model": "tiny", "input": "good morning", "questions": LISTED}),
    "decisions, a conversation": ("/v1/decisions", {"model": "tiny", "input": TALK, "questions": LISTED[:3], "order": {}}),
    "no such model": ("/v1/rerank", ASKED | {"model": "gpt"}),
    "no such field of ours": ("/v1/decide", ASKED | {"decision": {"top_k": 1}, "priority": 3}),
    "no such field of an order": ("/v1/rerank", ASKED | {"order": {"permutatons": 8}}),
    "no query and no documents": ("/v1/rerank", {}),
    "no documents": ("/v1/rerank", {"query": "q", "documents": []}),
    "not an object": ("/v1/rerank", [1]),
    "a number for a document": ("/v1/rerank", {"query": "q", "documents": ["a", 3]}),
    "half of a rank": ("/v1/rerank", {"query": "q", "documents": [{"text": "a", "rank": 1}, "b"]}),
    "two orders": ("/v1/rerank", ASKED | {"order": {"canonical": True, "permutations": 4}}),
    "too many permutations": ("/v1/rerank", ASKED | {"order": {"permutations": 1000}}),
    "tokens that nobody counts": ("/v1/rerank", ASKED | {"max_tokens_per_doc": 5}),
    "an instruction that nobody reads": ("/v1/rerank", ASKED | {"instruction": "Towns."}),
    "texts and documents": ("/rerank", ASKED | TEI),
    "neither texts nor documents": ("/rerank", {"query": "q"}),
    "tei's flag without its texts": ("/rerank", ASKED | {"raw_scores": True}),
    "tei, a text that is too long": ("/rerank", {"query": "q", "texts": ["x" * 1300], "truncate": False}),
    "pairs that do not pair": ("/score", {"queries": ["a", "b", "c"], "documents": ["a", "b"]}),
    "no queries": ("/score", {"documents": ["a", "b"]}),
    "no cutoff": ("/v1/decide", ASKED),
    "two decisions": ("/v1/decide", ASKED | {"decision": {"top_k": 1, "pair": True}}),
    "a pair of one": ("/v1/decide", {"query": "q", "documents": ["a"], "decision": {"pair": True}}),
    "an audit of one order": ("/v1/audit", ASKED | {"permutations": 1}),
    "a model without labels": ("/v1/systemone", STATE | {"model": "planted", "questions": KINDS}),
    "questions of no kind": ("/v1/systemone", STATE | {"model": "tiny", "questions": {"a": {"type": "rank"}}}),
    "no questions": ("/v1/systemone", STATE | {"model": "tiny", "questions": {}}),
    "no state": ("/v1/systemone", {"model": "tiny", "questions": KINDS}),
    "mistakes of questions": (
        "/v1/systemone",
        {
            "state": "x",
            "model": "tiny",
            "questions": {
                "a": {"type": "noul", "extra": 1},
                "b": {"type": "score", "criteria": ["one"]},
                "c": {"type": "choice", "criteria": {"x": 1, "y": None}},
                "d": {"type": "choice", "criteria": dict.fromkeys(map(str, range(27)))},
            },
        },
    ),
    "a member that is not there": (
        "/v1/systemone",
        STATE | {"model": "tiny", "questions": KINDS, "order": {"readout": "alone"}},
    ),
    "a list that is not there": (
        "/v1/systemone",
        STATE | {"model": "tiny", "questions": KINDS, "order": {"permutations": 2, "pool": "$.members"}},
    ),
    "a state that is too long": ("/v1/systemone", {"state": "x" * 5000, "model": "tiny", "questions": KINDS}),
    "names twice": ("/v1/decisions", {"model": "tiny", "input": "x", "questions": [NAMED, NAMED]}),
    "values twice": (
        "/v1/decisions",
        {"model": "tiny", "input": "x", "questions": [CHOICE | {"choices": [{"value": "true"}, {"value": True}]}]},
    ),
    "no input": ("/v1/decisions", {"model": "tiny", "questions": LISTED[:1]}),
    "mistakes of listed questions": (
        "/v1/decisions",
        {"model": "tiny", "input": "x", "questions": [{"type": "predicate"}, CHOICE | {"choices": [{"value": 1}]}]},
    ),
}
GETS = ("/v1/models", "/health", "/ready", "/nowhere", "/v1/rerank")


def transcript_of(client: TestClient, method: str, path: str, **how: Any) -> dict[str, Any]:
    answer = client.request(method, path, **how)
    headers = {name: value for name, value in answer.headers.items() if name not in NOT_FROZEN}
    body = answer.json() if answer.headers["content-type"] == "application/json" else answer.text[:80]
    return {"status": answer.status_code, "headers": headers, "body": without_chance(body)}


def without_chance(value: Any, key: str = "") -> Any:
    """Without ids and times."""
    if isinstance(value, dict):
        return {k: without_chance(v, k) for k, v in value.items()}
    if isinstance(value, list):
        return [without_chance(v) for v in value]
    if key == "created":
        return "<time>"
    return re.sub(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>", value) if key == "id" else value


def differences(found: Any, frozen: Any, place: str = "") -> list[str]:
    """Where two values differ; the order of keys counts, which clients see."""
    if isinstance(found, dict) and isinstance(frozen, dict):
        if list(found) != list(frozen):
            return [f"{place}: {list(found)}, frozen {list(frozen)}"]
        return [each for key in found for each in differences(found[key], frozen[key], f"{place}/{key}")]
    if isinstance(found, list) and isinstance(frozen, list) and len(found) == len(frozen):
        return [each for i, pair in enumerate(zip(found, frozen, strict=True)) for each in differences(*pair, f"{place}/{i}")]
    same = found == pytest.approx(frozen, abs=DIGITS) if isinstance(frozen, float) else found == frozen
    return [] if same and type(found) is type(frozen) else [f"{place}: {found!r}, frozen {frozen!r}"]


def check_frozen(file: Path, found: dict[str, Any]) -> None:
    if FREEZE:
        file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    assert differences(found, json.loads(file.read_text())) == []


def in_order(value: Any) -> Any:
    """With the keys of every object sorted."""
    return json.loads(json.dumps(value, sort_keys=True))


def broken(query: str, texts: Any) -> list[float]:
    if query == QUERY:
        raise KeyError("secret")
    return [0.5] * len(texts)


def slow(query: str, texts: Any) -> list[float]:
    if query == QUERY:
        time.sleep(0.5)
    return [0.5] * len(texts)


def opened(app: Any, ask: Callable[[TestClient], dict[str, Any]]) -> dict[str, Any]:
    with TestClient(app) as client:
        return ask(client)


def test_every_route_answers_what_it_answered(tiny_engine):
    steady = planted("none", name="steady", cutoff=0.4, expected_overlap=0.97)
    app = app_of(planted(), steady, model(tiny_engine, "tiny"), aliases=(("gpt-6-luna", "planted"),))

    def ask(client: TestClient) -> dict[str, Any]:
        until(lambda: client.get("/ready").status_code == 200)
        posts = {name: transcript_of(client, "POST", path, json=body) for name, (path, body) in POSTS.items()}
        gets = {path: transcript_of(client, "GET", path) for path in GETS}
        not_json = transcript_of(client, "POST", "/v1/rerank", content=b"{", headers={"Content-Type": "application/json"})
        page = client.get("/metrics")
        shown = sorted(line.removeprefix("# TYPE ") for line in page.text.splitlines() if line.startswith("# TYPE"))
        metrics = {"content-type": page.headers["content-type"], "types": shown}
        app.state.service.close()
        closed = {
            "closed": transcript_of(client, "POST", "/v1/rerank", json=ASKED),
            **{f"closed {path}": transcript_of(client, "GET", path) for path in ("/health", "/ready")},
        }
        return posts | gets | {"not json": not_json, "metrics": metrics} | closed

    found = opened(app, ask)
    found |= opened(app_of(planted(), keys=("key",)), refused_at_the_door)
    found["busy"] = opened(app_of(planted(), limits=Limits(queue_windows=4)), ask_beside_others)
    for name, function, limits in (("engine failed", broken, Limits()), ("out of time", slow, Limits(seconds=0.05))):
        failing = app_of(model(Double(function)), limits=limits)
        found[name] = opened(failing, lambda client: transcript_of(client, "POST", "/v1/rerank", json=ASKED))
    small = app_of(
        model(tiny_engine), limits=Limits(candidates=3, query_chars=5, document_chars=9, window_tokens=99, body_bytes=999)
    )
    for name, body in (
        ("every limit", ASKED),
        ("window too long", {"query": "q", "documents": ["d"] * 3}),
        ("body too large", {"query": "q", "documents": ["d" * 999]}),
    ):
        found[name] = opened(small_again(small), lambda client, body=body: transcript_of(client, "POST", "/v1/rerank", json=body))
    check_frozen(TESTS / "golden" / "server.json", found)


def ask_beside_others(client: TestClient) -> dict[str, Any]:
    until(lambda: client.get("/ready").status_code == 200)
    with client.app.state.service.batcher.admit(4, 60):
        return transcript_of(client, "POST", "/v1/rerank", json=ASKED)


def small_again(app: Any) -> Any:
    """A new application like one: a TestClient closes the service that it was given."""
    service = app.state.service
    return app_of(*service.models.values(), limits=service.limits)


def refused_at_the_door(client: TestClient) -> dict[str, Any]:
    body = json.dumps(ASKED).encode()
    heads = {
        "no token": {},
        "wrong token": {"Authorization": "Bearer other"},
        "another host": KEYED | {"Host": "evil.example"},
        "packed": KEYED | {"Content-Encoding": "gzip"},
        "a size that is no number": KEYED | {"Content-Length": "many"},
    }
    found = {name: transcript_of(client, "POST", "/v1/rerank", content=body, headers=head) for name, head in heads.items()}
    twice = [("Authorization", "Bearer key"), ("Authorization", "Bearer other")]
    return found | {
        "two tokens": transcript_of(client, "POST", "/v1/rerank", content=body, headers=twice),
        "metrics without a token": transcript_of(client, "GET", "/metrics"),
        "a route that needs none": transcript_of(client, "GET", "/health"),
    }


def test_the_specification_is_what_it_was():
    app = app_of(planted(), keys=("key",), limits=Limits(candidates=9))
    check_frozen(TESTS / "golden" / "openapi.json", opened(app, lambda client: in_order(client.get("/openapi.json").json())))
