"""Connections that send half a request, none, or read no answer: closed in time, bounded, and nobody else notices."""

from __future__ import annotations

import json
import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from steadyscore.serve.server import Connection, connection_limits
from steadyscore.serve.settings import Limits
from tests.helpers.serving import DOCUMENTS, QUERY, Double, app_of, listening, model, planted, serving

HEAD = b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
HALVES = {"nothing": b"", "half a head": HEAD, "half a body": HEAD + b"\r\n" + b'{"query": '}
QUICK = Limits(head_seconds=2.0, body_seconds=2.0)


def address_of(url: str) -> tuple[str, int]:
    host, port = url.removeprefix("http://").split(":")
    return host, int(port)


@contextmanager
def half_open(url: str, count: int, sent: bytes) -> Iterator[list[socket.socket]]:
    """So many connections, each with the same beginning of a request."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(address_of(url), timeout=20)) for _ in range(count)]
        for connection in held:
            try:
                connection.sendall(sent)
            except OSError:  # closed again already: there were more than the server holds
                continue
        yield held


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """This process may have so many files open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count if hard == resource.RLIM_INFINITY else min(count, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes; a connection it reset has nothing more."""
    found = b""
    try:
        while more := connection.recv(65536):
            found += more
    except ConnectionResetError:
        pass
    return found


def drip(connection: socket.socket, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        connection.sendall(b"x")
        time.sleep(0.05)


def answer_of(connection: socket.socket) -> tuple[int, dict]:
    head, _, body = rest_of(connection).partition(b"\r\n\r\n")
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)


@pytest.fixture(scope="module")
def quick_url() -> Iterator[str]:
    with listening(app_of(planted(), limits=QUICK)) as url:
        yield url


@pytest.mark.parametrize("kind", HALVES)
def test_a_half_sent_request_is_closed_at_its_deadline(quick_url, kind):
    began = time.monotonic()
    with half_open(quick_url, 1, HALVES[kind]) as (connection,):
        if kind == "nothing":
            assert rest_of(connection) == b""
        else:
            status, body = answer_of(connection)
            assert status == 408
            assert "within 2 s." in body["message"]
    assert time.monotonic() - began > 1.9
    assert httpx.get(f"{quick_url}/health", timeout=60).status_code == 200


@pytest.mark.parametrize("half", [HEAD, HEAD + b"\r\n"], ids=["headers", "body"])
def test_dripping_bytes_do_not_move_the_deadline(quick_url, half):
    with half_open(quick_url, 1, half) as (connection,), pytest.raises(OSError, match=r"reset|Broken pipe"):
        drip(connection, seconds=120)


def test_a_second_request_on_a_connection_has_its_own_deadline(quick_url):
    whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with half_open(quick_url, 1, whole) as (connection,):
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(HEAD)
        assert answer_of(connection)[0] == 408


def test_a_request_may_take_longer_than_its_arrival():
    def slow(query, texts):
        time.sleep(2.5 if query == QUERY else 0)
        return [0.5] * len(texts)

    with listening(app_of(model(Double(slow)), limits=QUICK)) as url:
        assert httpx.post(f"{url}/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS}, timeout=60).status_code == 200


def test_a_client_that_does_not_read_its_answer_is_cut_off(quick_url, monkeypatch):
    lost, connection_lost = threading.Event(), Connection.connection_lost

    def note_lost(self, fault):
        connection_lost(self, fault)
        lost.set()

    documents = ["d" * 90_000] * 40
    body = json.dumps({"query": QUERY, "documents": documents}).encode()
    head = f"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(address_of(quick_url))
        monkeypatch.setattr(Connection, "connection_lost", note_lost)
        connection.sendall(head.encode() + body)
        assert lost.wait(60)
        assert len(rest_of(connection)) < len(body), "the end of the answer was never sent"


def test_what_is_not_http_gets_one_sentence():
    with listening(app_of(planted())) as url, half_open(url, 1, b"\x16\x03\x01 hello\r\n\r\n") as (connection,):
        assert answer_of(connection) == (400, {"message": "this is not an HTTP request."})


@pytest.mark.parametrize("order", [1, -1], ids=["length first", "length last"])
def test_a_request_with_two_ends_is_refused_and_nothing_behind_it_is_answered(quick_url, order):
    """Whoever stands in front may take the other end for the right one."""
    ends = [b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"][::order]
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    smuggled = b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\n" + b"".join(ends) + b"\r\n0\r\n\r\n" + hidden
    with half_open(quick_url, 1, smuggled) as (connection,):
        answers = rest_of(connection)  # until the server closes
    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 400 ")
    assert b"the request has Content-Length and Transfer-Encoding. Send one." in answers


@pytest.mark.parametrize("kind", HALVES)
def test_whoever_holds_every_connection_keeps_nobody_out(kind):
    app = app_of(planted(), limits=Limits(connections=8))
    with listening(app) as url, half_open(url, 20, HALVES[kind]):
        for _ in range(3):
            body = {"query": QUERY, "documents": DOCUMENTS}
            assert httpx.post(f"{url}/v1/rerank", json=body, timeout=60).status_code == 200
        page = httpx.get(f"{url}/metrics", timeout=60).text
    assert 'steadyscore_refused_total{reason="connections"}' in page


def test_a_request_that_is_being_answered_never_makes_room():
    begun, go = threading.Event(), threading.Event()

    def held(query, texts):
        if query == QUERY:
            begun.set()
            assert go.wait(120)
        return [0.5] * len(texts)

    app = app_of(model(Double(held)), limits=Limits(connections=2, workers=2))
    body = json.dumps({"query": QUERY, "documents": DOCUMENTS}).encode()
    whole = HEAD.replace(b"100", str(len(body)).encode()) + b"Connection: close\r\n\r\n" + body
    with listening(app) as url, half_open(url, 2, whole) as running:
        assert begun.wait(60)
        deadline = time.monotonic() + 60
        while app.state.service.batcher.in_flight < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with half_open(url, 1, b"") as (late,):
            status, answer = answer_of(late)
        assert (status, answer) == (503, {"message": "every connection of this server is at work. Try again later."})
        go.set()
        assert [answer_of(connection)[0] for connection in running] == [200, 200]


def test_places_leave_files_for_everything_else(monkeypatch):
    allowed = [(1024, 1024)]
    monkeypatch.setattr(resource, "getrlimit", lambda kind: allowed[0])
    monkeypatch.setattr(resource, "setrlimit", lambda kind, found: allowed.__setitem__(0, found))
    for limits in ((1024, 1024), (256, 256), (256, 4096), (1024, resource.RLIM_INFINITY)):
        allowed[0] = limits
        connections, backlog = connection_limits(512)
        assert 8 <= backlog <= 128
        assert connections + 4 * backlog + 64 <= allowed[0][0]
    assert connections == 512
    assert allowed[0] == (512 + 4 * 128 + 64, resource.RLIM_INFINITY)


def test_sigterm_does_not_wait_for_half_sent_requests(tmp_path: Path) -> None:
    flags = ("synthetic:none", "--head-timeout", "300", "--body-timeout", "300")
    with serving(tmp_path, *flags) as (url, process), ExitStack() as clients:
        for half in HALVES.values():
            clients.enter_context(half_open(url, 150, half))
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        process.send_signal(signal.SIGTERM)
        process.wait(120)
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log
    assert len(log) < 100_000


def ask_until_the_end(url: str, begun: threading.Semaphore) -> str:
    """Ask over one connection, again and again; the kind of failure that ended it."""
    with httpx.Client(base_url=url, timeout=120, verify=False) as client:
        while True:
            try:
                status = client.post("/v1/rerank", json={"query": QUERY, "documents": DOCUMENTS}).status_code
            except httpx.TransportError as failure:
                return type(failure).__name__
            assert status in (200, 429, 503)  # a server that shuts down says so
            begun.release()


def test_sigterm_under_load_breaks_no_request_off(tmp_path: Path) -> None:
    """A request that was sent is answered; the next one finds nobody listening."""
    begun = threading.Semaphore(0)
    with serving(tmp_path, "synthetic:none", last_look=20) as (url, process), ThreadPoolExecutor(40) as clients:
        running = [clients.submit(ask_until_the_end, url, begun) for _ in range(40)]
        for _ in range(200):
            assert begun.acquire(timeout=120)
        process.send_signal(signal.SIGTERM)
        assert {client.result(120) for client in running} == {"ConnectError"}
        process.wait(120)


@pytest.mark.slow
@pytest.mark.parametrize("kind", HALVES)
def test_more_connections_than_files_stop_nobody_and_fill_no_log(tmp_path: Path, kind: str) -> None:
    """1,100 half-open connections against a server that was started with 1,024 files."""
    flags = ("synthetic:none", "--head-timeout", "60", "--body-timeout", "60")
    with open_files(4096), serving(tmp_path, *flags, files=1024) as (url, process), half_open(url, 1100, HALVES[kind]):
        times = []
        for _ in range(10):
            began = time.monotonic()
            assert httpx.get(f"{url}/health", timeout=20).status_code == 200
            times.append(time.monotonic() - began)
        files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
    size = (tmp_path / "log").stat().st_size
    print(f"\n{kind}: /health took at most {max(times):.3f} s, {files} files were open, the log has {size:,} bytes")
    assert files < 1024
    assert size < 1100 * 400, "a request that got as far as its body has its one line"
