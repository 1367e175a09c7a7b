"""Tables as people have them: every shape gives the same instances, and what cannot be read is one sentence."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steadyscore.cli import main
from steadyscore.collection import check, open_collection, read_instances
from steadyscore.collection.files import MOST_MISTAKES
from steadyscore.errors import InputError
from steadyscore.terms import Candidate, Instance
from tests.collection.test_passages import beir, trec

ROWS = [
    {"qid": "007", "question": "Größe?\r\nwhy", "docid": "01", "document": 'a "quoted", cell', "label": 2, "bm25_score": 3.5},
    {"qid": "007", "question": "Größe?\r\nwhy", "docid": "1", "document": "NA", "label": None, "bm25_score": 2.25},
    {"qid": "8", "question": "1e3", "docid": "01", "document": "2020-01-01", "label": 0, "bm25_score": 0.5},
]
INSTANCES = [
    Instance("007", "Größe?\r\nwhy", (Candidate("01", 'a "quoted", cell', relevance=2), Candidate("1", "NA"))),
    Instance("8", "1e3", (Candidate("01", "2020-01-01", relevance=0),)),
]


def write_csv(path: Path, rows: list[dict], separator: str = ",", **how) -> Path:
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter=separator, **how)
    writer.writeheader()
    writer.writerows(rows)
    path.write_bytes(text.getvalue().encode())
    return path


def write_table(path: Path, rows: list[dict]) -> Path:
    """Rows in the form that the ending says."""
    packed = path.name.endswith(".gz")
    plain = path.with_name(path.name.removesuffix(".gz"))
    match plain.suffix:
        case ".csv":
            write_csv(plain, rows)
        case ".tsv":
            write_csv(plain, rows, "\t")
        case ".jsonl":
            plain.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".json":
            plain.write_text(json.dumps(rows, indent=1))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(rows), plain)
        case ".saved":
            plain.mkdir()
            (plain / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
            table = pa.Table.from_pylist(rows)
            with pa.ipc.new_stream(plain / "data-00000-of-00001.arrow", table.schema) as stream:
                stream.write_table(table)
            (plain / "cache-1.arrow").write_bytes(b"what map left")
    if packed:
        path.write_bytes(gzip.compress(plain.read_bytes()))
    return path


ENDINGS = ["csv", "tsv", "jsonl", "json", "parquet", "csv.gz", "tsv.gz", "jsonl.gz", "json.gz", "saved"]
FRAMES = {"list": list, "pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.Table.from_pylist}


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_of_any_kind_gives_the_same_instances_from_python_and_the_command_line(tmp_path, ending, capsys):
    file = write_table(tmp_path / f"mine.{ending}", ROWS)
    source = open_collection(file)
    assert (list(source.instances()), source.collection.task) == (INSTANCES, "passage_reranking")
    assert source.collection.name == ("mine.saved" if ending == "saved" else "mine")
    assert source.digest == open_collection(ROWS).digest
    assert main(["data", "export", str(file), "--format", "jsonl", "--out", str(tmp_path / "again.jsonl")]) == 0
    assert list(read_instances(tmp_path / "again.jsonl")) == INSTANCES
    assert main(["data", "check", str(file)]) == 0
    assert "2 queries, no mistake" in capsys.readouterr().out


@pytest.mark.parametrize("kind", FRAMES)
def test_a_frame_of_any_kind_gives_the_same_instances(kind):
    assert list(open_collection(FRAMES[kind](ROWS)).instances()) == INSTANCES


def test_one_line_says_what_was_recognised_and_one_what_is_not_there(tmp_path, caplog):
    file = write_table(tmp_path / "mine.csv", ROWS)
    for _ in range(3):  # a command may open its data several times
        open_collection(file)
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}: query=question, query_id=qid, text=document, doc_id=docid, relevance=label; ignored: bm25_score",
        f"{file}: no rank, so candidates count as ranked in the order they stand in",
    ]


def test_a_name_in_the_folder_is_a_file_and_not_a_collection_that_nobody_knows(tmp_path, monkeypatch):
    write_table(tmp_path / "mine.csv", ROWS)
    monkeypatch.chdir(tmp_path)
    assert list(open_collection("mine.csv").instances()) == INSTANCES
    with pytest.raises(InputError, match=r"^other\.csv: no such file"):
        open_collection("other.csv")
    (tmp_path / "mine.xlsx").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"^mine\.xlsx is not a table that can be read\. Give one that ends in \.csv"):
        open_collection("mine.xlsx")


QUERIES = [
    {"prompt": "p", "responses": ["x", "y"], "grades": [1, 0]},
    {"prompt": "q", "responses": ["z", "w"], "grades": [0, 3]},
]
ONE_SHAPE_OR_ANOTHER = {
    "lists": QUERIES,
    "objects": [
        {
            "prompt": row["prompt"],
            "responses": [{"text": t, "grade": g} for t, g in zip(row["responses"], row["grades"], strict=True)],
        }
        for row in QUERIES
    ],
    "rows": [
        {"prompt": row["prompt"], "response": text, "grade": grade}
        for row in QUERIES
        for text, grade in zip(row["responses"], row["grades"], strict=True)
    ],
}


@pytest.mark.parametrize("ending", ["jsonl", "json", "parquet", "saved"])
@pytest.mark.parametrize("shape", ONE_SHAPE_OR_ANOTHER)
def test_a_row_per_query_and_a_row_per_candidate_are_the_same(tmp_path, shape, ending):
    source = open_collection(write_table(tmp_path / f"x.{ending}", ONE_SHAPE_OR_ANOTHER[shape]))
    pools = [[(each.id, each.text, each.relevance) for each in instance.pool] for instance in source.instances()]
    assert source.collection.task == "response_ranking"
    assert pools == [[("1", "x", 1), ("2", "y", 0)], [("1", "z", 0), ("2", "w", 3)]]


@pytest.mark.parametrize("ending", ENDINGS)
def test_pairs_are_the_same_in_every_kind_of_file(tmp_path, ending):
    pairs = [{"prompt": f"p{i}", "chosen": "good", "rejected": "bad"} for i in range(5)]
    assert list(open_collection(write_table(tmp_path / f"x.{ending}", pairs)).instances()) == list(
        open_collection(pairs).instances()
    )


cells = st.text(st.characters(codec="utf-8", exclude_characters="\x00\x1e"), min_size=1, max_size=12).filter(str.strip)
rows_of = st.lists(
    st.fixed_dictionaries({"query": cells, "text": cells, "label": st.none() | st.integers(0, 3), "noise": st.floats(0, 1)}),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60, deadline=None)
@given(rows_of)
def test_whatever_the_cells_hold_arrives_unchanged(tmp_path_factory, rows):
    """Rows -> CSV, TSV, JSON Lines, JSON, Parquet, pandas, polars -> equal instances."""
    expected = list(open_collection(rows).instances())
    folder = tmp_path_factory.mktemp("cells")
    for ending in ENDINGS[:5]:
        file = folder / f"x.{ending}"
        write_csv(file, rows, {"csv": ",", "tsv": "\t"}[ending], quoting=csv.QUOTE_ALL) if ending[1:] == "sv" else write_table(
            file, rows
        )
        assert list(open_collection(file).instances()) == expected
    for make in FRAMES.values():
        assert list(open_collection(make(rows)).instances()) == expected
    assert [each.text for instance in expected for each in instance.pool] == [
        row["text"] for query in dict.fromkeys(row["query"] for row in rows) for row in rows if row["query"] == query
    ]


GOOD = "query,text,label\nq,x,1\n"
HOSTILE = {
    "empty": ("x.csv", "", "is empty. Give a heading"),
    "heading alone": ("x.csv", "query,text\n", "there is no row to score."),
    "blank lines": ("x.csv", "\n\n", "is empty"),
    "other separator": ("x.csv", "claim:text\nq:x\n", "no column is recognised as query or as text among claim:text."),
    "no heading": (
        "x.csv",
        "why,because\nwhy,so\n",
        "among why, because. Say it: --columns query=COLUMN,text=COLUMN. The first row",
    ),
    "one column missing": (
        "x.csv",
        "query,label\nq,1\n",
        "no column is recognised as text among query, label. Say it: --columns",
    ),
    "two of one name": ("x.csv", "query,text,text\nq,x,y\n", "several columns are called text."),
    "not UTF-8": ("x.csv", GOOD.encode() + b"q,\xff,1\n", "byte 26 is not UTF-8; save the file as UTF-8."),
    "UTF-16": ("x.csv", GOOD.encode("utf-16"), "byte 1 is not UTF-8; save the file as UTF-8."),
    "a quote that stays open": ("x.csv", GOOD + 'q,"y,1\nq,z,1\n', "row 3: a cell begins with a quote that is never closed."),
    "a short row behind an empty line": ("x.csv", GOOD + "\n\nq,y\n", "row 5: 2 cells where the heading has 3"),
    "200 short rows": ("x.csv", GOOD + "q,y\n" * 200, "row 3: 2 cells where the heading has 3 (so in 200 places: 3, 4, 5, ...)"),
    "200 bad labels": (
        "x.csv",
        GOOD + "".join(f"q,y{i},good{i}\n" for i in range(200)),
        'row 3: "label" is "good0", not an integer from 0 to 2147483647 (so in 200 places: 3, 4, 5, ...)',
    ),
    "200 bad lines": ("x.jsonl", '{"query": "q", "text": "x"}\n' + "{oops\n" * 200, "x.jsonl:2: not JSON at column 2"),
    "200 rows twice": (
        "x.csv",
        "query,doc_id,text\n" + "".join(f"q{i},d,x\n" * 2 for i in range(200)),
        "row 3: query '1': candidate id 'd' occurs more than once in the pool; where a query was asked several times, "
        "give each time a query_id (so in 200 places: 3, 5, 7, ...)",
    ),
    "a row twice": (
        "x.csv",
        "query,doc_id,text\nq,a,x\nq,b,y\nother,b,y\nq,c,z\nq,b,y\nq,b,y\n",
        "row 6: query '1': candidate id 'b' occurs more than once in the pool; where a query was asked several times, give",
    ),
    "mixed types": ("x.jsonl", '{"query": "q", "text": "x"}\n{"query": "q", "text": {"a": 1}}\n', ':2: "text" is an object of 1'),
    "lists as text": ("x.csv", 'query,documents\nq,"[""a"", ""b""]"\n', "documents holds no lists."),
    "an object": ("x.json", '{"data": [{"query": "q", "text": "x"}]}', "no column is recognised as query or as text among data."),
    "an object over lines": ("x.json", json.dumps({"query": "q", "documents": ["x"]}, indent=1), "holds one object. Give a list"),
    "columns": (
        "x.json",
        '{"query": {"0": "q"}, "text": {"0": "x"}}',
        "Give a list of objects, or one on each line (pandas: orient",
    ),
    "a number": ("x.json", "7", ":1: int is not a dict"),
    "not Parquet": ("x.parquet", GOOD, "cannot be read as Parquet"),
    "not gzip": ("x.csv.gz", GOOD, "the gzip stream is damaged or cut short"),
    "gzip under another name": ("x.csv", gzip.compress(GOOD.encode()), "is packed with gzip, which its ending does not say."),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_cannot_be_read_is_one_sentence(tmp_path, case, capsys):
    name, content, message = HOSTILE[case]
    (file := tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as refusal:
        open_collection(file)
    assert len(refusal.value.mistakes) == 1
    assert message in str(refusal.value)
    assert check(file) == refusal.value.mistakes
    out = tmp_path / "run"
    assert main(["audit", "--scorer", "synthetic:none", "--data", str(file), "--out", str(out)]) == 1
    assert capsys.readouterr().err == f"steadyscore: {refusal.value}\n"
    assert not out.exists()


def test_a_file_that_is_broken_as_a_whole_stops_being_read(tmp_path):
    (file := tmp_path / "x.jsonl").write_text('{"query": "q", "text": "x"}\n' + "{oops\n" * (MOST_MISTAKES + 5))
    with pytest.raises(InputError, match=r"so in 1,000 places: 2, 3, 4, \.\.\.\)\n\.\.\. and more; reading stopped after 1,000"):
        open_collection(file)


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffquery,text\r\nq,x\r\n",
        "query;text\nq;x\n",
        "\ufeffsep=;\r\nquery;text\r\nq;x\r\n",
        "query|text\nq|x\n",
        'query,text,"a\nnote"\nq,x,y\n',
        " query , text\nq,x\n\n,\n",
        "query,text\rq,x\r",
        '"query","text"\n"q","x"',
    ],
    ids=["Windows", "semicolons", "Excel", "bars", "heading of two lines", "blanks", "old Mac", "quoted"],
)
def test_how_a_spreadsheet_writes_it_does_not_matter(tmp_path, content):
    (file := tmp_path / "x.csv").write_bytes(content.encode())
    assert list(open_collection(file).instances()) == [Instance("1", "q", (Candidate("1", "x"),))]


def test_lines_of_our_own_format_are_held_to_its_rules_and_others_are_recognised(tmp_path):
    own = {"id": "1", "query": "q", "candidates": [{"id": "a", "text": "x", "relevance": 1}]}
    (file := tmp_path / "x.jsonl").write_text(json.dumps(own) + "\n" + json.dumps(own | {"id": "2", "colour": 1}))
    with pytest.raises(InputError, match='"colour" is not a key of the format'):
        list(open_collection(file).instances())
    with pytest.raises(InputError, match="Leave out --columns"):
        open_collection(file, {"text": "x"})
    file.write_text(json.dumps(own | {"colour": 1}) + "\n" + json.dumps(own | {"id": "2"}))
    assert [instance.id for instance in open_collection(file).instances()] == ["1", "2"]


# -- folders


def test_a_folder_of_beir_files_is_a_collection(tmp_path, caplog):
    folder = beir(tmp_path / "mine")
    source = open_collection(folder)
    assert [instance.id for instance in source.instances()] == ["q1", "q2"]
    assert (source.collection.name, source.collection.queries) == ("mine", 2)
    assert caplog.messages[-1:] == [f"{folder}: beir files, first stage bm25; 1 queries without a judgement"]
    assert main(["data", "build", "mine", "--format", "beir", "--from", str(folder), "--out", str(tmp_path / "x.jsonl")]) == 0
    assert list(open_collection(tmp_path / "x.jsonl").instances()) == list(source.instances())
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "dev.tsv")
    assert open_collection(folder).digest == source.digest


def test_a_folder_of_trec_files_is_a_collection_with_its_run_as_first_stage(tmp_path, caplog):
    source = open_collection(str(trec(tmp_path / "mine")))
    assert [(each.id, each.rank) for each in next(source.instances()).pool] == [("A", 1), ("B", 2)]
    assert "first stage run; 1 negative grades read as 0; 1 run lines of queries outside the collection" in caplog.text


def test_a_folder_without_judgements_says_what_is_not_measured(tmp_path, caplog):
    folder = beir(tmp_path / "mine")
    (folder / "qrels" / "test.tsv").rename(folder / "qrels.tsv")
    assert 2 in [each.relevance for each in next(open_collection(folder).instances()).pool]
    (folder / "qrels.tsv").unlink()
    open_collection(folder)
    assert caplog.messages[-1].endswith("; no judgements, so nothing that needs judgements is measured")


def test_a_run_in_a_folder_is_known_by_its_beginning_or_its_ending(tmp_path):
    folder = trec(tmp_path / "mine")
    expected = open_collection(folder).digest
    run = next(folder.glob("run*"))
    run.rename(folder / "bm25.run")
    assert open_collection(folder).digest == expected
    (folder / "topics.txt").write_text("<topics/>\n")
    with pytest.raises(InputError, match="holds no query; give JSON lines"):
        open_collection(folder)


def test_a_folder_that_holds_nothing_is_told_what_it_may_hold(tmp_path):
    with pytest.raises(InputError, match=r"holds no data that is known; give a file, or a folder of BEIR files \(corpus\.jsonl"):
        open_collection(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "data-00000-of-00001.arrow").write_bytes(b"x")
    with pytest.raises(InputError, match=f"is not one collection; name one of its parts: {tmp_path / 'train'}"):
        open_collection(tmp_path)
    with pytest.raises(InputError, match=r"arrow cannot be read as a saved dataset"):
        open_collection(tmp_path / "train")
    table = write_table(tmp_path / "docs" / "train-00000-of-00002.parquet", ROWS)
    with pytest.raises(InputError, match=f"name one of its parts: {table}"):
        open_collection(tmp_path / "docs")
    with pytest.raises(InputError, match="format whose names are fixed"):
        open_collection(trec(tmp_path / "trec"), {"text": "x"})
