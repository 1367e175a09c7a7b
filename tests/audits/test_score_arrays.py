"""Scores in memory: judgements and names stay with their candidates, whatever holds them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import steadyscore
from steadyscore.audits.score_arrays import read_any_scores
from steadyscore.errors import InputError

IDS = ["d", "a", "c", "b"]
SCORES = np.array([[0.9, 0.1, 0.5, 0.3], [0.2, 0.8, 0.4, 0.6], [0.7, 0.3, 0.1, 0.5]])
GOLD = {"a": 2, "b": 0, "c": 1, "d": 0}


def rows(missing=()):
    """A row per permutation and candidate; of some candidates no judgement."""
    return [
        {"query_id": "q", "permutation": m, "candidate_id": id, "score": SCORES[m, i]}
        | ({} if id in missing else {"relevance": GOLD[id]})
        for m in range(3)
        for i, id in enumerate(IDS)
    ]


def in_polars(rows):
    import polars as pl

    return pl.DataFrame(rows)


def in_arrow(rows):
    import pyarrow as pa

    return pa.table(
        {name: [row.get(name) for row in rows] for name in ("query_id", "permutation", "candidate_id", "score", "relevance")}
    )


@pytest.mark.parametrize("form", [list, pd.DataFrame, in_polars, in_arrow], ids=["list", "pandas", "polars", "arrow"])
@pytest.mark.parametrize("missing", [{"d"}, {"b"}, set(), {"a", "d"}], ids=["first", "last", "none", "two"])
def test_judgements_are_kept_wherever_one_is_absent(form, missing):
    (query,) = read_any_scores(form(rows(missing))).queries
    assert query.candidate_ids == ("a", "b", "c", "d")
    assert query.relevance.tolist() == pytest.approx([np.nan if id in missing else GOLD[id] for id in "abcd"], nan_ok=True)
    (whole,) = steadyscore.audit(scores=form(rows(missing)), cutoff=0.5)
    assert "ndcg@10" in whole.figures


def test_nullable_columns_of_pandas_are_read():
    frame = pd.DataFrame(rows({"d"})).astype({"relevance": "Int64", "score": "Float64", "query_id": "string"})
    (query,) = read_any_scores(frame).queries
    assert query.relevance.tolist() == pytest.approx([2, 0, 1, np.nan], nan_ok=True)


@pytest.mark.parametrize(
    ("scores", "relevance"),
    [
        ({"q": pd.DataFrame(SCORES, columns=IDS)}, None),
        (pd.DataFrame(SCORES, columns=IDS), None),
        ([pd.DataFrame(SCORES, columns=IDS)] * 2, None),
        (SCORES, pd.Series(GOLD)),
        ({"q": SCORES}, {"q": pd.Series([0, 2, 1, 0]).sort_values()}),
        (pd.DataFrame(SCORES)[[3, 1, 2, 0]], None),
    ],
    ids=["by-query", "frame", "list", "series", "sorted", "columns"],
)
def test_names_are_not_joined_by_place(scores, relevance):
    with pytest.raises(InputError, match=r"name their candidates, and arrays are joined by place\. Give rows"):
        read_any_scores(scores, relevance)


def test_frames_and_series_without_names_are_arrays():
    (query,) = read_any_scores({"q": pd.DataFrame(SCORES)}, {"q": pd.Series([0, 2, None, 0], dtype="Int64")}).queries
    assert query.scores.tolist() == SCORES.tolist()
    assert query.relevance.tolist() == pytest.approx([0, 2, np.nan, 0], nan_ok=True)


def test_what_is_masked_is_absent():
    masked = np.ma.array([0, 3, 1, 3], mask=[0, 1, 0, 0])
    (query,) = read_any_scores(SCORES, masked).queries
    assert query.relevance.tolist() == pytest.approx([0, np.nan, 1, 3], nan_ok=True)
    with pytest.raises(InputError, match=r"1 scores are NaN or infinite: .*query 000001, permutation 1, candidate 2"):
        read_any_scores(np.ma.array(SCORES, mask=[[0] * 4, [0, 0, 1, 0], [0] * 4]))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"scores": pd.Series([1.0, 2.0])}, "have shape"),
        ({"scores": SCORES, "relevance": [1, 0]}, "has 4 candidates and 2 judgements"),
        (
            {"scores": pd.concat([pd.DataFrame(rows()), pd.DataFrame({"score": [0.0] * 12})], axis=1)},
            "has the column score twice",
        ),
        ({"scores": pd.DataFrame(rows()).rename(columns={"score": "points"})}, "has no column score"),
        ({"scores": [row | {"query_id": "q" if i else 7} for i, row in enumerate(rows())]}, "values of several kinds"),
        ({"scores": np.array([[10**17 + k for k in range(3)]] * 2)}, "whole numbers beyond 2.53"),
        ({"scores": [[10**17, 10**17 + 1], [2, 1]]}, "whole numbers beyond 2.53"),
        ({"scores": pd.DataFrame([[10**17, 10**17 + 1], [2, 1]])}, "whole numbers beyond 2.53"),
        ({"scores": [row | {"score": 10**17 + i} for i, row in enumerate(rows())]}, "a number up to 2.53, beyond which"),
        ({"scores": [row | {"score": 10**30 + i} for i, row in enumerate(rows())]}, "too large|several kinds"),
        ({"scores": np.full((2, 3), 1e200)}, "beyond 1e.100"),
        ({"scores": np.array([["a", "b"], ["c", "d"]])}, "not an array of numbers"),
    ],
    ids=lambda value: None if isinstance(value, dict) else str(value)[:20],
)
def test_what_cannot_be_joined_or_told_apart_is_refused(given, sentence):
    with pytest.raises(InputError, match=sentence):
        steadyscore.audit(**given)


@pytest.mark.parametrize("change", ["float", "half", "grad", "listed"])
def test_tensors_are_scores(change):
    import torch

    tensor = torch.tensor(SCORES, dtype=torch.bfloat16 if change == "half" else torch.float64, requires_grad=change == "grad")
    found = read_any_scores([tensor, tensor] if change == "listed" else tensor).queries[0]
    assert np.allclose(found.scores, SCORES, atol=0.01)


def by_length(query, texts):
    return pd.Series([float(len(text)) for text in texts]).sort_values()


def test_a_series_that_a_scorer_returns_is_read_by_its_index():
    data = [{"query": "q", "candidates": ["a", "bbbb", "cc", "ddddd", "eee"]}]
    (found,) = steadyscore.audit(by_length, data, permutations=6, cutoff=2.5)
    assert found["tau_psi"].value == 0
    with pytest.raises(InputError, match=r"python:.* gave a series whose index is not 0, 1, 2"):
        steadyscore.audit(lambda query, texts: pd.Series([1.0] * len(texts), index=texts), data)
    with pytest.raises(InputError, match=r"whole numbers beyond 2.53"):
        steadyscore.audit(lambda query, texts: [10**17 + i for i in range(len(texts))], data)
