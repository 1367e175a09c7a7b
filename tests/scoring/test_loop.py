"""All tasks of the loop against tables that were frozen before there was one, at one request at a time and at many."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

import pytest

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, http
from steadyscore.engines.kinds import open_engine
from steadyscore.readers.reader import ask_reader
from steadyscore.runs.folder import Run
from steadyscore.scoring import parts
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.parts import Worker
from steadyscore.scoring.perturbation import noise_floor, score_perturbed
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.terms import Perturbation
from steadyscore.training.labels import label_by_run
from tests.engines.test_http import grade_of, rerank, tokens
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_claims, some_instances, write_collection
from tests.test_golden import frozen, plain, reading, table

CONFIG = AuditConfig(permutations=3, cut=Cut(pool=6), settings=Settings(width=3))
KINDS = [kind for kind in get_args(Perturbation) if "markers" not in kind]
COUNTED = ("queries", "scored", "failed", "windows", "tokens", "cut", "shrunk")


@pytest.fixture(autouse=True)
def _alone(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    for name in ("STEADYSCORE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def chat(path, body):
    """A chat model that grades by the text alone, under whatever markers."""
    shown = re.findall(r"^\[([^\[\]]+)\] (.*)$", body["messages"][-1]["content"], re.M)
    lines = [f"[{marker}] Grade: {grade_of(text)}\n" for marker, text in shown if not text.startswith("Grade")]
    choice = {"message": {"content": "".join(lines)}, "logprobs": {"content": [one for line in lines for one in tokens(line)]}}
    return {"choices": [choice], "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}


def tables(run):
    """The tables that a run shows to people, and what its record counts."""
    coverage = {name: value for name, value in run.record.to_json()["coverage"].items() if name in COUNTED}
    tables = {file.name: table(file) for file in sorted(run.folder.glob("*.parquet")) if file.name != "outputs.parquet"}
    outputs = run.read("outputs.parquet").select(["query_id", "permutation", "output"]) if run.has("outputs.parquet") else None
    return {"coverage": plain(coverage, run.folder), "outputs": outputs and outputs.to_pylist()} | tables


def scorer_at(address, source, options):
    return scorer_for(open_engine(address, options), source.collection, CONFIG)


def everything_beside(address, source, folder, options, kinds):
    """A run with its noise reads and perturbations, read query by query and in shared calls."""
    scorer = scorer_at(address, source, options)
    run = score_collection(scorer, source, folder, CONFIG)
    run.write_noise(noise_floor(scorer, source, CONFIG, run.read_noise(), keep=run.write_noise)[0])
    score_perturbed(scorer, run, source, CONFIG, kinds)
    return tables(Run.open(folder))


def everything(folder, concurrency):
    """What runs, shares, noise reads, perturbations, readers and labels leave behind."""
    folder.mkdir()
    options = EngineOptions(timeout=60, retries=1, concurrency=concurrency)
    source = open_collection(str(write_collection(folder / "pools.jsonl", some_instances(queries=6, candidates=8))))
    made = {"synthetic": everything_beside("synthetic:companion:0.3", source, folder / "synthetic", options, KINDS)}
    with Server(rerank) as server:
        address = f"rerank+cohere:m@{server.url}/rerank"
        made["rerank"] = everything_beside(address, source, folder / "rerank", options, ["churn", "drop", "forced-position"])
        server.always = lambda body: "400" if "thing 2 " in str(body) or "thing 5 " in str(body) else None
        made["failing"] = tables(score_collection(scorer_at(address, source, options), source, folder / "failing", CONFIG))
    with Server(chat) as server:
        address = f"openai+logprobs:m@{server.url}/v1"
        made["chat"] = everything_beside(address, source, folder / "chat", options, ["drop", "markers", "held-out-markers"])
        labels = replace(CONFIG, canonical=True, scheme="hashed")
        label_by_run(score_collection(scorer_at(address, source, options), source, folder / "labels", labels))
        made["labels"] = tables(Run.open(folder / "labels"))
        for number in (1, 0):
            Worker(scorer_at(address, source, options), source, folder / "shares", CONFIG).score(number)
        made["shares"] = tables(score_collection(scorer_at(address, source, options), source, folder / "shares", CONFIG))
    with Server(reading) as server:
        claims = open_collection(some_claims(folder, 5))
        run = score_collection(scorer_at("synthetic:slot:0.3", claims, EngineOptions()), claims, folder / "claims", CONFIG)
        ask_reader(run, claims, f"openai:reader@{server.url}", k=2, options=options)
        made["reader"] = tables(Run.open(folder / "claims"))
    return made


@pytest.mark.parametrize("concurrency", [1, 8])
def test_every_kind_of_task_leaves_the_tables_that_it_left(tmp_path, monkeypatch, concurrency):
    monkeypatch.setitem(parts.plan_parts.__kwdefaults__, "windows", 20)
    frozen("loop", everything(tmp_path / "runs", concurrency))
