"""A server on loopback that speaks any engine's protocol and misbehaves on request."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NETWORK_FAULTS = ("429", "500", "truncated", "short", "nan")
SLOW = 1.0
"""Seconds that a slow answer takes: more than the tests' timeout."""


class Server:
    """`answer(path, body)` is the honest answer; `spoiled(kind, answer)` a wrong one: one result short, with a NaN in it."""

    def __init__(self, answer: Callable[[str, Any], Any], spoiled: Callable[[str, Any], Any] = lambda kind, answer: answer):
        self.answer, self.spoiled = answer, spoiled
        self.faults: list[str] = []
        """What happens to the next requests, in order; then all goes well."""
        self.always: Callable[[Any], str | None] = lambda body: None
        """What happens to a request every time."""
        self.refusal: str | bytes = "no"
        """What an answer with an error status says, in JSON; bytes are its whole body."""
        self.requests: list[Any] = []
        self.keys: list[str | None] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Server:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None: ...

            def do_GET(self) -> None:
                self.reply(200, json.dumps(outer.answer(self.path, None)).encode())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    outer.requests.append(body)
                    outer.keys.append(self.headers["authorization"])
                    fault = outer.always(body) or (outer.faults.pop(0) if outer.faults else None)
                if fault and fault.isdigit():
                    extra = {"retry-after": "0.05"} if fault == "429" else {}
                    said = outer.refusal
                    words = said if isinstance(said, bytes) else json.dumps({"error": said}).encode()
                    return self.reply(int(fault), words, extra)
                answer = outer.answer(self.path, body)
                if fault == "reset":
                    return self.reset()
                if fault and fault not in ("slow", "truncated", "cut"):
                    answer = outer.spoiled(fault, answer)
                words = json.dumps(answer).encode()
                if fault == "slow":
                    time.sleep(SLOW)
                if fault == "cut":  # fewer bytes than the header says
                    self.close_connection = True
                    return self.reply(200, words[: len(words) // 2], {"content-length": str(len(words))})
                self.reply(200, words[: len(words) // 2] if fault == "truncated" else words)

            def reset(self) -> None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True

            def reply(self, status: int, words: bytes, extra: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {"content-length": str(len(words)), **(extra or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(words)
                except (BrokenPipeError, ConnectionResetError):  # the client did not wait
                    self.close_connection = True

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._server.shutdown()
        self._server.server_close()
