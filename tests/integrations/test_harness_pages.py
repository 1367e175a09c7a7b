"""docs/harnesses.md: its files run, by the tools themselves where these are installed, and give what an audit gives."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import steadyscore
from steadyscore.measures.preference import change
from tests.helpers.paths import ROOT

PAGE = (ROOT / "docs" / "harnesses.md").read_text(encoding="utf-8")
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT / "src"), "HF_DATASETS_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}


def section(title):
    return re.split(r"^## ", PAGE, flags=re.M)[[part.split("\n")[0] for part in re.split(r"^## ", PAGE, flags=re.M)].index(title)]


def write_files(title, folder):
    """The files of a section, each the block after its name."""
    for name, body in re.findall(r"`(\w+\.\w+)`[^\n]*:\n\n```\w+\n(.*?)```", section(title), re.S):
        (folder / name).write_text(body)


def run(command, folder, **more):
    known = ENVIRONMENT | more
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=True, env=known).stdout


def scores(folder, results):
    (folder / "scores.csv").write_text(run([sys.executable, "to_scores.py", results], folder))
    return folder / "scores.csv"


def first_of_every_order(file):
    """Query -> who stood first in each order."""
    shown: dict[str, list[str]] = {}
    for row in csv.DictReader(file.read_text().splitlines()):
        if row["slot"] == "0":
            shown.setdefault(row["query_id"], []).append(row["candidate_id"])
    return shown


# ---- promptfoo

JUDGE = 'def call_api(prompt, options, context):\n    return {"output": "1"}\n'


@pytest.fixture
def promptfoo(tmp_path):
    write_files("promptfoo", tmp_path)
    (tmp_path / "judge.py").write_text(JUDGE)
    assert {file.name for file in tmp_path.iterdir()} == {"orders.py", "promptfooconfig.yaml", "to_scores.py", "judge.py"}
    return tmp_path


def check_promptfoo(file):
    audit = steadyscore.audit(scores=file)[0]
    shown = first_of_every_order(file)
    by_hand = np.mean([change(ids) for ids in shown.values()])  # whoever stands first is chosen
    assert audit["selection_flip"].value == pytest.approx(by_hand, abs=1e-9)
    assert f"reaches {by_hand:.3f} on these orders" in section("promptfoo")


def test_the_files_for_promptfoo_run_on_results_as_promptfoo_writes_them(promptfoo):
    tests = json.loads(run([sys.executable, "-c", "import json, orders; print(json.dumps(orders.permuted()))"], promptfoo))
    assert len(tests) == 4 * len({test["metadata"]["query_id"] for test in tests})
    results = [{"testCase": test, "response": {"output": "1"}} for test in tests]
    (promptfoo / "results.json").write_text(json.dumps({"results": {"results": results}}))
    check_promptfoo(scores(promptfoo, "results.json"))
    results[3]["response"] = {"output": "neither"}
    (promptfoo / "results.json").write_text(json.dumps({"results": {"results": results}}))
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        scores(promptfoo, "results.json")
    assert "names no response" in refusal.value.stderr


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("promptfoo"), reason="promptfoo is not here: npm install -g promptfoo@0.123.1")
def test_promptfoo_runs_the_page(promptfoo):
    command = ["promptfoo", "eval", "-c", "promptfooconfig.yaml", "-o", "results.json", "--no-cache"]
    offline = {"PROMPTFOO_DISABLE_TELEMETRY": "1", "PROMPTFOO_DISABLE_UPDATE": "1", "PROMPTFOO_PYTHON": sys.executable}
    run(command, promptfoo, PROMPTFOO_CONFIG_DIR=str(promptfoo / "home"), **offline)
    check_promptfoo(scores(promptfoo, "results.json"))


# ---- lm-evaluation-harness


class Rows(list):
    """In place of a `datasets.Dataset`."""

    from_list = classmethod(lambda kind, rows: kind(rows))


QUESTIONS = [
    {"id": f"q{n}", "question": f"Which number is {n}?", "choices": [str(n), str(n + 1), "0"], "gold": 0} for n in range(6)
]


def test_the_files_for_lm_eval_permute_choices_and_make_a_score_file(tmp_path):
    write_files("lm-evaluation-harness", tmp_path)
    namespace: dict = {}
    exec((tmp_path / "orders.py").read_text(), namespace)
    permuted = namespace["permute"](Rows(QUESTIONS))
    assert all(row["choices"][row["gold"]] == row["id"][1:] for row in permuted)
    samples = [{"doc": row, "filtered_resps": [[-float(choice), False] for choice in row["choices"]]} for row in permuted]
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    audit = steadyscore.audit(scores=scores(tmp_path, "samples.jsonl"), keep_first=1)[0]
    assert audit.measured.coverage.permutations == [4]
    assert audit["tau_psi"].value == 0  # by what a choice says, whatever its place
    assert audit["ndcg@1"].value == pytest.approx(1 / 6)  # "0" is the likeliest everywhere, and right for one


@pytest.mark.slow
def test_lm_eval_runs_the_page(tmp_path):
    pytest.importorskip("lm_eval")
    write_files("lm-evaluation-harness", tmp_path)
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    command = [sys.executable, "-m", "lm_eval", "run", "--model", "dummy", "--include_path", ".", "--tasks", "permuted"]
    run([*command, "--log_samples", "--output_path", "out"], tmp_path)
    (samples,) = (tmp_path / "out").rglob("samples_permuted_*.jsonl")
    audit = steadyscore.audit(scores=scores(tmp_path, str(samples)), keep_first=1)[0]
    assert (audit.measured.coverage.queries, audit.measured.coverage.permutations) == (6, [4])
    assert audit["tau_psi"].value > 0  # that model draws its likelihoods


# ---- ir_datasets and PyTerrier


def test_a_dataset_and_a_collection_are_each_other(tmp_path):
    pytest.importorskip("ir_datasets")
    namespace: dict = {}
    exec(re.findall(r"```python\n(.*?)```", section("ir_datasets and PyTerrier"), re.S)[0], namespace)
    source = steadyscore.open_collection("passages")
    dataset = namespace["as_dataset"](source, tmp_path)
    judged = {(qrel.query_id, qrel.doc_id): qrel.relevance for qrel in dataset.qrels_iter()}
    pools = {instance.id: instance.pool for instance in source.instances()}
    assert judged == {(query, candidate.id): candidate.relevance or 0 for query, pool in pools.items() for candidate in pool}

    class WithRun:  # as datasets with an official first stage have it
        def __getattr__(self, name):
            return getattr(dataset, name)

        def scoreddocs_iter(self):
            from ir_datasets.formats import GenericScoredDoc

            return (
                GenericScoredDoc(q, candidate.id, -place) for q, pool in pools.items() for place, candidate in enumerate(pool)
            )

    rows = list(namespace["rows_of"](WithRun()))
    back, own = (
        steadyscore.audit("synthetic:slot:0.3", data, permutations=3, keep_first=5, quiet=True)[0] for data in (rows, source)
    )
    for measure in ("ndcg@10", "tau_psi", "overlap"):
        assert back[measure].value == pytest.approx(own[measure].value, abs=1e-9)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # PyTerrier's own code under pandas 3
def test_a_transformer_is_audited_as_the_scorer_in_it(tmp_path):
    pytest.importorskip("pyterrier")
    from steadyscore.integrations import Ranker
    from steadyscore.integrations.pyterrier import SteadyscoreTransformer

    namespace: dict = {}
    exec(re.findall(r"```python\n(.*?)```", section("ir_datasets and PyTerrier"), re.S)[1], namespace)
    score = namespace["scorer_of"](SteadyscoreTransformer(Ranker("synthetic:slot:0.3")))
    through, own = (
        steadyscore.audit(scorer, "passages", queries=4, permutations=3, keep_first=5, quiet=True)[0]
        for scorer in (score, "synthetic:slot:0.3")
    )
    for measure in ("ndcg@10", "tau_psi", "overlap"):
        assert through[measure].value == pytest.approx(own[measure].value, abs=1e-9)
