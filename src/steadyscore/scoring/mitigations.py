"""Inference-time mitigations: a scorer served in another way, with the interface of the scorer (§6.2, §D).

A mitigation is named as `<name>[:<number>]`, `adaptive` as `adaptive[:<number>[:<decision>]]`. It wraps any scorer; wrapped
scorers wrap again, the first name innermost. Every result is a function of the query, the pool and the order that was given,
and of nothing else, so an audit measures a mitigated scorer as it measures any other. Round-robin is `Settings.partition`;
order-free attention is `pine.py`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from ..engines import Capabilities, Recording
from ..errors import InputError
from ..measures.measurement import first_stage_scores
from ..measures.retained_sets import share_size
from ..measures.settling import DecisionRule, PairRule, ThresholdRule, TopKRule, is_decided
from ..measures.threshold import KEPT
from ..measures.views import borda, with_scores
from ..runs.records import Cost
from ..runs.table import stack_rows
from ..terms import Array, Candidate, Instance
from ..window import readout
from ..window.presentation import permutations, window_places
from .presented import Presented
from .scorer import PoolScorer, Scorer, Settings, WrappedScorer
from .tournaments import average_tournaments, central_ranking, tournament_passes

Stopped = Literal["settled", "budget", "order_free"]


# -- names and decisions


@dataclass(frozen=True, slots=True)
class ShareRule:
    """Keep this share of every pool, rounded, at least one document."""

    share: float


def for_pool(rule: DecisionRule | ShareRule, n: int) -> DecisionRule:
    """The rule for a pool of n: a share is a number of documents."""
    return TopKRule(share_size(rule.share, n)) if isinstance(rule, ShareRule) else rule


def parse_rule(words: str) -> DecisionRule | ShareRule:
    """A decision as mitigations and `Ranker.decide` name it."""
    name, _, value = words.partition("=")
    try:
        number = float(value or "nan")
    except ValueError:
        number = math.nan
    if words == "pair":
        return PairRule()
    if name == "cutoff" and math.isfinite(number):
        return ThresholdRule(number)
    if name == "top" and value.isdecimal() and int(value) > 0:
        return TopKRule(int(value))
    if name == "share" and 0 < number < 1:
        return ShareRule(number)
    raise InputError(f"{words!r} is not a decision. Write cutoff=0.5, top=3, share=0.3 (of every pool) or pair.")


USUAL_RULE = f"share={KEPT}"
"""The decision where none is named."""
MOST_SHARE = 99
"""Percent of a score that may come from elsewhere."""


class Mitigation(NamedTuple):
    """What a name stands for."""

    summary: str
    serve: Callable[[Mitigated, Instance, Array], Presented]
    """(scorer, instance, orders (P, n)) -> scores (P, n), columns sorted by candidate id."""
    number: int | None = None
    """The number after the colon where none is written; None: it takes none."""
    is_share: bool = False
    """Whether the number is a share in percent, rather than the presentations of the pool that one served order costs."""
    passes: Callable[[int, int], float] = lambda n, width: 1
    """(n, width) -> presentations of the pool, for each that the number asks for."""
    probes: Callable[[int, int], int] = lambda n, width: 0
    """(n, width) -> further windows, once per query however many orders are served."""
    one_for_all: bool = False
    """Whether all orders of a query are served from one."""
    keeps_order_free: bool = True
    """Whether what is served moves with no order where the scorer inside does not."""
    decides: bool = False
    """Whether a decision may follow the number."""


class Named(NamedTuple):
    """A name taken apart."""

    mitigation: Mitigation
    number: int
    label: str
    """The name with its number, and with its decision where it takes one."""
    rule: DecisionRule | ShareRule
    """The decision; of a mitigation that takes none, the usual one."""


class Mitigated(WrappedScorer):
    """A scorer under one mitigation."""

    def __init__(self, scorer: PoolScorer, name: str):
        super().__init__(scorer)
        self.mitigation, self.number, self.label, self.rule = parse_mitigation(name)
        if isinstance(scorer.backend, Recording):
            raise InputError(
                f"{scorer.name} holds scores that were given before, and {name} needs others. "
                "For batched self-consistency from stored scores use --serving-permutations."
            )
        self.mitigations = (*scorer.mitigations, self.label)

    @property
    def name(self) -> str:
        return f"{self.scorer.name} {self.label}"

    @property
    def capabilities(self) -> Capabilities:
        known = self.scorer.capabilities
        return replace(known, order_free=known.order_free and self.mitigation.keeps_order_free)

    def identity(self) -> dict[str, object]:
        return self.scorer.identity() | {"mitigations": list(self.mitigations)}

    def with_settings(self, settings: Settings) -> Mitigated:
        return Mitigated(self.scorer.with_settings(settings), self.label)

    def with_rule(self, rule: DecisionRule | ShareRule) -> Mitigated:
        """The same for another decision; nothing else than `adaptive` takes one."""
        changed = copy(self)
        changed.rule = rule
        return changed

    def score_orders(self, instance: Instance, orders: Array, permutations: Sequence[int]) -> Presented:
        presented = self.mitigation.serve(self, instance, np.asarray(orders))
        return replace(presented, permutations=np.asarray(permutations, dtype=np.int64))


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
    for mitigation, number, *_ in map(parse_mitigation, reversed([n for n in names if n != "pine"])):  # pine costs no window
        served = 1 if mitigation.one_for_all else passes
        passes = served * (1 if mitigation.is_share else number) * mitigation.passes(n, width)
        probes += mitigation.probes(n, width)
    return passes * -(-n // width) + probes


def parse_mitigation(name: str) -> Named:
    head, colon, number = name.partition(":")
    if head not in MITIGATIONS:
        raise InputError(f"unknown mitigation {name!r}. Known: {', '.join([*MITIGATIONS, 'pine'])}.")
    known, rule = MITIGATIONS[head], USUAL_RULE
    if known.decides:
        number, named, words = number.partition(":")
        rule = words if named else rule
    if colon and known.number is None:
        raise InputError(f"{head} takes no number; leave out {colon + number!r}.")
    if colon and not (number.isdigit() and int(number) > 0):
        raise InputError(f"{name!r} needs a positive number behind the colon.")
    if colon and known.is_share and int(number) > MOST_SHARE:
        raise InputError(f"{name!r}: the number is at most {MOST_SHARE}.")
    count = int(number) if colon else known.number or 1
    label = ":".join([head, *([str(count)] if known.number is not None else []), *([rule] if known.decides else [])])
    return Named(known, count, label, parse_rule(rule))


# -- self-consistency: K presentations per request


def derived_orders(instance: Instance, order: Array, count: int, purpose: str = "self_consistency") -> Array:
    """(K, n) permutations of the pool that are a function of what was presented: two orders get independent ensembles."""
    presented = "\x1f".join([instance.id, *(instance.pool[int(i)].id for i in order)])
    digest = hashlib.blake2b(presented.encode(), digest_size=16).hexdigest()
    orders: Array = np.asarray(order)[permutations(len(order), count, seed=0, query_id=f"{purpose} {digest}")]
    return orders


def _average(merge: Callable[[Array], Array], keep_grades: bool = False) -> Callable[[Mitigated, Instance, Array], Presented]:
    """Serve K derived orders for each given one; `merge` takes their scores (P, K, n) to (P, n)."""

    def serve(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
        K = mitigated.number
        inner = np.vstack([derived_orders(instance, order, K) for order in orders])  # (P K, n)
        presented = mitigated.scorer.score_orders(instance, inner, range(len(inner)))
        return _merge_rows(presented, lambda rows: merge(rows.reshape(len(orders), K, *rows.shape[1:])), keep_grades)

    return serve


def _merge_rows(presented: Presented, merge: Callable[[Array], Array], keep_grades: bool = True) -> Presented:
    """What is served of some rows; grades where the mean score is the mean distribution's score, and both are merged alike."""
    served = with_scores(presented, merge(presented.scores))
    return replace(served, grades=merge(presented.grades)) if keep_grades and presented.grades is not None else served


def _serve_adaptively(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
    """The mean of the first presentations that plain self-consistency would average, as many as its decision takes."""
    scorer, n = mitigated.scorer, len(instance.pool)
    count = 1 if scorer.capabilities.order_free or n < 2 else mitigated.number  # one candidate has one order

    def score(rows: Array, first: int) -> Presented:
        return scorer.score_orders(instance, rows, range(first, first + len(rows)))

    inner = np.stack([derived_orders(instance, order, mitigated.number)[:count] for order in orders])
    by_position = window_places(n, scorer.width, scorer.settings.partition)
    scored, owner = present_until_decided(score, inner, for_pool(mitigated.rule, n), places_of(instance, inner, by_position))
    skipped = round(count_windows(n, scorer.width, scorer.mitigations, len(orders) * mitigated.number - len(owner)))
    served = _merge_rows(scored, lambda rows: np.stack([rows[owner == p].mean(axis=0) for p in range(len(orders))]))
    return replace(served, cost=scored.cost + Cost(skipped=skipped))


class Ensembles(NamedTuple):
    """Presentations of one pool for several averages."""

    scored: Presented
    """A row for each presentation that was made."""
    owner: Array
    """(rows,) the average that each row belongs to."""

    def rows(self, which: int) -> Array:
        """(M, n) scores of one average."""
        scores: Array = self.scored.scores[self.owner == which]
        return scores


def places_of(instance: Instance, orders: Array, by_position: Array) -> Array:
    """(..., n, F) what `by_position`, (n, F), says of each candidate's place in orders (..., n); sorted by candidate id."""
    ids = [candidate.id for candidate in instance.pool]
    by_id = sorted(range(len(ids)), key=ids.__getitem__)
    positions = np.argsort(orders, axis=-1)[..., by_id]
    return np.asarray(by_position[positions])


def present_until_decided(
    score: Callable[[Array, int], Presented], orders: Array, rule: DecisionRule, places: Array
) -> Ensembles:
    """Each pool of P averages under the first of its K orders, (P, K, n): two, then one more while it is not decided.

    score   orders (rows, n) and the number of the first one -> their scores
    places  (P, K, n, F) of each candidate in all of these orders, columns as the scores have them
    """
    several, count, n = orders.shape
    parts, owners, made, undecided = list[Presented](), list[Array](), 0, list(range(several))
    while undecided and made < count:
        stop = min(count, max(2, made + 1))
        parts.append(score(orders[undecided, made:stop].reshape(-1, n), sum(map(len, owners))))
        owners.append(np.repeat(undecided, stop - made))
        made = stop
        ensembles = Ensembles(_joined(parts), np.concatenate(owners))
        undecided = [p for p in undecided if not is_decided(ensembles.rows(p), rule, count, places[p])]
    return ensembles


def _joined(parts: list[Presented]) -> Presented:
    return replace(stack_rows(parts), cost=sum((part.cost for part in parts), Cost()))


def mean_score(scores: Array) -> Array:
    """Batched self-consistency: mean, then rank (§D.4). (P, K, n) -> (P, n)."""
    mean: Array = scores.mean(axis=1)
    return mean


def mean_borda(scores: Array) -> Array:
    """Mean Borda points, for scores that cannot be compared between presentations. (P, K, n) -> (P, n)."""
    return mean_score(borda(scores))


def _serve_tournaments(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
    starts = np.stack([derived_orders(instance, order, mitigated.number, "tournament") for order in orders])
    return average_tournaments(mitigated.scorer, instance, starts)


# -- one order for all: `canonical-order`


def hash_order(instance: Instance) -> Array:
    """(n,) the pool by a hash of each candidate's title, text and id: the same whatever order the pool came in."""

    def key(i: int) -> tuple[bytes, str]:
        candidate = instance.pool[i]
        text = "\x1f".join([candidate.title or "", candidate.text, candidate.id])
        return hashlib.blake2b(text.encode(), digest_size=16).digest(), candidate.id

    return np.array(sorted(range(len(instance.pool)), key=key), dtype=np.int64)


def _serve_hash_order(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
    """One presentation for every order: nothing can move under reordering, all else can when the pool changes."""
    presented = mitigated.scorer.score_orders(instance, hash_order(instance)[None], [0])
    return _merge_rows(presented, lambda rows: np.repeat(rows, len(orders), axis=0))


# -- calibration on content-free candidates


def logit_capcal(distribution: Array, content_free: Array) -> Array:
    """CapCal in logit space, as the paper names it: p' ∝ p / q, which makes the probe itself uniform."""
    logits = np.log(np.clip(distribution, 1e-8, None)) - np.log(np.clip(content_free, 1e-8, None))
    return readout.grade_distribution(logits)


def _calibrate(calibrate: Callable[[Array, Array], Array]) -> Callable[[Mitigated, Instance, Array], Presented]:
    def serve(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
        presented = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
        if presented.grades is None or presented.slots is None or presented.windows is None:
            raise InputError(
                f"{mitigated.label} moves grade distributions slot by slot, and {mitigated.scorer.name} gives none. "
                "Name it before any mitigation that averages."
            )
        probes: dict[int, Presented] = {}
        prior = np.empty_like(presented.grades)
        for row, (slots, index) in enumerate(zip(presented.slots, presented.windows, strict=True)):
            lengths = np.bincount(index)
            for length in set(lengths.tolist()):
                inside = lengths[index] == length
                if length not in probes:
                    probes[length] = _score_nothing(mitigated.scorer, instance, length)
                prior[row, inside] = probes[length].grades[0][slots[inside]]  # type: ignore[index]
        grades = calibrate(presented.grades, prior)
        cost = sum((probe.cost for probe in probes.values()), presented.cost)
        return replace(presented, scores=readout.score(grades), grades=grades, cost=cost)

    return serve


def _score_nothing(scorer: PoolScorer, instance: Instance, length: int) -> Presented:
    """What each slot of a window says about nothing: the real query and `length` empty candidates."""
    empty = tuple(Candidate(f"{slot:06d}", "") for slot in range(length))
    return scorer.score_orders(replace(instance, pool=empty, judged=None), np.arange(length)[None], [0])


def _lengths(n: int, width: int) -> int:
    """Window lengths that a pool has: one, or two where the last window is shorter."""
    return 1 + (n > width and n % width > 0)


# -- rescaling across windows


def _serve_rescaled(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
    """Each window's scores on one scale: minus their mean, over their standard deviation (Ren et al., 2025)."""
    if mitigated.scorer.width == 1:
        raise InputError("rescaling compares the candidates of a window, and a window of one has none. Raise --width.")
    presented = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
    if presented.windows is None:
        raise InputError(f"{mitigated.label} needs the windows of each order. Name it before any mitigation that averages.")
    return with_scores(presented, np.stack([rescale(*row) for row in zip(presented.scores, presented.windows, strict=True)]))


def rescale(scores: Array, window: Array) -> Array:
    """(n,) scores standardised within each window (n,); a window of equal scores becomes zeros."""
    rescaled = np.empty_like(scores)
    for inside in (window == index for index in np.unique(window)):
        spread = scores[inside].std()
        rescaled[inside] = (scores[inside] - scores[inside].mean()) / (spread if spread > 0 else 1.0)
    return rescaled


# -- the first stage's own opinion


def _serve_with_first_stage(mitigated: Mitigated, instance: Instance, orders: Array) -> Presented:
    """A share of each score is the candidate's rank in the pool, which stays what it is in whatever order it is shown."""
    presented = mitigated.scorer.score_orders(instance, orders, range(len(orders)))
    place = {candidate.id: i for i, candidate in enumerate(instance.pool)}
    ranked = first_stage_scores(len(place))[[place[candidate] for candidate in presented.candidate_ids]]
    scores = presented.scores if presented.grades is not None else between_0_and_1(presented.scores)
    return replace(presented, scores=mix_with_first_stage(scores, ranked, mitigated.number / 100), grades=None)


def mix_with_first_stage(scores: Array, ranked: Array, share: float) -> Array:
    """(P, n) scores from 0 to 1 with a share of the first stage's (n,)."""
    mixed: Array = (1 - share) * scores + share * ranked
    return mixed


def between_0_and_1(scores: Array) -> Array:
    """(P, n) scores of any scale, from the least of each row at 0 to its greatest at 1; equal ones all at 0."""
    least, spread = scores.min(axis=-1, keepdims=True), np.ptp(scores, axis=-1, keepdims=True)
    scaled: Array = (scores - least) / np.where(spread > 0, spread, 1.0)
    return scaled


MITIGATIONS: dict[str, Mitigation] = {
    "self-consistency": Mitigation("mean score of K presentations", _average(mean_score, keep_grades=True), 10),
    "adaptive": Mitigation(
        "the same, only until the rest is expected to change too few decisions", _serve_adaptively, 10, decides=True
    ),
    "borda": Mitigation("mean Borda points of K presentations", _average(mean_borda), 10),
    "central-ranking": Mitigation("the ranking closest to those of K presentations", _average(central_ranking), 10),
    "canonical-order": Mitigation("candidates sorted by a hash of title, text and id", _serve_hash_order, one_for_all=True),
    "capcal": Mitigation(
        "grades moved by what each slot says about empty documents", _calibrate(readout.capcal), probes=_lengths
    ),
    "capcal-logit": Mitigation("the same in logit space", _calibrate(logit_capcal), probes=_lengths),
    "rescale": Mitigation("scores of each window on one scale", _serve_rescaled, keeps_order_free=False),
    "first-stage": Mitigation("P percent of each score from the rank in the pool", _serve_with_first_stage, 30, is_share=True),
    "tournament": Mitigation(
        "winners of windows meet again, R times over", _serve_tournaments, 2, passes=tournament_passes, keeps_order_free=False
    ),
}
"""Names of `--mitigation`."""
