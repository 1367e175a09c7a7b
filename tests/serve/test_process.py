"""The server as its own process: the command, SIGTERM under load, SIGHUP, a port that is taken."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading

import httpx

from tests.helpers.serving import DOCUMENTS, LAUNCH, QUERY, serving
from tests.helpers.waiting import until

BODY = {"query": QUERY, "documents": DOCUMENTS}
HELD = """
import time
from pathlib import Path
def score(query, texts):
    while query != "warm" and not Path("go").exists():
        time.sleep(0.01)
    return [0.5] * len(texts)
"""
"""A scorer that waits for a word from the test."""


def test_sigterm_under_load_finishes_what_is_in_flight(tmp_path):
    (tmp_path / "held.py").write_text(HELD)
    with serving(tmp_path, "python:held:score") as (url, process), httpx.Client(base_url=url, timeout=60) as client:
        answers: list[int | Exception] = []

        def one() -> None:
            try:
                answers.append(client.post("/v1/rerank", json=BODY).status_code)
            except httpx.TransportError as fault:
                answers.append(fault)

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: "steadyscore_requests_in_flight 8.0" in client.get("/metrics").text)
        process.send_signal(signal.SIGTERM)
        until(lambda: refused(url))
        assert not answers
        (tmp_path / "go").touch()
        for thread in threads:
            thread.join()
        process.wait(120)
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
        (tmp_path / "mine.py").write_text("def score(query, texts):\n    return [0.25] * len(texts)\n")
        process.send_signal(signal.SIGHUP)
        until(lambda: '"event": "reloaded", "models": ["mine"]' in (tmp_path / "log").read_text())
        answer = httpx.post(f"{url}/v1/rerank", json=BODY | {"model": "mine"}, timeout=60).json()
        assert answer["results"][0]["relevance_score"] == 0.25


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
        assert process.wait(120) == 0
    assert "Traceback" not in (tmp_path / "log").read_text()
