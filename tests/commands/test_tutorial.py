"""The tutorial of docs/training.md, command by command in a fresh folder, from two CSV files to an answer of the server.

A tiny random model of two layers stands for the embedded one, so the layers are left out; nothing else is changed.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import httpx

from steadyscore.cli import main
from tests.helpers import tiny
from tests.helpers.paths import ROOT
from tests.helpers.serving import serving


def commands() -> list[list[str]]:
    """The commands of the section, in its order, as words."""
    page = (ROOT / "docs/training.md").read_text(encoding="utf-8")
    section = page.partition("## From your own file to an endpoint\n")[2].partition("\n## ")[0]
    blocks = "\n".join(re.findall(r"^```sh\n(.*?)^```$", section, re.M | re.S))
    words = shlex.split(blocks.replace("smollm2-135m", "hf:base").replace("--layers 24-29", "").replace("\\\n", ""))
    starts = [place for place, word in enumerate(words) if word in ("steadyscore", "curl")]
    return [words[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def write_csv(file: Path, seed: int) -> None:
    with open(file, "w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["question", "doc_id", "text", "grade"])
        for pool in tiny.instances(12, 5, seed):
            writer.writerows([pool["query"], c["id"], c["text"], c["relevance"]] for c in pool["candidates"])


def test_the_tutorial_ends_with_a_decision_of_the_trained_adapter(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tiny.save(tmp_path / "base", tiny.decoder())
    write_csv(tmp_path / "train.csv", seed=0)
    write_csv(tmp_path / "test.csv", seed=1)
    *typed, serve, ask = commands()
    assert [words[1] for words in typed] == ["label", "train", "train", "select", "audit", "compare", "adapter"]
    for words in typed:
        assert main(words[1:]) == 0, capsys.readouterr().err
        if words[1] in ("train", "select", "adapter"):
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
