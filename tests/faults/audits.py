"""The small audit that faults disturb: a collection of a few queries, a scorer that is slow enough to be killed at work."""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from pathlib import Path
from typing import Any

from steadyscore.collection import open_collection
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.python import open_object
from steadyscore.machine.extras import versions
from steadyscore.machine.places import Place
from steadyscore.runs import folder
from steadyscore.scoring import parts
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer
from tests.helpers.pools import some_instances, write_collection

for name in ("filelock", "pandas", "pyarrow.compute", "pyarrow.parquet"):
    with contextlib.suppress(ImportError):  # imported here, so that copies of this process begin at once
        importlib.import_module(name)

versions()  # looked up once, by the process that is copied
QUERIES, POOL = 15, 5
PART_WINDOWS = 9
"""Windows of a part here: three queries, so that there are five parts."""
SECONDS = {"call": 0.0}
"""What a call of the scorer takes; `take_time` makes it long enough to be met at work."""
CALLS = "STEADYSCORE_TEST_CALLS"
"""The environment variable that names the file in which calls are counted."""


def slow(query: str, texts: list[str]) -> list[float]:
    """Scores that depend on the texts and on their order. A byte is written for every call, where that is asked for."""
    if CALLS in os.environ:
        with open(os.environ[CALLS], "ab", buffering=0) as calls:
            calls.write(b".")
    if SECONDS["call"]:
        time.sleep(SECONDS["call"])
    return [round(len(set(query) & set(text)) + 0.1 * slot, 3) for slot, text in enumerate(texts)]


CONFIG = AuditConfig(permutations=2)


def take_time() -> None:
    SECONDS["call"] = 0.001


def make_collection(folder: Path, queries: int = QUERIES) -> Path:
    return write_collection(folder / "pools.jsonl", some_instances(queries=queries, candidates=POOL))


def open_slow(data: Path, scorer: Any = slow) -> Scorer:
    """The scorer at work on a collection: a function, or an address."""
    collection = open_collection(str(data)).collection
    return scorer_for(open_engine(scorer) if isinstance(scorer, str) else open_object(scorer), collection, CONFIG)


def audit(data: Path, out: Place, scorer: Any = slow, *, seconds: float = 0.02) -> None:
    """The command that completes a run, which keeps what it scored every so many seconds."""
    folder.HELD_HERE = folder.HELD_FOR_A_STORE = seconds
    score_collection(open_slow(data, scorer), str(data), out, CONFIG)


def score_share(data: Path, out: Place, number: int, workers: int, scorer: Any = slow) -> None:
    """The command with `--shard number/workers`."""
    parts.plan_parts.__kwdefaults__["windows"] = PART_WINDOWS
    worker = parts.Worker(open_slow(data, scorer), str(data), out, CONFIG)
    for part in parts.Share(number, workers).parts(len(worker.parts)):
        worker.score(part)
