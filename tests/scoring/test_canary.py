"""What a scorer is cannot be read off its files, so it is asked: stored windows again, shuffled pools of an order-free one."""

import functools
import os
import re
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import steadyscore
from steadyscore.cli import main
from steadyscore.collection import open_collection
from steadyscore.engines import Capabilities, EngineOptions, Reranker, python
from steadyscore.engines.kinds import open_engine
from steadyscore.errors import RunMismatch, UnusableScorer
from steadyscore.machine.disk import cache_folder
from steadyscore.runs.folder import Run, find_run
from steadyscore.runs.table import Scored
from steadyscore.scoring.config import AuditConfig, Cut, scorer_for
from steadyscore.scoring.estimate import estimate
from steadyscore.scoring.mitigations import mitigate
from steadyscore.scoring.parts import Share, Worker
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.scoring.starts import score_again, start_remarks
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.terms import Candidate, Instance
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

ROWS = some_instances(queries=6, candidates=4)


# -- Python values, in one folder


def slot_weight(texts, weight):
    return [weight * place + len(text) for place, text in enumerate(texts)]


def helper(texts):
    return slot_weight(texts, WEIGHT)


WEIGHT = 1.0


class Base:
    weight = 1.0

    def score(self, query, texts):
        return slot_weight(texts, self.weight)


class Inherits(Base):
    def __call__(self, query, texts):
        return self.score(query, texts)


class Static:
    @staticmethod
    def weigh(texts):
        return slot_weight(texts, 1.0)

    def predict(self, pairs):
        return self.weigh([text for _, text in pairs])


class Ranks:
    def __init__(self, weight):
        self.weight = np.array([weight])

    def rank(self, query, texts):
        return [{"corpus_id": i, "score": s} for i, s in enumerate(slot_weight(texts, float(self.weight[0])))]


def in_environment(query, texts):
    return slot_weight(texts, float(os.environ.get("A_WEIGHT_FOR_TEST", "1")))


def replaced(name):
    return lambda patch: patch.setitem(globals(), name, lambda texts: slot_weight(texts, 9.0))


def linear_model():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(12, 1)

    def score(query, texts):
        with torch.inference_mode():
            rows = torch.tensor([[float(len(text)) + place, *range(11)] for place, text in enumerate(texts)])
            return model(rows)[:, 0].tolist()

    return score, lambda patch: model.weight.data.__setitem__((0, -1), 5.0)


CHANGES = {
    "module global": lambda: (lambda query, texts: helper(texts), lambda patch: patch.setitem(globals(), "WEIGHT", 2.0)),
    "global helper": lambda: (lambda query, texts: helper(texts), replaced("helper")),
    "class attribute": lambda: (Inherits(), lambda patch: patch.setattr(Base, "weight", 2.0)),
    "inherited method": lambda: (
        Inherits(),
        lambda patch: patch.setattr(Base, "score", lambda self, query, texts: slot_weight(texts, 7.0)),
    ),
    "static method": lambda: (
        Static(),
        lambda patch: patch.setattr(Static, "weigh", staticmethod(lambda texts: slot_weight(texts, 3.0))),
    ),
    "environment": lambda: (in_environment, lambda patch: patch.setenv("A_WEIGHT_FOR_TEST", "4")),
    "last torch weight": linear_model,
}
"""A scorer, and what changes it."""


@pytest.mark.parametrize("make", CHANGES.values(), ids=CHANGES)
def test_a_scorer_that_changed_adds_nothing_to_a_run_and_the_same_one_does(make, tmp_path, monkeypatch):
    scorer, change = make()
    how = {"permutations": 2, "quiet": True, "report": False, "out": tmp_path / "runs"}
    steadyscore.audit({"mine": scorer}, ROWS, queries=3, **how)
    grown = steadyscore.audit({"mine": scorer}, ROWS, queries=4, **how)
    whole = steadyscore.audit({"mine": scorer}, ROWS, queries=4, permutations=2, quiet=True)
    assert grown[0].figures == whole[0].figures
    change(monkeypatch)
    for queries in (6, 4):  # to add to it, or to read it as if it were its own
        with pytest.raises(RunMismatch, match=r"another version of its scorer: 3 of 3 stored windows scored otherwise, by up to"):
            steadyscore.audit({"mine": scorer}, ROWS, queries=queries, **how)
    assert steadyscore.load(tmp_path / "runs")[0].figures == grown[0].figures


OTHERS = {
    "closure": lambda weight: lambda query, texts: slot_weight(texts, weight),
    "partial": lambda weight: functools.partial(lambda weight, query, texts: slot_weight(texts, weight), weight),
    "rank": Ranks,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_another_scorer_of_the_same_name_is_refused_and_an_equal_one_goes_on(make, tmp_path):
    how = {"permutations": 2, "quiet": True, "out": tmp_path / "runs", "report": False}
    first = steadyscore.audit(make(0.0), ROWS, **how)
    assert steadyscore.audit(make(0.0), ROWS, **how)[0].figures == first[0].figures
    with pytest.raises(RunMismatch, match=r"scored otherwise, by up to 150 \(queries q0, q1, q2\)"):
        steadyscore.audit(make(50.0), ROWS, **how)


# -- the command line


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty current folder whose modules are forgotten, as by a new process."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(python, "_seen", {})
    yield tmp_path / "here"
    forget(tmp_path)


def forget(folder: Path) -> None:
    for name in [name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(str(folder))]:
        del sys.modules[name]


def scale(factor: float) -> str:
    return f"def scale(texts):\n    return [{factor} * len(text) + place for place, text in enumerate(texts)]\n"


LINES = "import json, os, sys\nfrom beside_for_test import scale\nfor line in sys.stdin:\n    asked = json.loads(line)\n"
LINES += "    print(json.dumps({'id': asked['id'], 'scores': scale(asked['candidates'])}), flush=True)\n"
IMPORTED = "import importlib\ndef score(query, candidates):\n    plugin = importlib.import_module('plug' + 'in_for_test')\n"
ON_PATH = "import sys\nsys.path.append('../elsewhere')\nfrom beside_for_test import scale\n"
FROM_ENVIRONMENT = "import os\nN = float(os.environ['A_WEIGHT_FOR_TEST'])\n"
PYTHON = shlex.quote(sys.executable)
BY_COMMAND = {
    "importlib": ("python:mine_for_test:score", IMPORTED + "    return plugin.scale(candidates)\n", "plugin_for_test.py"),
    "sys.path": (
        "python:mine_for_test:score",
        ON_PATH + "def score(query, candidates):\n    return scale(candidates)\n",
        "../elsewhere/beside_for_test.py",
    ),
    "environment": (
        "python:mine_for_test:score",
        FROM_ENVIRONMENT + "def score(query, candidates):\n    return [N * len(text) for text in candidates]\n",
        None,
    ),
    "python -m": (f"command:{PYTHON} -m mine_for_test", LINES, "beside_for_test.py"),
    "sh -c": (f"command:sh -c '{PYTHON} mine_for_test.py'", LINES, "beside_for_test.py"),
}
"""Address, source of mine_for_test.py, and the file that changes; None: the environment."""


@pytest.mark.parametrize(("address", "source", "file"), BY_COMMAND.values(), ids=BY_COMMAND)
def test_a_command_whose_scorer_changed_is_refused_unless_it_is_let_pass(address, source, file, folder, monkeypatch, capfd):
    (folder.parent / "elsewhere").mkdir()
    (folder / "mine_for_test.py").write_text(source)
    data = write_collection(folder / "pools.jsonl", ROWS)
    words = [
        "audit",
        "--scorer",
        address,
        "--data",
        str(data),
        "--permutations",
        "2",
        "--no-report",
        "--out",
        "runs",
        "--queries",
    ]

    def run(factor: float, *flags: str) -> int:
        forget(folder.parent)
        monkeypatch.setenv("A_WEIGHT_FOR_TEST", str(factor))
        if file:
            (folder / file).write_text(scale(factor))
        return main([*words, *flags])

    assert run(1.0, "3") == run(1.0, "4") == 0
    capfd.readouterr()
    assert run(2.0, "6") == 1
    assert "3 of 3 stored windows scored otherwise, by up to" in capfd.readouterr().err
    assert run(2.0, "6", "--allow-scorer-change") == 0
    assert "scored by two versions: 3 of 3 stored windows scored otherwise" in capfd.readouterr().err
    assert run(2.0, "6") == 0, "the second version is the run's own now"
    assert len(find_run("runs").record.starts) == 2
    assert run(3.0, "6") == 1


# -- what is noise, and what is not


POOL = Instance("q", "a query", tuple(Candidate(name, name * 3) for name in "abcdef"))


def compared(function, stored: float):
    """One pool that was scored `stored` all over, scored again by a function of the number of the call."""
    calls = iter(range(10))
    scorer = Scorer(python.PythonReranker(lambda query, texts: function(next(calls), texts), "f"), PASSAGE_RERANKING)
    return score_again(scorer, [(POOL, np.arange(6))], {"q": {name: stored + place for place, name in enumerate("abcdef")}})


@pytest.mark.parametrize(
    ("function", "is_changed"),
    [
        (lambda call, texts: [float(i) for i in range(6)], False),
        (lambda call, texts: [i + 4e-5 for i in range(6)], False),
        (lambda call, texts: [i + 1e-4 for i in range(6)], True),
        (lambda call, texts: [i + 0.3 * (-1) ** call for i in range(6)], False),
        (lambda call, texts: [i + 3.0 + 0.3 * (-1) ** call for i in range(6)], True),
    ],
    ids=["equal", "rounding", "moved", "noise", "noise and a change"],
)
def test_a_difference_beyond_rounding_and_beyond_what_two_readings_differ_by_is_a_change(function, is_changed):
    assert compared(function, 0.0).is_changed == is_changed


def test_windows_that_a_scorer_fails_on_are_not_compared():
    assert compared(lambda call, texts: 1 / 0, 0.0) is None
    with pytest.raises(UnusableScorer, match="gave nan"):
        compared(lambda call, texts: [float("nan")] * 6, 0.0)


@pytest.mark.parametrize(("settings", "mitigations"), [({"width": 3}, []), ({}, ["self-consistency:2"]), ({"prompt": "set"}, [])])
def test_a_local_model_goes_on_in_whatever_batches_it_is_read(settings, mitigations, tiny_engine, tmp_path):
    data = write_collection(tmp_path / "pools.jsonl", some_instances(queries=3))
    for queries in (2, 3):
        config = AuditConfig(permutations=2, settings=Settings(**settings), cut=Cut(queries))
        scorer = mitigate(scorer_for(tiny_engine, open_collection(str(data)).collection, config), mitigations)
        run = score_collection(scorer, str(data), tmp_path / "run", config)
    asked = run.record.sessions[1].scored_again
    assert asked.windows == 2
    assert asked.difference < 1e-5


# -- workers


class Weighted(Reranker):
    """Scores by length, times a weight."""

    name, endpoint = "weighted", None

    def __init__(self, weight: float):
        self.weight, self.capabilities = weight, Capabilities(gives="score")

    def identity(self):
        return {"kind": "weighted"}

    def score(self, query, texts):
        return [self.weight * len(text) for text in texts]


def worker(weight: float, data: Path, out: Path, **how) -> Worker:
    config = AuditConfig(permutations=2)
    scorer = scorer_for(Weighted(weight), open_collection(str(data)).collection, config)
    return Worker(scorer, str(data), out, config, **how)


@pytest.fixture
def one_part_a_query(monkeypatch):
    from steadyscore.scoring.parts import plan_parts

    monkeypatch.setitem(plan_parts.__kwdefaults__, "windows", 1)


@pytest.mark.usefixtures("one_part_a_query")
def test_a_worker_compares_itself_with_the_others_as_soon_as_they_have_written(tmp_path):
    data, out = write_collection(tmp_path / "pools.jsonl", ROWS), tmp_path / "run"
    one, other = worker(1.0, data, out), worker(2.0, data, out)
    one.score(0)
    one.score(1)
    with pytest.raises(
        RunMismatch, match=r"2 of 2 stored windows scored otherwise, by up to \d+ \(queries q0, q1\)|\(queries q1, q0\)"
    ):
        other.score(2)
    late = worker(2.0, data, tmp_path / "late")
    late.score(2)  # nobody was there
    with pytest.raises(RunMismatch):
        worker(1.0, data, tmp_path / "late").score(0)


@pytest.mark.usefixtures("one_part_a_query")
def test_parts_of_two_scorers_are_collected_only_where_that_is_let_pass_and_said(tmp_path):
    data, out, config = write_collection(tmp_path / "pools.jsonl", ROWS), tmp_path / "run", AuditConfig(permutations=2)
    first, second = worker(1.0, data, out), worker(2.0, data, out, allow_scorer_change=True)
    for place in Share(1, 2).parts(6):
        first.score(place)
    for place in Share(2, 2).parts(6):
        second.score(place)
    scorer = scorer_for(Weighted(2.0), open_collection(str(data)).collection, config)
    with pytest.raises(RunMismatch, match="stored windows scored otherwise"):
        score_collection(scorer, str(data), out, config)
    run = score_collection(scorer, str(data), out, config, allow_scorer_change=True)
    assert start_remarks(run.record)[0].startswith("scored by two versions: 3 of 3 stored windows scored otherwise")


# -- endpoints


def graded(shift: int):
    """A chat endpoint that grades by the place of a candidate."""

    def answer(path, body):
        markers = re.findall(r"^\[(\d+)\]", body["messages"][-1]["content"], re.MULTILINE)
        lines = [f"[{marker}] Grade: {(int(marker) + shift) % 4}" for marker in dict.fromkeys(markers)]
        return {"choices": [{"message": {"content": "\n".join(lines)}}]}

    return answer


def stop_after(count: int, server: Server):
    """Refuse what comes after so many requests, as a wrong key would."""
    return lambda body: "401" if len(server.requests) > count else None


@pytest.fixture
def chat_pools(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    return write_collection(tmp_path / "pools.jsonl", some_instances(queries=4, candidates=5))


def chat_run(server: Server, data: Path, out: Path, queries: int = 4) -> Run:
    config = AuditConfig(permutations=2, settings=Settings(width=5), cut=Cut(queries))
    engine = open_engine(f"openai:m@{server.url}/v1", EngineOptions(retries=0, concurrency=1))
    return score_collection(scorer_for(engine, open_collection(str(data)).collection, config), str(data), out, config)


def scores(run: Run) -> list:
    return [query.scores.tolist() for query in run.iter_queries()]


def test_another_run_asks_anew(chat_pools, tmp_path):
    with Server(graded(0)) as server:
        before = scores(chat_run(server, chat_pools, tmp_path / "one"))
        asked = len(server.requests)
        server.answer = graded(1)
        after = scores(chat_run(server, chat_pools, tmp_path / "two"))
        assert len(server.requests) == 2 * asked
        assert before != after
        assert scores(chat_run(server, chat_pools, tmp_path / "one")) == before, "a complete run is read as it is"
        assert len(server.requests) == 2 * asked
    assert not list((cache_folder() / "responses").glob("*/*")), "what is whole needs no answers"


@pytest.mark.parametrize(("shift", "again", "moved"), [(0, 2, "0"), (1, 4 + 1, "1")], ids=["the same", "another"])
def test_a_run_that_goes_on_uses_kept_answers_only_where_the_endpoint_answers_alike(
    shift, again, moved, chat_pools, tmp_path, caplog
):
    """Stopped one answer into the third query of four: two windows are asked again, once more where they differ."""
    with Server(graded(0)) as server:
        server.always = stop_after(7, server)
        with pytest.raises(UnusableScorer):
            chat_run(server, chat_pools, tmp_path / "run")
        server.always, server.answer = lambda body: None, graded(shift)
        before = len(server.requests)
        run = chat_run(server, chat_pools, tmp_path / "run")
        assert len(server.requests) - before == 12 - 7 + again
    assert ("does not answer as it did: its answers that were kept are not used" in caplog.text) == bool(shift)
    assert start_remarks(run.record) == [
        f"2 stored windows were asked again when it went on: scores moved by up to {moved}; "
        "no noise floor was measured by then; --noise-floor measures it."
    ]
    assert run.record.coverage.spent["requests"] == len(server.requests), "what was asked again is paid for too"


def test_what_an_endpoint_answers_otherwise_stands_beside_its_noise_floor(chat_pools, tmp_path):
    with Server(graded(0)) as server:
        run = chat_run(server, chat_pools, tmp_path / "run", queries=2)
        query = next(run.iter_queries())
        reads = np.stack([query.scores[0], query.scores[0] + 0.125])
        run.write_noise([Scored(query.query_id, query.candidate_ids, np.arange(2), reads)])
        grown = chat_run(server, chat_pools, tmp_path / "run")
    assert start_remarks(grown.record) == [
        "2 stored windows were asked again when it went on: scores moved by up to 0; its noise floor is 0.125."
    ]


# -- order-free, measured


class Declared(Reranker):
    """Declares that no order moves its scores; `effect` says by how much one does."""

    name, endpoint = "declared", None

    def __init__(self, effect: float):
        self.effect, self.capabilities, self.calls = effect, Capabilities(gives="score", order_free=True), 0

    def identity(self):
        return {"kind": "declared"}

    def score(self, query, texts):
        self.calls += 1
        return [len(text) + len(set(text)) / 100 + self.effect * place for place, text in enumerate(texts)]


def test_a_declaration_that_does_not_hold_is_an_error_with_its_size(tmp_path):
    with pytest.raises(
        UnusableScorer, match=r"declares that no order moves its scores, and another order of query q0 moved one by 1\.5"
    ):
        steadyscore.audit(Declared(0.5), ROWS, permutations=2, quiet=True)


def test_a_declaration_is_measured_and_said(tmp_path):
    rows = [*some_instances(queries=9, candidates=6), {"id": "alone", "query": "one", "candidates": [{"id": "a", "text": "a"}]}]
    scorer = Declared(0.0)
    audits = steadyscore.audit(scorer, rows, permutations=2, quiet=True, out=tmp_path / "run", report=False)
    assert scorer.calls == 9 * 3 + 8 + 1
    for audit in (audits[0], steadyscore.load(tmp_path / "run")[0]):
        assert audit.record.coverage.shuffled_pools == 8
        assert any("no order moved a score in 8 shuffled pools." in remark for remark in audit.remarks())
    assert not any(
        "shuffled" in remark for remark in steadyscore.audit("synthetic:slot", rows, permutations=2, quiet=True)[0].remarks()
    )


def test_shuffled_sets_are_read_anew_and_a_dry_run_counts_what_is_read(tiny_engine, tiny_folder, tmp_path, monkeypatch):
    from steadyscore.engines.local import windows

    reads, real = [], windows.member_states
    data = write_collection(tmp_path / "pools.jsonl", some_instances(queries=10, candidates=3))
    config = AuditConfig(permutations=3, settings=Settings(prompt="set"))
    tiny_engine.check_sets()
    monkeypatch.setattr(windows, "member_states", lambda *given: reads.append(1) or real(*given))
    scorer = scorer_for(tiny_engine, open_collection(str(data)).collection, config)
    run = score_collection(scorer, str(data), tmp_path / "run", config)
    assert len(reads) == 10 + 8 == estimate(f"hf:{tiny_folder}", str(data), config).windows
    assert run.record.coverage.shuffled_pools == 8


@pytest.mark.parametrize(
    ("address", "how", "windows"),
    [
        ("synthetic:none", {}, 10 * 4 + 8),
        ("synthetic:slot", {}, 10 * 4),
        ("synthetic:slot", {"settings": Settings(width=1)}, 10 * 3),
        ("synthetic:none", {"permutations": 1}, 10 * 2),
    ],
)
def test_a_dry_run_counts_what_is_shuffled_and_what_is_read_once(address, how, windows, tmp_path):
    data = write_collection(tmp_path / "pools.jsonl", some_instances(queries=10, candidates=3))
    assert estimate(address, str(data), replace(AuditConfig(permutations=3), **how)).windows == windows


@pytest.mark.parametrize(("name", "is_free"), [("first-stage:30", True), ("self-consistency:2", True), ("rescale", False)])
def test_a_mitigation_that_follows_the_order_is_not_order_free(name, is_free):
    plain = Scorer(Declared(0.0), PASSAGE_RERANKING, Settings(width=2))
    assert mitigate(plain, [name]).capabilities.order_free == is_free
