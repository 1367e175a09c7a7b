"""First stages: BM25 against the formula, ties, dense and learned-sparse encoders behind a double."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.collection.first_stage import (
    BGE_QUERY,
    FirstStage,
    bm25,
    dense,
    parse_first_stage,
    search_over,
    splade,
    top_documents,
)
from steadyscore.errors import InputError, MissingExtra, ModelError


def test_bm25_is_lucenes_formula():
    texts = ["wing wing lift", "lift of drag", "plate flow body theory"]
    k1, b, average = 0.9, 0.4, (3 + 2 + 4) / 3  # "of" is a stopword
    (first, score), (second, other) = bm25(texts, k1=k1, b=b)("Wings lifted", 5)
    idf = {"wing": math.log(1 + (3 - 1 + 0.5) / (1 + 0.5)), "lift": math.log(1 + (3 - 2 + 0.5) / (2 + 0.5))}

    def part(word, times, length):
        return idf[word] * times / (times + k1 * (1 - b + b * length / average))

    assert (first, second) == (0, 1)
    assert score == pytest.approx(part("wing", 2, 3) + part("lift", 1, 3), abs=1e-5)
    assert other == pytest.approx(part("lift", 1, 2), abs=1e-5)


def test_bm25_returns_nothing_without_a_common_word():
    search = bm25(["alpha beta", "gamma"])
    assert search("delta", 5) == []
    assert search("the of", 5) == []
    assert search("", 5) == []


def test_settings_have_names_and_numbers_win():
    assert parse_first_stage("bm25") == FirstStage("bm25", None, 0.9, 0.4)
    assert parse_first_stage("bm25:msmarco") == FirstStage("bm25", None, 0.82, 0.68)
    assert parse_first_stage("bm25:msmarco", k1=1.2).provenance == {
        "kind": "bm25", "k1": 1.2, "b": 0.68, "stemmer": "snowball-english", "stopwords": "lucene",
    }  # fmt: skip
    assert parse_first_stage("run:a:b.txt") == FirstStage("run", "a:b.txt")
    assert parse_first_stage("dense:org/model").provenance == {"kind": "dense", "source": "org/model"}
    for wrong in ("bm26", "bm25:fast", "dense", "run:"):
        with pytest.raises(InputError, match="is not a first stage"):
            parse_first_stage(wrong)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30), st.integers(1, 35), st.sampled_from([-np.inf, 0.0]))
def test_top_is_a_stable_sort(values, depth, above):
    scores = np.array(values, float)
    expected = sorted((i for i in range(len(values)) if scores[i] > above), key=lambda i: -scores[i])[:depth]
    assert [index for index, _ in top_documents(scores, depth, above=above)] == expected


class Double:
    """Counts letters: enough of a sentence-transformers encoder to see what is asked of it."""

    asked: list[str]

    def __init__(self, model):
        if model == "absent":
            raise OSError("absent is not a local folder\nand more")
        self.asked = []
        Double.last = self

    def encode_document(self, texts, **options):
        return np.array([[text.count(letter) for letter in "abc"] for text in texts], float)

    def encode_query(self, texts, **options):
        self.asked += texts
        return self.encode_document(texts)

    def similarity(self, one, other):
        import torch

        return torch.tensor(one @ other.T)


@pytest.fixture
def encoders(monkeypatch):
    module = type(sys)("sentence_transformers")
    module.SentenceTransformer = module.SparseEncoder = Double
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


def test_dense_ranks_by_inner_product(encoders):
    assert [index for index, _ in dense(["a", "bb", "b"], "m")("b", 2)] == [1, 2]
    dense(["a"], "BAAI/bge-base-en-v1.5")("why", 1)
    assert Double.last.asked == [BGE_QUERY + "why"]


def test_splade_leaves_out_documents_without_a_common_term(encoders):
    pytest.importorskip("torch")
    assert splade(["a", "bb", "b"], "m")("b", 3) == [(1, 2.0), (2, 1.0)]
    assert search_over(parse_first_stage("splade:m"), ["b"])("b", 1) == [(0, 1.0)]


def test_an_encoder_that_cannot_be_loaded_is_one_sentence(encoders):
    with pytest.raises(ModelError, match="cannot load absent: absent is not a local folder"):
        dense(["a"], "absent")


def test_without_the_extra_the_line_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    monkeypatch.setitem(sys.modules, "bm25s", None)
    with pytest.raises(MissingExtra, match=r"pip install .*\[dense\]"):
        dense(["a"], "m")
    with pytest.raises(MissingExtra, match=r"pip install .*\[data\]"):
        bm25(["a"])
