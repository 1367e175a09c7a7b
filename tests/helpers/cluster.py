"""A Ray cluster of several nodes on this machine, each with raylet processes of its own, and work whose cost is known."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from steadyscore.collection import open_collection
from steadyscore.runs import parts
from steadyscore.scoring.config import AuditConfig, open_scorer
from steadyscore.scoring.parts import Worker, plan_parts
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from tests.helpers.pools import write_collection
from tests.helpers.waiting import until

SECONDS = 0.02
"""What a window costs. It is slept, so that nodes which share a processor do not share the cost."""
CONFIG = AuditConfig(permutations=2, settings=Settings(width=2))
WINDOWS = 3 * 4
"""Of a query: three orders of a pool of eight in windows of two."""
QUERIES_PER_PART = 4
SCORER = "python:tests.helpers.cluster:score"


def score(query: str, texts: list[str]) -> list[float]:
    time.sleep(SECONDS)
    return [sum(map(ord, query + text)) % 97 / 97 - slot / 50 for slot, text in enumerate(texts)]


def make_collection(folder: Path, count: int) -> Path:
    """A collection of so many parts."""
    pools = [
        {
            "id": f"q{i}",
            "query": f"what is {i}",
            "candidates": [{"id": f"d{i}-{j}", "text": f"text {j * i + j}"} for j in range(8)],
        }
        for i in range(count * QUERIES_PER_PART)
    ]
    return write_collection(folder / f"pools-{count}.jsonl", pools)


@dataclass(frozen=True)
class NodeWork:
    """Scoring whose workers note on which node each was opened, and may be killed in the writing of a part."""

    data: Path
    out: Path
    notes: Path
    kill_once: bool = False
    """The first worker that has written a part dies before the part gets its name."""

    @property
    def quiet(self) -> bool:
        return True

    def workers(self) -> Iterator[tuple[str, Worker]]:
        import ray

        plan_parts.__kwdefaults__["windows"] = QUERIES_PER_PART * WINDOWS
        if ray.get_runtime_context().get_actor_id():
            (self.notes / f"{ray.get_runtime_context().get_node_id()}-{os.getpid()}").touch()
        if self.kill_once:
            parts.write_bytes = self._die_before_the_name  # type: ignore[assignment]
        source = open_collection(str(self.data))
        yield "slow", Worker(open_scorer(SCORER, source.collection, CONFIG), source, self.out, CONFIG)

    def _die_before_the_name(self, file: Path, content: bytes) -> None:
        from steadyscore.machine import disk

        def rename(scratch: str | Path, target: str | Path) -> None:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.notes / "killed", os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), signal.SIGKILL)
            kept(scratch, target)

        kept, os.replace = os.replace, rename  # type: ignore[assignment]
        try:
            disk.write_bytes(file, content)
        finally:
            os.replace = kept


def node_work(data: Path, out: Path, **how: bool) -> NodeWork:
    notes = out.with_name(f"{out.name}-notes")
    notes.mkdir(exist_ok=True)
    return NodeWork(data, out, notes, **how)


def audit_alone(data: Path, out: Path) -> None:
    """The undisturbed run, by one process; or the collecting of what workers scored."""
    source = open_collection(str(data))
    score_collection(open_scorer(SCORER, source.collection, CONFIG), source, out, CONFIG)


def count_parts(out: Path) -> int:
    return len(list(out.glob("parts/scores/*/w*.parquet")))


def wait_for_parts(out: Path, count: int, seconds: float = 300) -> None:
    until(lambda: count_parts(out) >= count, seconds)


def actor_processes(work: NodeWork) -> list[int]:
    """Processes that opened a worker, the last one last."""
    notes = sorted(work.notes.glob("*-*"), key=lambda file: file.stat().st_mtime)
    return [int(note.name.rpartition("-")[2]) for note in notes]


class Nodes:
    """A head that scores nothing, and nodes of one processor each."""

    def __init__(self, count: int):
        from ray.cluster_utils import Cluster

        # Ray's own niceness is 15, so that actors wait for everybody else here, and its patience with a new node is 30 s.
        os.environ |= {"RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "120", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
        # A dead node must be missed soon: the tests wait for it.
        system = {"health_check_period_ms": 1000, "health_check_failure_threshold": 3, "health_check_initial_delay_ms": 0}
        self._cluster = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 0, "_system_config": system, "include_dashboard": False}
        )
        self.nodes = [self.add() for _ in range(count)]

    def add(self):
        return self._cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)

    def lose(self, node) -> None:
        """The node's processes are killed, not asked."""
        self._cluster.remove_node(node, allow_graceful=False)

    def __enter__(self) -> Nodes:
        import ray

        ray.init(self._cluster.address, log_to_driver=False)
        self._cluster.wait_for_nodes()
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        ray.shutdown()
        self._cluster.shutdown()
