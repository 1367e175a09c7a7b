"""An endpoint that is asked about several queries at a time: always busy, the same tables, nothing lost or doubled."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial

import pytest

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, http
from steadyscore.engines.http import Endpoint
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.servers import Limit
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError
from steadyscore.machine.console import Job, progress_line
from steadyscore.runs.folder import Run
from steadyscore.scoring import loop
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.loop import QueryTask, run_tasks
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.terms import Candidate, Instance
from tests.engines.test_http import chat, rerank
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts
from tests.helpers import slow_server
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

OPTIONS = EngineOptions(timeout=60, retries=8)
FAULTS = ("500", "429", "reset", "cut", "truncated", "slow")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    for name in ("STEADYSCORE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def a_source(folder, queries=12, candidates=4):
    return open_collection(str(write_collection(folder / "pools.jsonl", some_instances(queries=queries, candidates=candidates))))


def score(url, source, folder, concurrency, permutations=0, width=None, **changes):
    address = f"openai:m@{url}/v1" if changes.pop("is_chat", False) else f"rerank+cohere:m@{url}/rerank"
    config = AuditConfig(permutations=permutations, scheme="hashed", settings=Settings(width=width))
    options = replace(OPTIONS, concurrency=concurrency, **changes)
    scorer = scorer_for(open_engine(address, options), source.collection, config)
    return score_collection(scorer, source, folder, config)


def instance(number):
    return Instance(f"q{number}", "query", (Candidate("a", "a"), Candidate("b", "b")))


@pytest.fixture
def asked():
    """A backend with an endpoint that nobody asks: what counts is that it may be asked four things at a time."""
    with Server(lambda path, body: {}) as server:
        backend = SyntheticReranker("none", 0.0)
        backend.endpoint = Endpoint(server.url, EngineOptions(concurrency=4))
        yield backend


@pytest.mark.parametrize(
    ("permutations", "width"), [(0, None), (7, None), (0, 1)], ids=["across queries", "across orders", "across windows"]
)
def test_as_many_requests_are_under_way_as_may_be(tmp_path, permutations, width):
    together = threading.Barrier(8)  # it breaks unless eight requests wait at once

    def answer(path, body):
        together.wait(60)
        return rerank(path, body)

    with Server(answer) as server:
        run = score(server.url, a_source(tmp_path, 16, candidates=8), tmp_path / "run", 8, permutations, width)
    assert run.record.coverage.failed == []
    assert not together.broken


def test_what_is_under_way_is_not_more_than_may_be_and_is_said(tmp_path):
    most, said, lock = [], [], threading.Lock()
    under_way = 0

    def answer(path, body):
        nonlocal under_way
        with lock:
            under_way += 1
            most.append(under_way)
        time.sleep(0.01)
        with lock:
            under_way -= 1
        return rerank(path, body)

    def progress(items, total):
        for item in items:
            said.append(progress_line([Job("scoring", total, about=items.about)], time.monotonic()))
            yield item

    config = AuditConfig(permutations=3)
    with Server(answer) as server:
        source = a_source(tmp_path)
        engine = open_engine(f"rerank+cohere:m@{server.url}/rerank", replace(OPTIONS, concurrency=3))
        score_collection(scorer_for(engine, source.collection, config), source, tmp_path / "run", config, progress=progress)
    assert max(most) == 3
    assert any(re.search(r"[123] requests under way$", line) for line in said)


@pytest.mark.parametrize("is_chat", [False, True], ids=["rerank", "chat"])
def test_the_tables_are_those_of_one_request_at_a_time(tmp_path, monkeypatch, is_chat):
    source = a_source(tmp_path)
    with Server(chat if is_chat else rerank) as server:
        for name, concurrency in (("one", 1), ("many", 8)):
            monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / name / "cache"))
            score(server.url, source, tmp_path / name, concurrency, permutations=2, width=2, is_chat=is_chat)
        assert len(server.requests) % 2 == 0
    for table in ("scores.parquet", "queries.parquet"):
        assert (tmp_path / "one" / table).read_bytes() == (tmp_path / "many" / table).read_bytes()


@pytest.mark.parametrize("times", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_faults_under_concurrency_lose_and_double_nothing(tmp_path, times):
    source = a_source(tmp_path, queries=times // 2)
    with Server(rerank) as server:
        score(server.url, source, tmp_path / "whole", 1, permutations=2, width=2)
        server.faults = [FAULTS[i % 5] if i % 20 else "slow" for i in range(times)]
        random.Random(7).shuffle(server.faults)
        run = score(server.url, source, tmp_path / "faulty", 16, permutations=2, width=2, timeout=0.9, retries=20)
        assert server.faults == []
    assert run.record.coverage.failed == []
    assert compare_runs(tmp_path / "faulty", tmp_path / "whole") == Counts()


@pytest.mark.slow
def test_throughput_grows_with_the_requests_under_way(tmp_path):
    """An answer of 0.2 s: at 8 at least 6 times, at 32 at least 20 times what one request at a time gets."""
    with subprocess.Popen([sys.executable, str(slow_server.__file__), "0.2"], stdout=subprocess.PIPE, text=True) as process:
        url, rates, tables = f"http://127.0.0.1:{process.stdout.readline().strip()}", {}, set()
        for concurrency in (1, 8, 32):
            source = a_source(tmp_path, queries=10 if concurrency == 1 else 60, candidates=5)
            began = time.monotonic()
            run = score(url, source, tmp_path / str(concurrency), concurrency, permutations=10, width=3)
            rates[concurrency] = run.record.coverage.spent["requests"] / (time.monotonic() - began)
            if concurrency > 1:
                tables.add((run.folder / "scores.parquet").read_bytes())
        process.kill()
    assert rates[8] >= 6 * rates[1]
    assert rates[32] >= 20 * rates[1]
    assert len(tables) == 1


KILLED = """
import sys
from pathlib import Path
from tests.scoring.test_concurrency import a_source, score
score(sys.argv[1], a_source(Path(sys.argv[2]), queries=30), Path(sys.argv[2]) / "run", 8, permutations=1)
"""


def test_a_kill_costs_what_was_under_way(tmp_path):
    reached = threading.Event()

    def answer(path, body):
        time.sleep(0.005)
        if len(server.requests) > 30:
            reached.set()
        return rerank(path, body)

    with Server(answer) as server:
        words = [sys.executable, "-c", KILLED, server.url, str(tmp_path)]
        with subprocess.Popen(words) as process:
            assert reached.wait(120)
            process.send_signal(signal.SIGKILL)
        stored = Run.open(tmp_path / "run").scored_ids()
        before = len(server.requests)
        source = a_source(tmp_path, queries=30)
        score(server.url, source, tmp_path / "run", 8, permutations=1)
        asked_again = len(server.requests) - before - 2 * (30 - len(stored))
        score(server.url, source, tmp_path / "whole", 1, permutations=1)
    assert 0 < len(stored) < 30
    assert before - 2 * len(stored) <= 2 * (8 + 1), "more was lost than what was under way"
    assert 0 <= asked_again <= 3, "stored windows that are scored again when a run goes on"
    assert compare_runs(tmp_path / "run", tmp_path / "whole") == Counts()


# -- the loop


def test_what_ends_first_is_kept_first_and_failures_are_in_the_order_of_the_tasks(asked):
    kept, last = [], threading.Event()

    def do(number):
        if number == 0:
            assert last.wait(60)
        elif number == 3:
            last.set()
        if number in (0, 2):
            raise ValueError(f"no {number}")
        return number

    tasks = [QueryTask(instance(number), partial(do, number)) for number in range(5)]
    failures = run_tasks(tasks, lambda one, result: kept.append(result), asked)
    assert sorted(kept) == [1, 3, 4]
    assert [failure.reason for failure in failures] == ["ValueError: no 0", "ValueError: no 2"]


def test_tasks_behind_a_gap_begin_when_those_before_it_have_ended(asked):
    kept = []

    def tasks():
        yield from (QueryTask(instance(number), lambda number=number: number) for number in range(3))
        yield None
        assert sorted(kept) == [0, 1, 2]
        yield QueryTask(instance(3), lambda: 3)

    run_tasks(tasks(), lambda one, result: kept.append(result), asked)
    assert kept[-1] == 3


@pytest.mark.parametrize("is_remote", [False, True])
def test_no_task_begins_after_one_with_which_it_is_enough(asked, is_remote):
    backend, kept = asked if is_remote else SyntheticReranker("none", 0.0), []
    tasks = (QueryTask(instance(number), lambda number=number: number) for number in range(50))
    run_tasks(tasks, lambda one, result: kept.append(result), backend, is_enough=lambda one, result: len(kept) >= 3)
    assert 3 <= len(kept) <= (8 if is_remote else 3)


def test_a_mistake_ends_the_loop_when_what_is_under_way_has_ended(asked):
    kept, has_failed = [], threading.Event()

    def fail():
        has_failed.set()
        raise InputError("a wrong key")

    def wait():
        assert has_failed.wait(60)
        time.sleep(0.05)
        return "kept"

    tasks = [QueryTask(instance(0), wait), QueryTask(instance(1), fail)]
    with pytest.raises(InputError, match="a wrong key"):
        run_tasks(tasks, lambda one, result: kept.append(result), asked)
    assert kept == ["kept"]


def test_a_stop_keeps_what_was_under_way(asked):
    kept, begun = [], []

    def do(number):
        begun.append(number)
        if number == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.05)
        return number

    tasks = (QueryTask(instance(number), partial(do, number)) for number in range(100))
    with pytest.raises(KeyboardInterrupt):
        run_tasks(tasks, lambda one, result: kept.append(result), asked)
    assert sorted(kept) == sorted(begun)
    assert len(kept) < 20


def test_what_waits_behind_an_interrupted_loop_is_not_asked(asked, monkeypatch):
    monkeypatch.setattr(loop, "PATIENCE", 0.0)
    is_open = threading.Event()
    with Server(lambda path, body: is_open.wait(60) and {}) as server:
        endpoint = asked.endpoint = Endpoint(server.url, EngineOptions(concurrency=2))

        def do():
            return endpoint.map(lambda number: endpoint.post("/", {"number": number}, lambda answer: answer), range(10))

        def tasks():
            yield QueryTask(instance(0), do)
            while len(server.requests) < 2:
                time.sleep(0.01)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run_tasks(tasks(), lambda *_: None, asked)
        is_open.set()
        deadline = time.monotonic() + 0.3
        while time.monotonic() < deadline:
            time.sleep(0.02)
    assert len(server.requests) == 2


# -- how many requests may be under way


def test_a_limit_is_halved_once_for_what_was_under_way_and_grows_back():
    now = [0.0]
    limit = Limit(8, clock=lambda: now[0])

    async def hold(count):
        for _ in range(count):
            await asyncio.wait_for(limit.__aenter__(), 60)

    async def is_full():
        try:
            await asyncio.wait_for(limit.__aenter__(), 0.01)
        except TimeoutError:
            return True
        return False

    async def exercise():
        await hold(8)
        now[0] = 1.0
        for _ in range(8):
            limit.lower(sent=0.5)
        assert limit.now == 4
        for _ in range(8):
            await limit.__aexit__()
        await hold(4)
        assert await is_full()
        for _ in range(100):
            limit.grow()
        assert limit.now == 8
        await hold(4)
        assert await is_full()
        limit.lower(sent=2.0)
        limit.lower(sent=3.0)
        limit.lower(sent=4.0)
        limit.lower(sent=5.0)
        assert limit.now == 1
        assert limit.under_way == 8

    asyncio.run(exercise())


def test_an_endpoint_that_says_too_many_is_asked_less_and_then_as_before():
    with Server(lambda path, body: {}) as server:
        server.faults = ["429"]
        endpoint = Endpoint(server.url, replace(OPTIONS, concurrency=8))
        endpoint.map(lambda number: endpoint.post("/", {"number": number}, lambda answer: answer), range(1))
        assert 4 <= endpoint.limit.now < 5
        endpoint.map(lambda number: endpoint.post("/", {"number": number}, lambda answer: answer), range(60))
        assert endpoint.limit.now == 8
        assert endpoint.limit.under_way == 0
