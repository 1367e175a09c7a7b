"""What TREC files cannot hold; round trips are in tests/commands/test_data.py."""

from __future__ import annotations

import pytest

from steadyscore.collection.export import export
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance


def test_judged_ids_with_a_space_are_refused_where_spaces_part_the_fields(tmp_path):
    instances = [Instance("1", "why", (Candidate("a", "text"),), judged={"b c": 1})]
    with pytest.raises(InputError, match="query 1: id 'b c' has a space, which a TREC file cannot hold"):
        export(tmp_path / "trec", "trec", instances, "x")
    assert not list((tmp_path / "trec").glob("*"))
    assert export(tmp_path / "beir", "beir", instances, "x")["qrels/test.tsv"] == 1
