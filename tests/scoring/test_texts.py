"""What a scorer is shown: whole texts byte for byte for whoever scores texts, an excerpt that is said for a language model."""

from __future__ import annotations

import csv
import json
import shlex
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import steadyscore
from steadyscore.errors import RunMismatch
from tests.helpers.endpoint import Server
from tests.helpers.pools import write_collection

TEXTS = {
    "breaks": "one\ntwo\n\n\nthree\r\nfour\rfive",
    "tabs": "a\tb\t\tc  d   e",
    "unicode": "é \u0065\u0301 \u00a0 \u200b \u2028 \U0001f600 \ufeff \u202e漢字 \x01",
    "long": "".join(f"word {i}\n" for i in range(500))[:5000],
    "blanks": "  \n in front and behind \t\n ",
    "markup": '</s><|im_end|> "quoted" \\n {"a": [1]}',
}
TITLE = " A title\twith  blanks "
SEEN = [*TEXTS.values(), f"{TITLE}\ntext under it"]
POOL = [{"id": name, "text": text} for name, text in TEXTS.items()]
ROWS = [{"id": "q", "query": "what\n is  it", "candidates": [*POOL, {"id": "titled", "title": TITLE, "text": "text under it"}]}]


def candidate_rows(rows):
    return [
        {"query_id": row["id"], "query": row["query"], "candidate_id": c["id"], "text": c["text"], "title": c.get("title")}
        for row in rows
        for c in row["candidates"]
    ]


def in_pandas(rows):
    import pandas as pd

    return pd.DataFrame(candidate_rows(rows))


def in_polars(rows):
    import polars as pl

    return pl.DataFrame(candidate_rows(rows))


def in_arrow(rows):
    import pyarrow as pa

    return pa.Table.from_pylist(candidate_rows(rows))


SHAPES = {"rows": list, "candidates": candidate_rows, "pandas": in_pandas, "polars": in_polars, "arrow": in_arrow}


def in_csv(file, rows):
    with open(file, "w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, candidate_rows(rows)[0])
        writer.writeheader()
        writer.writerows(candidate_rows(rows))


def in_parquet(file, rows):
    import pyarrow.parquet as pq

    pq.write_table(in_arrow(rows), file)


FILES = {"jsonl": write_collection, "csv": in_csv, "parquet": in_parquet}


def shaped(shape, rows, folder):
    """Rows as a user has them: a value in memory, or the name of a file."""
    if shape in SHAPES:
        return SHAPES[shape](rows)
    FILES[shape](file := folder / f"c.{shape}", rows)
    return str(file)


@pytest.fixture(params=[*FILES, *SHAPES])
def data(request, tmp_path):
    return shaped(request.param, ROWS, tmp_path)


class Predictor:
    def __init__(self):
        self.seen = []

    def predict(self, pairs):
        self.seen.append([text for _, text in pairs])
        return [float(len(text)) for _, text in pairs]


def asked_function(data, tmp_path):
    seen = []
    steadyscore.audit(lambda query, texts: seen.append(texts) or [1.0 * len(t) for t in texts], data, permutations=2)
    return seen


def asked_object(data, tmp_path):
    predictor = Predictor()
    steadyscore.audit(predictor, data, permutations=2)
    return predictor.seen


def asked_program(data, tmp_path):
    source = """import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    open(sys.argv[1], "a").write(json.dumps(asked["candidates"]) + "\\n")
    print(json.dumps({"id": asked["id"], "scores": [len(t) for t in asked["candidates"]]}), flush=True)
"""
    (tmp_path / "program.py").write_text(source)
    words = [sys.executable, str(tmp_path / "program.py"), str(tmp_path / "seen")]
    steadyscore.audit(f"command:{shlex.join(words)}", data, permutations=2)
    return [json.loads(line) for line in (tmp_path / "seen").read_text().splitlines()]


def asked_endpoint(data, tmp_path):
    def answer(path, body):
        return {"results": [{"index": i, "relevance_score": len(t)} for i, t in enumerate(body["documents"])]}

    with Server(answer) as server:
        options = steadyscore.EngineOptions(concurrency=1)
        steadyscore.audit(f"rerank+cohere:{server.url}/rerank", data, permutations=2, options=options)
        return [body["documents"] for body in server.requests]


@pytest.mark.parametrize("ask", [asked_function, asked_object, asked_program, asked_endpoint])
def test_what_is_received_is_what_is_in_the_data(ask, data, tmp_path):
    seen = ask(data, tmp_path)
    assert len(seen) == 3  # the first-stage order and two others
    assert seen[0] == SEEN
    assert [sorted(texts) for texts in seen] == [sorted(SEEN)] * 3


def test_a_number_of_characters_that_is_asked_for_cuts():
    seen = []
    steadyscore.audit(lambda query, texts: seen.append(texts) or [1.0 * len(t) for t in texts], ROWS, permutations=2, chars=10)
    assert seen[0][0] == "one two th"


def test_a_language_model_is_shown_an_excerpt_and_every_output_says_of_how_many(tiny_folder, tmp_path):
    data = write_collection(tmp_path / "c.jsonl", ROWS)
    found = steadyscore.audit(f"hf:{tiny_folder}", str(data), permutations=2, chars=35, out=tmp_path / "run")
    sentence = "was shown the first 35 characters only of 2 of 7 candidates. --chars N shows more."
    assert sentence in str(found)
    assert any(sentence in warning for warning in found.to_json()["runs"][0]["warnings"])
    assert found.to_json()["runs"][0]["scoring"]["cut"] == 2
    assert sentence in found.page.read_text()
    whole = steadyscore.audit("synthetic:none", str(data), permutations=2)
    assert whole[0].record.fingerprint.chars is None
    assert "characters" not in str(whole)


def test_a_run_of_excerpts_is_not_resumed_with_whole_texts_in_silence(tmp_path):
    data = str(write_collection(tmp_path / "c.jsonl", ROWS))
    steadyscore.audit("synthetic:none", data, permutations=2, chars=1200, out=tmp_path / "run")
    with pytest.raises(RunMismatch, match=r"chars was 1200, now null \(whole texts; --chars 1200 goes on as it was\)"):
        steadyscore.audit("synthetic:none", data, permutations=2, out=tmp_path / "run")
    steadyscore.audit("synthetic:none", data, permutations=2, chars=1200, out=tmp_path / "run")


whole_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=60).filter(str.strip)


@pytest.mark.parametrize("shape", [*FILES, *SHAPES])
@settings(max_examples=25)
@given(texts=st.lists(whole_texts, min_size=2, max_size=4, unique=True), query=whole_texts)
def test_a_scorer_receives_what_the_user_has_whatever_it_is(shape, texts, query):
    rows = [{"id": "q", "query": query, "candidates": [{"id": f"c{i}", "text": text} for i, text in enumerate(texts)]}]
    asked = []
    with TemporaryDirectory() as folder:
        steadyscore.audit(
            lambda query, texts: asked.append((query, sorted(texts))) or [0.5] * len(texts),
            shaped(shape, rows, Path(folder)), permutations=2, quiet=True,
        )  # fmt: skip
    assert asked
    assert all(received == (query, sorted(texts)) for received in asked)
