"""Servers that never end, lie about their bytes or ask for a day's rest: each request ends in its time, with a name."""

import asyncio
import gc
import gzip
import json
import os
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from steadyscore import cli
from steadyscore.engines import EngineOptions, Price, http
from steadyscore.engines.http import Endpoint, Unreachable, Unusable
from steadyscore.errors import InputError
from steadyscore.machine.bounds import LONGEST_ASKED, retry_after
from tests.engines.test_http import waits
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

HEAD = b"HTTP/1.1 200 OK\r\n"


def read_request(connection: socket.socket) -> None:
    """Read one request to its end: to close before that resets the connection, and the answer may be lost with it."""
    with connection.makefile("rb") as stream:
        length = 0
        while (line := stream.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        stream.read(length)


class Raw:
    """A server that writes given pieces to every connection, with a pause between them."""

    def __init__(self, *pieces: bytes, pause: float = 0.0):
        self.pieces, self.pause, self.ended, self.asked = pieces, pause, threading.Event(), 0

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def _accept(self):
        while not self.ended.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection):
        with connection:
            read_request(connection)
            self.asked += 1
            for piece in self.pieces:
                try:
                    connection.sendall(piece)
                except OSError:
                    return
                if self.ended.wait(self.pause):
                    return

    def __exit__(self, *_):
        self.ended.set()
        self._socket.close()


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


def body(words: bytes, *headers: bytes) -> bytes:
    """A whole answer; the client is told that the connection ends with it, so that it does not ask there again."""
    headers = (b"connection: close", *headers)
    return HEAD + b"".join(h + b"\r\n" for h in headers) + b"content-length: %d\r\n\r\n" % len(words) + words


def ask(url, **options):
    return Endpoint(url, EngineOptions(**{"retries": 1, "timeout": 20.0} | options)).ask("/", {}, lambda answer: answer)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # Python 3.12 on, of a process with threads
def test_endpoints_share_one_thread_whoever_asks_and_a_forked_process_has_its_own():
    with Server(lambda path, body: body) as server:
        endpoints = [Endpoint(server.url, EngineOptions(timeout=20.0)) for _ in range(3)]

        def ask_of(number):
            return endpoints[number % 3].ask("/", {"number": number}, lambda answer: answer["number"])

        async def ask_of_in_a_loop(number):  # as in a notebook
            return ask_of(number)

        with ThreadPoolExecutor(6) as threads:
            assert list(threads.map(ask_of, range(30))) == list(range(30))
        assert asyncio.run(ask_of_in_a_loop(30)) == 30
        assert [thread.name for thread in threading.enumerate()].count("steadyscore-http") == 1
        if not (child := os.fork()):
            signal.alarm(30)
            os._exit(7 if ask(server.url) == {} else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert ask_of(31) == 31


def test_an_endpoint_that_nobody_has_any_longer_closes_its_connections_and_no_other_s():
    with Server(lambda path, body: body) as server:
        kept, dropped = (Endpoint(server.url, EngineOptions(timeout=20.0)) for _ in range(2))
        assert [one.ask("/", {}, lambda answer: answer) for one in (kept, dropped)] == [{}, {}]
        client = dropped._client
        del dropped
        gc.collect()
        until = time.monotonic() + 20
        while not client.is_closed and time.monotonic() < until:
            time.sleep(0.01)
        assert client.is_closed
        assert kept.ask("/", {}, lambda answer: answer) == {}


@pytest.mark.parametrize("head", [HEAD + b"content-length: 1000\r\n\r\n", HEAD + b"x-slow: "], ids=["body", "headers"])
def test_a_server_that_drips_its_body_or_its_headers_does_not_outlast_the_timeout(head):
    with Raw(head, *[b"a"] * 500, pause=0.1) as server:
        began = time.monotonic()
        with pytest.raises(Unreachable, match=r"timeout: no whole answer within 0\.5 s"):
            ask(server.url, timeout=0.5, retries=0)
        assert time.monotonic() - began < 25  # the server drips for 50


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (body(b"this is not gzip", b"content-encoding: gzip"), "not decompressed"),
        (body(gzip.compress(b'{"a": "b"}')[:-14], b"content-encoding: gzip"), "not JSON"),
        (body(b"\x28\xb5\x2f\xfd", b"content-encoding: zstd"), "not (JSON|decompressed)"),
        (body(b"[" * 100_000), "not JSON"),
        (body(b"\xff\xfe{"), "not JSON"),
        (b"garbage\r\n\r\n", "RemoteProtocolError"),
    ],
    ids=["not gzip", "gzip cut short", "zstd", "nested", "not UTF-8", "not HTTP"],
)
def test_an_answer_that_cannot_be_read_is_asked_for_again_and_then_named(answer, why):
    with Raw(answer) as server:
        with pytest.raises(Unusable, match=f"in 2 tries, the last: {why}"):
            ask(server.url)
        assert server.asked == 2


def test_an_answer_without_end_is_given_up_before_it_is_read(monkeypatch):
    monkeypatch.setattr(http, "LARGEST", 2**20)
    with Raw(body(gzip.compress(b" " * 2**23), b"content-encoding: gzip")) as server:
        with pytest.raises(Unusable, match="more than 1 MB"):
            ask(server.url)
        assert server.asked == 1


def test_a_redirect_stops_the_run_and_its_target_is_not_repeated():
    with Raw(
        b"HTTP/1.1 302 Found\r\nlocation: http://u:PWSECRET9@other.example/t?x=QSECRET9\r\ncontent-length: 0\r\n\r\n"
    ) as server:
        with pytest.raises(InputError, match=r"HTTP 302 and leads to other\.example") as refusal:
            ask(server.url)
        assert "SECRET9" not in str(refusal.value)


@pytest.mark.parametrize("asked", ["86400", "inf", "1e400", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_a_long_rest_is_cut_and_said(asked, monkeypatch, caplog):
    with Raw(b"HTTP/1.1 429 No\r\nretry-after: %s\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % asked.encode()) as server:
        client, waited = Endpoint(server.url, EngineOptions(retries=2, timeout=20)), waits(monkeypatch)
        with pytest.raises(Unreachable, match=r"asks to be left alone for .* is asked again after 60 s"):
            client.ask("/", {}, lambda answer: answer)
    assert waited == [LONGEST_ASKED] * 2
    assert caplog.text.count("asks to be left alone") == 1


@pytest.mark.parametrize("asked", ["-5", "nan", "soon", "", "Mon, 99 Foo 2020"])
def test_a_rest_that_makes_no_sense_is_none(asked):
    assert retry_after({"retry-after": asked}) == 0


@pytest.mark.parametrize(
    "flags",
    [("--set", "retries=-3"), ("--set", "rate=0"), ("--set", "timeout=-5"), ("--set", "timeout=nan"), ("--set", "rate=inf")],
)
def test_a_limit_that_is_none_is_wrong_usage(flags):
    with pytest.raises(SystemExit) as stop:
        cli.main(["audit", "--scorer", "synthetic:none", "--data", "passages", *flags])
    assert stop.value.code == 2


def test_options_name_all_their_mistakes_at_once():
    with pytest.raises(InputError) as refusal:
        EngineOptions(retries=-3, rate=0, timeout=float("nan"), concurrency=0, price=Price(-1, 2))
    assert len(refusal.value.mistakes) == 5


def test_a_gate_fails_on_missing_queries_unless_they_are_allowed(tmp_path, capsys):
    from tests.engines.test_http import chat

    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=4, candidates=3))
    run = str(tmp_path / "run")
    with Server(chat) as server:
        server.always = lambda body: "400" if "thing 1 number" in str(body) else None
        words = ["--scorer", f"openai:m@{server.url}/v1", "--data", str(pools), "--permutations", "2", "--no-report"]
        assert cli.main(["audit", *words, "--out", run]) == 4
    gate = ["gate", run, "--max", "tau_psi=1"]
    capsys.readouterr()
    assert cli.main(gate) == 3
    said = capsys.readouterr()
    assert "1 query is missing" in said.err
    assert "could not be scored: q1" in said.out
    assert cli.main([*gate, "--allow-missing", "1", "--json"]) == 0
    assert [row["missing"] for row in json.loads(capsys.readouterr().out)] == [1, 1]
