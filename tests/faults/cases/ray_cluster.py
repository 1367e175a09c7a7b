"""Faults of a Ray cluster: nodes and actors that die under a run. They need Ray: `make test-ray`."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from steadyscore.scoring.parts import Cluster, Manifest, score_on_ray
from tests.faults.counting import compare_runs
from tests.faults.fault import Counts, Unavailable, fault
from tests.helpers.cluster import Nodes, NodeWork, actor_processes, audit_alone, make_collection, node_work, wait_for_parts

PARTS = 12


@fault(
    "Ray node lost",
    "one of two local Ray nodes, raylet and actors, killed when a third of the parts are there; another node joins",
    times=2,
    is_slow=True,
)
def lose_nodes(folder: Path, times: int) -> Counts:
    def disturb(nodes: Nodes, work: NodeWork, out: Path, running: Future[Manifest]) -> int:
        wait_for_parts(out, PARTS // 3)
        nodes.lose(nodes.nodes.pop())
        nodes.nodes.append(nodes.add())
        return 1

    return _on_two_nodes(folder, times, disturb)


@fault(
    "Ray actor killed before a rename",
    "an actor kills itself (`kill -9`) when it has written a part and the part has no name yet",
    times=2,
    is_slow=True,
)
def kill_actor_before_rename(folder: Path, times: int) -> Counts:
    def disturb(nodes: Nodes, work: NodeWork, out: Path, running: Future[Manifest]) -> int:
        running.result()
        return int((work.notes / "killed").exists())

    return _on_two_nodes(folder, times, disturb, kill_once=True)


@fault(
    "Ray actor killed and restarted",
    "the actor that was opened last is killed (`kill -9`) at a random part, and Ray begins another",
    times=3,
    is_slow=True,
)
def kill_actors(folder: Path, times: int) -> Counts:
    dice = random.Random(0)

    def disturb(nodes: Nodes, work: NodeWork, out: Path, running: Future[Manifest]) -> int:
        wait_for_parts(out, dice.randrange(1, PARTS // 2))
        with contextlib.suppress(ProcessLookupError):
            os.kill(actor_processes(work)[-1], signal.SIGKILL)
            return 1
        return 0

    return _on_two_nodes(folder, times, disturb)


def _on_two_nodes(
    folder: Path, times: int, disturb: Callable[[Nodes, NodeWork, Path, Future[Manifest]], int], **how: bool
) -> Counts:
    """Runs on two nodes, each disturbed and then collected, against one by a single process."""
    if find_spec("ray") is None:
        raise Unavailable("ray is not installed")
    data, counts = make_collection(folder, PARTS), Counts()
    audit_alone(data, folder / "whole")
    with contextlib.redirect_stdout(sys.stderr), Nodes(2) as nodes, ThreadPoolExecutor(1) as other:  # Ray talks on stdout
        for number in range(times):
            out = folder / f"run-{number}"
            work = node_work(data, out, **how)
            running = other.submit(score_on_ray, work, Cluster(actors=2))
            counts += Counts(disturb(nodes, work, out, running))
            manifest = running.result()
            assert not manifest.lost, manifest.lost
            audit_alone(data, out)
            counts += compare_runs(out, folder / "whole")
    return counts
