"""What TREC files cannot hold, and the scores of a run; round trips are in tests/commands/test_data.py."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from steadyscore.collection.build import export
from steadyscore.collection.trec import falling_scores
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance


def test_judged_ids_with_a_space_are_refused_where_spaces_part_the_fields(tmp_path):
    instances = [Instance("1", "why", (Candidate("a", "text"),), judged={"b c": 1})]
    with pytest.raises(InputError, match="query 1: id 'b c' has a space, which a TREC file cannot hold"):
        export(tmp_path / "trec", "trec", instances, "x")
    assert not list((tmp_path / "trec").glob("*"))
    assert export(tmp_path / "beir", "beir", instances, "x")["qrels/test.tsv"] == 1


@given(st.lists(st.floats(-1e30, 1e30), max_size=8))
@example([0.5, 0.5, 0.2])
@example([1.0, 1.0 - 1e-9])
@example([2e-10, 1e-10])
def test_the_scores_of_a_run_fall_in_single_precision_and_are_the_given_ones_where_those_do(scores):
    ranked = sorted(scores, reverse=True)
    found = falling_scores(ranked)
    assert (np.diff(np.array(found, np.float32)) < 0).all()
    is_falling = len({np.float32(score) for score in ranked}) == len(ranked)
    assert found == (ranked if is_falling else [-rank for rank in range(1, len(ranked) + 1)])


@pytest.mark.parametrize(
    ("scores", "written"),
    [
        ((2e-10, 1e-10), ["2e-10", "1e-10"]),
        ((1.0, 1.0 - 1e-9), ["-1.0", "-2.0"]),
        ((0.5, 0.5), ["-1.0", "-2.0"]),
        ((0.5, None), ["-1.0", "-2.0"]),
    ],
)
def test_an_exported_run_has_the_first_stages_scores_where_they_fall_and_minus_the_rank_elsewhere(tmp_path, scores, written):
    pool = tuple(Candidate(id, "text", score=score) for id, score in zip("ba", scores, strict=True))
    export(tmp_path, "trec", [Instance("1", "why", pool)], "x")
    run = [line.split() for line in (tmp_path / "run.txt").read_text().splitlines()]
    assert [(fields[2], fields[4]) for fields in run] == [*zip("ba", written, strict=True)]
