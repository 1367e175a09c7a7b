"""Inference-time mitigations: a scorer served in another way, with the interface of the scorer (§6.2, §D).

A mitigation is named as `<name>[:<number>]` and wraps any scorer; wrapped scorers wrap again, the first name innermost.
Every result is a function of the query, the pool and the order that was given, and of nothing else, so an audit measures
a mitigated scorer as it measures any other. Round-robin is `Settings.partition`; order-free attention is `pine.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ..engines import Capabilities, Recording
from ..errors import InputError
from ..measures.ensembles import borda
from ..measures.measurement import first_stage_scores, with_scores
from ..runs.table import Scored
from ..terms import Array, Candidate, Instance
from ..window import readout
from ..window.presentation import permutations, windows
from .scorer import PoolScorer, Scorer, Settings
from .wrapped import WrappedScorer


class Mitigation(NamedTuple):
    """What a name stands for."""

    summary: str
    serve: Callable[[Mitigated, Instance, Array], Scored]
    """(scorer, instance, orders (P, n)) -> scores (P, n), columns sorted by candidate id."""
    passes: Callable[[int, int, int], float]
    """(n, width, number) -> presentations of the whole pool that one served order costs."""
    number: int | None = None
    """The number after the colon where none is written; None: it takes none."""
    most: int | None = None
    """The largest number; None: any."""
    probes: Callable[[int, int], int] = lambda n, width: 0
    """(n, width) -> further windows, once per query however many orders are served."""
    one_for_all: bool = False
    """Whether all orders of a query are served from one."""
    keeps_order_free: bool = True
    """Whether what is served moves with no order where the scorer inside does not."""


class Mitigated(WrappedScorer):
    """A scorer under one mitigation."""

    def __init__(self, scorer: PoolScorer, name: str):
        super().__init__(scorer)
        self.mitigation, self.number = _parse(name)
        self.label = name if ":" in name or self.mitigation.number is None else f"{name}:{self.number}"
        if isinstance(scorer.backend, Recording):
            raise InputError(
                f"{scorer.name} holds scores that were given before, and {name} needs others. "
                "For batched self-consistency from stored scores use --serving-permutations."
            )
        self.mitigations = (*scorer.mitigations, self.label)
        self.content_free: dict[tuple[str, str, int], Array] = {}
        """(query id, query, window length) -> (length, 4): CapCal's probes."""

    @property
    def name(self) -> str:
        return f"{self.scorer.name} {self.label}"

    @property
    def capabilities(self) -> Capabilities:
        known = self.scorer.capabilities
        return replace(known, order_free=known.order_free and self.mitigation.keeps_order_free)

    def identity(self) -> dict[str, Any]:
        return self.scorer.identity() | {"mitigations": list(self.mitigations)}

    def with_settings(self, settings: Settings) -> Mitigated:
        return Mitigated(self.scorer.with_settings(settings), self.label)

    def score_orders(self, instance: Instance, orders: Array, permutations: Sequence[int]) -> Scored:
        found = self.mitigation.serve(self, instance, np.asarray(orders))
        return replace(found, permutations=np.asarray(permutations, dtype=np.int64))


def mitigate(scorer: PoolScorer, names: Sequence[str]) -> PoolScorer:
    """The scorer under several mitigations, the first one innermost; the scorer itself where none is named."""
    for name in names:
        scorer = _use_order_free_attention(scorer) if name == "pine" else Mitigated(scorer, name)
    return scorer


def _use_order_free_attention(scorer: PoolScorer) -> Scorer:
    """The scorer with its model's attention made order-free: a change inside the model, so the innermost there is."""
    if not isinstance(scorer, Scorer) or scorer.backend.identity().get("kind") != "hf":
        raise InputError(f"pine changes the attention of a local model (hf:...), and {scorer.name} is not one. Name pine first.")
    from ..engines.local.model import TransformersEngine
    from ..engines.local.pine import PineEngine

    assert isinstance(scorer.backend, TransformersEngine)
    return Scorer(PineEngine(scorer.backend), scorer.task, scorer.settings)


def count_windows(n: int, width: int | None, names: Sequence[str] = (), orders: int = 1) -> float:
    """Windows that some orders of a pool of n cost under mitigations, innermost first; for one, what a request pays (§D.4)."""
    width = width or n
    passes, probes = float(orders), 0
    for mitigation, number in map(_parse, reversed([name for name in names if name != "pine"])):  # pine costs no window
        passes = mitigation.passes(n, width, number) * (1 if mitigation.one_for_all else passes)
        probes += mitigation.probes(n, width)
    return passes * -(-n // width) + probes


def _parse(name: str) -> tuple[Mitigation, int]:
    head, colon, number = name.partition(":")
    if head not in MITIGATIONS:
        raise InputError(f"unknown mitigation {name!r}. Known: {', '.join([*MITIGATIONS, 'pine'])}.")
    usual = MITIGATIONS[head].number
    if colon and usual is None:
        raise InputError(f"{head} takes no number; leave out {colon + number!r}.")
    if colon and not (number.isdigit() and int(number) > 0):
        raise InputError(f"{name!r} needs a positive number behind the colon.")
    if (most := MITIGATIONS[head].most) is not None and colon and int(number) > most:
        raise InputError(f"{name!r}: the number is at most {most}.")
    return MITIGATIONS[head], int(number) if colon else usual or 1


# -- self-consistency: K presentations per request


def derived_orders(instance: Instance, order: Array, count: int, purpose: str = "self_consistency") -> Array:
    """(K, n) permutations of the pool that are a function of what was presented: two orders get independent ensembles."""
    presented = "\x1f".join([instance.id, *(instance.pool[int(i)].id for i in order)])
    digest = hashlib.blake2b(presented.encode(), digest_size=16).hexdigest()
    orders: Array = np.asarray(order)[permutations(len(order), count, seed=0, query_id=f"{purpose} {digest}")]
    return orders


def _average(merge: Callable[[Array], Array], keep_grades: bool = False) -> Callable[[Mitigated, Instance, Array], Scored]:
    """Serve K derived orders for each given one; `merge` takes their scores (P, K, n) to (P, n)."""

    def serve(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
        K = mitigated.number
        inner = np.vstack([derived_orders(instance, order, K) for order in orders])  # (P K, n)
        found = mitigated.scorer.score_orders(instance, inner, range(len(inner)))
        served = with_scores(found, merge(found.scores.reshape(len(orders), K, -1)))
        if keep_grades and found.grades is not None:  # the mean score is the mean distribution's score
            served = replace(served, grades=found.grades.reshape(len(orders), K, -1, 4).mean(axis=1))
        return served

    return serve


def mean_score(scores: Array) -> Array:
    """Batched self-consistency: mean, then rank (§D.4). (P, K, n) -> (P, n)."""
    mean: Array = scores.mean(axis=1)
    return mean


def mean_borda(scores: Array) -> Array:
    """Mean Borda points, for scores that cannot be compared between presentations. (P, K, n) -> (P, n)."""
    return mean_score(borda(scores))


def central_ranking(scores: Array) -> Array:
    """Permutation self-consistency (Tang et al., 2024): a ranking close to all K by Kendall distance. (P, K, n) -> (P, n).

    The closest ranking is hard to find; this is Borda's, improved until no exchange of neighbours brings it closer
    (local Kemenisation, Dwork et al., 2001). The result is n - rank, as for any ranker.
    """
    points = borda(scores)  # (P, K, n)
    return np.stack([_improve_by_neighbours(row) for row in points])


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


# -- one order for all: `canonical-order`


def hash_order(instance: Instance) -> Array:
    """(n,) the pool by a hash of each candidate's title, text and id: the same whatever order the pool came in."""

    def key(i: int) -> tuple[bytes, str]:
        candidate = instance.pool[i]
        text = "\x1f".join([candidate.title or "", candidate.text, candidate.id])
        return hashlib.blake2b(text.encode(), digest_size=16).digest(), candidate.id

    return np.array(sorted(range(len(instance.pool)), key=key), dtype=np.int64)


def _serve_hash_order(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
    """One presentation for every order: nothing can move under reordering, all else can when the pool changes."""
    found = mitigated.scorer.score_orders(instance, hash_order(instance)[None], [0])
    served = with_scores(found, np.repeat(found.scores, len(orders), axis=0))
    return served if found.grades is None else replace(served, grades=np.repeat(found.grades, len(orders), axis=0))


# -- calibration on content-free candidates


def logit_capcal(distribution: Array, content_free: Array, strength: float = 1.0) -> Array:
    """CapCal in logit space, as the paper names it: p' ∝ p · q^-strength; at strength 1 the probe itself becomes uniform."""
    logits = np.log(np.clip(distribution, 1e-8, None)) - strength * np.log(np.clip(content_free, 1e-8, None))
    return readout.grade_distribution(logits)


def _calibrate(calibrate: Callable[..., Array]) -> Callable[[Mitigated, Instance, Array], Scored]:
    def serve(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
        found = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
        if found.grades is None or found.slots is None or found.windows is None:
            raise InputError(
                f"{mitigated.label} moves grade distributions slot by slot, and {mitigated.scorer.name} gives none. "
                "Name it before any mitigation that averages."
            )
        prior = np.empty_like(found.grades)
        for row, (slots, index) in enumerate(zip(found.slots, found.windows, strict=True)):
            lengths = np.bincount(index)
            for length in set(lengths.tolist()):
                inside = lengths[index] == length
                prior[row, inside] = _content_free(mitigated, instance, length)[slots[inside]]
        grades = calibrate(found.grades, prior)
        return replace(found, scores=readout.score(grades), grades=grades)

    return serve


def _content_free(mitigated: Mitigated, instance: Instance, length: int) -> Array:
    """(length, 4) what each slot of a window says about nothing: the real query and `length` empty candidates."""
    key = (instance.id, instance.query, length)
    if key not in mitigated.content_free:
        empty = tuple(Candidate(f"{slot:06d}", "") for slot in range(length))
        probe = replace(instance, pool=empty, judged=None)
        grades = mitigated.scorer.score_orders(probe, np.arange(length)[None], [0]).grades
        assert grades is not None
        mitigated.content_free[key] = grades[0]
    return mitigated.content_free[key]


def _lengths(n: int, width: int) -> int:
    """Window lengths that a pool has: one, or two where the last window is shorter."""
    return 1 + (n > width and n % width > 0)


# -- rescaling across windows


def _serve_rescaled(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
    """Each window's scores on one scale: minus their mean, over their standard deviation (Ren et al., 2025)."""
    if mitigated.scorer.width == 1:
        raise InputError("rescaling compares the candidates of a window, and a window of one has none. Raise --width.")
    found = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
    if found.windows is None:
        raise InputError(f"{mitigated.label} needs the windows of each order. Name it before any mitigation that averages.")
    return with_scores(found, np.stack([rescale(*row) for row in zip(found.scores, found.windows, strict=True)]))


def rescale(scores: Array, window: Array) -> Array:
    """(n,) scores standardised within each window (n,); a window of equal scores becomes zeros."""
    rescaled = np.empty_like(scores)
    for inside in (window == index for index in np.unique(window)):
        spread = scores[inside].std()
        rescaled[inside] = (scores[inside] - scores[inside].mean()) / (spread if spread > 0 else 1.0)
    return rescaled


# -- the first stage's own opinion


def _serve_with_first_stage(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
    """A share of each score is the candidate's rank in the pool, which stays what it is in whatever order it is shown."""
    found = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
    place = {candidate.id: i for i, candidate in enumerate(instance.pool)}
    ranked = first_stage_scores(len(place))[[place[candidate] for candidate in found.candidate_ids]]
    scores = found.scores if found.grades is not None else between_0_and_1(found.scores)
    return replace(found, scores=mix_with_first_stage(scores, ranked, mitigated.number / 100), grades=None)


def mix_with_first_stage(scores: Array, ranked: Array, share: float) -> Array:
    """(P, n) scores from 0 to 1 with a share of the first stage's (n,)."""
    mixed: Array = (1 - share) * scores + share * ranked
    return mixed


def between_0_and_1(scores: Array) -> Array:
    """(P, n) scores of any scale, from the least of each row at 0 to its greatest at 1; equal ones all at 0."""
    least, spread = scores.min(axis=-1, keepdims=True), np.ptp(scores, axis=-1, keepdims=True)
    scaled: Array = (scores - least) / np.where(spread > 0, spread, 1.0)
    return scaled


# -- tournaments


def _serve_tournaments(mitigated: Mitigated, instance: Instance, orders: Array) -> Scored:
    """R tournaments for each order, their standings averaged (TourRank, Chen et al., 2025)."""
    scorer, rounds = mitigated.scorer, mitigated.number
    if scorer.width == 1:
        raise InputError("a tournament needs windows of at least 2 candidates. Raise --width.")
    starts = np.vstack([derived_orders(instance, order, rounds, "tournament") for order in orders])  # (P R, n)
    found = scorer.score_orders(instance, starts, range(len(starts)))
    column = {candidate: c for c, candidate in enumerate(found.candidate_ids)}
    of_pool = np.array([column[candidate.id] for candidate in instance.pool])
    reached = np.empty_like(found.scores)
    for row, start in enumerate(starts):
        reached[row, of_pool] = tournament_standing(scorer, instance, start, found.scores[row, of_pool])
    return with_scores(found, reached.reshape(len(orders), rounds, -1).mean(axis=1))


def tournament_standing(scorer: PoolScorer, instance: Instance, order: Array, scores: Array) -> Array:
    """(n,) in pool order: stages won, plus the share of its last window that a candidate left behind.

    The better half of every window goes on; winners meet in new windows until they fit in one. `scores` (n,) are those
    of the first stage. Only ranks within a window count, so scores need not be comparable between windows.
    """
    scores, reached, stage = scores.copy(), np.zeros(len(scores)), 0
    while True:
        groups = windows(order, scorer.width or len(order), scorer.settings.partition)
        for group in groups:
            members = np.array(sorted(group.candidates, key=lambda i: instance.pool[i].id))  # ties by id, never by slot
            reached[members] = stage + borda(scores[members]) / len(members)
        if len(groups) == 1:
            return reached
        order = np.array([i for group in groups for i in _better_half(group.candidates, reached)])
        scores[order] = scorer.score(replace(instance, pool=tuple(instance.pool[i] for i in order)))
        stage += 1


def _better_half(candidates: Sequence[int], reached: Array) -> list[int]:
    winners = sorted(candidates, key=lambda i: -reached[i])[: -(-len(candidates) // 2)]
    return [i for i in candidates if i in winners]


def _stages(n: int, width: int) -> float:
    """Windows of one tournament over those of one plain presentation."""
    total, playing = -(-n // width), n
    while playing > width > 1:
        full, rest = divmod(playing, width)
        playing = full * -(-width // 2) + -(-rest // 2)
        total += -(-playing // width)
    return total / -(-n // width)


MITIGATIONS: dict[str, Mitigation] = {
    "self-consistency": Mitigation(
        "mean score of K presentations", _average(mean_score, keep_grades=True), lambda n, width, K: K, 10
    ),
    "borda": Mitigation("mean Borda points of K presentations", _average(mean_borda), lambda n, width, K: K, 10),
    "central-ranking": Mitigation(
        "the ranking closest to those of K presentations", _average(central_ranking), lambda n, width, K: K, 10
    ),
    "canonical-order": Mitigation(
        "candidates sorted by a hash of title, text and id", _serve_hash_order, lambda n, width, number: 1, one_for_all=True
    ),
    "capcal": Mitigation(
        "grades moved by what each slot says about empty documents",
        _calibrate(readout.capcal),
        lambda n, width, number: 1,
        probes=_lengths,
    ),
    "capcal-logit": Mitigation("the same in logit space", _calibrate(logit_capcal), lambda n, width, number: 1, probes=_lengths),
    "rescale": Mitigation(
        "scores of each window on one scale", _serve_rescaled, lambda n, width, number: 1, keeps_order_free=False
    ),
    "first-stage": Mitigation(
        "P percent of each score from the rank in the pool", _serve_with_first_stage, lambda n, width, number: 1, 30, 99
    ),
    "tournament": Mitigation(
        "winners of windows meet again, R times over",
        _serve_tournaments,
        lambda n, width, R: R * _stages(n, width),
        2,
        keeps_order_free=False,
    ),
}
"""Names of `--mitigation`."""
