"""Ray as a launcher: rows of work handed to actors on a cluster, and what each gave back. Nothing is kept in Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError, SteadyscoreError
from ..machine.credentials import redact
from ..machine.extras import check_installed

RETRIES = 3
"""Times that a row is begun again after the death of its actor; then it is named, and the others go on."""
MOST_BLOCKS = 10_000
"""Blocks of a Ray data set, each begun by one task; of more rows, several share a block. Ray's own books grow with the blocks."""
AHEAD = 2
"""Blocks that wait at an actor, so that it never waits for one: all others stay where they are until somebody has room."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where Ray runs and what an actor takes of it."""

    address: str | None = None
    """`ray://head:10001`, `auto` for the cluster that this machine belongs to, None for a new one on this machine."""
    actors: int | None = None
    """At most this many, as soon as they fit; None for as many as fit."""
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

    @property
    def resources(self) -> dict[str, float]:
        """What an actor, or a task in its place, asks of Ray."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


def connect(cluster: Cluster) -> Any:
    """Ray, connected to the cluster."""
    check_installed("--on ray", "ray")
    import ray

    if not ray.is_initialized():
        ray.init(cluster.address, log_to_driver=False)
    return ray


class Actor:
    """Opens what it works with once, and does the rows it is handed; `work(argument)` gives the function of a row."""

    def __init__(self, work: Callable[[Any], Callable[[Row], Any]], argument: Any):
        self._work, self._argument = work, argument
        self._do: Callable[[Row], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        numbers = [int(number) for number in batch["number"]]
        answers = [self._answer(row) for row in batch["row"]]
        return {"number": numbers, "answer": [a for a, _ in answers], "error": [e for _, e in answers]}

    def _answer(self, row: str) -> tuple[str, str]:
        """(answer, error) as texts. A failure becomes a value: one that is raised would end the whole data set."""
        import json

        try:
            if self._do is None:
                self._do = self._work(self._argument)
            return json.dumps(self._do(json.loads(row))), ""
        except Exception as fault:
            is_ours = isinstance(fault, SteadyscoreError)
            return "", redact(str(fault) if is_ours else f"{type(fault).__name__}: {fault}")
