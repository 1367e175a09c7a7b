"""The format on disk: reading, checking, writing, and the schema that agrees with the checker."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from steadyscore import collection as collections
from steadyscore.collection.format import header_mistakes, instance_from, instance_mistakes, instance_record
from steadyscore.errors import InputError, StorageError
from steadyscore.measures.ranking import ndcg
from steadyscore.terms import Candidate, Collection, Instance

LINE = {"id": "q1", "query": "why", "candidates": [{"id": "a", "text": "because"}, {"id": "b", "text": "so"}]}


def changed(**fields) -> dict:
    return {**LINE, **fields}


def candidate(**fields) -> dict:
    return changed(candidates=[{"id": "a", "text": "because", **fields}])


GOOD = {
    "bare": LINE,
    "graded": candidate(relevance=3, rank=1, score=-1.5, title="T"),
    "unjudged": candidate(relevance=None, title=None, rank=None, score=None),
    "integral float": candidate(relevance=2.0),
    "whole numbers as ids": changed(id=7, candidates=[{"id": 8, "text": "x"}, {"id": -9, "text": "y"}]),
    "control characters in a text": candidate(text="a\x00b\x1bc\u0085", title="\t"),
    "empty title": candidate(title=""),
    "answers": changed(answers=["yes", "aye"], verdict=None, judged=None),
    "verdict": changed(verdict="NOT ENOUGH INFO"),
    "judged": changed(judged={"c": 2, "d": 0}),
    "escaped pair": json.loads(json.dumps(changed(query="\\ud83d\\ude00")).replace("\\\\", "\\")),
    "unicode": changed(query="Größe \u2028 \ud7ff 😀", id="ü"),
}
BAD = {
    "no id": ({"query": "q", "candidates": LINE["candidates"]}, '"id" is missing'),
    "truth as id": (changed(id=True), '"id" is true'),
    "line end in an id": (changed(id="q\n1"), "has no control character"),
    "control character in a candidate's id": (candidate(id="a\x1b[2J"), "has no control character"),
    "relevance beyond 32 bits": (candidate(relevance=2**31), "an integer from 0 to 2147483647"),
    "relevance beyond every float": (candidate(relevance=10**400), "an integer from 0 to 2147483647"),
    "judgement beyond 32 bits": (changed(judged={"c": 2**31}), "an integer from 0 to 2147483647"),
    "blank query": (changed(query=" \t"), '"query" is'),
    "empty pool": (changed(candidates=[]), "at least one candidate"),
    "pool is an object": (changed(candidates={}), '"candidates" is an object of 0'),
    "no text": (changed(candidates=[{"id": "a"}]), 'candidate 1 (a): "text" is missing'),
    "blank text": (candidate(text="  "), 'candidate 1 (a): "text" is "  "'),
    "fractional relevance": (candidate(relevance=1.5), '"relevance" is 1.5'),
    "boolean relevance": (candidate(relevance=True), '"relevance" is true'),
    "text as relevance": (candidate(relevance="2"), '"relevance" is "2"'),
    "negative relevance": (candidate(relevance=-1), '"relevance" is -1'),
    "rank from zero": (candidate(rank=0), '"rank" is 0'),
    "text as score": (candidate(score="high"), '"score" is "high"'),
    "unknown verdict": (changed(verdict="MAYBE"), "one of SUPPORTED, REFUTED, NOT ENOUGH INFO"),
    "answer is a string": (changed(answers="yes"), '"answers" is "yes"'),
    "blank answer": (changed(answers=[""]), '"answers" is a list of 1'),
    "judged by word": (changed(judged={"c": "good"}), '"judged" is an object of 1'),
    "unknown keys": (changed(colour=1, size=2), '"size" is not a key of the format'),
    "unknown candidate key": (candidate(docid=1), 'candidate 1 (a): "docid" is not a key'),
    "a list": ([1], "is not a JSON object"),
    "candidate is a string": (changed(candidates=["a"]), 'candidate 1: "a" is not a JSON object'),
}
BEYOND_SCHEMA = {
    "same candidate twice": (changed(candidates=[{"id": "a", "text": "x"}] * 2), "candidate id 'a' occurs more than once"),
    "same rank twice": (
        changed(candidates=[{"id": i, "text": "x", "rank": 1} for i in "ab"]),
        "rank 1 occurs more than once",
    ),
    "rank for one of two": (
        changed(candidates=[{"id": "a", "text": "x", "rank": 1}, {"id": "b", "text": "y"}]),
        "1 of 2 candidates have a rank",
    ),
    "judged in the pool": (changed(judged={"a": 1}), "\"judged\" repeats 'a'"),
    "a number and its digits": (changed(candidates=[{"id": i, "text": "x"} for i in (7, "7")]), "candidate id '7' occurs more"),
    "a whole number with a point": (changed(id=7.0), '"id" is 7.0'),
    "score beyond every float": (candidate(score=10**400), '"score" is 1000'),
    "NaN score": (candidate(score=float("nan")), '"score" is NaN'),
    "infinite score": (candidate(score=float("inf")), '"score" is Infinity'),
}


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json.loads(collections.SCHEMA.read_text()))


@pytest.mark.parametrize("case", GOOD)
def test_good_lines_pass_the_checker_and_the_schema(case, schema):
    assert instance_mistakes(GOOD[case]) == []
    assert list(schema.iter_errors(GOOD[case])) == []
    again = instance_record(instance_from(GOOD[case]))
    assert instance_from(again) == instance_from(GOOD[case])


@pytest.mark.parametrize("case", [*BAD, *BEYOND_SCHEMA])
def test_bad_lines_fail_with_their_message(case, schema):
    line, message = {**BAD, **BEYOND_SCHEMA}[case]
    assert any(message in mistake for mistake in instance_mistakes(line)), instance_mistakes(line)
    if case in BAD:
        assert not schema.is_valid(line)


@pytest.mark.parametrize(
    ("header", "good"),
    [
        ({"name": "n", "task": "multidoc_qa", "chars": None, "anything": {"else": 1}}, True),
        ({"name": "n", "task": "multidoc_qa", "chars": 500, "depth": 100, "queries": 3, "instruction": "Find it"}, True),
        ({"name": "n"}, False),
        ({"name": "", "task": "multidoc_qa"}, False),
        ({"name": "n", "task": "qa"}, False),
        ({"name": "n", "task": "multidoc_qa", "chars": 0}, False),
        ({"name": "n", "task": "multidoc_qa", "depth": "all"}, False),
        ({"name": "n", "task": "multidoc_qa", "sha256": 3}, False),
        ([], False),
    ],
)
def test_headers_agree_with_the_schema(header, good, schema):
    assert (header_mistakes(header) == []) is good
    assert schema.is_valid({"collection": header}) is good


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", " ", "x", "SUPPORTED"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["id", "text", "x", ""]), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["id", "query", "candidates", "answers", "verdict", "judged", "more"]), json_values),
    st.dictionaries(st.sampled_from(["id", "text", "title", "relevance", "rank", "score", "more"]), json_values),
)
def test_checker_and_schema_agree_on_anything(fields, of_candidate):
    """A line the schema refuses is refused by the checker, and the other way round unless only the checker can know."""
    validator = jsonschema.Draft202012Validator(json.loads(collections.SCHEMA.read_text()))
    line = {**LINE, **fields}
    if "candidates" not in fields:
        line["candidates"] = [{"id": "a", "text": "because", **of_candidate}]
    pool = line["candidates"] if isinstance(line["candidates"], list) else []
    ids = [part.get("id") for part in (line, *pool) if isinstance(part, dict)]
    assume(not any(isinstance(id, float) for id in ids))  # a schema cannot tell 1.0 from 1
    only_here = ("occurs more than once", "have a rank; give it", '"judged" repeats')
    mistakes = [mistake for mistake in instance_mistakes(line) if not any(sign in mistake for sign in only_here)]
    assert validator.is_valid(line) is (mistakes == [])


def write_lines(path: Path, *records, **how) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), **how)
    return path


def some(count: int = 3, size: int = 5) -> list[Instance]:
    pool = tuple(Candidate(f"d{j}", f"text {j}", relevance=j % 4, rank=j + 1, score=1 / (j + 1)) for j in range(size))
    return [Instance(f"q{i}", f"what is {i}", pool) for i in range(count)]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_write_then_read_gives_the_same_instances(tmp_path, suffix):
    path = tmp_path / f"mine{suffix}"
    header = Collection("mine", "multidoc_qa", instruction="Find it", chars=None, details={"licence": "CC0"})
    assert collections.write(path, header, iter(some())) == 3
    source = collections.open_collection(path)
    read, instances = source.collection, source.instances
    assert (read.name, read.task, read.instruction, read.chars, read.queries) == ("mine", "multidoc_qa", "Find it", None, 3)
    assert read.details["licence"] == "CC0"
    assert list(instances()) == list(instances()) == some()
    assert collections.check(path) == []
    assert os.listdir(tmp_path) == [path.name]


def test_equal_contents_are_equal_files_whatever_the_time(tmp_path, monkeypatch):
    for name, now in (("a", 1e9), ("b", 2e9)):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        collections.write(tmp_path / f"{name}.jsonl.gz", Collection("c", "multidoc_qa"), some())
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_file_without_header_is_passage_reranking_named_as_the_file(tmp_path):
    source = collections.open_collection(write_lines(tmp_path / "own.jsonl", LINE))
    read, instances = source.collection, source.instances
    assert (read.name, read.task, read.chars, read.queries) == ("own", "passage_reranking", 1200, None)
    assert [each.id for each in instances()] == ["q1"]


def test_ranks_give_the_order_and_absent_ranks_keep_it(tmp_path):
    ranked = changed(candidates=[{"id": "a", "text": "x", "rank": 2}, {"id": "b", "text": "y", "rank": 1}])
    path = write_lines(tmp_path / "x.jsonl", ranked, changed(id="q2"))
    first, second = collections.read_instances(path)
    assert [each.id for each in first.pool] == ["b", "a"]
    assert [each.id for each in second.pool] == ["a", "b"]


def test_depth_keeps_rank_101_out_of_the_pool_and_its_grade_in_the_ideal(tmp_path):
    path = tmp_path / "deep.jsonl"
    collections.write(path, Collection("deep", "passage_reranking", details={"depth": 3}), some(1, 4))
    shallow = collections.open_collection(path).instances
    whole = partial(collections.open_collection(path).instances, reserve=True)
    assert [each.id for each in next(shallow()).pool] == ["d0", "d1", "d2"]
    assert next(shallow()).judged == {"d3": 3}
    assert [each.id for each in next(whole()).pool] == ["d0", "d1", "d2", "d3"]
    assert next(whole()).judged is None


def test_a_judgement_of_0_beyond_the_depth_is_kept(tmp_path):
    pool = tuple(Candidate(id, "text", relevance=grade) for id, grade in (("a", 1), ("b", 0), ("c", None), ("d", 2)))
    header = Collection("deep", "passage_reranking", details={"depth": 1})
    collections.write(tmp_path / "deep.jsonl", header, [Instance("q", "why", pool, judged={"e": 0})])
    (instance,) = collections.open_collection(tmp_path / "deep.jsonl").instances()
    assert instance.judged == {"e": 0, "b": 0, "d": 2}


def test_every_mistake_comes_with_its_line_at_once(tmp_path):
    lines = [json.dumps(LINE), "", "{oops", json.dumps(changed(id="q2", candidates=[])), json.dumps(LINE)]
    (path := tmp_path / "bad.jsonl").write_bytes("\r\n".join(lines).encode() + b"\r\n" + b'{"id": "\xff"}\r\n')
    found = collections.check(path)
    assert [mistake.split(": ")[0] for mistake in found] == [f"{path}:{line}" for line in (3, 4, 5, 6)]
    assert "already on line 1" in found[2]
    assert "not UTF-8" in found[3]
    with pytest.raises(InputError) as error:
        list(collections.read_instances(path))
    assert error.value.mistakes == found


def test_byte_order_mark_and_crlf_are_not_text(tmp_path):
    path = tmp_path / "windows.jsonl"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + json.dumps({"collection": {"name": "w", "task": "multidoc_qa"}}).encode()
        + b"\r\n"
        + json.dumps(LINE).encode()
        + b"\r\n"
    )
    assert collections.check(path) == []
    assert collections.open_collection(path).collection.name == "w"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no instance"),
        (b'{"collection": {"name": "n", "task": "multidoc_qa"}}\n', "holds no instance"),
        (b'{"collection": {"name": "n"}}\n' + json.dumps(LINE).encode(), 'header: "task" is missing'),
        (b'{"collection": {"name": "n", "task": "multidoc_qa"}, "id": 1}\n' + json.dumps(LINE).encode(), "stands outside"),
        (b'{"collection": {"name": "n", "task": "multidoc_qa", "queries": 2}}\n' + json.dumps(LINE).encode(), "counts 2 queries"),
        (b'{"collection": {"name": "n", "task": "multidoc_qa", "sha256": "0"}}\n' + json.dumps(LINE).encode(), "sha256 is not"),
        (b"[" * 100_000, "nested too deeply"),
        (json.dumps(LINE).replace("why", "\\ud83d").encode(), "half of a surrogate pair"),
    ],
    ids=["nothing", "header alone", "no task", "outside", "too few", "another sha256", "nested", "half of a pair"],
)
def test_damaged_files_are_told(tmp_path, content, message):
    (path := tmp_path / "x.jsonl").write_bytes(content)
    assert any(message in mistake for mistake in collections.check(path)), collections.check(path)


def test_absent_and_cut_files_are_told(tmp_path):
    assert "no such file" in collections.check(tmp_path / "none.jsonl")[0]
    packed = gzip.compress(json.dumps(LINE).encode() * 100)
    (path := tmp_path / "cut.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    assert "damaged or cut short" in collections.check(path)[0]
    (path := tmp_path / "plain.jsonl.gz").write_bytes(b"{}")
    with pytest.raises(InputError, match="damaged or cut short"):
        collections.open_collection(path)


def test_a_file_that_lost_lines_is_not_read_to_its_end_without_a_word(tmp_path):
    collections.write(path := tmp_path / "x.jsonl", Collection("x", "passage_reranking"), some(4))
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    found = collections.read_instances(path)
    assert [next(found).id for _ in range(3)] == [each.id for each in some(3)]  # a run of the first three is as it was
    with pytest.raises(InputError, match="holds 3 queries and its header counts 4, so it was cut short"):
        next(found)


def test_names_lead_to_files_or_to_the_next_step(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path))
    assert {"dl19", "rm-bench", "msmarco"} <= set(collections.names())
    with pytest.raises(InputError, match="steadyscore data get dl19"):
        collections.open_collection("dl19")
    with pytest.raises(InputError, match="Did you mean scifact"):
        collections.open_collection("scifac")
    collections.write(tmp_path / "collections" / "dl19.jsonl.gz", Collection("dl19", "passage_reranking"), some())
    collections.write(tmp_path / "collections" / "ours.jsonl", Collection("ours", "passage_reranking"), some())
    assert collections.open_collection("dl19").collection.queries == 3
    assert "ours" in collections.names()


@pytest.mark.parametrize("name", [path.stem for path in sorted(collections.EMBEDDED.glob("*.jsonl"))])
def test_embedded_collections_are_without_mistake(name, schema):
    assert collections.check(collections.location(name)) == []
    assert all(schema.is_valid(json.loads(line)) for line in collections.location(name).read_bytes().splitlines())


@pytest.mark.parametrize("name", ["passages", "claims", "responses"])
def test_length_does_not_tell_the_grade(name):
    """Sorted by length, either way, a pool is about as good as in random order (its expected nDCG@10, exactly)."""
    by_length, by_chance = [], []
    for instance in collections.open_collection(name).instances():
        pool = sorted(instance.pool, key=lambda candidate: candidate.id)
        grades = np.array([candidate.relevance for candidate in pool], float)
        if grades.any():
            lengths = np.array([len(candidate.text) for candidate in pool], float)
            by_length.append(ndcg([lengths, -lengths], grades))
            discounts = 1 / np.log2(np.arange(min(10, len(pool))) + 2)
            by_chance.append(grades.mean() * discounts.sum() / (np.sort(grades)[::-1][: len(discounts)] @ discounts))
    longest, shortest = np.mean(by_length, axis=0)
    assert longest == pytest.approx(np.mean(by_chance), abs=0.05)
    assert shortest == pytest.approx(np.mean(by_chance), abs=0.05)


def test_a_failing_source_writes_nothing(tmp_path):
    def broken():
        yield from some()
        raise InputError("the source ended")

    path = tmp_path / "x.jsonl"
    collections.write(path, Collection("old", "multidoc_qa"), some(1))
    with pytest.raises(InputError, match="the source ended"):
        collections.write(path, Collection("new", "multidoc_qa"), broken())
    assert collections.open_collection(path).collection.name == "old"
    assert os.listdir(tmp_path) == ["x.jsonl"]


def test_what_the_disk_refuses_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        collections.write(tmp_path / "file" / "x.jsonl", Collection("n", "multidoc_qa"), some())
    with pytest.raises(InputError, match=r"\.jsonl or \.jsonl\.gz"):
        collections.write(tmp_path / "x.json", Collection("n", "multidoc_qa"), some())


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "x.jsonl"
    collections.write(path, Collection("old", "multidoc_qa"), some(1))

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left on device"):
        collections.write(path, Collection("new", "multidoc_qa"), some())
    assert collections.open_collection(path).collection.name == "old"
    assert os.listdir(tmp_path) == ["x.jsonl"]


WRITER = """
import sys
from steadyscore.collection import write
from steadyscore.terms import Candidate, Collection, Instance
pool = tuple(Candidate(f"d{j}", "some words about it " * 20, relevance=j % 4, rank=j + 1, score=1.0) for j in range(10))
while True:
    write(sys.argv[1], Collection("x", "passage_reranking"), (Instance(f"q{i}", "why", pool) for i in range(300)))
"""


def test_killed_at_any_moment_the_file_is_whole(tmp_path):
    path, rng = tmp_path / "x.jsonl", random.Random(1)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:  # the first time; then it is written again and again
            time.sleep(0.01)
        time.sleep(rng.random() * 0.6)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert collections.check(path) == []
    collections.write(path, Collection("x", "passage_reranking"), some())
    assert os.listdir(tmp_path) == ["x.jsonl"]  # what killed writers left is gone


def test_a_name_that_no_file_can_have_is_refused_with_a_sentence():
    with pytest.raises(InputError):
        collections.open_collection("9" * 5000)
