"""A server under mixed traffic for a long time: `make soak MINUTES=30` prints what it holds and fails where that grows.

Two models are served, a decoder of 60,000 weights and a planted scorer, with the monitor on. Clients send every kind of
request, the wrong ones too, at a low rate; resident memory, threads and open files are sampled all the while. The first fifth
may fill what fills once. After it, the median slope of memory between any two samples must stay below MOST_GROWTH.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from tests.helpers.serving import QUERY, memory_of, serving

MOST_GROWTH = 10.0
"""MB an hour."""
NOISE = 2.0
"""MB that a short run may differ by: what the allocator takes and gives back."""
WARM = 0.2
"""Share of the time that is not measured."""
FOUR = ["not relevant", "background", "relevant", "answers the query"]
WORDS = ("river", "harbour", "market", "bridge", "bread", "lisbon", "capital", "portugal", "town", "yeast")


class Sample(NamedTuple):
    minutes: float
    requests: int
    memory: float
    """MB resident."""
    threads: int
    files: int


# -- requests: each gives the statuses that are right


def _documents(dice: random.Random, most: int = 12) -> list[str]:
    return [" ".join(dice.choices(WORDS, k=dice.randint(3, 40))) for _ in range(dice.randint(1, most))]


def _post(path: str, make: Callable[[random.Random], dict[str, Any]], *right: int) -> Callable[..., tuple[int, Sequence[int]]]:
    return lambda client, dice: (client.post(path, json=make(dice)).status_code, right or (200,))


def _get(path: str) -> Callable[..., tuple[int, Sequence[int]]]:
    return lambda client, dice: (client.get(path).status_code, (200,))


def _any_path(client: httpx.Client, dice: random.Random) -> tuple[int, Sequence[int]]:
    """A path that nobody asked for before: were it a label of the metrics, they would grow without end."""
    return client.get(f"/{dice.getrandbits(64):x}", headers={f"X-{dice.getrandbits(32):x}": "1"}).status_code, (404,)


def _not_json(client: httpx.Client, dice: random.Random) -> tuple[int, Sequence[int]]:
    body = dice.randbytes(dice.randint(1, 5000))
    return client.post("/v1/rerank", content=body, headers={"Content-Type": "application/json"}).status_code, (400,)


def _too_large(client: httpx.Client, dice: random.Random) -> tuple[int, Sequence[int]]:
    return client.post("/v1/rerank", content=b" " * (5 << 20)).status_code, (413,)


def _walk_away(client: httpx.Client, dice: random.Random) -> tuple[int, Sequence[int]]:
    """Half a request, or a whole one whose answer nobody waits for."""
    body = json.dumps({"query": QUERY, "documents": _documents(dice)}).encode()
    head = f"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=10) as raw:
        raw.sendall((head + body)[: dice.choice([10, len(head) + 5, None])])
    return 0, (0,)


def _pool(dice: random.Random) -> dict[str, Any]:
    return {"query": f"{QUERY} {dice.random()}", "documents": _documents(dice), "model": dice.choice(["tiny", "planted"])}


def _state(dice: random.Random) -> dict[str, Any]:
    members = [{"id": f"d{i}", "text": text} for i, text in enumerate(_documents(dice, 4))]
    return {"query": f"{QUERY} {dice.random()}", "candidates": members}


def _system_one(dice: random.Random) -> dict[str, Any]:
    return {
        "model": "tiny", "state": _state(dice),
        "questions": {f"q{dice.random()}": {"type": "score", "instructions": "How relevant is d0?", "criteria": FOUR}},
    }  # fmt: skip


def _decisions(dice: random.Random) -> dict[str, Any]:
    content = [{"type": "input_json", "data": _state(dice)}]
    questions = [{"type": "predicate", "instructions": "Is it about a town?"}]
    return {"model": "tiny", "input": [{"role": "user", "content": content}], "questions": questions}


KINDS: dict[str, tuple[int, Callable[..., tuple[int, Sequence[int]]]]] = {
    "rerank": (8, _post("/v1/rerank", _pool)),
    "cohere": (3, _post("/v2/rerank", lambda dice: _pool(dice) | {"top_n": 2})),
    "tei": (3, _post("/rerank", lambda dice: {"query": QUERY, "texts": _documents(dice)})),
    "score": (3, _post("/score", lambda dice: {"queries": QUERY, "documents": _documents(dice)})),
    "decide": (3, _post("/v1/decide", lambda dice: _pool(dice) | {"decision": {"threshold": 0.5}, "permutations": 4})),
    "audit": (1, _post("/v1/audit", lambda dice: _pool(dice) | {"permutations": 3})),
    "systemone": (1, _post("/v1/systemone", _system_one)),
    "decisions": (1, _post("/v1/decisions", _decisions)),
    "models": (1, _get("/v1/models")),
    "metrics": (1, _get("/metrics")),
    "openapi": (1, _get("/openapi.json")),
    "explorer": (1, _get("/explorer.js")),
    "unknown model": (1, _post("/v1/rerank", lambda dice: _pool(dice) | {"model": f"m{dice.random()}"}, 404)),
    "wrong field": (1, _post("/v1/decide", lambda dice: _pool(dice) | {f"f{dice.random()}": 1}, 422)),
    "not JSON": (1, _not_json),
    "too large": (1, _too_large),
    "any path": (1, _any_path),
    "walk away": (1, _walk_away),
}
"""Name of each kind of request, how often it comes, and how it is sent."""


# -- clients, samples, verdict


class Traffic:
    """Clients that send requests of all kinds, together about `rate` a second, until they are stopped."""

    def __init__(self, url: str, clients: int, rate: float, seed: int):
        self.sent: Counter[str] = Counter()
        self.wrong: Counter[str] = Counter()
        self._stop, self._lock = threading.Event(), threading.Lock()
        pause = clients / rate
        self._threads = [
            threading.Thread(target=self._send, args=(url, pause, random.Random(seed + number)), daemon=True)
            for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _send(self, url: str, pause: float, dice: random.Random) -> None:
        names, weights = list(KINDS), [weight for weight, _ in KINDS.values()]
        with httpx.Client(base_url=url, timeout=120, verify=False) as client:
            while not self._stop.wait(dice.expovariate(1 / pause)):
                name = dice.choices(names, weights)[0]
                try:
                    status, right = KINDS[name][1](client, dice)
                except httpx.TransportError as fault:  # a refused body is answered and closed, before it is read
                    status, right = (413, (413,)) if name == "too large" else (type(fault).__name__, ())
                with self._lock:
                    self.sent[name] += 1
                    if status not in right:
                        self.wrong[f"{name}: {status}"] += 1

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(150)


def median_slope(samples: Sequence[Sample]) -> float:
    """MB an hour: the median over all pairs of samples, which one odd sample does not move (Theil and Sen)."""
    pairs = itertools.combinations(samples, 2)
    slopes = sorted(60 * (b.memory - a.memory) / (b.minutes - a.minutes) for a, b in pairs if b.minutes > a.minutes)
    return slopes[len(slopes) // 2] if slopes else 0.0


def mistakes_of(samples: Sequence[Sample], wrong: Counter[str]) -> list[str]:
    """Why a run fails; nothing where all is as it should be."""
    hours = (samples[-1].minutes - samples[0].minutes) / 60
    slope, allowed = median_slope(samples), max(MOST_GROWTH, NOISE / hours)
    found = [f"{count} wrong answers: {name}" for name, count in wrong.items()]
    if slope > allowed:
        found.append(f"resident memory grew by {slope:.1f} MB an hour; {allowed:.1f} are allowed")
    half = len(samples) // 2
    for what in ("threads", "files"):
        before, after = (max(getattr(sample, what) for sample in part) for part in (samples[:half], samples[half:]))
        if after > before + 8:  # a client more or less is connected at the moment of a sample
            found.append(f"{what} grew from {before} to {after}")
    return found


def run(minutes: float, clients: int, rate: float, seed: int) -> int:
    from tests.helpers.tiny import decoder, save

    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        model = save(place / "model", decoder())
        with serving(place, f"tiny=hf:{model}", "planted=synthetic:slot:0.3", "--monitor", "0.2", "--workers", "1") as (
            url,
            server,
        ):
            print(f"{minutes:g} minutes, {clients} clients, about {rate:g} requests a second, seed {seed}")
            print(f"{'minute':>7}{'requests':>10}{'memory MB':>11}{'threads':>9}{'files':>7}", flush=True)
            traffic, began = Traffic(url, clients, rate, seed), time.monotonic()
            samples, shown = [], -1.0
            while (now := (time.monotonic() - began) / 60) < minutes:
                time.sleep(min(5.0, minutes * 60 / 50))
                proc = Path(f"/proc/{server.pid}")
                counts = len(list((proc / "task").iterdir())), len(list((proc / "fd").iterdir()))
                samples.append(Sample(now, traffic.sent.total(), memory_of(server, "VmRSS") / 1024, *counts))
                if now >= shown + minutes / 10:
                    shown = now
                    print("{:>7.1f}{:>10,}{:>11.1f}{:>9}{:>7}".format(*samples[-1]), flush=True)
            traffic.stop()
            most = memory_of(server, "VmHWM") / 1024
            server.send_signal(signal.SIGTERM)
            server.wait(60)
        broken = "Traceback" in (place / "log").read_text()
    measured = [sample for sample in samples if sample.minutes >= WARM * minutes]
    mistakes = mistakes_of(measured, traffic.wrong) + ["the server's log holds a stack trace"] * broken
    print(", ".join(f"{name} {count}" for name, count in traffic.sent.items()))
    print(
        f"{traffic.sent.total():,} requests; after the first {WARM:.0%} of the time memory was {measured[0].memory:.1f} MB, at "
        f"the end {measured[-1].memory:.1f} MB, at most {most:.1f} MB; median slope {median_slope(measured):+.2f} MB an hour: "
        f"{'; '.join(mistakes) or 'flat'}"
    )
    return int(bool(mistakes))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rate", type=float, default=8.0, help="requests a second of all clients together")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    return run(args.minutes, args.clients, args.rate, args.seed)


if __name__ == "__main__":
    sys.exit(main())
