"""Ray as a launcher: rows of work handed to actors on a cluster, and what each gave back. Nothing is kept in Ray."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import InputError, SteadyscoreError
from ..machine.bounds import parse_number
from ..machine.credentials import redact
from ..machine.extras import check_installed

RETRIES = 3
"""Times that a row is handed out again after the death of its actor; then it is named, and the others go on."""
MOST_BLOCKS = 10_000
"""Blocks of a Ray data set, each begun by one task; of more rows, several share a block. Ray's own books grow with the blocks."""
AHEAD = 2
"""Blocks that wait at an actor, so that it never waits for one: all others stay where they are until somebody has room."""

Row = dict[str, Any]
T = TypeVar("T")


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
        """`ray`, `ray:auto` or `ray://head:10001`, and behind it what an actor takes: `ray,actors=2,cpus=4,gpus=0.5`."""
        place, *resources = text.split(",")
        if place not in ("ray", "ray:auto") and not place.startswith("ray://"):
            raise InputError(f"{place!r} is not a cluster: write ray, ray:auto or ray://HEAD:PORT.")
        sizes: dict[str, Any] = {}
        for name, _, value in (each.partition("=") for each in resources):
            number = parse_number(value)
            if name not in ("actors", "cpus", "gpus") or not (number >= 0 if name == "gpus" else number >= 1 and number % 1 == 0):
                raise InputError(f"{name}={value} is not what an actor takes: write actors=N, cpus=N or gpus=N.")
            sizes[name] = number if name == "gpus" else int(number)
        return cls({"ray": None, "ray:auto": "auto"}.get(place, place), **sizes)

    @property
    def resources(self) -> dict[str, float]:
        """What an actor, or a task in its place, asks of Ray."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus}


@contextmanager
def connect(cluster: Cluster) -> Iterator[Any]:
    """Ray, with its data sets, connected to the cluster; for the block, unless it was connected before.

    What Ray says of its nodes goes to stderr: stdout carries results alone.
    """
    check_installed("--on ray", "ray")
    import ray
    import ray.data

    logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what dies is named in the end; Ray keeps the rest in its own files
    with redirect_stdout(sys.stderr):
        is_new = not ray.is_initialized()
        if is_new:
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.WARNING)
        try:
            yield ray
        finally:
            if is_new:
                ray.shutdown()


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a row: what was given back, or why nothing was."""

    value: Any = None
    error: str = ""


def map_on_ray(
    cluster: Cluster, open_work: Callable[[T], Callable[[Row], Any]], argument: T, rows: Sequence[Row], *, quiet: bool = False
) -> list[Answer]:
    """`open_work(argument)(row)` for every row, by actors that call `open_work` once each; answers in the order of the rows.

    Rows and answers are what JSON can hold. An actor takes rows as it has room for them, the others wait in the data set; one
    that dies, alone or with its node, is begun again, and rows that went with it are handed out again.
    """
    answers: dict[int, Answer] = {}
    with connect(cluster) as ray:
        context = ray.data.DataContext.get_current()
        context.max_errored_blocks, context.enable_progress_bars = -1, not quiet
        fit = int(ray.cluster_resources().get("CPU", 1) // cluster.cpus) if cluster.cpus else len(rows)
        for _ in range(RETRIES + 1):
            missing = [{"number": number, "row": json.dumps(row)} for number, row in enumerate(rows) if number not in answers]
            if missing:
                actors = min(cluster.actors or max(1, fit), len(missing))
                for row in _hand_out(ray, missing, actors, (open_work, argument), cluster):
                    answers[row["number"]] = Answer(None, row["error"]) if row["error"] else Answer(json.loads(row["answer"]))
    lost = Answer(None, f"its actor died each of the {RETRIES + 1} times that it was handed out")
    return [answers.get(number, lost) for number in range(len(rows))]


def _hand_out(ray: Any, rows: Sequence[Row], actors: int, work: tuple[Any, Any], cluster: Cluster) -> list[Row]:
    """What actors gave back; rows whose actor died are not among it."""
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors, max_tasks_in_flight_per_actor=AHEAD)
    blocks = ray.data.from_items(rows, override_num_blocks=min(len(rows), MOST_BLOCKS))
    with warnings.catch_warnings():
        # Ray takes remote arguments without a name of their own until 2.63 (pyproject.toml stays below 2.64). Without this one
        # it would begin a row that kills its actor again and again.
        warnings.simplefilter("ignore", DeprecationWarning)
        mapped = blocks.map_batches(
            Actor, fn_constructor_args=work, batch_size=1, compute=pool, max_task_retries=1, **cluster.resources
        )
    given: list[Row] = mapped.take_all()
    return given


class Actor:
    """A Ray actor: opens what it works with once, and does the rows it is handed."""

    def __init__(self, open_work: Callable[[Any], Callable[[Row], Any]], argument: Any):
        self._open_work, self._argument = open_work, argument
        self._do: Callable[[Row], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        numbers = [int(number) for number in batch["number"]]
        answers = [self._answer(row) for row in batch["row"]]
        return {"number": numbers, "answer": [a for a, _ in answers], "error": [e for _, e in answers]}

    def _answer(self, row: str) -> tuple[str, str]:
        """(answer, error) as texts. A failure becomes a value: one that is raised would end the whole data set."""
        try:
            if self._do is None:
                self._do = self._open_work(self._argument)
            return json.dumps(self._do(json.loads(row))), ""
        except Exception as fault:
            is_ours = isinstance(fault, SteadyscoreError)
            return "", redact(str(fault) if is_ours else f"{type(fault).__name__}: {fault}")
