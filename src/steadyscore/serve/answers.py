"""From arrays to the rows of answers."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

import numpy as np

from ..measures.ranking import ranking, unless_nan
from ..runs.table import Scored
from ..terms import Array, Instance
from . import schemas
from .decisions import DecisionRule, PairRule, distances, outcome, roles
from .service import ScoredDecision

Role = Literal["kept", "dropped", "chosen", "rejected", "neither"]
SET_ROLES: dict[int, Role] = {1: "kept", 0: "dropped"}
PAIR_ROLES: dict[int, Role] = {1: "chosen", 0: "neither", -1: "rejected"}


def ranked_rows(scores: Array, instance: Instance, top: int | None, documents: bool) -> list[schemas.Ranked]:
    """The first `top` documents, best first; all of them where it is 0 or None."""
    return [
        schemas.Ranked(index=int(i), relevance_score=float(scores[i]), document=_text(instance, i) if documents else None)
        for i in ranking(scores)[: top or None]
    ]


def tei_rows(scores: Array, instance: Instance, *, scale: float, texts: bool) -> list[schemas.TeiRanked]:
    return [
        schemas.TeiRanked(index=int(i), score=float(scale * scores[i]), text=instance.pool[i].text if texts else None)
        for i in ranking(scores)
    ]


def outcome_answer(scores: Array, rule: DecisionRule, expected_overlap: float | None) -> schemas.Outcome:
    return schemas.Outcome(**asdict(outcome(scores, rule)), expected_overlap=expected_overlap)


def decided_rows(decision: ScoredDecision, rule: DecisionRule, instance: Instance, documents: bool) -> list[schemas.Decided]:
    """Every document, best first."""
    scores, grades, steady = decision.scores, decision.grades, decision.stability
    role, away = roles(scores, rule), distances(scores, rule)
    names = PAIR_ROLES if isinstance(rule, PairRule) else SET_ROLES
    return [
        schemas.Decided(
            index=int(i),
            score=float(scores[i]),
            role=names[int(role[i])],
            distance=None if away is None else float(away[i]),
            grades=None if grades is None else grades[i].tolist(),
            agreement=None if steady is None else float(steady.by_document[i]),
            settled=None if steady is None else bool(steady.settled[i]),
            document=_text(instance, i) if documents else None,
        )
        for i in ranking(scores)
    ]


def stability_answer(decision: ScoredDecision, asked: int) -> schemas.StabilityAnswer | None:
    """None where the request asked for one presentation."""
    if decision.stability is None or decision.stopped is None:
        return None
    steady = decision.stability
    return schemas.StabilityAnswer(
        permutations=decision.permutations,
        asked=asked,
        stopped=decision.stopped,
        agreement=steady.agreement,
        overlap=unless_nan(steady.overlap),
        unsettled=np.flatnonzero(~steady.settled).tolist(),
    )


def audit_presentations(scored: Scored) -> list[schemas.PresentationAnswer]:
    """One row per order, the order given first."""
    assert scored.slots is not None  # a scorer's own table has places
    assert scored.windows is not None
    return [
        schemas.PresentationAnswer(
            order=np.lexsort((slots, windows)).tolist(), scores=scores, slots=slots.tolist(), windows=windows.tolist()
        )
        for scores, slots, windows in zip(scored.scores.tolist(), scored.slots, scored.windows, strict=True)
    ]


def _text(instance: Instance, i: int) -> schemas.Text:
    return schemas.Text(text=instance.pool[i].text)
