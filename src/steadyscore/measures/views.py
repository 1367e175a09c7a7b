"""Views of stored scores: which number a grade distribution becomes, who goes first among equal scores, means of K orders.

The unit that a self-consistent system serves is the mean of K permutations. Its instability is therefore measured between
ensembles that share no permutation, as in the BSC row of Table 1: four ensembles of ten from forty orders (§D.4, §D.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from ..errors import InputError
from ..machine.bounds import Positive
from ..runs.table import FIRST_STAGE, CompactQueries, Scored
from ..terms import GRADES, Array, Readout, Ties
from ..window.readout import argmax_grade, grade_at_least
from .ranking import TieRule, check_choice, finite_scores, ndcg, rank

LEAST_RELEVANT = 2
"""The grade from which `p2` counts probability."""

S = TypeVar("S", bound=Scored)


@dataclass(frozen=True, slots=True)
class ScoreView:
    """What is made of stored grades and orders; nothing is scored again."""

    readout: Readout = "expected"
    """The score: the expected grade, the likeliest grade, or the probability of grade 2 or more, from stored grades."""
    ties: Ties = "id"
    """Who goes first of two candidates with equal scores, in every measure that ranks or selects: the smaller id, or the one
    that was shown first."""
    serving_permutations: Positive = 1
    """Measure what a system that averages K permutations would decide."""

    def __post_init__(self) -> None:
        check_choice(self.readout, get_args(Readout), "readout")
        check_choice(self.ties, get_args(Ties), "ties")
        if self.ties == "input" and self.serving_permutations > 1:
            raise InputError(
                f"ties cannot be broken by input position in a mean of {self.serving_permutations} orders, which has none. "
                "Leave out --set ties=input or --serving-permutations."
            )

    @property
    def is_plain(self) -> bool:
        """Whether scores are seen as they were scored: the measures of a noise floor and of perturbed pools are."""
        return self == ScoreView()

    @property
    def reading(self) -> dict[str, str]:
        """Readout and tie rule by name, as a run keeps them."""
        return {"readout": self.readout, "ties": self.ties}

    def words(self) -> str:
        """The readout and the tie rule that are not the paper's, as flags; empty where both are."""
        return " ".join(f"--{name} {value}" for name, value in self.reading.items() if value != getattr(ScoreView(), name))

    def at_budget(self, serving_permutations: int) -> ScoreView:
        """This view of a system that averages K permutations; a mean has no input position, so its ties go by id."""
        return replace(self, serving_permutations=serving_permutations, ties=self.ties if serving_permutations == 1 else "id")

    def of(self, query: Scored) -> Scored:
        """A query seen this way, or a refusal where its table lacks what that needs."""
        single = break_ties(read_out(query, self.readout), self.ties)
        return single if self.serving_permutations == 1 else average_permutations(single, self.serving_permutations)

    def of_all(self, queries: Sequence[Scored]) -> Sequence[Scored]:
        return queries if self.is_plain else CompactQueries(map(self.of, queries))


def read_out(query: Scored, readout: Readout) -> Scored:
    """A query scored by the likeliest grade or by P(g >= 2) instead of the expected grade, from its stored distribution."""
    if readout == "expected":
        return query
    if query.grades is None:
        raise InputError(
            f"query {query.query_id} has no stored grade distribution, which the readout {readout} needs. "
            "`steadyscore list scorers` names the scorers that give one."
        )
    scores = argmax_grade(query.grades) / GRADES[-1] if readout == "argmax" else grade_at_least(query.grades, LEAST_RELEVANT)
    return replace(query, scores=np.asarray(scores, float))


def break_ties(query: Scored, ties: Ties) -> Scored:
    """A query whose equal scores are ranked by this rule; refused where the order that decides them is not stored."""
    if ties == "input" and not query.is_placed and has_ties(query):
        raise InputError(
            f"query {query.query_id} has equal scores and no stored places, which ties=input needs. "
            "Audit a scorer, or give slot and window in the score file."
        )
    known = ties if query.is_placed else "id"
    return query if query.ties == known else replace(query, ties=known)


def has_ties(query: Scored) -> bool:
    """Whether two candidates of a presentation have equal scores."""
    return not bool((np.diff(np.sort(query.scores, axis=-1), axis=-1) > 0).all())


def reverse_ties(query: Scored) -> Scored:
    """A query with its candidates the other way round: of two with equal scores the larger id goes first."""
    slots, windows, relevance = (None if a is None else a[..., ::-1] for a in (query.slots, query.windows, query.relevance))
    ids, scores = query.candidate_ids[::-1], query.scores[..., ::-1]
    return replace(query, candidate_ids=ids, scores=scores, slots=slots, windows=windows, relevance=relevance, grades=None)


def ranked_scores(query: Scored) -> Array:
    """(P, n) numbers that rank the candidates as the query's tie rule does: the scores, or places from the end."""
    if query.ties == "id":
        return query.scores
    places: Array = query.scores.shape[-1] - 1.0 - rank(query.scores, "input_position", query.presented())
    return places


def ranked_permuted(query: Scored) -> Array:
    """(M, n) those of the permutations."""
    rows: Array = ranked_scores(query)[query.permutations != FIRST_STAGE]
    return rows


def ranked_first_stage(query: Scored) -> Array | None:
    """(n,) those of the first-stage order, where it was scored."""
    rows = ranked_scores(query)[query.permutations == FIRST_STAGE]
    return rows[0] if len(rows) else None


def with_scores(query: S, scores: Array) -> S:
    """A query with other rows, whose places are not known."""
    return replace(
        query,
        permutations=np.arange(len(scores)),
        scores=scores,
        slots=None,
        windows=None,
        grades=None,
        label_mass=None,
        ties="id",
    )


def average_permutations(query: Scored, serving_permutations: int) -> Scored:
    """A query as a system that averages K permutations serves it: rows are disjoint ensembles (§D.4).

    A pool that has fewer orders is averaged over all of them: one row, which nothing moves.
    """
    fewest = len(query.permuted) if query.has_every_order else serving_permutations
    return with_scores(query, ensembles(query.permuted, min(serving_permutations, fewest)))


def ensembles(scores: ArrayLike, serving_permutations: int) -> Array:
    """Mean scores of disjoint groups of K permutations, (..., M // K, n), in the order of the rows.

    Row 0 averages the first K permutations, the ensemble whose quality the paper prints at K. Rows beyond a multiple
    of K are not used: a group shorter than K would be another system.
    """
    scores = finite_scores(scores)
    permutations, n = scores.shape[-2:]
    if not 1 <= serving_permutations <= permutations:
        raise InputError(
            f"an ensemble of {serving_permutations} permutations cannot be made from {permutations}. "
            f"Ask for 1 to {permutations}, or score more permutations."
        )
    groups = permutations // serving_permutations
    used = scores[..., : groups * serving_permutations, :]
    means: Array = used.reshape(*scores.shape[:-2], groups, serving_permutations, n).mean(axis=-2)
    return means


def borda(scores: ArrayLike, tie_rule: TieRule = "candidate_id", orders: ArrayLike | None = None) -> Array:
    """Borda points n - 1 - rank, (..., M, n): what `ensembles` averages for a ranker without comparable scores."""
    ranks = rank(scores, tie_rule, orders)
    points: Array = (ranks.shape[-1] - 1 - ranks).astype(float)
    return points


def quality_by_permutation(query: Scored, k: int) -> Array:
    """(M,) nDCG@k of every permutation; NaN for a query without judgements."""
    return quality_of(query, ranked_permuted(query), k)


def quality_of(query: Scored, scores: ArrayLike, k: int) -> Array:
    """(P,) nDCG@k that some scores (P, n) of a query's candidates give; NaN for a query without judgements."""
    if not query.is_judged:
        return np.full(len(np.asarray(scores)), np.nan)
    ideal = query.gold if query.ideal is None else query.ideal
    return np.asarray(ndcg(scores, query.gold, k, judged_gains=ideal), float)
