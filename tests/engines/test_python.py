"""Python functions as scorers: what they print, raise and return, and the files they are made of."""

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, ScorerFailed, python
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.python import PythonReranker, open_object
from steadyscore.errors import InputError
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, as_numbers
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance

POOL = Instance("q1", "a query", tuple(Candidate(name, name * 3) for name in "abc"))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write modules into an empty folder that is the current one; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr("steadyscore.engines.python._seen", {})
    before = set(sys.modules)

    def write(**sources: str) -> None:
        for name, source in sources.items():
            file = tmp_path / f"{name.replace('__', '/')}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
                del sys.modules[name]
        importlib.invalidate_caches()

    yield write
    write()


def by_length(body: str = "") -> str:
    return f"def score(query, candidates):\n    {body or 'pass'}\n    return [float(len(c)) for c in candidates]\n"


def scale(factor: float) -> str:
    return f"def scale(value):\n    return {factor} * value\n"


@pytest.mark.parametrize(
    ("helper", "importing"),
    [
        ("beside_for_test", "from beside_for_test import scale\n{}"),
        ("folder_for_test__beside", "from folder_for_test import beside\nscale = beside.scale\n{}"),
        ("late_for_test", "{}"),
    ],
)
def test_a_scorer_whose_files_changed_is_read_again(written, tmp_path, helper, importing):
    late = "from late_for_test import scale" if helper == "late_for_test" else "pass"
    source = f"def score(query, candidates):\n    {late}\n    return [scale(len(c)) for c in candidates]\n"
    written(mine_for_test=importing.format(source), **{helper: scale(1.0)})
    first = open_engine("python:mine_for_test:score")
    assert first.score("q", ["a", "bb"]) == [1, 2]
    assert open_engine("python:mine_for_test:score").function is first.function
    assert open_engine("python:./mine_for_test.py:score").identity() == first.identity()  # as the file is called
    (tmp_path / f"{helper.replace('__', '/')}.py").write_text(scale(2.0))
    second = open_engine("python:mine_for_test:score")
    assert second.score("q", ["a", "bb"]) == [2, 4]
    if helper != "late_for_test":  # what is in flight keeps what it began with
        assert first.score("q", ["a", "bb"]) == [1, 2]
    (tmp_path / "mine_for_test.py").write_text(by_length())
    assert open_engine("python:mine_for_test:score").score("q", ["a", "bb"]) == [1, 2]


def test_a_change_that_cannot_be_imported_leaves_what_was_opened(written, tmp_path):
    written(mine_for_test="from beside_for_test import scale\n" + by_length(), beside_for_test=scale(1.0))
    first, module = open_engine("python:mine_for_test:score"), sys.modules["mine_for_test"]
    (tmp_path / "mine_for_test.py").write_text("import beside_for_test\ndef score(:\n")
    for _ in range(2):
        with pytest.raises(InputError, match="SyntaxError"):
            open_engine("python:mine_for_test:score")
        assert sys.modules["mine_for_test"] is module
    assert first.score("q", ["a"]) == [1]
    (tmp_path / "mine_for_test.py").unlink()
    with pytest.raises(InputError, match="No module named"):
        open_engine("python:mine_for_test:score")


def test_the_script_that_runs_the_package_and_what_is_installed_are_never_forgotten(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(Path(__file__).with_name("script.py")), raising=False)
    beside = python._modules_beside(__name__)
    assert __name__ in beside
    assert not {name for name in beside if name.split(".")[0] in ("__main__", "steadyscore", "pytest", "numpy", "json")}
    assert python._modules_beside("numpy") == python._modules_beside("json") == {}


def test_a_function_in_a_file_beside_the_user(written):
    written(mine_for_test=by_length())
    reranker = open_engine("python:mine_for_test:score")
    assert list(reranker.score("q", ["a", "bb"])) == [1, 2]
    assert reranker.identity() == {"kind": "python", "function": "python:mine_for_test:score"}


@pytest.mark.parametrize(
    "declared",
    [
        "version = 7\n",
        "score.version = 7\n",
        "class Scorer:\n    version = 7\n    __call__ = staticmethod(score)\nscore = Scorer()\n",
    ],
    ids=["module", "function", "class"],
)
def test_a_version_that_is_declared_is_part_of_the_identity(written, declared):
    written(mine_for_test=by_length() + declared)
    assert open_engine("python:mine_for_test:score").identity()["version"] == 7


def test_an_attribute_that_is_no_text_or_number_is_no_version():
    class Scorer:
        version = (1, 2)

        def __call__(self, query, texts):
            return [0.0] * len(texts)

    assert "version" not in open_object(Scorer()).identity()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ndef score(query, candidates:\n", "broken_for_test.py, line 2: SyntaxError: "),
        ("import math\n\nmath.sqrt(missing)\n", "broken_for_test.py, line 3: NameError: name 'missing' is not defined"),
        ("import no_such_library_here\n", "broken_for_test.py, line 1: ModuleNotFoundError: No module named"),
        ("raise SystemExit(0)\n", "broken_for_test.py, line 1: SystemExit: 0"),
        ("x = 1\n", "imported: AttributeError: module 'broken_for_test' has no attribute 'score'"),
        ("score = 1\n", "'score' is not a function"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named_with_its_line(written, source, said):
    written(broken_for_test=source)
    with pytest.raises(InputError) as refusal:
        open_engine("python:broken_for_test:score")
    message = str(refusal.value)
    assert said in message
    assert "\n" not in message
    assert "Fix it" in message


# -- what it raises

ENDINGS = {
    "sys.exit(0)": "raised SystemExit(0)",
    "raise GeneratorExit": "raised GeneratorExit()",
    "raise type('Odd', (BaseException,), {})('now')": "raised Odd('now')",
}


@pytest.mark.parametrize("body", ENDINGS)
def test_whatever_a_function_ends_with_fails_its_query_by_name(written, collection_file, tmp_path, capsys, body):
    written(ends_for_test="import sys\n" + by_length(f"if '2' in query: {body}"))
    words = ["audit", "--scorer", "python:ends_for_test:score", "--data", str(collection_file), "--json", "--no-report"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 4
    out, err = capsys.readouterr()
    assert json.loads(out)["measures"]["tau_psi"]["queries"] == 3
    assert f"q2 (ScorerFailed: python:ends_for_test:score {ENDINGS[body]})" in err


SWALLOWS = """
import os, signal
def score(query, candidates):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
    except BaseException:
        {then}
    return [1.0] * len(candidates)
"""


@pytest.mark.parametrize("then", ["pass", "raise ValueError('caught it')", "raise", "raise SystemExit(0)"])
def test_a_stop_by_the_user_is_never_taken_for_a_failure(written, collection_file, tmp_path, then):
    written(swallows_for_test=SWALLOWS.format(then=then))
    config = AuditConfig(permutations=2)
    collection = open_collection(str(collection_file)).collection
    scorer = open_scorer("python:swallows_for_test:score", collection, config)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        score_collection(scorer, str(collection_file), tmp_path / "run", config)
    assert signal.getsignal(signal.SIGINT) is before


class Host:
    """A program of the caller that ends on SIGTERM, by a function, a method or an object of its own."""

    def end(self, number, frame, code=7):
        sys.exit(code)

    __call__ = end


HANDLERS = [lambda number, frame: sys.exit(7), Host().end, Host(), partial(partial(Host().end, code=8), code=7)]


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_handler_of_the_caller_that_ends_its_program_ends_it(handler):
    def stopped_meanwhile(query, texts):
        signal.raise_signal(signal.SIGTERM)
        return [1.0] * len(texts)

    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(SystemExit, match="7"):
            steadyscore.rerank(stopped_meanwhile, "q", ["a", "b"])
    finally:
        signal.signal(signal.SIGTERM, before)


class TooLate(BaseException):
    """How a function may stop itself, past whatever catches an Exception."""


def test_a_time_limit_that_a_function_keeps_by_a_signal_fails_its_query():
    def stop(number, frame):
        raise TooLate

    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(ScorerFailed, match=r"f raised TooLate\(\)"):
            PythonReranker(lambda query, texts: signal.raise_signal(signal.SIGALRM), "python:mine:f").score("q", ["a"])
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_thread_that_is_not_the_main_one_fails_by_name_too():
    found = []

    def ask():
        try:
            PythonReranker(lambda query, texts: sys.exit(0), "python:mine:f").score("q", ["a"])
        except ScorerFailed as failure:
            found.append(str(failure))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert found == ["python:mine:f raised SystemExit(0)"]


# -- what it prints

PRINTS = """
import ctypes, os, sys, threading, time
print("import")
def aside():
    print("thread")
    raise ValueError("in a thread")
def score(query, candidates):
    print("function"); sys.stdout.write("written"); sys.__stdout__.write("original\\n"); sys.__stdout__.flush()
    os.write(1, b"descriptor\\n"); os.system("echo child")
    libc = ctypes.CDLL(None); libc.puts(b"library"); libc.fflush(None)
    thread = threading.Thread(target=aside); thread.start(); thread.join()
    threading.Timer(0.01, print, ["later"]).start()
    return [float(len(c)) for c in candidates]
"""


def test_nothing_that_a_function_prints_gets_among_the_results(tmp_path, collection_file):
    (tmp_path / "prints_for_test.py").write_text(PRINTS)
    words = ["audit", "--scorer", "python:prints_for_test:score", "--data", str(collection_file), "--out", "run", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "steadyscore", *words, "--permutations", "2", "--no-report"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["measures"]["tau_psi"]["queries"] == 4
    for said in ("import", "function", "written", "original", "descriptor", "child", "library", "thread", "in a thread", "later"):
        assert said in done.stderr


def test_results_into_a_closed_pipe_end_quietly(tmp_path):
    command = f"{sys.executable} -m steadyscore list measures --json | head -c 10"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, len(done.stdout), done.stderr) == (0, 10, "")


def test_prints_stay_out_of_json_where_stdout_is_captured(written, collection_file, tmp_path, capsys):
    written(prints_for_test="print('import')\n" + by_length("print('function')"))
    words = ["audit", "--scorer", "python:prints_for_test:score", "--data", str(collection_file), "--json", "--no-report"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    out, err = capsys.readouterr()
    json.loads(out)
    assert "import\n" in err
    assert "function\n" in err


# -- what it returns


@pytest.mark.parametrize(
    "answer",
    [[1, 2.5, 3], (1, 2.5, 3), np.float32([1, 2.5, 3]), [np.float64(1), np.float32(2.5), np.int64(3)], [True, 2.5, 3]],
    ids=["list", "tuple", "array", "numpy numbers", "a boolean"],
)
def test_lists_and_arrays_are_scores(answer):
    found = Scorer(PythonReranker(lambda query, texts: answer, "python:mine:f"), PASSAGE_RERANKING).score(POOL)
    assert found.tolist() == [1, 2.5, 3]


@pytest.mark.model
def test_tensors_are_scores():
    import torch

    for tensor in (
        torch.tensor([1, 2.5]),
        torch.tensor([1, 2.5], requires_grad=True),
        torch.tensor([1, 2.5], dtype=torch.bfloat16),
    ):
        assert as_numbers(tensor).tolist() == [1, 2.5]
    assert as_numbers([torch.tensor(1.0), torch.tensor(2.5)]).tolist() == [1, 2.5]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "gave nothing"),
        ({"a": 1, "b": 2, "c": 3}, "gave a dict that is not a list of numbers"),
        ("123", "gave a str that is not a list of numbers"),
        ((x for x in range(3)), "gave a generator that is not a list of numbers"),
        ({1, 2, 3}, "gave a set that is not a list of numbers"),
        (["1", "2", "3"], "gave a list that is not a list of numbers"),
        ([1, "2", 10**30], "gave a list that is not a list of numbers"),
        ([1, {}, 3], "gave a list that is not a list of numbers"),
        ([1, [2], 3], "gave a list that is not a list of numbers"),
        ([1j, 2, 3], "gave a list that is not a list of numbers"),
        ([10**400, 2, 3], "gave whole numbers beyond"),
        ([10**17, 10**17 + 1, 0.5], "gave whole numbers beyond"),
        (5, "gave a int that is not a list of numbers"),
        ([1, None, 3], "gave nan as the score of candidate b"),
        ([1, 2], "gave 2 scores for the 3 candidates of query q1"),
    ],
)
def test_whatever_else_a_function_returns_is_refused_with_its_query(answer, said):
    scorer = Scorer(PythonReranker(lambda query, texts: answer, "python:mine:f"), PASSAGE_RERANKING)
    with pytest.raises(InputError, match=f"python:mine:f {said}") as refusal:
        scorer.score(POOL)
    assert "query q1" in str(refusal.value)


# -- the files behind it


def watched(address: str = "python:sc:score", **options) -> dict[str, str]:
    return open_engine(address, EngineOptions(**options)).watch()


def test_the_module_and_the_files_that_are_named_are_watched(written, tmp_path):
    written(sc="import helper\n" + by_length(), helper="", parts__sc=by_length())
    (tmp_path / "weights.bin").write_text("1")
    before = watched(watch=("weights.bin",))
    assert before.keys() == {"sc.py", "weights.bin"}
    assert watched("python:parts.sc:score").keys() == {"parts/sc.py"}
    assert watched("python:time:ctime") == {}
    for file in before:
        (tmp_path / file).write_text((tmp_path / file).read_text() + "# changed\n")
    now = watched(watch=("weights.bin",))
    assert all(before[file] != now[file] for file in before)


def test_mitigated_scorers_pass_the_watch_on(written, collection_file):
    from steadyscore.scoring.mitigations import mitigate

    written(sc=by_length())
    collection = open_collection(str(collection_file)).collection
    scorer = open_scorer("python:sc:score", collection, AuditConfig())
    assert mitigate(scorer, ["canonical-order"]).backend.watch() == scorer.backend.watch()
    assert os.path.exists("sc.py")
    assert scorer.backend.watch().keys() == {"sc.py"}


def test_a_file_is_imported_where_another_folder_has_a_module_of_its_name(written, tmp_path, monkeypatch):
    written(elsewhere__scorer_of_two=by_length())
    monkeypatch.syspath_prepend(str(tmp_path / "elsewhere"))
    before = importlib.import_module("scorer_of_two")
    (tmp_path / "scorer_of_two.py").write_text("def score(query, candidates):\n    return [7.0 for _ in candidates]\n")
    assert open_engine("python:scorer_of_two:score").score("q", ["a"]) == [7.0]
    assert before.score("q", ["a"]) == [1.0], "who holds the other keeps it"


def test_a_file_that_has_the_name_of_an_installed_module_is_refused(written):
    written(json=by_length())
    with pytest.raises(InputError, match=r"json\.py has the name of .*json/__init__\.py, which was imported\. Rename your file"):
        open_engine("python:json:score")
