"""Real files in ../shared/data: the first stage's quality as published, and our BM25 against the run beside a corpus."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from steadyscore.cli import main
from steadyscore.collection import check, open_collection, read_instances
from tests.helpers.paths import SHARED

pytestmark = [pytest.mark.shared, pytest.mark.skipif(not SHARED.is_dir(), reason=f"{SHARED} is absent")]


def rows(path: str) -> list[dict]:
    with (SHARED / path).open() as file:
        return [json.loads(line) for line in file]


def laid_out(folder: Path, name: str, queries: dict[str, str], qrels: str, run: str | None) -> Path:
    """The files of a shared folder as a TREC folder."""
    folder.mkdir()
    (folder / "topics.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in queries.items()))
    (folder / "qrels.txt").write_text(
        "".join(f"{row['qid']} 0 {row['docid']} {row['grade']}\n" for row in rows(f"{name}/{qrels}"))
    )
    (folder / "corpus.jsonl").symlink_to(SHARED / name / "corpus.jsonl")
    if run:
        lines = (
            f"{row['qid']} Q0 {id} {rank} {score} bm25\n"
            for row in rows(f"{name}/{run}")
            for rank, (id, score) in enumerate(zip(row["docids"], row["scores"], strict=True), 1)
        )
        (folder / "run.txt").write_text("".join(lines))
    return folder


def ndcg_at_10(path: Path) -> float:
    """In first-stage order, by trec_eval's own code; the ideal ranking counts judged documents outside the pool."""
    import ir_measures

    qrels, run = {}, {}
    for instance in open_collection(path).instances():
        judged = {candidate.id: candidate.relevance for candidate in instance.pool if candidate.relevance is not None}
        qrels[instance.id] = judged | (instance.judged or {})
        run[instance.id] = {candidate.id: -float(candidate.rank) for candidate in instance.pool}
    return ir_measures.calc_aggregate([ir_measures.nDCG @ 10], qrels, run)[ir_measures.nDCG @ 10]


@pytest.mark.parametrize(("name", "queries", "ndcg"), [("trec-dl19", 43, 0.5058), ("trec-dl21", 53, 0.4458)])
def test_the_official_first_stage(tmp_path, name, queries, ndcg):
    topics = {row["qid"]: row["text"] for row in rows(f"{name}/queries.jsonl")}
    folder = laid_out(tmp_path / "trec", name, topics, "qrels.jsonl", "run_bm25_top100.jsonl")
    known, out = name.removeprefix("trec-"), tmp_path / "out.jsonl"
    assert main(["data", "build", known, "--from", str(folder), "--out", str(out)]) == 0
    assert main(["data", "check", str(out)]) == 0  # as many queries as in the paper's table
    assert {len(instance.pool) for instance in read_instances(out)} == {100}
    assert ndcg_at_10(out) == pytest.approx(ndcg, abs=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "topics", "id", "text", "qrels", "run"),
    [
        ("scifact", "claims_test.jsonl", "claim_id", "claim", "qrels_test.jsonl", "run_bm25_top100_test.jsonl"),
        ("cranfield", "queries.jsonl", "qid", "text", "qrels.jsonl", "run_bm25_top100.jsonl"),
    ],
)
def test_our_bm25_against_the_run_beside_the_corpus(tmp_path, name, topics, id, text, qrels, run):
    queries = {row[id]: row[text] for row in rows(f"{name}/{topics}")}
    figures = []
    for folder in (
        laid_out(tmp_path / "ours", name, queries, qrels, None),
        laid_out(tmp_path / "theirs", name, queries, qrels, run),
    ):
        out = tmp_path / f"{folder.name}.jsonl"
        assert main(["data", "build", "real", "--format", "trec", "--from", str(folder), "--out", str(out)]) == 0
        assert check(out) == []
        figures.append(ndcg_at_10(out))
    assert abs(figures[0] - figures[1]) < 0.01, figures


def test_our_own_ndcg_gives_the_same_figure(tmp_path):
    metrics = pytest.importorskip("steadyscore.measures.ranking")
    import numpy as np

    topics = {row["qid"]: row["text"] for row in rows("trec-dl19/queries.jsonl")}
    folder = laid_out(tmp_path / "trec", "trec-dl19", topics, "qrels.jsonl", "run_bm25_top100.jsonl")
    out = tmp_path / "dl19.jsonl"
    assert main(["data", "build", "dl19", "--from", str(folder), "--out", str(out)]) == 0
    figures = []
    for instance in read_instances(out):
        scores = -np.arange(len(instance.pool), dtype=float)[None]
        relevance = [float("nan") if candidate.relevance is None else candidate.relevance for candidate in instance.pool]
        judged = [*relevance, *(instance.judged or {}).values()]
        figures.append(float(metrics.ndcg(scores, relevance, 10, judged_gains=judged)[0]))
    assert np.mean(figures) == pytest.approx(0.5058, abs=5e-5)
