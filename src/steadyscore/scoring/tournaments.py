"""Rankings made of rankings: tournaments of windows, and the ranking closest to several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..errors import InputError
from ..measures.views import borda, with_scores
from ..runs.records import Cost
from ..terms import Array, Instance
from ..window.presentation import windows
from .presented import Presented, in_pool_order
from .scorer import PoolScorer


def central_ranking(scores: Array) -> Array:
    """Permutation self-consistency (Tang et al., 2024): a ranking close to all K by Kendall distance. (P, K, n) -> (P, n).

    The closest ranking is hard to find; this is Borda's, improved until no exchange of neighbours brings it closer
    (local Kemenisation, Dwork et al., 2001). The result is n - rank, as for any ranker.
    """
    return np.stack([_improve_by_neighbours(points) for points in borda(scores)])


def _improve_by_neighbours(points: Array) -> Array:
    n = points.shape[-1]
    prefers = (points[:, :, None] > points[:, None, :]).sum(axis=0)  # (n, n): rankings that place row above column
    order = np.argsort(-points.mean(axis=0), kind="stable").tolist()
    for end in range(1, n):  # insertion, as far up as a majority of the rankings lifts it
        place = end
        while place and prefers[order[place], order[place - 1]] > prefers[order[place - 1], order[place]]:
            order[place - 1], order[place] = order[place], order[place - 1]
            place -= 1
    ranking = np.empty(n)
    ranking[order] = n - np.arange(n)
    return ranking


def average_tournaments(scorer: PoolScorer, instance: Instance, starts: Array) -> Presented:
    """Scores of P orders, each the mean standing of the R tournaments that begin with its orders, (P, R, n) (TourRank, Chen et
    al., 2025).
    """
    if scorer.width == 1:
        raise InputError("a tournament needs windows of at least 2 candidates. Raise --width.")
    served, rounds, n = starts.shape
    presented = scorer.score_orders(instance, starts.reshape(-1, n), range(served * rounds))
    column = {candidate: c for c, candidate in enumerate(presented.candidate_ids)}
    of_pool = np.array([column[candidate.id] for candidate in instance.pool])
    reached, cost = np.empty_like(presented.scores), presented.cost
    for row, start in enumerate(starts.reshape(-1, n)):
        reached[row, of_pool], stages = tournament_standing(scorer, instance, start, presented.scores[row, of_pool])
        cost += stages
    return replace(with_scores(presented, reached.reshape(served, rounds, -1).mean(axis=1)), cost=cost)


def tournament_standing(scorer: PoolScorer, instance: Instance, order: Array, scores: Array) -> tuple[Array, Cost]:
    """(n,) in pool order: stages won, plus the share of its last window that a candidate left behind; and what it took.

    The better half of every window goes on; winners meet in new windows until they fit in one. `scores` (n,) are those
    of the first stage. Only ranks within a window count, so scores need not be comparable between windows.
    """
    scores, reached, stage, cost = scores.copy(), np.zeros(len(scores)), 0, Cost()
    while True:
        groups = windows(order, scorer.width or len(order), scorer.settings.partition)
        for group in groups:
            members = np.array(sorted(group.candidates, key=lambda i: instance.pool[i].id))  # ties by id, never by slot
            reached[members] = stage + borda(scores[members]) / len(members)
        if len(groups) == 1:
            return reached, cost
        order = np.array([i for group in groups for i in _better_half(group.candidates, reached)])
        winners = replace(instance, pool=tuple(instance.pool[i] for i in order))
        presented = scorer.score_orders(winners, np.arange(len(order))[None], [0])
        scores[order], cost, stage = in_pool_order(presented, winners), cost + presented.cost, stage + 1


def _better_half(candidates: Sequence[int], reached: Array) -> list[int]:
    winners = sorted(candidates, key=lambda i: -reached[i])[: -(-len(candidates) // 2)]
    return [i for i in candidates if i in winners]


def tournament_passes(n: int, width: int) -> float:
    """Windows of one tournament over those of one plain presentation."""
    total, playing = -(-n // width), n
    while playing > width > 1:
        full, rest = divmod(playing, width)
        playing = full * -(-width // 2) + -(-rest // 2)
        total += -(-playing // width)
    return total / -(-n // width)
