"""The claim consumer end to end: `data build NAME --verdicts FILE`, then `audit --reader`, on the paper's two collections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.readers.reader import VERDICTS
from steadyscore.runs.folder import find_run
from tests.helpers.paths import SHARED


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def beir_folder(
    folder: Path, claims: Mapping[str, str], corpus: Iterable[dict], judged: Iterable[tuple[str, str, int]], run: Iterable[str]
) -> Path:
    write_lines(folder / "queries.jsonl", ({"_id": id, "text": text} for id, text in claims.items()))
    write_lines(folder / "corpus.jsonl", corpus)
    write_lines(folder / "qrels/test.tsv", ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judged)])
    write_lines(folder / "run.txt", run)
    return folder


def small_folder(folder: Path, claims: int) -> Path:
    """Claims with six candidates each."""
    places = [(f"{q}", f"d{q}-{c}", c) for q in range(claims) for c in range(6)]
    corpus = [{"_id": id, "title": "", "text": f"note {id} on thing {q} " + "word " * c} for q, id, c in places]
    judged = [(q, id, c % 2) for q, id, c in places]
    run = [f"{q} Q0 {id} {c + 1} {6 - c} own" for q, id, c in places]
    return beir_folder(folder, {f"{q}": f"thing {q} is blue" for q in range(claims)}, corpus, judged, run)


def build(name: str, folder: Path, verdicts: Path) -> None:
    assert main(["data", "build", name, "--from", str(folder), "--verdicts", str(verdicts)]) == 0


def audit(capsys, name: str, out: Path, reader: Path, *more: str, k: int = 2) -> dict[str, Any]:
    """What an audit says of a scorer that moves with the order, read by a tiny model."""
    capsys.readouterr()
    words = ["audit", "--scorer", "synthetic:slot:2", "--data", name, "--permutations", "4", "--reader", f"hf:{reader}"]
    assert main([*words, "--set", f"reader_k={k}", "--out", str(out), "--no-report", "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)


def test_scifact_from_its_files_to_verdict_flip(tmp_path, tiny_folder, capsys):
    kinds = [{}, {"d1-0": [{"label": "SUPPORT", "sentences": [0]}]}, {"d2-0": [{"label": "CONTRADICT", "sentences": [0]}]}]
    verdicts = write_lines(
        tmp_path / "claims_dev.jsonl", ({"id": q, "claim": f"thing {q}", "evidence": kinds[q % 3]} for q in range(6))
    )
    build("scifact", small_folder(tmp_path / "beir", 6), verdicts)
    assert open_collection("scifact").collection.task == "claim_verification"
    measures = audit(capsys, "scifact", tmp_path / "run", tiny_folder)["measures"]
    assert measures["verdict_flip"]["queries"] == measures["verdict_accuracy"]["queries"] == 6
    assert "ndcg@10" in measures  # retrieved and scored as passages are
    outputs = find_run(tmp_path / "run").read("outputs.parquet").to_pylist()
    assert {row["output"] for row in outputs} <= set(VERDICTS)


def test_disputed_claims_of_climate_fever_are_ranked_and_not_read(tmp_path, tiny_folder, capsys):
    labels = ["SUPPORTS", "DISPUTED", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED"]
    verdicts = write_lines(
        tmp_path / "climate-fever.jsonl",
        ({"claim_id": str(q), "claim": f"thing {q}", "claim_label": label, "evidences": []} for q, label in enumerate(labels)),
    )
    build("climate-fever", small_folder(tmp_path / "beir", 5), verdicts)
    found = audit(capsys, "climate-fever", tmp_path / "run", tiny_folder)
    assert (found["measures"]["tau_psi"]["queries"], found["measures"]["verdict_flip"]["queries"]) == (5, 3)
    assert {row["query_id"] for row in find_run(tmp_path / "run").read("outputs.parquet").to_pylist()} == {"0", "2", "3"}
    rule = ["gate", str(tmp_path / "run"), "--max", "verdict_flip=1"]  # nothing is missing: a disputed claim has no verdict
    assert main(rule) == 0, capsys.readouterr().err
    capsys.readouterr()
    plan = ["audit", "--scorer", "synthetic:slot", "--data", "climate-fever", "--reader", f"hf:{tiny_folder}"]
    assert main([*plan, "--dry-run", "--json"]) == 0
    [planned] = json.loads(capsys.readouterr().out)
    assert [reader["prompts"] for reader in planned["readers"]] == [3 * 10]


# ---- the real files


def shared_rows(path: str) -> list[dict]:
    return [json.loads(line) for line in (SHARED / path).read_text().splitlines()]


def shared_folder(folder: Path, name: str, claims: list[dict], part: str = "") -> Path:
    """A shared folder as BEIR has it; document ids lose their spaces, which a run file cannot hold."""
    corpus = [{"_id": _id(d["docid"]), "title": d["title"], "text": d["text"]} for d in shared_rows(f"{name}/corpus.jsonl")]
    judged = [(row["qid"], _id(row["docid"]), row["grade"]) for row in shared_rows(f"{name}/qrels{part}.jsonl")]
    run = [
        f"{row['qid']} Q0 {_id(id)} {rank} {score} bm25"
        for row in shared_rows(f"{name}/run_bm25_top100{part}.jsonl")
        for rank, (id, score) in enumerate(zip(row["docids"], row["scores"], strict=True), 1)
    ]
    return beir_folder(folder, {claim["claim_id"]: claim["claim"] for claim in claims}, corpus, judged, run)


def _id(name: str) -> str:
    return name.replace(" ", "_")


def _evidence(claim: dict) -> dict[str, list[dict]]:
    """As SciFact's own file has it: document -> rationales."""
    by_document: dict[str, list[dict]] = {}
    for one in claim["evidence"]:
        by_document.setdefault(one["docid"], []).append({"label": one["label"], "sentences": one["sentences"]})
    return by_document


@pytest.mark.shared
@pytest.mark.slow
def test_the_real_scifact_claims(tmp_path, tiny_folder, capsys):
    claims = shared_rows("scifact/claims_test.jsonl")
    verdicts = write_lines(
        tmp_path / "claims_dev.jsonl",
        ({"id": int(c["claim_id"]), "claim": c["claim"], "evidence": _evidence(c)} for c in claims),
    )
    build("scifact", shared_folder(tmp_path / "beir", "scifact", claims, "_test"), verdicts)
    assert main(["data", "check", "scifact"]) == 0  # 300 claims, 300 verdicts
    found = audit(capsys, "scifact", tmp_path / "run", tiny_folder, "--queries", "4", k=1)  # more does not fit the tiny model
    assert found["measures"]["verdict_flip"]["queries"] == 4


@pytest.mark.shared
@pytest.mark.slow  # 1,535 pools of 100
def test_the_real_climate_fever_claims(tmp_path, tiny_folder, capsys):
    claims = shared_rows("climate-fever/claims.jsonl")
    verdicts = write_lines(
        tmp_path / "climate-fever.jsonl",
        ({"claim_id": c["claim_id"], "claim": c["claim"], "claim_label": c["verdict"], "evidences": []} for c in claims),
    )
    build("climate-fever", shared_folder(tmp_path / "beir", "climate-fever", claims), verdicts)
    assert main(["data", "check", "climate-fever"]) == 0  # 1,535 claims, 1,381 verdicts
    first = [instance.verdict for instance in open_collection("climate-fever").instances()][:30]
    with_verdict = sum(verdict is not None for verdict in first)
    assert 0 < with_verdict < len(first)
    found = audit(capsys, "climate-fever", tmp_path / "run", tiny_folder, "--queries", "30", "--pool", "8")
    assert found["measures"]["verdict_flip"]["queries"] == with_verdict
