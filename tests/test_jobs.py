"""What people come for, from files as they have them, in at most three commands without conversion.

Serving behind other people's clients is in serve/test_clients.py and decision_models/test_clients.py, the notebooks in
test_examples.py, the wheel and its extras in helpers/check_wheel.py.
"""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import math
import random
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steadyscore import audit
from steadyscore.cli import main
from tests.helpers.endpoint import Server


@pytest.fixture
def command(tmp_path, monkeypatch, capsys, caplog):
    """Run one command in a fresh folder: exit code, stdout, and what was said. A fourth is one too many."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    count = itertools.count(1)

    def run(line: str) -> tuple[int, str, str]:
        assert next(count) <= 3
        caplog.clear()
        code = main(line.split())
        out, err = capsys.readouterr()
        return code, out, "\n".join([*caplog.messages, err])

    return run


def write_csv(file: str, rows: list[dict]) -> None:
    with open(file, "w", newline="", encoding="utf-8-sig") as stream:  # as a spreadsheet saves it
        writer = csv.DictWriter(stream, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def discordance(rankings: list[list[str]]) -> float:
    """The share of pairs of candidates on whose order two rankings disagree, over all pairs of rankings."""
    shares = []
    for one, other in itertools.combinations(rankings, 2):
        pairs = list(itertools.combinations(one, 2))
        shares.append(sum(other.index(a) > other.index(b) for a, b in pairs) / len(pairs))
    return sum(shares) / len(shares)


# -- a rerank endpoint with a log


def log_rows(queries: int = 12, passages: int = 6) -> list[dict]:
    draw = random.Random(7)
    return [
        {
            "question": f"what about subject {q}?",
            "doc_id": f"kb-{q}-{d}",
            "passage": f'subject {q}, note {d}, "strength" {draw.random():.3f}',
            "rank": d,
            "clicked": int(d == 0),
        }
        for q in range(queries)
        for d in range(passages)
    ]


EFFECT = 0.15
"""What the planted endpoint adds to whoever stands one place further to the front."""


def planted(path, body):
    texts = body["documents"]
    scores = [float(text.split()[-1]) - EFFECT * slot for slot, text in enumerate(texts)]
    return {"results": [{"index": i, "relevance_score": score} for i, score in enumerate(scores)]}


def test_a_rerank_endpoint_on_a_csv_log(command):
    write_csv("log.csv", log_rows())
    with Server(planted) as server:
        code, table, said = command(
            f"audit --scorer endpoint=rerank+cohere:{server.url} --data log.csv --match-retention 0.3 --json --out runs/log"
        )
        asked = [body["documents"] for body in server.requests]
    assert code == 0
    assert "log.csv: query=question, text=passage, doc_id=doc_id, rank=rank; ignored: clicked" in said
    assert "no relevance, so nothing that needs judgements is measured" in said
    rankings = defaultdict(list)
    for texts in asked:
        if [int(text.split()[3].strip(",")) for text in texts] != list(range(len(texts))):  # not the order of the log
            ranked = sorted(range(len(texts)), key=lambda i: EFFECT * i - float(texts[i].split()[-1]))
            rankings[texts[0].split(",")[0]].append([texts[i] for i in ranked])
    expected = np.mean([discordance(each) for each in rankings.values()])
    assert json.loads(table)["measures"]["tau_psi"]["value"] == pytest.approx(expected, abs=1e-12)
    code, table, said = command("gate runs/log --max tau_psi=0.05")
    assert code == 3
    assert f"tau_psi <= 0.05 fails with {expected:.4f}" in said
    code, place, _ = command("report runs/log")
    page = Path(place.strip()).read_text()
    assert code == 0
    assert "endpoint" in page
    assert "what about subject " in page  # the two orders of one query


# -- pairs of responses and a judge

JUDGE = """
def score(prompt, responses):
    quality = [float(response.split()[-1]) for response in responses]
    return [each + 0.5 * (slot == 0) for slot, each in enumerate(quality)]
"""


def pair_rows(count: int = 200) -> list[dict]:
    """A quarter of them closer than what the judge gives to the first place; every tenth is a tie by people's word."""
    return [
        {
            "prompt": f"Explain subject {i}.",
            "response_a": f"Answer one, worth {1 + gap * (i % 2)}",
            "response_b": f"Answer two, worth {1 + gap * (1 - i % 2)}",
            "winner": "tie" if i % 10 == 9 else "BA"[i % 2],
        }
        for i in range(count)
        for gap in [0.25 if i % 4 == 0 else 1.0]
    ]


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_two_hundred_pairs_and_a_judge(command, ending):
    rows = pair_rows()
    write_csv("pairs.csv", rows) if ending == "csv" else Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    Path("judge.py").write_text(JUDGE)
    code, table, said = command(f"audit --scorer judge=python:./judge.py:score --data pairs.{ending} --json --out runs/judge")
    assert code == 0
    assert "query=prompt, text=response_a+response_b, doc_id=side, relevance=winner" in said
    figures = {name: figure["value"] for name, figure in json.loads(table)["measures"].items()}
    flips = [i % 4 == 0 for i in range(200)]
    judged = [i % 10 != 9 for i in range(200)]
    assert figures["swap_flip"] == pytest.approx(sum(flips) / 200, abs=1e-12)
    assert figures["first_place_bias"] == pytest.approx(sum(flips) / 200, abs=1e-12)
    right = [not flip for flip, is_judged in zip(flips, judged, strict=True) if is_judged]
    assert figures["swap_accuracy"] == pytest.approx(sum(right) / len(right), abs=1e-12)
    assert command("gate runs/judge --max swap_flip=0.25")[0] == 0
    assert command("gate runs/judge --max swap_flip=0.249")[0] == 3


# -- runs of TREC


def test_five_trec_runs_with_qrels(command):
    draw = random.Random(3)
    grades = {f"q{q}": {f"d{d}": draw.randrange(4) for d in range(12)} for q in range(8)}
    Path("qrels.txt").write_text("".join(f"{q} 0 {d} {grade}\n" for q, judged in grades.items() for d, grade in judged.items()))
    rankings: dict[str, list[list[str]]] = {query: [] for query in grades}
    for number in range(5):
        lines = []
        for query, judged in grades.items():
            ranked = sorted(judged, key=lambda d: judged[d] + 2 * draw.random(), reverse=True)
            rankings[query].append(ranked)
            lines += [f"{query} Q0 {d} {rank} {100 - rank} mine\n" for rank, d in enumerate(ranked, 1)]
        Path(f"mine-{number}.run").write_text("".join(lines))
    files = " ".join(f"mine-{number}.run" for number in range(5))
    code, table, _ = command(f"audit --scores {files} --relevance qrels.txt --match-retention 0.25 --json")
    assert code == 0
    figures = {name: figure["value"] for name, figure in json.loads(table)["measures"].items()}

    def gain(ranked: list[str], judged: dict[str, int]) -> float:
        return sum(judged[d] / math.log2(place + 1) for place, d in enumerate(ranked[:10], 1))

    def ndcg(query: str) -> float:
        judged = grades[query]
        best = gain(sorted(judged, key=judged.get, reverse=True), judged)
        return np.mean([gain(ranked, judged) / best for ranked in rankings[query]])

    def kept(query: str) -> float:
        sets = [set(ranked[:3]) for ranked in rankings[query]]
        return np.mean([len(a & b) / len(a | b) for a, b in itertools.combinations(sets, 2)])

    assert figures["ndcg@10"] == pytest.approx(np.mean(list(map(ndcg, grades))), abs=1e-9)
    assert figures["tau_psi"] == pytest.approx(np.mean([discordance(each) for each in rankings.values()]), abs=1e-9)
    assert figures["overlap"] == pytest.approx(np.mean(list(map(kept, grades))), abs=1e-9)  # every score of a rank is one score


# -- a check that fails

SCORERS = """
def steady(query, documents):
    return [float(document.split()[-1]) for document in documents]

def unsteady(query, documents):
    return [value - 0.2 * place for place, value in enumerate(steady(query, documents))]
"""


def test_a_check_fails_on_the_unsteady_scorer_alone_and_says_why(command):
    write_csv("ci.csv", log_rows())
    Path("ci_scorers.py").write_text(SCORERS)
    scorers = " ".join(f"--scorer {name}=python:./ci_scorers.py:{name}" for name in ("steady", "unsteady"))
    assert command(f"audit {scorers} --data ci.csv --keep 2 --no-report --out runs")[0] == 0
    code, table, said = command("gate runs --min overlap=0.8 --junit gate.xml")
    assert code == 3
    assert [line.split()[-1] for line in table.splitlines() if "overlap >= 0.8" in line] == ["ok", "FAILED"]
    assert "unsteady on ci: overlap >= 0.8 fails with 0." in said
    cases = ElementTree.parse("gate.xml").findall(".//testcase")
    assert [case.find("failure") is None for case in cases] == [True, False]
    assert "overlap >= 0.8 fails with" in cases[1].find("failure").get("message")


# -- one content, every form

JUDGED = [
    row | {"relevance": (q := int(row["question"].split()[-1].strip("?")) + row["rank"]) % 3, "query_id": f"q{q - row['rank']}"}
    for row in log_rows(queries=5)
]


def saved_dataset(folder: Path) -> Path:
    """A folder as `Dataset.save_to_disk` lays it out."""
    folder.mkdir()
    (folder / "state.json").write_text('{"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}')
    (folder / "dataset_info.json").write_text("{}")
    table = pa.Table.from_pylist(JUDGED)
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    return folder


def lists_in_cells() -> list[dict]:
    pools: dict[str, dict] = {}
    for row in JUDGED:
        pool = pools.setdefault(row["query_id"], {"query_id": row["query_id"], "question": row["question"]})
        for name in ("passage", "doc_id", "relevance", "rank"):
            pool.setdefault(f"{name}s" if name != "relevance" else name, []).append(row[name])
    return list(pools.values())


def retrieval_folder(folder: Path, is_beir: bool) -> Path:
    (folder / "qrels").mkdir(parents=True) if is_beir else folder.mkdir()
    texts = "".join(json.dumps({"_id" if is_beir else "id": row["doc_id"], "text": row["passage"]}) + "\n" for row in JUDGED)
    (folder / "corpus.jsonl").write_text(texts)
    queries = {row["query_id"]: row["question"] for row in JUDGED}
    run = "".join(f"{row['query_id']} Q0 {row['doc_id']} {row['rank'] + 1} {9 - row['rank']} mine\n" for row in JUDGED)
    (folder / "run.txt").write_text(run)
    if is_beir:
        (folder / "queries.jsonl").write_text("".join(json.dumps({"_id": id, "text": q}) + "\n" for id, q in queries.items()))
        qrels = "".join(f"{row['query_id']}\t{row['doc_id']}\t{row['relevance']}\n" for row in JUDGED)
        (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{qrels}")
    else:
        (folder / "topics.tsv").write_text("".join(f"{id}\t{query}\n" for id, query in queries.items()))
        (folder / "qrels.txt").write_text("".join(f"{r['query_id']} 0 {r['doc_id']} {r['relevance']}\n" for r in JUDGED))
    return folder


def as_file(folder: Path, ending: str) -> Path:
    plain = folder / f"log.{ending.removesuffix('.gz')}"
    match plain.suffix:
        case ".tsv":
            pd.DataFrame(JUDGED).to_csv(plain, sep="\t", index=False)
        case ".csv":
            pd.DataFrame(JUDGED).to_csv(plain, sep=";", index=False, encoding="utf-8-sig", lineterminator="\r\n")
        case ".json":
            plain.write_text(json.dumps(JUDGED, indent=2))
        case ".jsonl":
            plain.write_text("\n".join(map(json.dumps, JUDGED)))
        case ".parquet":
            pq.write_table(pa.Table.from_pylist(JUDGED), plain)
    if ending.endswith(".gz"):
        (folder / f"log.{ending}").write_bytes(gzip.compress(plain.read_bytes()))
    return folder / f"log.{ending}"


FORMS = {
    **{ending: lambda folder, ending=ending: as_file(folder, ending) for ending in ("tsv", "csv", "json", "jsonl.gz", "parquet")},
    "beir": lambda folder: retrieval_folder(folder / "mine", is_beir=True),
    "trec": lambda folder: retrieval_folder(folder / "mine", is_beir=False),
    "saved": lambda folder: saved_dataset(folder / "mine"),
    "lists": lambda folder: lists_in_cells(),
    "pandas": lambda folder: pd.DataFrame(JUDGED),
    "polars": lambda folder: pl.DataFrame(JUDGED),
    "arrow": lambda folder: pa.Table.from_pylist(JUDGED),
}


def unsteady(query, texts):
    return [float(text.split()[-1]) - 0.1 * place for place, text in enumerate(texts)]


def figures_of(data, **settings) -> dict[str, float]:
    (result,) = audit(unsteady, data, permutations=4, match_retention=0.3, quiet=True, **settings)
    return {name: figure.value for name, figure in result.figures.items()}


@pytest.mark.parametrize("form", FORMS)
def test_one_content_gives_one_table_of_figures_in_every_form(tmp_path, form):
    expected = figures_of(JUDGED)
    assert {"ndcg@10", "tau_psi", "overlap", "retained_f1"} <= expected.keys()
    assert figures_of(FORMS[form](tmp_path)) == expected


@pytest.mark.parametrize("absent", ["relevance", "query_id", "doc_id", "rank"])
def test_what_the_data_does_not_say_is_said_and_all_else_is_measured(absent, tmp_path, caplog):
    rows = [{name: value for name, value in row.items() if name != absent} for row in JUDGED]
    write_csv(str(tmp_path / "log.csv"), rows)
    (said,) = [text for text in (figures_of(tmp_path / "log.csv") and caplog.messages) if f"no {absent}, so " in text]
    assert ";" not in said
    lost = figures_of(JUDGED).keys() - figures_of(rows).keys()
    assert bool(lost) == (absent == "relevance")
    assert not lost & {"tau_psi", "overlap", "pair_flip", "retention"}
