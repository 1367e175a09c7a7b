"""How a stored table is read: which number a grade distribution becomes, and who goes first among equal scores."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import get_args

import numpy as np

from ..errors import InputError
from ..runs.table import FIRST_STAGE, Scored
from ..terms import GRADES, Array, Readout, Ties
from ..window.readout import argmax_grade, grade_at_least
from .ranking import check_choice, rank

LEAST_RELEVANT = 2
"""The grade from which `p2` counts probability."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What is made of stored grades and orders; nothing is scored again."""

    readout: Readout = "expected"
    """The score: the expected grade, the likeliest grade, or the probability of grade 2 or more, from stored grades."""
    ties: Ties = "id"
    """Who goes first of two candidates with equal scores, in every measure that ranks or selects: the smaller id, or the one
    that was shown first."""

    def __post_init__(self) -> None:
        check_choice(self.readout, get_args(Readout), "readout")
        check_choice(self.ties, get_args(Ties), "ties")

    @property
    def is_plain(self) -> bool:
        """Whether scores and ties are as they were scored: the measures of a noise floor and of perturbed pools are."""
        return self == Reading()

    def words(self) -> str:
        """What differs from the paper's reading, as flags; empty where nothing does."""
        return " ".join(f"--{name} {value}" for name, value in asdict(self).items() if value != getattr(Reading(), name))

    def read(self, query: Scored) -> Scored:
        """A query read this way, or a refusal where its table lacks what that needs."""
        return break_ties(read_out(query, self.readout), self.ties)


def read_out(query: Scored, readout: Readout) -> Scored:
    """A query scored by the likeliest grade or by P(g >= 2) instead of the expected grade, from its stored distribution."""
    if readout == "expected":
        return query
    if query.grades is None:
        raise InputError(
            f"query {query.query_id} has no stored grade distribution, which the readout {readout} needs. "
            "`steadyscore scorers list` names the scorers that give one."
        )
    scores = argmax_grade(query.grades) / GRADES[-1] if readout == "argmax" else grade_at_least(query.grades, LEAST_RELEVANT)
    return replace(query, scores=np.asarray(scores, float))


def break_ties(query: Scored, ties: Ties) -> Scored:
    """A query whose equal scores are ranked by this rule; refused where the order that decides them is not stored."""
    if ties == "input" and not query.is_placed and has_ties(query):
        raise InputError(
            f"query {query.query_id} has equal scores and no stored places, which --ties input needs. "
            "Audit a scorer, or give slot and window in the score file."
        )
    return replace(query, ties=ties if query.is_placed else "id")


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
