"""Collections in memory: what numpy and pandas bring along, and what a file reader would refuse too."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steadyscore.collection import from_records
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance


def read(data):
    return list(from_records(data).instances())


def row(**fields):
    return {"query_id": "q", "query": "why", "text": "because"} | fields


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
    assert read(pd.read_parquet(tmp_path / "x.parquet")) == read(rows)


@pytest.mark.parametrize("absent", [None, float("nan"), np.float64("nan"), pd.NA, pd.NaT])
def test_an_absent_id_is_a_place_and_never_a_word(absent):
    assert [each.id for each in read([{"id": absent, "query": "x", "candidates": ["a"], "verdict": absent}])] == ["1"]
    assert [each.id for each in read([row(query_id=absent), row(query_id=absent, query="when")])] == ["1", "2"]


def test_whole_numbers_that_pandas_makes_floats_are_still_ids():
    frame = pd.DataFrame([row(candidate_id=4), row(candidate_id=5), row(candidate_id=None)])
    assert [each.id for each in read(frame)[0].pool] == ["4", "5", "3"]


def test_candidates_may_be_any_iterable():
    assert read([{"query": "x", "candidates": (text for text in "ab")}]) == read([{"query": "x", "candidates": ["a", "b"]}])


@pytest.mark.parametrize(
    ("rows", "messages"),
    [
        ([row(), row(query_id=None)], ['row 2: "query_id" is missing; other rows have one: give it to all or to none']),
        ([row(query_id=None), row(query_id=None, query=None)], ['row 2: "query" is missing; every row needs it']),
        ([row(), row(query="when")], ["row 2: \"query\" is not that of the rows before with query_id 'q'"]),
        ([row(verdict="SUPPORTED"), row(verdict="REFUTED")], ['row 2: "verdict" is not that of the rows before']),
        ([row(), row(relevence=1, colour=2)], ["'relevence' is not known: did you mean 'relevance'?", "'colour' is not known"]),
        ([row(), row(query_id="r", query=None)], ['query 2: "query" is missing']),
        ([row(query_id=1.5)], ['query 1: "id" is 1.5, not a string']),
        ([{"query": "x", "candidates": ["a"]}, {"query": "y"}], ['query 2: "candidates" is missing']),
        ([{"query": "x", "candidates": "ab"}], ['query 1: "candidates" is "ab", not a list']),
        ([{"query": "x", "candidates": [{"text": "a", "title": pd.Timestamp(0)}]}], ['"title" is "1970-01-01 00:00:00"']),
        ([{"query": "x", "candidates": ["a\ud800"]}], [r"query 1: '\ud800' in its texts is half of a surrogate pair"]),
        ([{"id": 1, "query": "x", "candidates": ["a"]}] * 2, ["query id '1' occurs more than once."]),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_scored(rows, messages):
    with pytest.raises(InputError) as refusal:
        from_records(rows)
    assert len(refusal.value.mistakes) == len(messages)
    for mistake, message in zip(refusal.value.mistakes, messages, strict=True):
        assert message in mistake
