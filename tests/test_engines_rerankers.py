"""What users already run: a Python function and a program that speaks JSON lines, audited as they are."""

import importlib
import json
import shlex
import sys

import numpy as np
import pytest

from steadyscore.audit import AuditConfig, open_scorer, score_collection
from steadyscore.collection import open_collection
from steadyscore.engines import Reranker, open_engine
from steadyscore.errors import InputError

PROGRAM = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "die" in asked["query"]:
        sys.exit(3)
    if "odd" in asked["query"]:
        print("no idea", flush=True)
        continue
    words = set(asked["query"].split())
    print(json.dumps({"scores": [len(words & set(c.split())) + len(c) / 1000 for c in asked["candidates"]]}), flush=True)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "my scorer.py"
    file.write_text(PROGRAM)
    return f"command:{shlex.quote(sys.executable)} {shlex.quote(str(file))}"


def test_a_program_is_started_once_and_asked_line_by_line(program):
    reranker = open_engine(program)
    assert isinstance(reranker, Reranker)
    assert reranker.score("a b", ["a b c", "x"]) == [2.005, 0.001]
    first = reranker._process.pid
    assert reranker.score("x", ["a\nb", "x"]) == [0.003, 1.001]
    assert reranker._process.pid == first


def test_a_program_that_ends_is_started_again(program):
    reranker = open_engine(program)
    with pytest.raises(RuntimeError, match="ended with code 3"):
        reranker.score("die", ["a"])
    with pytest.raises(RuntimeError, match="answered 'no idea'"):
        reranker.score("odd", ["a"])
    assert reranker.score("a", ["a"]) == [1.001]


def test_a_changed_program_is_another_scorer(program, tmp_path):
    before = open_engine(program).identity()
    (tmp_path / "my scorer.py").write_text(PROGRAM + "# changed\n")
    assert open_engine(program).identity() != before


def test_a_program_is_audited_like_anything_else(program, collection_file, tmp_path):
    config = AuditConfig(permutations=2)
    collection, _ = open_collection(str(collection_file))
    run = score_collection(open_scorer(program, collection, config), str(collection_file), tmp_path / "run", config)
    assert len(run.scored()) == 4
    assert np.ptp(run.scored()[0].scores, axis=0).max() == 0  # this one scores candidates one by one


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("command:", "names no program"),
        ("command:no-such-program-here", "could not be started"),
        ("command:a 'b", "cannot be split"),
    ],
)
def test_a_command_that_cannot_run_says_why(address, message):
    with pytest.raises(InputError, match=message):
        open_engine(address).score("q", ["a"])


def test_a_function_in_a_file_beside_the_user(tmp_path, monkeypatch):
    (tmp_path / "mine_for_test.py").write_text("def score(query, candidates):\n    return [len(c) for c in candidates]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    reranker = open_engine("python:mine_for_test:score")
    assert list(reranker.score("q", ["a", "bb"])) == [1, 2]
    assert "len(c)" in json.dumps(reranker.identity())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef score(query, candidates:\n", "broken_for_test.py, line 2: SyntaxError: "),
        ("import math\n\nmath.sqrt(missing)\n", "broken_for_test.py, line 3: NameError: name 'missing' is not defined"),
        ("import no_such_library_here\n", "broken_for_test.py, line 1: ModuleNotFoundError: No module named"),
        ("raise SystemExit(0)\n", "broken_for_test.py, line 1: SystemExit: 0"),
        ("x = 1\n", "imported: AttributeError: module 'broken_for_test' has no attribute 'score'"),
        ("score = 1\n", "'score' is no function"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(tmp_path, monkeypatch, source, said):
    (tmp_path / "broken_for_test.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "broken_for_test", raising=False)
    importlib.invalidate_caches()
    with pytest.raises(InputError) as refusal:
        open_engine("python:broken_for_test:score")
    message = str(refusal.value)
    assert said in message
    assert "\n" not in message
    assert "Mend it" in message
