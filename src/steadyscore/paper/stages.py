"""What is made in three stages: labels, adapters, scores. Each is a list of independent jobs, shared out evenly among workers.

Workers see one store and plan the same shares without a word between them. Labels are few and large, so every worker scores its
part of each; adapters and runs are many, and the largest goes first to the worker that has least to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ..engines import EngineOptions
from ..errors import InputError, SteadyscoreError
from ..scoring.parts import Cluster, Row, Share, map_on_ray
from .jobs import Job, TrainingJob, trainings_of
from .scale import Choices
from .work import Stage, Store, Workshop


@dataclass(frozen=True)
class Piece:
    """One job of a stage."""

    stage: Stage
    name: str
    work: TrainingJob | Job
    seconds: float = 0.0
    """On one GPU, as planned; only its size relative to other jobs counts."""
    key: str = field(default="", compare=False)

    def do(self, workshop: Workshop, say: Callable[[str], None], share: Share | None = None) -> None:
        if isinstance(self.work, Job):
            workshop.do(self.work, say)
        elif self.stage == "labels":
            workshop.label(self.work, share)
        else:
            workshop.train(self.work)


def pieces_of(jobs: Sequence[Job], seconds: Callable[[Stage, TrainingJob | Job], float] | None = None) -> list[Piece]:
    """The jobs of all stages: labels before what learns from them, a teacher before its student."""
    trainings = trainings_of(jobs)
    labels = {training.labels.key + str(training.training.recalibrated): training for training in trainings}
    pieces: list[Piece] = [Piece("labels", f"labels for {t.described}", t, key=key) for key, t in labels.items()]
    pieces += [Piece("train", t.described, t, key=t.content.key) for t in trainings]
    pieces += [Piece("score", f"{j.request.system} on {j.request.collection}", j, key=j.content.key) for j in jobs]
    return [replace(piece, seconds=seconds(piece.stage, piece.work)) for piece in pieces] if seconds else pieces


def share_out(pieces: Iterable[Piece], workers: int) -> list[list[Piece]]:
    """Jobs for every worker, the same on every machine: the largest first, to whoever has least to do."""
    shares: list[list[Piece]] = [[] for _ in range(workers)]
    loads = [0.0] * workers
    for piece in sorted(pieces, key=lambda piece: (-piece.seconds, piece.key)):
        least = loads.index(min(loads))
        shares[least].append(piece)
        loads[least] += max(piece.seconds, 1e-9)  # jobs of unknown size are spread by their number
    return shares


def loads_of(pieces: Sequence[Piece], workers: int) -> list[float]:
    """Seconds of every worker in one stage; labels are divided by their windows."""
    if all(piece.stage == "labels" for piece in pieces):
        return [sum(piece.seconds for piece in pieces) / workers] * workers
    return [sum(piece.seconds for piece in share) for share in share_out(pieces, workers)]


def do_pieces(pieces: Iterable[Piece], workshop: Workshop, say: Callable[[str], None], share: Share | None = None) -> list[str]:
    """Do jobs one after the other; what cannot be done is said and left, and given back as sentences."""
    failed: list[str] = []
    for piece in pieces:
        try:
            piece.do(workshop, say, share)
        except InputError as error:
            failed += [f"{piece.name}: {mistake}" for mistake in error.mistakes]
        except SteadyscoreError as error:
            failed.append(f"{piece.name}: {error}")
    return list(dict.fromkeys(failed))


def pieces_of_share(pieces: Sequence[Piece], share: Share) -> list[Piece]:
    """The jobs of one worker; of labels all, as it does its part of each. Runs of one scorer come one after the other."""
    if all(piece.stage == "labels" for piece in pieces):
        return list(pieces)
    return in_order(share_out(pieces, share.workers)[share.number - 1])


def in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """Runs by what scores them, so that an opened model serves all of its own; other jobs as they are, before them."""

    def place(piece: Piece) -> tuple[str, str, str]:
        job = piece.work
        return (job.scoring.address, str(job.scoring.value), job.request.collection) if isinstance(job, Job) else ("", "", "")

    return sorted(pieces, key=place)


# -- Ray


@dataclass(frozen=True)
class SharedPieces:
    """What all actors are told."""

    pieces: list[Piece]
    store: Store
    choices: Choices
    options: EngineOptions
    command: Sequence[str] = ()

    def open(self) -> Callable[[Row], Any]:
        """The work of an actor, which keeps an opened model from job to job."""
        workshop = Workshop(self.store, self.choices, self.options, self.command, quiet=True, stage=self.pieces[0].stage)
        return partial(self._do, workshop)

    def _do(self, workshop: Workshop, row: Row) -> dict[str, list[str]]:
        remarks: list[str] = []
        share = Share(row["share"], row["of"]) if "share" in row else None
        return {"failed": do_pieces([self.pieces[row["piece"]]], workshop, remarks.append, share), "remarks": remarks}


LABEL_PARTS = 32
"""Parts into which a cluster divides each set of labels."""


def do_on_ray(shared: SharedPieces, cluster: Cluster, say: Callable[[str], None], *, quiet: bool = False) -> None:
    """Do the jobs of one stage on a Ray cluster. What failed or was lost is said, and left to the command that follows."""
    rows: list[Row] = []
    for number, piece in sorted(enumerate(shared.pieces), key=lambda numbered: -numbered[1].seconds):
        shares = range(1, LABEL_PARTS + 1) if piece.stage == "labels" else ()
        rows += [{"piece": number, "share": share, "of": LABEL_PARTS} for share in shares] or [{"piece": number}]
    answers = map_on_ray(cluster, SharedPieces.open, shared, rows, quiet=quiet) if rows else []
    for row, answer in zip(rows, answers, strict=True):
        if answer.error:
            say(f"{shared.pieces[row['piece']].name}: {answer.error}. It is done here now.")
        else:
            for sentence in (*answer.value["remarks"], *answer.value["failed"]):
                say(sentence)
