"""An endpoint that misbehaves, over HTTP on loopback."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from steadyscore.engines import EngineOptions, http
from steadyscore.engines.http import EndpointDown
from steadyscore.engines.kinds import open_engine
from steadyscore.scoring.config import scorer_for
from steadyscore.scoring.score import score_collection
from tests.faults.audits import CONFIG, make_collection, slow
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, fault
from tests.helpers.endpoint import Server

QUICK = EngineOptions(timeout=0.5, retries=4, concurrency=2, cache=False)


def answer(path: str, body: Any) -> Any:
    scores = slow(body["query"], body["documents"])
    return {"results": [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]}


def spoil(kind: str, answer: Any) -> Any:
    """An answer that can be read and is wrong."""
    results = answer["results"]
    if kind == "short":
        return {"results": results[:-1]}
    if kind == "nan":
        return {"results": [results[0] | {"relevance_score": float("nan")}, *results[1:]]}
    places = {"twice": 0, "beyond": len(results), "negative": -1}
    return {"results": [*results[:-1], results[-1] | {"index": places[kind]}]}


KINDS = {
    "endpoint: 429": (("429",), "HTTP 429 with `Retry-After`"),
    "endpoint: server errors": (("500", "502", "503"), "HTTP 500, 502 and 503 in turn"),
    "endpoint: time-out": (("slow",), "an answer after twice the time-out"),
    "endpoint: half a body": (("truncated", "cut"), "half of the JSON; or fewer bytes than announced, then the end"),
    "endpoint: connection reset": (("reset",), "TCP reset instead of an answer"),
    "endpoint: wrong indices": (
        ("twice", "beyond", "negative", "short"),
        "an index twice, beyond the list or negative, or one too few",
    ),
    "endpoint: not a number": (("nan",), "NaN as a score"),
}
"""Row of the table -> faults of the server in turn, and how it is said."""


def disturb(folder: Path, times: int, kinds: tuple[str, ...]) -> Counts:
    """Audit an endpoint that fails at random requests, one of them in a row at most as often as it is tried again."""
    data, dice, counts = make_collection(folder, 6), random.Random(0), Counts()
    turns, in_a_row = itertools.cycle(kinds), Counter[str]()

    def misbehave(body: Any) -> str | None:
        nonlocal counts
        asked = json.dumps(body)  # several are under way
        if not is_disturbed or in_a_row[asked] >= QUICK.retries or dice.random() < 0.5 or counts.times >= times:
            in_a_row[asked] = 0
            return None
        in_a_row[asked] += 1
        counts += Counts(1)
        return next(turns)

    first_wait, http.FIRST_WAIT = http.FIRST_WAIT, 0.01
    try:
        with Server(answer, spoil) as server:
            is_disturbed = False
            server.always = misbehave
            address = f"rerank+cohere:m@{server.url}/rerank"
            audit(address, data, folder / "whole")
            is_disturbed = True
            number = 0
            while counts.times < times:
                number += 1
                audit(address, data, folder / f"run-{number}")
                counts += compare_runs(folder / f"run-{number}", folder / "whole")
    finally:
        http.FIRST_WAIT = first_wait
    return counts


def audit(address: str, data: Path, out: Path) -> None:
    from steadyscore.collection import open_collection

    scorer = scorer_for(open_engine(address, QUICK), open_collection(str(data)).collection, CONFIG)
    run = score_collection(scorer, str(data), out, CONFIG)
    assert run.record.failed == []


def register(name: str, kinds: tuple[str, ...], how: str) -> None:
    @fault(
        name, f"{how}, at random requests of an audit", times=12 if "slow" in kinds else 24, few=2, is_slow="twice" not in kinds
    )
    def inject(folder: Path, times: int) -> Counts:
        return disturb(folder, times, kinds)


for name, (kinds, how) in KINDS.items():
    register(name, kinds, how)


@fault(
    "endpoint: down",
    "no answer any more in mid-run: the command stops with a sentence, and goes on when it is back",
    times=6,
    is_slow=True,
)
def go_down(folder: Path, times: int) -> Counts:
    data, counts = make_collection(folder, 6), Counts()
    first_wait, http.FIRST_WAIT = http.FIRST_WAIT, 0.01
    try:
        with Server(answer) as server:
            address = f"rerank+cohere:m@{server.url}/rerank"
            audit(address, data, folder / "whole")
            for number in range(times):
                last = len(server.requests) + number
                server.always = lambda body, last=last: "500" if len(server.requests) > last else None
                with pytest.raises(EndpointDown, match="What was scored is kept; run the same command again when it answers"):
                    audit(address, data, folder / f"run-{number}")
                server.always = lambda body: None
                audit(address, data, folder / f"run-{number}")
                counts += Counts(1) + compare_runs(folder / f"run-{number}", folder / "whole")
    finally:
        http.FIRST_WAIT = first_wait
    return counts
