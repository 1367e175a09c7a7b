"""Many workers on one run folder: each scores some parts of it (`parts.py`), and a later call without workers collects them.

`score_share` is one worker of a Slurm array or an indexed job; `score_on_ray` hands the parts to the actors of a Ray cluster.
What they are told (`Work`) opens the scorers where the worker runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..machine.progress import bar
from ..terms import Failure
from .parts import PartResult, Share, Worker
from .ray_launcher import Cluster, connect, map_on_ray


class Work(Protocol):
    """What all workers are told."""

    @property
    def quiet(self) -> bool:
        """No progress."""
        ...

    def workers(self) -> Iterator[tuple[str, Worker]]:
        """A worker for every run, with what messages call it, in the same order everywhere."""
        ...


@dataclass(frozen=True, slots=True)
class Manifest:
    """What workers did: a row for every part, and what could not be done."""

    rows: tuple[PartResult, ...]
    lost: tuple[str, ...] = ()
    """A sentence for every part that no worker brought to an end."""

    def to_json(self) -> dict[str, Any]:
        return {"parts": [asdict(row) for row in self.rows], "lost": list(self.lost)}

    def counts(self) -> dict[str, int]:
        return {
            "parts": len(self.rows),
            "queries": sum(row.queries for row in self.rows),
            "scored now": sum(row.scored for row in self.rows),
            "windows scored now": sum(row.windows for row in self.rows),
            "queries that failed": sum(len(row.failed) for row in self.rows),
            "parts lost": len(self.lost),
        }

    @property
    def failed(self) -> list[Failure]:
        return [failure for row in self.rows for failure in row.failed]


def score_share(work: Work, share: Share) -> Manifest:
    """Score the parts of one worker among several.

    Perturbations, readers and the noise floor are left to the call that collects: they are made from complete runs.
    """
    rows: list[PartResult] = []
    for name, worker in work.workers():
        mine = share.parts(len(worker.parts))
        show = bar(f"{name}, share {share}", work.quiet, "part")
        rows += [worker.score(number) for number in show(mine, len(mine))]
    return Manifest(tuple(rows))


# -- Ray


def score_on_ray(work: Work, cluster: Cluster) -> Manifest:
    """Score every part on a Ray cluster. What Ray loses is named; what is on disk is never scored again."""
    ray = connect(cluster)
    counts: list[tuple[str, int]] = ray.get(ray.remote(**cluster.resources)(_count_parts).remote(work))
    rows = [{"run": run, "part": part} for run, (_, parts) in enumerate(counts) for part in range(parts)]
    answers = map_on_ray(cluster, OpenWorkers, work, rows, quiet=work.quiet)
    done, lost = [], []
    for row, answer in zip(rows, answers, strict=True):
        name, parts = counts[row["run"]]
        if answer.error:
            lost.append(f"{name}, part {row['part'] + 1} of {parts}: {answer.error}")
        else:
            failed = tuple(Failure(**failure) for failure in answer.value["failed"])
            done.append(PartResult(**answer.value | {"failed": failed}))
    return Manifest(tuple(done), tuple(lost))


def score_on(cluster: str | Cluster, work: Work, say: Callable[[str], None]) -> None:
    """Have a cluster score before a call collects; what the cluster lost is said, and left to that call."""
    for sentence in score_on_ray(work, Cluster.parse(cluster) if isinstance(cluster, str) else cluster).lost:
        say(f"{sentence}. It is scored here now.")


class OpenWorkers:
    """What an actor works with: each scorer is opened once, when a part of its run comes first."""

    def __init__(self, work: Work):
        self._coming = work.workers()
        self._workers: list[Worker] = []

    def __call__(self, row: dict[str, int]) -> dict[str, Any]:
        while len(self._workers) <= row["run"]:
            self._workers.append(next(self._coming)[1])
        return asdict(self._workers[row["run"]].score(row["part"]))


def _count_parts(work: Work) -> list[tuple[str, int]]:
    """(run, parts) of every scorer on every collection, found where the scorer can be opened."""
    return [(name, len(worker.parts)) for name, worker in work.workers()]
