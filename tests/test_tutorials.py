"""The tutorials of docs/tutorials/, carried out command by command in a fresh folder, with the files that the pages show.

A local server stands for the reader's endpoint, and a tiny random model of two layers for the embedded one, so layers are left
out; nothing else is changed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import steadyscore
from steadyscore.cli import main
from tests.helpers import tiny
from tests.helpers.endpoint import Server
from tests.helpers.paths import ROOT
from tests.helpers.serving import serving

PAGES = ROOT / "docs/tutorials"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.M | re.S)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """Language, file name and body of every fenced block."""
    return BLOCK.findall((PAGES / f"{page}.md").read_text(encoding="utf-8"))


def write_files(page: str, folder: Path) -> None:
    for _, name, body in blocks(page):
        if name:
            (folder / name).write_text(body, encoding="utf-8")


def shell(page: str, folder: Path, **replaced: str) -> list[str]:
    """Run every shell block as the reader would; what each printed."""
    tools = folder / "bin"
    tools.mkdir()
    for name, words in (("steadyscore", "-m steadyscore"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (tools / name).chmod(0o755)
    source = str(Path(steadyscore.__file__).parents[1])
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": f"{source}:{folder}"}
    printed = []
    for language, _, body in blocks(page):
        if language == "sh":
            for old, new in replaced.items():
                body = body.replace(old, new)
            done = subprocess.run(["bash", "-ec", body], cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr
            printed.append(done.stdout)
    return printed


def rerank(path: str, body: object) -> object:
    """Words of the query that a document has, and a bonus for standing early: an endpoint with an order effect."""
    if not isinstance(body, dict):
        return {}
    words, documents = set(body["query"].lower().split()), body["documents"]
    scores = [len(words & set(t.lower().split())) / 4 + 0.08 * (len(documents) - i) for i, t in enumerate(documents)]
    return {"results": [{"index": i, "relevance_score": min(1.0, score)} for i, score in enumerate(scores)]}


@pytest.mark.slow
def test_a_rerank_endpoint_is_audited_gated_and_made_steady(tmp_path):
    write_files("rerank-endpoint", tmp_path)
    with Server(rerank) as server:
        plan, audited, gated, compared = shell("rerank-endpoint", tmp_path, **{"http://localhost:8080": server.url})
    assert plan.splitlines()[-1].split()[1:4] == ["log.csv", "3", "33"]
    assert re.search(r"^mine .* 0\.\d", audited, re.M)
    assert "FAILED" in gated
    assert gated.endswith("exit code 3\n")
    assert re.search(r"^mine canonical-order +overlap +1\.000", compared, re.M)
    assert (tmp_path / "runs/rag/report/index.html").exists()


@pytest.mark.slow
def test_a_judge_shows_its_position_bias(tmp_path):
    write_files("judge-position-bias", tmp_path)
    audited, gated, compared, noise = shell("judge-position-bias", tmp_path)
    heading = audited.splitlines()[0].split()
    assert heading[1:5] == ["ndcg@1", "swap_flip", "first_place_bias", "swap_accuracy"]
    assert gated.endswith("exit code 3\n")
    assert re.search(r"^judge self-consistency:2 +swap_flip +0\.000", compared, re.M)
    assert "noise" in noise


@pytest.mark.slow
def test_trec_files_end_as_a_latex_table(tmp_path):
    write_files("trec-to-latex", tmp_path)
    *_, table = shell("trec-to-latex", tmp_path)
    assert table == (tmp_path / "table.tex").read_text()
    assert table.startswith("\\begin{table}")
    assert re.search(r"^words & tau\\_psi & 0\.000 &", table, re.M)


def commands() -> list[list[str]]:
    """The commands of the page on training, in its order, as words."""
    typed = "\n".join(body for language, _, body in blocks("train-on-your-own-file") if language == "sh")
    words = shlex.split(typed.replace("smollm2-135m", "hf:base").replace("--layers 24-29", "").replace("\\\n", ""))
    starts = [place for place, word in enumerate(words) if word in ("python", "steadyscore", "curl")]
    return [words[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_training_ends_with_a_decision_of_the_trained_adapter(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_files("train-on-your-own-file", tmp_path)
    tiny.save(tmp_path / "base", tiny.decoder())
    (_, script), *typed, serve, ask = commands()
    exec(compile(Path(script).read_text(), script, "exec"), {})
    assert [words[1] for words in typed] == ["label", "train", "train", "adapter", "audit", "compare", "adapter"]
    for words in typed:
        assert main(words[1:]) == 0, capsys.readouterr().err
        if words[1] in ("train", "adapter"):
            assert capsys.readouterr().err.splitlines()[-1].startswith("next: steadyscore")
    stored = json.loads((tmp_path / "adapters/chosen/card.json").read_text())["cutoff"]
    with serving(tmp_path, *serve[2:]) as (url, _):
        path, body = ask[2].partition(":8000")[2], json.loads(ask[ask.index("-d") + 1])
        answer = httpx.post(url + path, json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    decision, results = answer.json()["decision"], answer.json()["results"]
    assert (decision["kind"], decision["cutoff"], decision["expected_overlap"]) == (
        "threshold",
        stored["value"],
        stored["overlap"],
    )
    assert decision["kept"] == [one["index"] for one in results if one["score"] >= stored["value"]]


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_a_tutorial_takes_ten_minutes(page):
    assert len(page.read_text(encoding="utf-8").split()) <= 600
