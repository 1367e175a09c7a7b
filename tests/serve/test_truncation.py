"""What is read of a document where a request says how much: Cohere's tokens, TEI's truncate and its direction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from steadyscore.errors import InputError, WindowTooLong
from steadyscore.serve.service import instance_of
from steadyscore.serve.truncation import cut_to_tokens, first_tokens, truncate_texts
from tests.helpers.serving import QUERY, Double, app_of, model

GIVEN = np.arange(3)[None]


class Words:
    """An encoder whose tokens are words."""

    def plain(self, text):
        return text.split()


@given(st.text(alphabet="ab ", max_size=60), st.integers(1, 12))
def test_the_longest_beginning_that_has_so_many_tokens(text, count):
    kept = first_tokens(text, count, Words())
    assert text.startswith(kept)
    assert len(kept.split()) <= count
    assert kept == text or len(text[: len(kept) + 1].split()) > count


def test_tokens_are_the_tokenizer_s_and_count_the_title(tiny_engine):
    served = model(tiny_engine, chars=40)
    pool = instance_of("q", ["one two three " * 9, "short"], ["Title", None])
    found = cut_to_tokens(pool, served, 9)
    assert [c.text for c in found.pool] == ["Title one", "short"], "the tiny tokenizer's tokens are bytes"
    assert [c.id for c in found.pool] == [c.id for c in pool.pool]
    assert [len(c.text) for c in cut_to_tokens(pool, served, None, 4096).pool] == [40, 5], "never more than the server reads"
    assert cut_to_tokens(pool, served, None) is pool


def test_a_scorer_without_a_tokenizer_counts_no_tokens():
    served, pool = model(Double(len)), instance_of("q", ["a"])
    assert cut_to_tokens(pool, served, None, 4096) is pool
    with pytest.raises(InputError, match="no tokenizer that counts max_tokens_per_doc"):
        cut_to_tokens(pool, served, 100)


def test_tei_cuts_refuses_or_does_as_the_server(tiny_engine):
    served, pool = model(tiny_engine, chars=10), instance_of("q", ["0123456789abc", "short", "0123456789x"])
    assert [c.text for c in truncate_texts(pool, served, GIVEN, None).pool] == ["0123456789", "short", "0123456789"]
    assert [c.text for c in truncate_texts(pool, served, GIVEN, True, "left").pool] == ["3456789abc", "short", "123456789x"]
    with pytest.raises(InputError, match="text 0 has 13 characters, planted reads 10; 1 more are too long"):
        truncate_texts(pool, served, GIVEN, False)
    fits = instance_of("q", ["a", "b", "c"])
    assert truncate_texts(fits, served, GIVEN, False) == fits


@pytest.mark.parametrize("direction", ["left", "right"])
def test_tei_cuts_further_until_every_window_fits(tiny_engine, direction):
    served = model(tiny_engine, chars=4000, width=3)
    pool = instance_of("q", ["a" + "-" * 3000 + "z"] * 3)
    found = truncate_texts(pool, served, GIVEN, True, direction)
    kept = [c.text for c in found.pool]
    assert all(500 < len(text) < 1500 for text in kept), "as much as fits 4,096 tokens, and not much less"
    assert {(text[0], text[-1]) for text in kept} == {("-", "z") if direction == "left" else ("a", "-")}
    served.scorer().score(found)
    for truncate in (False, None):
        with pytest.raises(WindowTooLong):
            truncate_texts(pool, served, GIVEN, truncate, direction)
    assert truncate_texts(pool, model(tiny_engine, chars=4000, width=3, fit="shrink"), GIVEN, None, direction) == found


def test_a_query_that_leaves_no_room_is_refused(tiny_engine):
    with pytest.raises(WindowTooLong):
        truncate_texts(instance_of("q" * 5000, ["a", "b", "c"]), model(tiny_engine), GIVEN, True)


@pytest.fixture(scope="module")
def client(tiny_engine):
    with TestClient(app_of(model(tiny_engine, chars=60, width=3))) as made:
        yield made


TEXTS = ["the capital of portugal is lisbon, on the tagus, near the sea, in the west of the country", "bread", "porto is a town"]


def scores(client, path, **body):
    answer = client.post(path, json={"query": QUERY} | body)
    assert answer.status_code == 200, answer.text
    rows = answer.json() if isinstance(answer.json(), list) else answer.json()["results"]
    return {row["index"]: row.get("score", row.get("relevance_score")) for row in rows}


@pytest.mark.parametrize("path", ["/v2/rerank", "/rerank"])
def test_cohere_s_tokens_are_what_is_scored(client, path):
    cut = scores(client, path, documents=TEXTS, max_tokens_per_doc=11)
    assert cut == scores(client, path, documents=[text[:11] for text in TEXTS])
    assert cut != scores(client, path, documents=TEXTS)
    assert scores(client, path, documents=TEXTS, max_tokens_per_doc=None) == scores(client, path, documents=TEXTS)


def test_vllm_s_zero_tokens_are_as_many_as_the_server_reads(client):
    assert scores(client, "/rerank", documents=TEXTS, max_tokens_per_doc=0) == scores(client, "/rerank", documents=TEXTS)
    assert client.post("/v2/rerank", json={"query": QUERY, "documents": TEXTS, "max_tokens_per_doc": 0}).status_code == 422


def test_tei_s_truncate_is_what_is_scored_and_the_answer_is_whole(client):
    right = scores(client, "/rerank", texts=TEXTS, truncate=True)
    assert right == scores(client, "/rerank", texts=[text[:60] for text in TEXTS], truncate=False)
    assert right == scores(client, "/rerank", texts=TEXTS)
    left = scores(client, "/rerank", texts=TEXTS, truncate=True, truncation_direction="Left")
    assert left == scores(client, "/rerank", texts=[text[-60:] for text in TEXTS])
    assert left != right
    answer = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "truncate": True, "return_text": True}).json()
    assert {row["index"]: row["text"] for row in answer} == dict(enumerate(TEXTS))
    refused = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "truncate": False})
    assert refused.status_code == 422
    assert refused.json() == {"message": "text 0 has 89 characters, planted reads 60. Send truncate: true, or shorter texts."}
    assert client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "truncation_direction": "up"}).status_code == 422
