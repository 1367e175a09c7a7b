from dataclasses import replace

import numpy as np
import pytest

from steadyscore.errors import InputError
from steadyscore.measures.ir_library import library_values
from steadyscore.measures.measurement import measure
from tests.measures.test_measurement import query

OURS = {"nDCG@10": "ndcg@10", "nDCG@1": "ndcg@1", "AP": "map", "RR": "mrr", "R@10": "recall@10"}


@pytest.mark.parametrize("canonical", [True, False])
def test_the_library_and_the_array_form_agree(canonical):
    queries = [query(i, n=14, canonical=canonical) for i in range(6)]
    queries = [replace(q, scores=np.round(q.scores * 4) / 4) for q in queries]  # ties
    queries[1] = replace(queries[1], ideal=np.r_[queries[1].relevance, 3, 3, 0])
    queries[2] = replace(queries[2], relevance=np.where(np.arange(14) < 5, np.nan, queries[2].relevance))
    queries[3] = replace(queries[3], relevance=np.zeros(14))
    queries[4] = replace(queries[4], relevance=None)
    theirs, ours = library_values(queries, list(OURS)), measure(queries).values
    for name, mine in OURS.items():
        assert np.allclose(theirs[name], ours[mine], equal_nan=True), name


def test_measures_we_do_not_have():
    assert library_values([query(0)], ["P@5"])["P@5"].shape == (1,)


def test_unknown_names_are_told_at_once():
    with pytest.raises(InputError) as refusal:
        library_values([query(0)], ["Beauty@3", "P", "P@0", "P@x", "P(foo=1)@5", "P@5"])
    assert len(refusal.value.mistakes) == 5
