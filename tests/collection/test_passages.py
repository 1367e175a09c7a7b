"""Passage collections from miniatures in the exact public formats, with their quirks."""

from __future__ import annotations

import gzip
import json
import sys
from collections import namedtuple
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from steadyscore.collection.files import Report
from steadyscore.collection.first_stage import FirstStage, parse_first_stage
from steadyscore.collection.passages import BuildRequest, Documents, Files, find_files, from_files, from_ir_datasets, own_files
from steadyscore.collection.splits import sample_ids
from steadyscore.collection.trec import read_corpus, read_qrels, read_topics, read_trec_run
from steadyscore.errors import InputError

CORPUS = [
    {"_id": "d1", "title": "Wing lift", "text": "Lift grows with the angle of attack."},
    {"_id": "d2", "title": "", "text": 'Drag of a "flat" plate, größer als gedacht.'},
    {"_id": "d3", "text": "Lift and drag of wings."},
    {"_id": "d4", "title": "", "text": "  "},
    {"_id": "d5", "title": "Lift by title only", "text": ""},
]


def beir(folder: Path, corpus=CORPUS, qrels="q1\td1\t2\nq1\tabsent\t1\nq2\td2\t1\n") -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(document) + "\r\n" for document in corpus)
    (folder / "corpus.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    queries = [{"_id": "q1", "text": "wing  lift"}, {"_id": "q2", "text": "drag"}, {"_id": "q3", "text": "unjudged"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)
    return folder


def built(
    folder: Path, format: str = "beir", split: str = "test", stage: str | None = None, depth: int = 100, choose=None, **how
):
    report, request = Report(), BuildRequest(replace(own_files("own", format), **how), depth=depth)
    files = find_files(folder, format, split)
    chosen = parse_first_stage(stage) if stage else FirstStage("run", str(files.run)) if files.run else parse_first_stage("bm25")
    return list(from_files(files, chosen, request, report, choose)), report


def test_beir_folder(tmp_path):
    (one, two), report = built(beir(tmp_path))
    assert (one.id, one.query) == ("q1", "wing lift")
    assert {candidate.id for candidate in one.pool} == {"d1", "d3", "d5"}  # d2 shares no word, d4 is empty
    assert [candidate.rank for candidate in one.pool] == [1, 2, 3]
    assert all(a.score >= b.score for a, b in zip(one.pool, one.pool[1:], strict=False))
    by_id = {candidate.id: candidate for candidate in one.pool}
    assert (by_id["d1"].relevance, by_id["d3"].relevance) == (2, None)
    assert (by_id["d1"].title, by_id["d3"].title) == ("Wing lift", None)
    assert (by_id["d5"].text, by_id["d5"].title) == ("Lift by title only", None)
    assert one.judged == {"absent": 1}  # judged, not in the corpus: still in the ideal ranking
    assert "größer" in {candidate.id: candidate.text for candidate in two.pool}["d2"]
    assert report.dropped == {"queries without a judgement": 1}


def test_depth_keeps_one_candidate_more(tmp_path):
    (one, _), _ = built(beir(tmp_path), depth=1)
    assert len(one.pool) == 2  # the pool of one, and the next for pool replacement


def test_a_beir_folder_tells_which_splits_it_has(tmp_path):
    with pytest.raises(InputError, match="choose with --split of `data build` among test"):
        find_files(beir(tmp_path), "beir", "dev")


def test_absent_files_are_told_together(tmp_path):
    with pytest.raises(InputError) as error:
        find_files(tmp_path, "trec", "test")
    assert len(error.value.mistakes) == 2


def trec(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "topics.txt").write_text(
        "<top>\n<num> Number: 301\n<title> International\nOrganized Crime\n<desc> Description:\nlong\n</top>\n"
        "<top>\n<num>302</num><title>Polio</title>\n</top>\n"
    )
    (folder / "qrels.txt").write_text("301 0 A 1\n301 0 B -2\n302 0 C 0\n")
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({"id": id, "contents": f"text of {id}, on crime"}) + "\n" for id in "ABCD")
    (folder / "run.txt").write_text("301 Q0 B 2 1.5 bm25\n301 Q0 A 1 2.5 bm25\n302 Q0 C 1 3 bm25\n999 Q0 C 1 3 bm25\n")
    return folder


def test_trec_topics_qrels_and_run(tmp_path):
    (crime, polio), report = built(trec(tmp_path), "trec")
    assert (crime.id, crime.query, polio.query) == ("301", "International Organized Crime", "Polio")
    assert [(each.id, each.rank, each.score, each.relevance) for each in crime.pool] == [("A", 1, 2.5, 1), ("B", 2, 1.5, 0)]
    assert report.notes == {"negative grades read as 0": 1, "run lines of queries outside the collection": 1}


OBJECT = '{"id": "[3]", "text": "third"}'


@pytest.mark.parametrize("topics", ["[3]\tthird\n4\tfourth\n", f"[{OBJECT}]", f"[\n{OBJECT}\n]"])
def test_an_id_in_brackets_is_not_taken_for_json(tmp_path, topics):
    folder = trec(tmp_path)
    (folder / "topics.txt").write_text(topics)
    (folder / "qrels.txt").write_text("[3] 0 A 1\n")
    (folder / "run.txt").write_text("[3] Q0 A 1 2.5 x\n")
    (only,), _ = built(folder, "trec")
    assert (only.id, only.query) == ("[3]", "third")


def test_a_run_whose_ranks_contradict_its_scores_is_noted(tmp_path):
    folder = trec(tmp_path)
    (folder / "run.txt").write_text("301 Q0 A 1 2.5 x\n301 Q0 B 2 3.5 x\n302 Q0 C 1 3 x\n302 Q0 D 2 3 x\n")
    (crime, _), report = built(folder, "trec")
    assert [each.id for each in crime.pool] == ["A", "B"]
    assert report.notes["queries of the run whose ranks contradict its scores; the ranks were taken"] == 1


def test_msmarco_tsv_keeps_bare_quotes(tmp_path):
    (tmp_path / "collection.tsv").write_text('0\tThe "Manhattan Project" began\n1\ta "lone quote\n2\ttab\tin text\n')
    (tmp_path / "queries.train.tsv").write_text('9\twhat is "it\n10\tother\n')
    (tmp_path / "queries.dev.tsv").write_text("11\tdev\n")
    (tmp_path / "qrels.train.tsv").write_text("9\t0\t1\t1\n10\t0\t0\t1\n")
    (tmp_path / "run.train.tsv").write_text("9\t1\t1\n9\t0\t2\n10\t2\t1\n")
    found, _ = built(tmp_path, "msmarco", "train")
    assert [each.query for each in found] == ['what is "it', "other"]
    assert [each.text for each in found[0].pool] == ['a "lone quote', 'The "Manhattan Project" began']
    assert found[0].pool[0].score is None
    assert found[1].pool[0].text == "tab\tin text"
    one, _ = built(tmp_path, "msmarco", "train", choose=lambda ids: sample_ids(ids, 1))
    assert len(one) == 1


def test_every_mistake_of_every_file_is_listed_before_the_first_instance(tmp_path):
    folder = trec(tmp_path)
    (folder / "topics.txt").unlink()
    (folder / "topics.tsv").write_bytes(b"301\tone\n301\tother\nno tab\n302\t\n\xff\n")
    (folder / "qrels.txt").write_text("301 0 A 1\n301 0 A 2\n301 A\n301 0 A high\n")
    (folder / "run.txt").write_text("301 Q0 A 1 2.5 x\n301 Q0 A 2 2.0 x\n301 Q0 Z 3 1 x\n301 Q0 B 4 nan x\n301 Q0\n")
    with gzip.open(folder / "corpus.jsonl.gz", "wt") as file:
        file.write('{"id": "A", "contents": "x"}\n{"id": "A", "contents": "y"}\n{bad\n{"contents": "no id"}\n[1]\n')
    stage, request = FirstStage("run", str(folder / "run.txt")), BuildRequest(own_files("own", "trec"), depth=10)
    with pytest.raises(InputError) as error:
        next(from_files(find_files(folder, "trec", "test"), stage, request, Report()))
    told = "\n".join(error.value.mistakes)
    for sign in (
        "topics.tsv:2: query id '301' occurs twice", "topics.tsv:3: no tab", "topics.tsv:4: a query needs",
        "topics.tsv:5: byte 1 is not UTF-8", "qrels.txt:2: document A of query 301 is judged twice", "qrels.txt:3: not a judge",
        "grade (so in 2 places: 3, 4)", "run.txt:2: query 301 already has", "run.txt:3: document Z of query 301 is not in the",
        "run.txt:4: not a line of a run", "run.txt:5: not a line", "corpus.jsonl.gz:2: document id 'A' occurs twice",
        "corpus.jsonl.gz:3: not JSON", "corpus.jsonl.gz:4: a document without an id", "corpus.jsonl.gz:5: is not a JSON object",
    ):  # fmt: skip
        assert sign in told, f"{sign}\n{told}"


def test_a_document_given_twice_alike_is_a_note(tmp_path):
    _, report = built(beir(tmp_path, corpus=[*CORPUS, CORPUS[0]]))
    assert report.notes == {"documents given twice, alike": 1}


def test_without_itself_removes_the_query_from_its_pool(tmp_path):
    corpus = [{"_id": f"q{i}", "text": f"wing lift drag {i}"} for i in (1, 2, 3)]
    found, report = built(beir(tmp_path, corpus=corpus, qrels="q1\tq2\t1\nq2\tq1\t1\n"), without_itself=True)
    assert [[each.id for each in instance.pool] for instance in found] == [["q2", "q3"], ["q1", "q3"]]
    assert [each.rank for each in found[0].pool] == [1, 2]
    assert report.dropped["candidates that are the query itself"] == 2


def test_queries_that_find_nothing_are_dropped_by_name(tmp_path):
    _, report = built(beir(tmp_path, corpus=[{"_id": "d1", "text": "nothing alike"}]))
    assert report.dropped["queries without a first-stage candidate"] == 2


def test_parquet_corpus_and_json_arrays_are_read(tmp_path):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"_id": ["a"], "title": [None], "text": ["x"]}), tmp_path / "c.parquet")
    (tmp_path / "c.json").write_text('[{"_id": "b", "text": "y"},\n {"_id": "c", "text": "z"}]')
    report = Report()
    assert [each[1:] for each in read_corpus([tmp_path / "c.parquet", tmp_path / "c.json"], report)] == [
        ("a", None, "x"),
        ("b", None, "y"),
        ("c", None, "z"),
    ]
    assert not report.mistakes


def test_ir_datasets_ids(monkeypatch):
    """A dataset with the interface of ir_datasets: default_text, qrels, scored documents, a document store."""
    Query, Judged = namedtuple("Query", "query_id text"), namedtuple("Judged", "query_id doc_id relevance")
    Scored, Doc = namedtuple("Scored", "query_id doc_id score"), namedtuple("Doc", "doc_id title text")
    Query.default_text = lambda self: self.text
    docs = {id: Doc(id, "", f"lift of wing {id}") for id in "abc"}

    class Dataset:
        def queries_iter(self):
            return [Query("1", "wing\nlift"), Query("2", "unjudged")]

        def qrels_iter(self):
            return [Judged("1", "a", 3), Judged("1", "b", -1)]

        def scoreddocs_iter(self):
            return [Scored("1", "b", 1.0), Scored("1", "a", 2.0), Scored("2", "c", 1.0)]

        def docs_store(self):
            return docs

        def docs_iter(self):
            return docs.values()

    module = type(sys)("ir_datasets")
    module.load = lambda id: Dataset()
    monkeypatch.setitem(sys.modules, "ir_datasets", module)
    request = BuildRequest(own_files("own", "trec"), depth=10)
    (listed,) = from_ir_datasets("some/id", None, request, Report())
    assert [(each.id, each.relevance, each.rank) for each in listed.pool] == [("a", 3, 1), ("b", 0, 2)]
    assert listed.query == "wing lift"
    (searched,) = from_ir_datasets("some/id", parse_first_stage("bm25"), request, Report())
    assert len(searched.pool) == 3


def test_readers_alone(tmp_path):
    (tmp_path / "q.tsv").write_text("1\ta b\n")
    (tmp_path / "qrels").write_text("1 0 doc:1 2\n")
    (tmp_path / "run").write_text("1 Q0 doc:1 1 0.5 tag\n")
    report = Report()
    assert read_topics(tmp_path / "q.tsv", report) == {"1": "a b"}
    assert read_qrels(tmp_path / "qrels", report) == {"1": {"doc:1": 2}}
    assert [line[1:] for line in read_trec_run(tmp_path / "run", report)] == [("1", "doc:1", 1, 0.5)]
    assert Files(tmp_path / "q.tsv", ()).run is None
    with closing(Documents()) as documents:
        assert documents.text_of("none") is None


def test_a_passage_id_wins_over_the_id_of_its_document(tmp_path):
    """MS MARCO v2: {"pid", "passage", "spans", "docid"}."""
    path = tmp_path / "msmarco_passage_00.gz"
    with gzip.open(path, "wt") as file:
        file.write('{"pid": "msmarco_passage_00_0", "passage": "text", "spans": "(0,4)", "docid": "msmarco_doc_00_0"}\n')
    assert [each[1:] for each in read_corpus([path], Report())] == [("msmarco_passage_00_0", None, "text")]
