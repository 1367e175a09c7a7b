"""Rows in memory as instances: what numpy, pandas and polars bring along, and what is wrong with them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steadyscore.collection import from_records, open_collection
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance


def read(data, **how):
    return list(from_records(data, **how).instances())


def row(**fields):
    return {"query_id": "q", "query": "why", "text": "because"} | fields


PAIR = {"prompt": "p", "response_a": "x", "response_b": "y"}


def grades(instances):
    return [[candidate.relevance for candidate in instance.pool] for instance in instances]


def test_a_row_per_candidate_brings_scores_and_what_belongs_to_the_query():
    rows = [row(score=2.5, answers=["a"], verdict="SUPPORTED", judged={7: 1}), row(text="so", score=1.5, relevance=1)]
    pool = (Candidate("1", "because", score=2.5), Candidate("2", "so", relevance=1, score=1.5))
    assert read(rows) == [Instance("q", "why", pool, answers=("a",), verdict="SUPPORTED", judged={"7": 1})]


def test_numpy_values_are_those_of_json():
    pool = np.array([{"id": np.int64(4), "text": "a", "relevance": np.int32(1), "score": np.float32(0.5)}], dtype=object)
    source = from_records([{"query": "why", "candidates": pool, "answers": np.array(["z"])}])
    assert list(source.instances()) == [Instance("1", "why", (Candidate("4", "a", relevance=1, score=0.5),), answers=("z",))]
    assert source.digest


def test_a_parquet_file_with_lists_is_read_through_pandas(tmp_path):
    rows = [{"id": "1", "query": "x", "candidates": [{"id": "a", "text": "A", "relevance": 1}, {"id": "b", "text": "B"}]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    assert (
        read(pd.read_parquet(tmp_path / "x.parquet")) == read(rows) == list(open_collection(tmp_path / "x.parquet").instances())
    )


@pytest.mark.parametrize("absent", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT, ""], ids=repr)
def test_an_absent_id_is_a_place_and_never_a_word(absent):
    assert [each.id for each in read([{"id": absent, "query": "x", "candidates": ["a"], "verdict": absent}])] == ["1"]
    assert [each.id for each in read([row(query_id=absent), row(query_id=absent, query="when")])] == ["1", "2"]


def test_whole_numbers_that_pandas_makes_floats_are_still_ids_and_grades():
    frame = pd.DataFrame([row(pid=4, label=1), row(pid=5, label=None), row(pid=None, label=0)])
    assert [(each.id, each.relevance) for each in read(frame)[0].pool] == [("4", 1), ("5", None), ("3", 0)]


def test_candidates_may_be_any_iterable():
    assert read([{"query": "x", "candidates": (text for text in "ab")}]) == read([{"query": "x", "candidates": ["a", "b"]}])


def test_lists_beside_each_other_are_of_the_candidates_in_order():
    rows = [{"qid": 7, "question": "x", "passages": ["A", "B"], "labels": [1, None], "doc_ids": ["a", "b"], "scores": [2.5, 1.5]}]
    pool = (Candidate("a", "A", relevance=1, score=2.5), Candidate("b", "B", score=1.5))
    assert read(rows) == read(pl.DataFrame(rows)) == [Instance("7", "x", pool)]


def test_a_score_of_whole_numbers_is_a_judgement_and_any_other_a_first_stages():
    assert grades(read([row(score=2), row(text="so", score=0.0)])) == [[2, 0]]
    assert [each.score for each in read([row(score=2), row(text="so", score=0.5)])[0].pool] == [2, 0.5]
    assert [each.score for each in read([row(score=2)], columns={"score": "score"})[0].pool] == [2]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("A", [3, 0]), ("b", [0, 3]), ("tie", [None, None]), (None, [None, None]), ("Tie (both bad)", [None, None]),
        ("both_bad", [None, None]),
        (0, [3, 0]), (1.0, [0, 3]), ("1", [0, 3]), ("response_b", [0, 3]), ("model_a", [3, 0]), ("GPT-9", [0, 3]),
    ],
    ids=repr,
)  # fmt: skip
def test_who_won_is_said_by_letter_column_model_or_place(said, expected):
    pair = {"prompt": "p", "response_a": "x", "response_b": "y", "model_a": "llama", "model_b": "gpt-9", "winner": said}
    source = from_records([pair, pair | {"winner": "A"}])
    assert grades(source.instances()) == [expected, [3, 0]]
    assert source.collection.task == "response_ranking"
    assert [each.id for each in next(source.instances()).pool] == ["a", "b"]


def test_a_column_of_ties_alone_is_recognised_and_judges_nothing(caplog):
    from_records([{"prompt": "p", "response_a": "x", "response_b": "y", "preferred": "tie"}] * 2, name="ties")
    recognised, lacks = caplog.messages
    assert recognised.endswith("relevance=preferred")
    assert "no relevance, so nothing that needs judgements is measured" in lacks


def test_ranks_may_count_from_0():
    assert [(each.text, each.rank) for each in read([row(rank=1), row(text="so", rank=0)])[0].pool] == [("so", 1), ("because", 2)]


@pytest.mark.parametrize(("first", "second"), [("yes", "no"), ("TRUE", "False"), (True, False), ("1.0", "0")])
def test_a_judgement_may_be_a_word(first, second):
    assert grades(read([row(label=first), row(text="so", label=second)])) == [[1, 0]]


def test_a_verdict_may_be_in_small_letters():
    assert read([row(verdict="not enough info")])[0].verdict == "NOT ENOUGH INFO"


def test_an_id_that_all_rows_of_a_query_share_is_that_of_the_query():
    rows = [{"id": 7, "query": "why", "text": text} for text in "ab"] + [{"id": 8, "query": "when", "text": "c"}]
    assert [(each.id, [one.id for one in each.pool]) for each in read(rows)] == [("7", ["1", "2"]), ("8", ["1"])]
    apart = [{"id": i, "query": "why", "text": text} for i, text in enumerate("ab")]
    assert [one.id for one in read(apart)[0].pool] == ["0", "1"]


def test_what_0_means_is_said(caplog):
    from_records([{"prompt": "p", "response_a": "x", "response_b": "y", "label": 0}], name="places")
    assert caplog.messages[0] == (
        "places: query=prompt, text=response_a+response_b, doc_id=side, relevance=label (0 is response_a)"
    )


def test_chosen_and_rejected_stand_in_an_order_that_does_not_tell_them_apart():
    source = from_records([{"prompt": f"p{i}", "chosen": "good", "rejected": "bad", "label": 7} for i in range(20)])
    pools = [instance.pool for instance in source.instances()]
    assert {(each.text, each.relevance) for pool in pools for each in pool} == {("good", 3), ("bad", 0)}
    assert {pool[0].text for pool in pools} == {"good", "bad"}
    assert {tuple(each.id for each in pool) for pool in pools} == {("1", "2")}


def test_numbered_responses_are_told_apart_by_their_number():
    rows = [{"prompt": "p", "response_1": "x", "response_2": "y", "response_3": None, "label": 2}]
    assert [(each.id, each.relevance) for each in read(rows)[0].pool] == [("1", 0), ("2", 3)]
    with pytest.raises(InputError, match='"label" is 0, not one of 1, 2, 3, tie'):
        read([rows[0] | {"response_3": "z", "label": 0}])


POSITIVES = {
    "triples": [{"query": "why", "positive": "so", "negative": "no"}],
    "sentence-transformers": [{"anchor": "why", "positive": "so", "negative_1": "no", "negative_2": "nor"}],
    "lists": [{"query": "why", "pos": ["so"], "neg": ["no", "nor"]}],
    "objects": [
        {
            "query": "why",
            "positive_passages": [{"docid": "1", "title": "T", "text": "so"}],
            "negative_passages": [{"docid": "2", "title": "U", "text": "no"}, {"docid": "3", "title": "V", "text": "nor"}],
        }
    ],
}


@pytest.mark.parametrize("shape", POSITIVES)
def test_positives_and_negatives_are_judged_passages_in_an_order_that_does_not_tell_them_apart(shape):
    source = from_records(POSITIVES[shape] * 12)
    pools = [instance.pool for instance in source.instances()]
    assert source.collection.task == "passage_reranking"
    assert {(each.text, each.relevance) for pool in pools for each in pool} - {("nor", 0)} == {("so", 3), ("no", 0)}
    assert {pool[0].text for pool in pools} > {"so"}
    assert {pool[0].title for pool in pools} == ({"T", "U", "V"} if shape == "objects" else {None})


def test_several_responses_may_be_chosen_or_rejected():
    rows = [{"prompt": "p", "chosen": ["good"], "rejected": ["bad", "worse"]}]
    assert sorted((each.relevance, each.text) for each in read(rows)[0].pool) == [(0, "bad"), (0, "worse"), (3, "good")]
    with pytest.raises(InputError, match='row 1: "chosen" is missing'):
        read([{"prompt": "p", "chosen": [], "rejected": ["bad"]}])


ANSWERS_OF_SEARCH = {
    "rerankers": [{"document": {"text": "so", "id": "a"}, "relevance_score": 0.5}, {"document": {"text": "no", "id": "b"}}],
    "pyserini": [{"docid": "a", "contents": "so", "score": 0.5}, {"docid": "b", "contents": "no"}],
    "langchain": [{"id": "a", "page_content": "so", "similarity": 0.5}, {"id": "b", "page_content": "no"}],
}


@pytest.mark.parametrize("program", ANSWERS_OF_SEARCH)
def test_a_list_of_objects_that_have_texts_holds_the_candidates_whatever_it_is_called(program):
    pool = read([{"question": "why", "hits": ANSWERS_OF_SEARCH[program], "took_ms": 3}])[0].pool
    assert pool == (Candidate("a", "so", score=0.5), Candidate("b", "no"))


def test_a_query_that_was_asked_twice_is_told_what_tells_its_requests_apart():
    log = [{"question": "why", "doc_id": "d", "passage": "so", "rank": 1}] * 2
    with pytest.raises(
        InputError, match=r"'d' occurs more than once in the pool; where a query was asked several times, give each"
    ):
        read(log)
    assert len(read([each | {"query_id": i} for i, each in enumerate(log)])) == 2


def test_a_comma_may_stand_for_the_decimal_point_where_it_can_mean_nothing_else():
    rows = [row(label="1,0", score="3,25"), row(text="so", label="0,0", score="12,3456")]
    assert [(each.relevance, each.score) for each in read(rows)[0].pool] == [(1, 3.25), (0, 12.3456)]
    with pytest.raises(InputError, match='"score" is "1,000", not a finite number'):
        read([row(score="1,000", label=1)])


def test_columns_are_called_as_they_are_given():
    rows = [{"frage": "why", "body": "because", "text": "no", "stars": 1}]
    assert read(rows, columns={"query": "frage", "text": "body", "relevance": "stars"}) == read(
        [{"query": "why", "text": "because", "relevance": 1}]
    )
    nested = [{"query": "why", "documents": [{"page_content": "because", "metadata": {}}]}]
    assert read(nested, columns={"text": "page_content"}) == read([{"query": "why", "documents": ["because"]}])
    pairs = [{"ask": "p", "left": "x", "right": "y", "better": "b"}]
    source = from_records(pairs, columns={"query": "ask", "response_a": "left", "response_b": "right", "winner": "better"})
    assert (grades(source.instances()), source.collection.task) == ([[0, 3]], "response_ranking")


def test_what_was_recognised_is_said_once_and_not_of_our_own_names(caplog):
    rows = [{"question": f"{__name__} x", "doc": "a", "noise": 1}, {"question": f"{__name__} x", "doc": "b"}]
    for _ in range(2):
        from_records(rows, name="said-once")
    assert [record.getMessage() for record in caplog.records] == [
        "said-once: query=question, text=doc; ignored: noise",
        "said-once: no relevance, so nothing that needs judgements is measured; no rank, so candidates count as ranked in the "
        "order they stand in; no query_id, so rows with one query text are one query; no doc_id, so candidates are numbered",
    ]
    caplog.clear()
    from_records([{"query": "x", "candidates": ["a"]}], name="said-never")
    assert not caplog.records


def test_equal_query_texts_without_ids_are_counted(caplog):
    rows = [{"prompt": "x", "responses": ["a", "b"]}, {"prompt": "x", "responses": ["c", "d"]}]
    assert len(read(rows, name="equal texts")) == 2
    assert any("queries are numbered, 1 of them with the text of an earlier one" in each.getMessage() for each in caplog.records)


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        ([row(), row(query_id=None)], ['row 2: "query_id" is missing']),
        ([row(query_id=None), row(query_id=None, query=None)], ['row 2: "query" is missing']),
        ([row(), row(query="when")], ['row 2: "query" is not that of the rows before with the same query']),
        ([row(verdict="SUPPORTED"), row(verdict="REFUTED")], ['row 2: "verdict" is not that of the rows before']),
        ([row(), row(query_id="r", query=None)], ['row 2: "query" is missing']),
        ([row(query_id=1.5)], ['row 1: "query_id" is 1.5, not a string']),
        ([{"query": "x", "candidates": ["a"]}, {"query": "y"}], ['row 2: "candidates" is missing']),
        ([{"query": "x", "candidates": []}], ["no column is recognised as text among query, candidates"]),
        ([{"query": "x", "candidates": "ab"}], ["candidates holds no lists"]),
        ([{"query": "x", "candidates": ["a"]}, {"query": "x", "candidates": "ab"}], ["row 2: candidates are not lists of one"]),
        ([{"query": "x", "docs": ["a", "b"], "labels": [1]}], ["row 1: docs, labels are not lists of one length"]),
        ([{"query": "x", "candidates": [{"text": "a", "title": pd.Timestamp(0)}]}], ['title" is "1970-01-01 00:00:00"']),
        ([{"query": "x", "candidates": ["a\ud800"]}], ["row 1: query '1': its texts hold half of a surrogate pair"]),
        ([{"id": 1, "query": "x", "candidates": ["a"]}] * 2, ["row 1: query '1': its id occurs more than once (so in 2 places"]),
        ([row(doc_id=1), row(doc_id="1")], ["row 2: query 'q': candidate id '1' occurs more than once in the pool"]),
        ([row(rank=1), row(rank=1)], ["row 1: query 'q': rank 1 occurs more than once"]),
        ([row(label="good"), row(label=-1)], ['row 1: "label" is "good", not an integer from 0 to 2147483647 (so in 2 places']),
        ([PAIR, PAIR | {"response_b": ""}], ['row 2: "response_b" is missing']),
        ([row(text=5), row(text="")], ['row 1: "text" is 5, not a string', 'row 2: "text" is missing']),
        ([{"a": 1}], ["no column is recognised as query or as text among a. Say it: --columns query=COLUMN,text=COLUMN."]),
        ([{}], ["no column is recognised"]),
        ([], ["there is no row to score"]),
        ([row(), 7, "x"], ["row 2: int is not a dict", "row 3: str is not a dict"]),
        (pa.table({"query": ["x"], "text": ["y"]}).rename_columns(["text", "text"]), ["several columns are called text"]),
        (pd.DataFrame([["x", "y"]], columns=["text", "text"]), ["several columns are called text"]),
        (pd.Series(["x"]), ["Series is not a kind of data. Give a name, a file, a list of dicts"]),
        (pl.LazyFrame({"query": ["x"]}), ["LazyFrame is not a kind of data"]),
        (b"query,text", ["bytes is not a kind of data"]),
        ({"train": [row()]}, ["dict is not a kind of data"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_anything_is_scored(rows, messages):
    with pytest.raises(InputError) as refusal:
        from_records(rows)
    assert len(refusal.value.mistakes) == len(messages)
    for mistake, message in zip(refusal.value.mistakes, messages, strict=True):
        assert message in mistake


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": "bdy"}, "there is no column bdy; there are query_id, query, text"),
        ({"txt": "text"}, "cannot be called txt"),
        ({"query": "text", "text": "text"}, "text cannot be two things at once"),
    ],
)
def test_names_that_are_given_must_be_there(columns, message):
    with pytest.raises(InputError, match=message):
        from_records([row()], columns=columns)
