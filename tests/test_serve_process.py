"""The server as its own process: the command, SIGTERM and SIGHUP under load, many clients at once.

`pytest -m slow tests/test_serve_process.py` runs the five minutes of 32 clients.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from serving import DOCUMENTS, QUERY

BODY = {"query": QUERY, "documents": DOCUMENTS}
LAUNCH = """
import argparse, sys
from steadyscore.commands import serve
parser = argparse.ArgumentParser()
serve.arguments(parser)
sys.exit(serve.run(parser.parse_args(sys.argv[1:])))
"""
SLOW = """
import time
def score(query, texts):
    time.sleep(0.5)
    return [0.5] * len(texts)
"""


@contextmanager
def serving(folder: Path, *flags: str, ready: float = 90.0) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-c", LAUNCH, *flags, "--port", str(port)]
    with open(folder / "log", "w+") as log:
        process = subprocess.Popen(
            command, cwd=folder, stdout=log, stderr=log, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        url, deadline = f"http://127.0.0.1:{port}", time.monotonic() + ready
        try:
            while time.monotonic() < deadline:
                assert process.poll() is None, (folder / "log").read_text()
                try:
                    if httpx.get(f"{url}/ready").status_code == 200:
                        break
                except httpx.TransportError:
                    pass
                time.sleep(0.1)
            yield url, process
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(20)


def resident(process: subprocess.Popen[str]) -> int:
    """Kilobytes of memory a process holds."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def pound(url: str, clients: int, seconds: float) -> tuple[Counter[int], float]:
    """How many answers of each status `clients` at once get, and how many requests a second."""
    found: Counter[int] = Counter()
    lock, until = threading.Lock(), time.monotonic() + seconds

    def one(number: int) -> None:
        with httpx.Client(base_url=url, timeout=60) as client:
            while time.monotonic() < until:
                answer = client.post("/v1/rerank", json=BODY | {"query": f"{QUERY} {number}"})
                with lock:
                    found[answer.status_code] += 1
                if answer.status_code == 200:
                    assert len(answer.json()["results"]) == len(DOCUMENTS)

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(i,)) for i in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, found[200] / (time.monotonic() - began)


def test_sigterm_under_load_finishes_what_is_in_flight(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    with serving(tmp_path, "python:slow:score") as (url, process), httpx.Client(base_url=url, timeout=60) as client:
        answers: list[int | Exception] = []

        def one() -> None:
            try:
                answers.append(client.post("/v1/rerank", json=BODY).status_code)
            except httpx.TransportError as fault:
                answers.append(fault)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        while "steadyscore_requests_in_flight 8.0" not in client.get("/metrics").text:
            assert not answers, "the scorer is slow enough for all eight to be in flight at once"
        process.send_signal(signal.SIGTERM)
        while not refused(url):
            assert len(answers) < 8, "new connections were still taken when the last answer came"
        for thread in threads:
            thread.join()
        process.wait(20)
    assert answers == [200] * 8
    assert process.returncode in (0, -signal.SIGTERM)
    assert "Traceback" not in (tmp_path / "log").read_text()


def refused(url: str) -> bool:
    host, port = url.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except OSError:
        return True
    return False


def test_sighup_opens_the_models_again(tmp_path):
    (tmp_path / "mine.py").write_text("def score(query, texts):\n    return [0.1] * len(texts)\n")
    with serving(tmp_path, "mine=python:mine:score") as (url, process):
        created = httpx.get(f"{url}/v1/models").json()["data"][0]["created"]
        time.sleep(1.1)
        process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + 10
        while httpx.get(f"{url}/v1/models").json()["data"][0]["created"] == created and time.monotonic() < deadline:
            time.sleep(0.05)
        assert httpx.get(f"{url}/v1/models").json()["data"][0]["created"] > created
        assert httpx.post(f"{url}/v1/rerank", json=BODY | {"model": "mine"}).status_code == 200


def test_the_command_refuses_a_public_address_before_it_loads_anything(tmp_path):
    command = [sys.executable, "-c", LAUNCH, "hf:/nowhere", "--host", "0.0.0.0"]
    found = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "no token is set" in found.stderr


def test_a_port_that_is_taken_is_one_sentence(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        found = subprocess.run(
            [sys.executable, "-c", LAUNCH, "hf:/nowhere", "--port", port], capture_output=True, text=True, cwd=tmp_path
        )
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use. Choose another --host or --port." in found.stderr


def test_an_interrupt_ends_it_without_a_trace(tmp_path):
    with serving(tmp_path, "synthetic:none") as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def small_model(tmp_path_factory):
    """Windows of some 60 tokens: a pass costs more than its tokens, as on a GPU."""
    from tiny import decoder, save

    return save(tmp_path_factory.mktemp("model"), decoder())


def test_many_clients_share_passes_and_lose_nothing(tmp_path, small_model):
    """32 clients for three seconds; the five minutes and the throughput are for a quiet machine (`-m slow`)."""
    with serving(tmp_path, f"hf:{small_model}") as (url, process):
        pound(url, 8, 1)
        before = resident(process)
        found, _ = pound(url, 32, 3)
        page = httpx.get(f"{url}/metrics").text
        assert found.keys() <= {200, 429}
        assert found[200] > 32
        assert resident(process) < before * 1.1
        assert "Traceback" not in (tmp_path / "log").read_text()
    figure = {line.split(" ")[0]: float(line.split(" ")[1]) for line in page.splitlines() if not line.startswith("#")}
    assert figure['steadyscore_batch_requests_bucket{le="1.0"}'] < figure["steadyscore_batch_requests_count"]
    assert figure["steadyscore_queue_windows"] == 0


@pytest.mark.slow
def test_eight_clients_get_more_than_one(tmp_path, small_model):
    with serving(tmp_path, f"hf:{small_model}") as (url, _):
        pound(url, 8, 2)
        ratios = []
        for _ in range(5):
            (_, one), (_, eight) = pound(url, 1, 3), pound(url, 8, 3)
            ratios.append(eight / one)
    print(f"eight clients against one: {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    assert sorted(ratios)[2] >= 1.5


@pytest.mark.slow
def test_five_minutes_of_32_clients(tmp_path, small_model):
    with serving(tmp_path, f"hf:{small_model}") as (url, process):
        pound(url, 32, 20)
        before = resident(process)
        found, rate = pound(url, 32, 300)
        after = resident(process)
    print(f"{dict(found)} at {rate:.1f}/s, memory {before} to {after} kB")
    assert found.keys() <= {200, 429}
    assert after < before * 1.05
