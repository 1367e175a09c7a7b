"""Many workers on one run folder: each scores some parts of it (`parts.py`), and a later call without workers collects them.

`score_share` is one worker of a Slurm array or an indexed job; `score_on_ray` hands the parts to the actors of a Ray cluster.
What they are told (`Work`) opens the scorers where the worker runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from ..errors import InputError, SteadyscoreError
from ..machine.credentials import redact
from ..machine.extras import check_installed
from ..machine.progress import bar
from ..terms import Failure
from .parts import PartResult, Share, Worker


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


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Ray runs and what an actor takes of it."""

    address: str | None = None
    """`ray://head:10001`, `auto` for the cluster that this machine belongs to, None for a new one on this machine."""
    actors: int | None = None
    """At most this many; None for as many as fit."""
    cpus: float = 1
    gpus: float = 0

    @classmethod
    def parse(cls, text: str) -> Cluster:
        """`ray`, `ray:auto` or `ray://head:10001`."""
        if text in ("ray", "ray:auto"):
            return cls("auto" if text == "ray:auto" else None)
        if text.startswith("ray://"):
            return cls(text)
        raise InputError(f"{text!r} is not a cluster: write ray, ray:auto or ray://HEAD:PORT.")


RETRIES = 3
"""Times that a part is begun again after the death of its actor; then it is named, and the others go on."""


class ScoreParts:
    """A Ray actor: opens each scorer once, scores the parts it is handed, gives back their rows of the manifest."""

    def __init__(self, work: Work):
        self._coming = work.workers()
        self._places: list[Worker] = []

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        rows = [self._score(int(run), int(part)) for run, part in zip(batch["run"], batch["part"], strict=True)]
        return {name: [row[name] for row in rows] for name in ("run", "part", "result", "error")}

    def _score(self, run: int, part: int) -> dict[str, Any]:
        """A failure becomes a value: one that is raised would end the whole data set."""
        row = {"run": run, "part": part, "result": "", "error": ""}
        try:
            while len(self._places) <= run:
                self._places.append(next(self._coming)[1])
            return row | {"result": json.dumps(asdict(self._places[run].score(part)))}
        except Exception as fault:
            is_ours = isinstance(fault, SteadyscoreError)
            return row | {"error": redact(str(fault) if is_ours else f"{type(fault).__name__}: {fault}")}


def score_on_ray(work: Work, cluster: Cluster) -> Manifest:
    """Score every part on a Ray cluster. What Ray loses is named; what is on disk is never scored again."""
    check_installed("--on ray", "ray")
    import ray
    import ray.data

    if not ray.is_initialized():
        ray.init(cluster.address, log_to_driver=False)
    resources = {"num_cpus": cluster.cpus, "num_gpus": cluster.gpus}
    counts: list[tuple[str, int]] = ray.get(ray.remote(**resources)(_count_parts).remote(work))
    rows = [{"run": run, "part": part} for run, (_, parts) in enumerate(counts) for part in range(parts)]
    context = ray.data.DataContext.get_current()
    context.max_errored_blocks, context.enable_progress_bars = -1, not work.quiet
    most = cluster.actors or max(1, int(ray.cluster_resources().get("CPU", 1) // max(cluster.cpus, 1e-9)))
    results = (
        ray.data.from_items(rows, override_num_blocks=len(rows))
        .map_batches(
            ScoreParts,
            fn_constructor_args=(work,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=min(most, len(rows)), max_tasks_in_flight_per_actor=2),
            max_task_retries=RETRIES,
            **resources,
        )
        .take_all()
    )
    return _manifest(counts, results)


def _count_parts(work: Work) -> list[tuple[str, int]]:
    """(run, parts) of every scorer on every collection, found where the scorer can be opened."""
    return [(name, len(worker.parts)) for name, worker in work.workers()]


def _manifest(counts: Sequence[tuple[str, int]], results: Sequence[Mapping[str, Any]]) -> Manifest:
    done = {(row["run"], row["part"]): row for row in results}
    rows, lost = [], []
    for run, (name, parts) in enumerate(counts):
        for part in range(parts):
            row = done.get((run, part), {"result": "", "error": f"its actor died {RETRIES + 1} times"})
            if row["error"]:
                lost.append(f"{name}, part {part + 1} of {parts}: {row['error']}")
            else:
                result = json.loads(row["result"])
                rows.append(PartResult(**result | {"failed": tuple(Failure(**failure) for failure in result["failed"])}))
    return Manifest(tuple(rows), tuple(lost))
