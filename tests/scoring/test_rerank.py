"""Documents in the order of their scores."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import steadyscore
from steadyscore.errors import InputError

TEXTS = ["short", "the longest of these texts", "a longer text"]


def by_length(query, texts):
    return [float(len(text)) for text in texts]


class Predicts:
    def predict(self, pairs):
        return np.array([float(len(text)) for _, text in pairs])


class Ranks:
    def rank(self, query, documents):
        return [{"corpus_id": i, "score": float(len(text))} for i, text in enumerate(documents)]


@pytest.mark.parametrize("scorer", [by_length, Predicts(), Ranks()])
def test_documents_come_best_first_with_their_place_score_and_rank(scorer):
    ranking = steadyscore.rerank(scorer, "anything", TEXTS)
    assert [(d.rank, d.index, d.score, d.document) for d in ranking] == [
        (1, 1, 26.0, TEXTS[1]), (2, 2, 13.0, TEXTS[2]), (3, 0, 5.0, TEXTS[0]),
    ]  # fmt: skip
    assert ranking[0].document == ranking[:1][0].document


def test_an_address_is_a_scorer_and_so_is_what_was_opened():
    first = steadyscore.rerank("synthetic:none", "what", TEXTS, top_k=2)
    again = steadyscore.rerank(steadyscore.open_engine("synthetic:none"), "what", TEXTS, top_k=2)
    assert first.to_json() == again.to_json()
    assert len(first) == 2


@pytest.mark.parametrize("top_k", [0, -1])
def test_a_ranking_has_at_least_a_first_document(top_k):
    with pytest.raises(InputError, match=f"top_k is {top_k}: give 1 or more"):
        steadyscore.rerank(by_length, "what", TEXTS, top_k=top_k)


def test_a_dict_is_scored_by_title_and_text_and_handed_back_whole():
    seen = []

    def score(query, texts):
        seen.extend(texts)
        return by_length(query, texts)

    documents = [{"text": "b", "title": "A title", "url": "u"}, {"text": "bb"}]
    ranking = steadyscore.rerank(score, "what", documents)
    assert ranking[0].document is documents[0]
    assert "A title" in seen[0]


def test_a_ranking_prints_and_is_a_frame():
    ranking = steadyscore.rerank(by_length, "what", TEXTS)
    assert str(ranking).splitlines()[1] == "   1  26.0000  [1] the longest of these texts"
    assert list(ranking.to_pandas()["index"]) == [1, 2, 0]


def test_nothing_to_rank_is_an_empty_ranking():
    assert len(steadyscore.rerank(by_length, "what", [])) == 0


def test_everything_that_is_not_a_document_is_named_at_once():
    with pytest.raises(InputError) as refusal:
        steadyscore.rerank(by_length, "what", ["a", 3, {"body": "b"}])
    assert [mistake.split()[1] for mistake in refusal.value.mistakes] == ["1", "2"]


@pytest.mark.parametrize("one", ["a single string", b"a single string", {"text": "a single dict"}], ids=["text", "bytes", "dict"])
def test_one_document_that_is_no_list_is_refused(one):
    with pytest.raises(InputError, match=r"documents is one document\. Give a list of texts"):
        steadyscore.rerank(by_length, "what", one)


@settings(deadline=None, max_examples=25)
@given(st.lists(st.text(max_size=4), min_size=1, max_size=6), st.randoms())
@example(["", "", "", "\r"], Random(0))
def test_the_order_given_never_decides_for_a_scorer_without_order_effect(texts, random):
    shuffled = random.sample(texts, len(texts))
    first, second = (steadyscore.rerank(by_length, "what", each) for each in (texts, shuffled))
    assert [d.document for d in first] == [d.document for d in second]


def test_half_of_a_surrogate_pair_is_refused_by_name():
    with pytest.raises(InputError, match="document 1 holds half of a surrogate pair"):
        steadyscore.rerank(lambda query, texts: [1.0] * len(texts), "q", ["a", "b\ud800"])
    with pytest.raises(InputError, match="the query holds half"):
        steadyscore.rerank(lambda query, texts: [1.0] * len(texts), "\udfff", ["a"])


def test_a_share_of_the_order_that_was_given_can_be_kept():
    equal = steadyscore.rerank(lambda query, texts: [1.0] * len(texts), "q", ["b", "a", "c"], mitigations=["first-stage:30"])
    assert [document.index for document in equal] == [0, 1, 2]
