"""Rerank endpoints that lie: an answer is joined by what names it, or refused; what it says of itself is kept and said."""

import math

import pytest

from steadyscore import audit, compare, load
from steadyscore.engines import EngineOptions
from steadyscore.engines.http import Unusable
from steadyscore.engines.kinds import open_engine
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

TEXTS = ["one", "three", "five or six"]


def honest(body):
    """Results best first, by length."""
    texts = body["documents"]
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    return [{"index": i, "relevance_score": len(texts[i]) / 100} for i in order]


def with_texts(results, body, shift, shape):
    """Every result with a text that was sent, `shift` places from its own."""
    texts = body["documents"]
    return [result | {"document": shape(texts[(result["index"] + shift) % len(texts)])} for result in results]


def as_tei(results):
    """With the texts where Text Embeddings Inference puts them."""
    return [{"index": one["index"], "relevance_score": one["relevance_score"], "text": one["document"]} for one in results]


def changed(place, **values):
    return lambda results, body: [*results[:place], results[place] | values, *results[place + 1 :]]


LIES = {
    "another-text": lambda results, body: with_texts(results, body, 1, lambda text: {"text": text}),
    "another-text-bare": lambda results, body: with_texts(results, body, 2, str),
    "another-text-of-tei": lambda results, body: as_tei(with_texts(results, body, 1, str)),
    "index-true": changed(1, index=True),
    "index-float": changed(0, index=1.0),
    "index-text": changed(0, index="0"),
    "index-from-one": lambda results, body: [result | {"index": result["index"] + 1} for result in results],
    "index-negative": changed(0, index=-1),
    "index-twice": lambda results, body: [results[0], *results[:-1]],
    "one-more": lambda results, body: [*results, results[0]],
    "one-less": lambda results, body: results[:-1],
    "score-nan": changed(0, relevance_score=math.nan),
    "score-infinite": changed(0, relevance_score=math.inf),
    "score-text": changed(0, relevance_score="0.9"),
    "score-true": changed(0, relevance_score=True),
    "by-index": lambda results, body: {str(result["index"]): result for result in results},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused(lie):
    with Server(lambda path, body: {"results": LIES[lie](honest(body), body)}) as server, pytest.raises(Unusable):
        open_engine(f"rerank+cohere:{server.url}", EngineOptions(retries=0)).score("q", TEXTS)


@pytest.mark.parametrize(
    "shape",
    [lambda text: {"text": text}, str, lambda text: {"text": text[:2]}, lambda text: None],
    ids=["object", "bare", "cut", "none"],
)
def test_a_text_that_comes_back_in_its_place_or_cut_is_no_lie(shape):
    with Server(lambda path, body: {"results": with_texts(honest(body), body, 0, shape)}) as server:
        found = open_engine(f"rerank+cohere:{server.url}", EngineOptions(retries=0)).score("q", TEXTS)
    assert found == [len(text) / 100 for text in TEXTS]


def audited(address, said, folder):
    """An audit of an endpoint whose answers carry `said`."""
    pools = write_collection(folder / "pools.jsonl", some_instances(queries=2, candidates=4))
    with Server(lambda path, body: {"results": honest(body), **said}) as server:
        return audit(address.format(server.url), pools, permutations=2, out=folder / "run", quiet=True)


WARNING = "documents were truncated to 100 tokens"


def test_another_model_and_warnings_are_recorded_and_said_in_every_table(tmp_path):
    found = audited("rerank+cohere:rank-v3@{}", {"model": "rank-v3-lite", "meta": {"warnings": [WARNING, WARNING]}}, tmp_path)
    spent = found[0].record.coverage.spent
    assert spent["answered by: rank-v3-lite"] == spent["requests"]
    assert spent[f"warned: {WARNING}"] == 2 * spent["requests"]
    for table in (str(found), str(load(found[0].folder)), str(found[0].to_json()["warnings"])):
        assert table.count("was asked for rank-v3 and answered as rank-v3-lite.") == 1
        assert table.count(f"answered with a warning: {WARNING}") == 1


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("rerank+cohere:rank-v3@{}", {"model": "rank-v3"}),
        ("rerank+cohere:{}", {"model": "rank-v3"}),
        ("rerank+cohere:rank-v3@{}", {"model": ["rank"], "meta": {"warnings": "none"}}),
        ("rerank+cohere:rank-v3@{}", {"model": None, "meta": ["warnings"]}),
        ("rerank+cohere:rank-v3@{}", {"model": 3, "meta": {"warnings": 5}}),
        ("rerank+cohere:rank-v3@{}", {"meta": {"warnings": [None, {"text": "no"}, 7]}}),
    ],
    ids=["as-asked", "none-asked", "no-text", "no-object", "numbers", "no-texts"],
)
def test_what_is_as_asked_or_no_statement_is_not_said(address, said, tmp_path):
    assert "answered" not in str(audited(address, said, tmp_path))


def test_what_a_terminal_would_obey_is_not_said(tmp_path):
    found = audited("rerank+cohere:rank-v3@{}", {"model": "x\x1b[2J\nsteadyscore: all fine"}, tmp_path)
    assert "answered as x[2Jsteadyscore: all fine." in str(found)


def test_a_comparison_says_which_model_answered(tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    plain = audited("rerank+cohere:a@{}", {"model": "a"}, tmp_path / "first")
    other = audited("rerank+cohere:b@{}", {"model": "c"}, tmp_path / "second")
    assert "was asked for b and answered as c." in str(compare(plain[0].folder, other[0].folder))
