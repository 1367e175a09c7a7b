"""Four whole audits against files that were frozen before the code was rearranged: same keys, same numbers, same page.

    plain     one scorer on one collection
    grid      two scorers on two collections, with a reader, perturbations and a noise floor
    scores    somebody else's score file
    resumed   an audit that was stopped half-way and begun again

`STEADYSCORE_FREEZE=1 pytest tests/test_golden.py` writes the files anew: only after a change that is meant to change figures.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from steadyscore.cli import main
from steadyscore.runs.folder import Run, find_run
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_claims

GOLDEN = Path(__file__).parent / "golden"
FREEZE = bool(os.environ.get("STEADYSCORE_FREEZE"))
RECORD = ("format", "status", "fingerprint", "name", "collection", "task", "source", "capabilities", "threshold", "coverage")
"""What the record of a run must go on saying, so that a folder of today is resumed tomorrow."""


UNSTEADY = ("seconds", "report", "parity", "sha256", "tokens")
"""Keys that differ between two runs of one command, or that only one of two versions has."""


def call(capsys, *words: object, code: int = 0) -> str:
    assert main([str(word) for word in words]) == code
    return capsys.readouterr().out


def plain(value: Any, folder: Path) -> Any:
    """Without what differs between two runs of one command: places, times, and the last digits of a number."""
    if isinstance(value, dict):
        return {without_places(k, folder): plain(v, folder) for k, v in value.items() if k not in UNSTEADY}
    if isinstance(value, list):
        return [plain(v, folder) for v in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.9g}")
    return without_places(value, folder) if isinstance(value, str) else value


def without_places(text: str, folder: Path) -> str:
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://server", text.replace(str(folder), "<folder>"))
    text = re.sub(r"<svg.*?</svg>|<style>.*?</style>", "", text, flags=re.S)
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:+]+", "<time>", text)
    text = re.sub(r"scored \d+ \w+ \d{4}", "scored <day>", text)
    text = re.sub(r"windows in [\d.,]+ s", "windows", text)
    return re.sub(r"(?m)^.*(python \d+\.\d+|versions|steadyscore \d+\.\d+).*$", "", text)


def frozen(name: str, found: dict[str, Any]) -> None:
    file = GOLDEN / f"{name}.json"
    if FREEZE:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    expected = json.loads(file.read_text())
    for part in expected:  # one part at a time: a short difference to read
        assert found[part] == expected[part], part


def everything(folder: Path, out: Path, printed: str) -> dict[str, Any]:
    """What an audit printed and left: JSON, page, tables, records."""
    page = without_places((out / "report" / "index.html").read_text(), folder)
    return {
        "printed": plain(json.loads(printed), folder),
        "summary": plain(json.loads((out / "summary.json").read_text()), folder),
        "markdown": without_places((out / "report" / "report.md").read_text(), folder).splitlines(),
        "page": [line.strip() for line in page.splitlines() if line.strip()],
        "measures": table(out / "measures.parquet"),
        "records": {
            str(file.parent.relative_to(out)): plain(
                {k: v for k, v in Run.open(file.parent).record.to_json().items() if k in RECORD}, folder
            )
            for file in sorted(out.glob("**/run.json"))
        },
        "tables": {str(file.relative_to(out)): table(file) for file in sorted(out.glob("**/scores.parquet"))},
    }


def table(file: Path) -> str:
    """A digest of a table's rows, in their order, floats to nine digits."""
    import pyarrow.parquet as pq

    rows = [[f"{v:.9g}" if isinstance(v, float) else v for v in row.values()] for row in pq.read_table(file).to_pylist()]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def test_a_plain_audit_is_what_it_was(capsys, tmp_path):
    words = shlex.split(
        "--scorer synthetic:companion:0.3 --data passages --queries 8 --permutations 5 --match-retention 0.3 --set curve=yes"
    )
    printed = call(capsys, "audit", *words, "--out", tmp_path / "run", "--json")
    more = {
        "gate": json.loads(call(capsys, "gate", tmp_path / "run", "--max", "tau_psi=1", "--json")),
        "plan": json.loads(call(capsys, "study", "plan", tmp_path / "run", "--margin", "0.05", "--json")),
        "recommend": json.loads(call(capsys, "compare", tmp_path / "run", "--target", "tau_psi=0.3", "--json")),
        "table": call(capsys, "audit", *words, "--out", tmp_path / "run", "--no-report"),
    }
    frozen("plain", everything(tmp_path, tmp_path / "run", printed) | {k: plain(v, tmp_path) for k, v in more.items()})


def reading(path: str, body: Any) -> Any:
    """A reader that depends on the order of its evidence: the verdict follows where one passage stands."""
    if body is None:
        return {"data": [{"id": "reader"}]}
    text = "".join(message["content"] for message in body["messages"])
    label = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")[sum(map(ord, text)) * text.find("note 3") % 3]
    return {"choices": [{"message": {"content": label}}], "usage": {"prompt_tokens": 10, "completion_tokens": 1}}


def test_two_scorers_on_two_collections_are_what_they_were(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir(), second.mkdir()
    sources = [some_claims(first, 6), some_claims(second, 5)]
    renamed = Path(sources[1]).with_name("others.jsonl")
    renamed.write_text(Path(sources[1]).read_text().replace('"claims"', '"others"'))
    scorers = ["synthetic:slot:0.3", "synthetic:companion:0.3"]
    with Server(reading) as server:
        words = [
            *(f"--scorer={s}" for s in scorers),
            f"--data={sources[0]}",
            f"--data={renamed}",
            "--noise-floor",
            "--cutoff=0.5",
        ]
        words += ["--perturb", "drop", f"--reader=openai:reader@{server.url}", "--set=reader_k=2", "--permutations=4"]
        printed = call(capsys, "audit", *words, "--out", tmp_path / "run", "--json", "--set", "ir=P@1")
    more = {
        "compare": json.loads(call(capsys, "compare", tmp_path / "run", "--json")),
        "gate": json.loads(call(capsys, "gate", tmp_path / "run", "--max", "verdict_flip=1", "--json")),
        "table": call(capsys, "compare", tmp_path / "run", "--report", tmp_path / "page"),
    }
    frozen("grid", everything(tmp_path, tmp_path / "run", printed) | {k: plain(v, tmp_path) for k, v in more.items()})


def test_a_score_file_is_what_it_was(capsys, tmp_path):
    random = np.random.default_rng(5)
    lines = ["query_id,permutation,candidate_id,score"]
    lines += [f"q{q},{m},d{c},{random.random():.6f}" for q in range(6) for m in range(4) for c in range(7)]
    (tmp_path / "mine.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "mine.qrels").write_text("".join(f"q{q} 0 d{c} {(q + c) % 3}\n" for q in range(5) for c in range(7)))
    words = ["audit", "--scores", tmp_path / "mine.csv", "--relevance", tmp_path / "mine.qrels", "--out", tmp_path / "run"]
    printed = call(capsys, *words, "--json")
    more = {"table": plain(call(capsys, *words), tmp_path)}
    frozen("scores", everything(tmp_path, tmp_path / "run", printed) | more)


SCORER = """
from pathlib import Path
from steadyscore.errors import InputError

def score(query, candidates):
    if "mirror" in query.lower() or (Path(__file__).with_name("stop").exists() and "7" in str(len(query))):
        raise InputError("stopped here")
    return [len(set(query.split()) & set(text.split())) + place / 100 for place, text in enumerate(candidates)]
"""


def test_a_resumed_audit_is_what_it_was(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "golden_scorer.py").write_text(SCORER)
    (tmp_path / "stop").touch()
    flags = "--scorer python:golden_scorer:score --data passages --queries 12 --permutations 3 --match-retention 0.3"
    words = shlex.split(flags)
    call(capsys, "audit", *words, "--out", tmp_path / "run", "--json", code=1)
    assert find_run(tmp_path / "run").record.status == "scoring"
    (tmp_path / "stop").unlink()
    printed = call(capsys, "audit", *words, "--out", tmp_path / "run", "--json")
    frozen("resumed", everything(tmp_path, tmp_path / "run", printed))
