"""Names of columns and the roles they have."""

from __future__ import annotations

import pytest

from steadyscore.collection.columns import column_words, parse_columns, plain_word, recognise, sides_of
from steadyscore.errors import InputError


def roles(names: str, items: str | None = None, **given: str):
    split = names.split()
    return recognise(column_words(split, given), None if items is None else items.split(), given.values())


@pytest.mark.parametrize("name", ["query", "question", "prompt", "Query", "claim"])
def test_a_query_goes_by_several_names(name):
    assert roles(f"{name} text").roles == {"query": name, "text": "text"}


@pytest.mark.parametrize("name", ["doc_ids", "Doc-ID", "docId", "passages.doc_id"])
def test_case_plural_and_what_stands_between_do_not_matter(name):
    assert plain_word(name) == "docid"


@pytest.mark.parametrize("name", ["document", "doc", "text", "passage", "candidate", "response", "completion", "content"])
def test_a_text_goes_by_several_names(name):
    assert roles(f"query {name}").roles == {"query": "query", "text": name}


@pytest.mark.parametrize("name", ["doc_id", "docid", "id", "pid", "docno", "_id", "Doc-ID", "docId"])
def test_an_id_of_a_candidate_goes_by_several_names(name):
    assert roles(f"query text {name}").roles["doc_id"] == name


@pytest.mark.parametrize("name", ["label", "relevance", "grade", "rel", "judgement", "labels"])
def test_a_judgement_goes_by_several_names(name):
    assert roles(f"query text {name}").roles["relevance"] == name


def test_what_is_recognised_and_ignored_is_one_line():
    found = roles("question document label bm25_score")
    assert str(found) == "query=question, text=document, relevance=label; ignored: bm25_score"


def test_the_id_of_a_row_is_that_of_its_query_where_a_row_is_a_query():
    assert roles("id query text").roles["doc_id"] == "id"
    assert roles("id query passages", items="passages").roles["query_id"] == "id"
    keys = "passages.id passages.text"
    assert roles(f"id query {keys}", items=keys).roles == {
        "query": "query", "query_id": "id", "text": "passages.text", "doc_id": "passages.id",
    }  # fmt: skip


def test_a_judgement_goes_before_a_score():
    assert roles("query text score label").roles == {"query": "query", "text": "text", "relevance": "label", "score": "score"}


def test_a_name_that_is_given_goes_before_every_other():
    found = roles("query text body label stars", text="body", relevance="stars")
    assert found.roles == {"query": "query", "text": "body", "relevance": "stars"}
    assert found.ignored == ["text", "label"]


@pytest.mark.parametrize(
    ("names", "task"),
    [
        ("prompt response", "response_ranking"),
        ("question passage answers", "multidoc_qa"),
        ("claim document verdict", "claim_verification"),
        ("query text", "passage_reranking"),
        ("prompt response answers", "response_ranking"),
    ],
)
def test_the_columns_say_the_task(names, task):
    assert roles(names).task == task


@pytest.mark.parametrize(
    ("names", "sides"),
    [
        ("prompt response_a response_b winner", {"a": "response_a", "b": "response_b"}),
        ("prompt rejected chosen", {"chosen": "chosen", "rejected": "rejected"}),
        ("query doc10 doc2 doc1", {"1": "doc1", "2": "doc2", "10": "doc10"}),
        ("query chosen", {}),
        ("query text docid", {}),
    ],
)
def test_candidates_may_stand_side_by_side(names, sides):
    assert list(sides_of(column_words(names.split(), {})).items()) == list(sides.items())


def test_the_flag_is_pairs():
    assert parse_columns("query=question, text = body") == {"query": "question", "text": "body"}
    for text in ("", "query", "query=", "=x", "query=a,,text=b"):
        with pytest.raises(InputError, match="Write it as query=question,text=body"):
            parse_columns(text)
