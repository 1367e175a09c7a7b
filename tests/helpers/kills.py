"""Kill audits at random moments, resume them, and compare what they end with: `make kills N=1000`.

Scorers are a Python function, a program and an HTTP endpoint in a process of its own; each writes a byte for every call
it answers, so that calls are counted whoever is killed. An attempt is a forked process that ends by SIGKILL or by itself
and never scores a query that is on disk; a folder that is complete is compared with an undisturbed run, row by row and figure
by figure, and the next one begins.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
CALLS = "STEADYSCORE_TEST_CALLS"
"""The environment variable that names the file in which calls are counted."""
SECONDS = 0.002
"""What a call takes."""
FLUSH = 0.1
"""Seconds of work that are written at once; an endpoint's queries are written one by one."""
LONGEST = {"python": 0.4, "command": 0.4, "http": 0.2}
"""Kills fall anywhere in this many seconds: before, between, inside and after the writing of shards."""
QUERIES, POOL, PERMUTATIONS = 60, 5, 2


# -- the scorers


def answer(query: str, texts: list[str]) -> list[float]:
    """One call: counted, slow, and a function of what it is shown and in which order."""
    with open(os.environ[CALLS], "ab", buffering=0) as counted:
        counted.write(b".")
    time.sleep(SECONDS)
    return [len(set(query) & set(text)) + 0.1 * slot for slot, text in enumerate(texts)]


def run_program() -> None:
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # who asked was killed
    for line in sys.stdin:
        asked = json.loads(line)
        echoed = {"id": asked["id"]} if "id" in asked else {}
        print(json.dumps({**echoed, "scores": answer(asked["query"], asked["candidates"])}), flush=True)


def run_server() -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found = answer(asked["query"], asked["documents"])
            words = json.dumps({"results": [{"index": i, "relevance_score": s} for i, s in enumerate(found)]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(words)))
            self.end_headers()
            self.wfile.write(words)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that was killed
    print(server.server_port, flush=True)
    server.serve_forever()


# -- attempts


def audit(address: str, data: Path, out: Path, is_open: Callable[[], None]) -> None:
    from steadyscore.collection import open_collection
    from steadyscore.runs import folder
    from steadyscore.runs.folder import Run
    from steadyscore.scoring.config import AuditConfig, open_scorer
    from steadyscore.scoring.score import score_collection

    folder.HELD_HERE = FLUSH
    config = AuditConfig(permutations=PERMUTATIONS)
    scorer = open_scorer(address, open_collection(str(data)).collection, config)
    on_disk = Run.open(out).scored_ids() if (out / "run.json").exists() else set()
    real = scorer.score_orders

    def score_once(instance: Any, *rest: Any) -> Any:
        assert instance.id not in on_disk, f"{instance.id} was scored twice"
        return real(instance, *rest)

    scorer.score_orders = score_once  # type: ignore[method-assign]
    is_open()
    score_collection(scorer, str(data), out, config)


def attempt(address: str, data: Path, out: Path, seconds: float | None = None) -> bool:
    """Audit in a process of its own, which is killed `seconds` after its scorer is open; whether it was."""
    from tests.faults.processes import run_until_killed

    return run_until_killed(lambda is_open: audit(address, data, out, is_open), seconds)


# -- what they end with


@dataclass
class Tally:
    """What `kills` kills cost."""

    kills: int = 0
    audits: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    figures: int = 0
    needed: int = 0
    made: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kills} kills over {self.audits} audits: rows lost {self.lost}, doubled {self.doubled}, wrong {self.wrong}, "
            f"summaries that differ {self.figures}; {self.needed} calls needed, {self.made - self.needed} made beyond"
        )


def compare(out: Path, whole: Path, tally: Tally) -> None:
    from steadyscore.results.load import load_run
    from steadyscore.runs.folder import Run
    from tests.faults.counting import compare_runs

    counts = compare_runs(out, whole)
    tally.lost += counts.lost
    tally.doubled += counts.doubled
    tally.wrong += counts.wrong
    figures = [{name: f.to_json() for name, f in load_run(Run.open(folder)).figures.items()} for folder in (out, whole)]
    tally.figures += json.dumps(figures[0]) != json.dumps(figures[1])
    tally.audits += 1


def kill(kind: str, address: str, data: Path, folder: Path, kills: int, calls: Path, dice: random.Random) -> Tally:
    """Audits of one scorer with so many kills."""
    tally, whole = Tally(), folder / "whole"
    attempt(address, data, whole)
    each = calls.stat().st_size
    calls.write_bytes(b"")
    while tally.kills < kills:
        out = folder / f"killed-{tally.audits}"
        while tally.kills < kills and attempt(address, data, out, dice.uniform(0, LONGEST[kind])):
            tally.kills += 1
        attempt(address, data, out)
        compare(out, whole, tally)
        tally.needed += each
    tally.made = calls.stat().st_size
    return tally


def main(kills: int, seed: int = 0) -> int:
    # Imported once: an attempt is a fork and starts at once.
    import steadyscore.engines.python
    import steadyscore.engines.rerank
    import steadyscore.results.load
    import steadyscore.scoring.score  # noqa: F401
    from tests.helpers.pools import some_instances, write_collection

    began, sound = time.monotonic(), True
    with tempfile.TemporaryDirectory() as top:
        root = Path(top)
        data = write_collection(root / "many.jsonl", some_instances(queries=QUERIES, candidates=POOL))
        os.environ[CALLS] = str(calls := root / "calls")
        sys.path.insert(0, str(HERE.parent))
        os.chdir(root)
        server = subprocess.Popen([sys.executable, str(HERE), "server"], stdout=subprocess.PIPE, text=True)
        try:
            port = server.stdout.readline().strip()  # type: ignore[union-attr]
            program = shlex.join([sys.executable, str(HERE), "program"])
            addresses = {
                "python": "python:kills:answer",
                "command": f"command:{program}",
                "http": f"rerank+cohere:m@http://127.0.0.1:{port}/rerank",
            }
            for i, (kind, address) in enumerate(addresses.items()):
                calls.write_bytes(b"")
                (folder := root / kind).mkdir()
                share = kills // 3 + (i < kills % 3)
                tally = kill(kind, address, data, folder, share, calls, random.Random(seed + i))
                print(f"{kind}: {tally}", flush=True)
                sound &= not (tally.lost or tally.doubled or tally.wrong or tally.figures)
        finally:
            server.kill()
            server.wait()
    print(f"{kills} kills in {time.monotonic() - began:.0f} s: {'all equal' if sound else 'DIFFERENT'}")
    return 0 if sound else 1


if __name__ == "__main__":
    if sys.argv[1] == "server":
        run_server()
    elif sys.argv[1] == "program":
        run_program()
    else:
        sys.exit(main(int(sys.argv[1])))
