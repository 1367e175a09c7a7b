"""A task is one value: everything else reads what it needs from it."""

import re
from dataclasses import replace

import pytest

from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.errors import InputError
from steadyscore.measures.registry import MEASURES
from steadyscore.runs.folder import find_run
from steadyscore.tasks import MULTIDOC_QA, PASSAGE_RERANKING, RESPONSE_RANKING, TASKS, reader_kind
from tests.helpers.paths import PACKAGE
from tests.helpers.pools import some_instances, write_collection

FIFTH = replace(
    RESPONSE_RANKING,
    name="patch_review",
    label="patch review",
    noun="patches",
    system="You are a patch grader.",
    query_label="Bug report",
    item_label="Patches",
    screen=("ndcg@1", "tau_psi", "pair_flip"),
)


@pytest.fixture
def fifth_task(monkeypatch):
    monkeypatch.setitem(TASKS, FIFTH.name, FIFTH)
    return FIFTH


def test_a_fifth_task_is_one_value_that_every_command_of_an_audit_takes(fifth_task, tmp_path, capsys):
    file = write_collection(tmp_path / "patches.jsonl", some_instances(), task=fifth_task.name)
    assert open_collection(file).collection.task == "patch_review"
    assert main(["data", "check", str(file)]) == 0
    out = tmp_path / "run"
    assert main(["audit", "--scorer", "synthetic:slot", "--data", str(file), "--permutations", "4", "--out", str(out)]) == 0
    table = capsys.readouterr().out
    assert all(column in table for column in fifth_task.screen)
    record = find_run(out).record
    assert record.task == "patch_review"
    page = (out / "report" / "index.html").read_text()
    assert "patch review" in page
    assert main(["report", str(out)]) == 0
    assert main(["gate", str(out), "--max", "tau_psi=1"]) == 0


def test_a_task_without_a_reader_is_refused_with_those_that_have_one(fifth_task):
    assert reader_kind(MULTIDOC_QA).writes == "answer"
    with pytest.raises(InputError, match="a reader reads for claim_verification or multidoc_qa; patch_review has neither"):
        reader_kind(fifth_task)


def test_the_measures_that_a_task_names_exist():
    for task in TASKS.values():
        kind = task.reader
        assert {task.quality, *task.decisions, *task.compared, *((*kind.quality, kind.flip) if kind else ())} <= MEASURES.keys()
        assert TASKS[task.prompt_task].system == task.system


def test_nothing_but_the_tasks_chooses_by_the_name_of_a_task():
    """Names of tasks stand in data (the catalogue, defaults), never in a comparison."""
    names = "|".join(TASKS)
    comparison = re.compile(rf'[=!]=\s*"({names})"|"({names})"\s*[=!]=|\bin\s*[\[({{][^\])}}\n]*"({names})"')
    found = [
        f"{file.relative_to(PACKAGE)}: {line.strip()}"
        for file in PACKAGE.rglob("*.py")
        for line in file.read_text().splitlines()
        if comparison.search(line)
    ]
    assert found == []
    assert PASSAGE_RERANKING.name in TASKS
