"""Windows scored again: stored ones before a run goes on, shuffled ones of a scorer that declares itself order-free.

What a function, a program or an endpoint is cannot be read off its files: globals, helpers, the environment, weights, another
model at the same address. So it is asked. A change that moves none of the windows that are asked again is not seen.
"""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..engines import Backend, Engine, Grader, Recording
from ..errors import SteadyscoreError, UnusableScorer
from ..machine.disk import cache_folder
from ..runs.folder import Run
from ..runs.records import ScoredAgain
from ..runs.table import Scored
from ..terms import Array, Instance
from ..window.presentation import generator, windows
from .presented import in_pool_order
from .scorer import PoolScorer, Scorer

log = logging.getLogger("steadyscore")

WINDOWS = 3
"""Stored queries of which one window is scored again."""
SHUFFLED_POOLS = 8
"""First queries of a collection that a scorer which declares itself order-free is shown in another order too."""
SAME, SAME_LOCAL = 1e-5, 1e-3
"""Share of the score scale below which two scores are the same. A local model, whose weights are in its identity, moves by more
with the number of threads and with what shares a pass."""
NOISE = 3
"""A difference of up to so many times what two readings of the same window differ by is noise."""

Scores = Mapping[str, Mapping[str, float]]
"""Query -> candidate -> score."""


class Canary(NamedTuple):
    """Stored windows that were scored again."""

    answers: dict[str, dict[str, float]]
    """Query -> candidate -> its score now."""
    differences: dict[str, float]
    """Query -> the largest difference of a score from what is stored."""
    limit: float
    """Above this a difference is one."""

    @property
    def difference(self) -> float:
        return max(self.differences.values())

    @property
    def is_changed(self) -> bool:
        return self.difference > self.limit

    @property
    def words(self) -> str:
        moved = [query_id for query_id, difference in self.differences.items() if difference > self.limit]
        count = f"{len(moved)} of {len(self.differences)} stored windows"
        return f"{count} scored otherwise, by up to {self.difference:.3g} (queries {', '.join(moved)})"


def score_again(scorer: PoolScorer, shown: Sequence[tuple[Instance, Array]], stored: Scores) -> Canary | None:
    """The first window of each of these orders anew, against what is stored; None where none could be scored.

    Where they differ they are read once more, a local model's windows in another batch: what two readings of one window
    differ by is noise, be it a random function's or a short number format's.
    """
    answers = _read(scorer, shown)
    if not answers:
        return None
    limit = _limit(scorer.backend, [stored[query_id][one] for query_id, row in answers.items() for one in row])
    differences = {query_id: _largest(row, stored[query_id]) for query_id, row in answers.items()}
    if max(differences.values()) > limit:
        again = _read(scorer, shown, is_second=True)
        limit = max(
            [limit, *(NOISE * _largest(answers[query_id], row) for query_id, row in again.items() if query_id in answers)]
        )
    return Canary(answers, differences, limit)


def _read(scorer: PoolScorer, shown: Sequence[tuple[Instance, Array]], *, is_second: bool = False) -> dict[str, dict[str, float]]:
    """Scores of the first window of each order, of a mitigated scorer of the whole order; what fails is left out."""
    answers: dict[str, dict[str, float]] = {}
    for instance, order in shown:
        try:
            if isinstance(scorer, Scorer):
                window = windows(order, scorer.width or len(order), scorer.settings.partition)[0]
                reverse = replace(window, candidates=window.candidates[::-1])
                is_batched = is_second and isinstance(scorer.backend, Engine) and scorer.backend.endpoint is None
                row = scorer.read_windows([(instance, window), *([(instance, reverse)] if is_batched else [])]).windows[0].scores
                places: Sequence[int] = window.candidates
            else:
                row, places = scorer.score(instance, order.tolist()), range(len(order))
        except SteadyscoreError:
            raise
        except Exception:  # somebody else's code may fail now and then; what it fails on is named when it is scored
            continue
        answers[instance.id] = {instance.pool[i].id: float(score) for i, score in zip(places, row, strict=True)}
    return answers


def _largest(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    return max(abs(score - other[candidate]) for candidate, score in one.items())


def _limit(backend: Backend, scores: Sequence[float] | Array) -> float:
    """The difference up to which two scores count as the same, on the scale of these."""
    share = SAME_LOCAL if backend.capabilities.deterministic else SAME
    return share * (1.0 if isinstance(backend, Grader) else float(np.ptp(scores))) + 1e-9 * float(np.abs(scores).max())


def note_canary(canary: Canary, run: Run) -> ScoredAgain:
    """What a run keeps of it, beside its noise floor."""
    floors = [float(np.ptp(query.scores, axis=0).max()) for query in run.read_noise()]
    floor = max(floors) if floors else None
    return ScoredAgain(windows=len(canary.answers), difference=canary.difference, noise_floor=floor)


@contextmanager
def keep_answers(run: Run, backend: Backend, canary: Canary | None) -> Iterator[None]:
    """Inside, an endpoint's answers are kept for this run and no other, until all its queries are scored.

    Those of an earlier start are used where the endpoint still answers as it did.
    """
    if backend.endpoint is None:
        yield
        return
    name = f"{run.folder.absolute()} {run.record.created}"
    folder = cache_folder() / "responses" / hashlib.blake2b(name.encode(), digest_size=16).hexdigest()
    if canary is None or canary.is_changed:
        if folder.exists():
            why = "does not answer as it did" if canary else "has no whole query to be compared with"
            log.warning("%s %s: its answers that were kept are not used.", backend.name, why)
        shutil.rmtree(folder, ignore_errors=True)
    with backend.endpoint.keeping_answers(folder):
        yield
    if not run.record.failed:
        shutil.rmtree(folder, ignore_errors=True)


def is_claimed_order_free(scorer: PoolScorer) -> bool:
    """Whether a scorer says that no order moves its scores, and can be asked."""
    return scorer.capabilities.order_free and not isinstance(scorer.backend, Recording)


def score_shuffled(scorer: PoolScorer, instance: Instance, scored: Scored) -> float:
    """How far the scores of a pool move in another order and under other ids, read anew; beyond rounding it is an error."""
    n = len(instance.pool)
    order = generator("shuffled", instance.id).permutation(n)
    order = order[::-1] if (order == np.arange(n)).all() else order
    renamed = replace(instance, pool=tuple(replace(one, id=f"shuffled {place}") for place, one in enumerate(instance.pool)))
    stored = in_pool_order(scored, instance)
    difference = float(np.abs(scorer.score(renamed, order.tolist()) - stored).max())
    if difference > _limit(scorer.backend, stored):
        raise UnusableScorer(
            f"{scorer.name} declares that no order moves its scores, and another order of query {instance.id} moved one by "
            f"{difference:.3g}. Have it declare order_free=False."
        )
    return difference
