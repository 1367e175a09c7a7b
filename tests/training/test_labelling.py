"""`steadyscore.label`: labels from any scorer, from judgements, and from other labels."""

from __future__ import annotations

import numpy as np
import pytest

import steadyscore
from steadyscore.errors import InputError
from steadyscore.training.labels import read_labels


def by_length(query, texts):
    return [len(text) / 10_000 for text in texts]


def test_a_function_labels_a_collection_and_the_labels_are_kept(tmp_path):
    labelled = steadyscore.label(by_length, "passages", tmp_path / "labels", queries=2, pool=4, teacher_orders=3, quiet=True)
    assert [label.vectors.shape for label in labelled.labels] == [(3, 4)] * 2
    kept = read_labels(tmp_path / "labels")
    assert [label.query_id for label in kept] == [label.query_id for label in labelled.labels]
    np.testing.assert_allclose(kept[0].vectors, labelled.labels[0].vectors)
    found = labelled.to_json()
    assert (found["queries"], found["teacher_orders"], found["failed"]) == (2, 3, [])
    assert found["out"] == str(tmp_path / "labels")
    assert found["silver_beta"] == 0  # a function of each text alone


def test_labels_are_derived_from_judgements_and_from_labels(tmp_path):
    judged = steadyscore.label("judgements", "passages", tmp_path / "judged")
    assert judged.to_json()["ndcg@10"] == pytest.approx(1)
    subset = steadyscore.label(start=tmp_path / "judged", data="passages", out=tmp_path / "part", subset=3, control="random")
    assert len(subset.labels) == 3
    assert {label.query_id for label in subset.labels} <= {label.query_id for label in judged.labels}


def test_a_query_that_the_teacher_fails_on_is_named(tmp_path):
    def moody(query, texts):
        if not hasattr(moody, "query"):
            moody.query = query
        if query == moody.query:
            raise ValueError("not today")
        return [0.5] * len(texts)

    labelled = steadyscore.label(moody, "passages", tmp_path / "labels", queries=3, quiet=True)
    assert (labelled.queries, len(labelled.labels)) == (3, 2)
    assert [failure.reason for failure in labelled.failed] == ["ValueError: not today"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": "passages", "out": "o"}, "label needs either a scorer or a label folder to start from"),
        ({"scorer": by_length, "start": "labels", "data": "passages", "out": "o"}, "either a scorer or a label folder"),
        ({"scorer": by_length, "data": "passages"}, "and the folder `out`"),
        ({"scorer": by_length, "data": "passages", "out": "o", "widht": 3}, "label has no setting widht. It has teacher_orders"),
    ],
)
def test_what_is_missing_or_unknown_is_said(given, message):
    with pytest.raises(InputError, match=message):
        steadyscore.label(**given)
