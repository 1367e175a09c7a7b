"""Samples that nest, and parts that share neither id nor text."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.collection import open_collection
from steadyscore.collection.splits import leave_out_shared, sample_ids, shared_mistakes, shared_queries, split_parts, text_key
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance


def instance(id: str, query: str) -> Instance:
    return Instance(id, query, (Candidate("d", "text"),))


def test_parts_larger_than_the_stream_name_the_flag_that_sets_them():
    with pytest.raises(InputError, match=r"part train needs 2 queries, only 1 are left\. Lower --parts\.$"):
        list(split_parts([instance("a", "one")], {"train": 2}, Counter()))


def test_the_sample_is_sorted_ids_under_pythons_shuffle():
    ids = [str(i) for i in range(100)]
    expected = sorted(ids)
    random.Random(42).shuffle(expected)
    assert sample_ids(reversed(ids), 30) == expected[:30]
    assert sample_ids(["a", "b", "c", "d", "e"], 5) == ["d", "b", "c", "e", "a"]  # Mersenne Twister, seed 42
    with pytest.raises(InputError, match="a sample of 6"):
        sample_ids("abcde", 6)


@given(st.sets(st.text(max_size=4), min_size=1), st.data(), st.integers(0, 99))
def test_samples_of_one_seed_are_nested(ids, data, seed):
    large = data.draw(st.integers(0, len(ids)))
    small = data.draw(st.integers(0, large))
    assert sample_ids(ids, small, seed) == sample_ids(ids, large, seed)[:small]


@given(st.lists(st.sampled_from(["why", "Why?", "how", "when", "where so", "Where, so!"]), min_size=4, max_size=40))
def test_parts_share_no_id_and_no_text(queries):
    stream = [instance(str(i), query) for i, query in enumerate(queries)]
    dropped: Counter[str] = Counter()
    made: dict[str, list[Instance]] = {"train": [], "held-out": []}
    try:
        for part, each in split_parts(stream, {"train": 2, "held-out": 1}, dropped):
            made[part].append(each)
    except InputError:
        assert len({text_key(query) for query in queries[2:]} - {text_key(query) for query in queries[:2]}) == 0
        return
    assert (len(made["train"]), len(made["held-out"])) == (2, 1)
    assert shared_queries(made["train"], made["held-out"]) == []


def test_data_that_is_not_apart_is_named_with_counts_and_three_examples(tmp_path):
    def write(name, rows):
        lines = [
            {"id": id, "query": query, "candidates": [{"id": f"c{text}", "text": text} for text in texts]}
            for id, query, texts in rows
        ]
        (tmp_path / name).write_text("\n".join(map(json.dumps, lines)))
        return str(tmp_path / name)

    mine = open_collection(write("mine.jsonl", [(f"m{i}", f"query {i}", [f"text {i}", f"more {i}"]) for i in range(6)]))
    test = write("test.jsonl", [("m0", "other", ["a"]), ("t", "QUERY 1!", ["text 2", "text 3"]), ("u", "query 4", ["b"])])
    apart = write("apart.jsonl", [("x", "another", ["text"])])
    assert shared_mistakes("mine.jsonl", mine.instances, [apart]) == []
    (mistake,) = shared_mistakes("mine.jsonl", mine.instances, [apart, test])
    assert mistake.startswith(
        f"mine.jsonl is not apart from {test}: it shares 3 queries and 2 of 12 candidates with it, such as: "
    )
    assert mistake.count(";") == 2
    assert "query id 'm0' is in both" in mistake
    assert "candidate 'ctext 2' of query 'm2'" in mistake


def test_shared_queries_are_found_by_id_and_by_text():
    one = [instance("1", "Who wrote it?"), instance("2", "when")]
    other = [instance("9", "who wrote IT"), instance("2", "another"), instance("3", "where")]
    assert shared_queries(one, other) == ["query '9' has the text of '1'", "query id '2' is in both"]
    assert shared_queries(one, [instance("3", "where")]) == []


def test_apart_from_removes_by_text_and_counts():
    dropped: Counter[str] = Counter()
    kept = list(leave_out_shared([instance("1", "Same  Text."), instance("2", "new")], [instance("7", "same text")], dropped))
    assert [each.id for each in kept] == ["2"]
    assert sum(dropped.values()) == 1


def test_marks_and_symbols_tell_texts_apart_and_ways_of_writing_a_letter_do_not():
    assert text_key("दिन") != text_key("दान")
    assert text_key("???") != text_key("-")
    assert text_key("caf\u00e9") == text_key("cafe\u0301")
