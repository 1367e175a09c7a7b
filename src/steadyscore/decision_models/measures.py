"""What other presentations do to decisions about one state: flips, moves and crossings, and the state that shows it best.

A measure of a channel is `name.channel`, such as `choice_flip.candidates`; that of identical requests, the noise floor, is
`name.same_batch` or `name.other_batch`. Quality is measured on the presentation of the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ..machine.names import shorten
from ..measures.preference import change
from ..terms import Array
from .cases import Case
from .presentations import CHANNELS, CasePresentation, Order, may_turn, show
from .questions import Answer, Choice, Noul, Question, Score

NOISE = ("same_batch", "other_batch")
INSTABILITIES = {
    "choice_flip": "share of pairs of presentations that choose different options",
    "score_move": "mean difference between two presentations' scores, in levels",
    "score_crossing": "share of pairs of presentations that put a score on different sides of its cutoff",
    "noul_move": "mean difference between two presentations' probabilities of yes",
    "noul_crossing": "share of pairs of presentations that put a probability of yes on different sides of its cutoff",
}
QUALITIES = {
    "accuracy": "share of questions whose decision is the gold one",
    "brier": "mean squared distance between the probabilities and the gold outcome",
    "score_error": "mean distance between a score and its gold level, in levels",
}
CALIBRATION = "calibration_error"
MEANINGS = (
    INSTABILITIES | QUALITIES | {CALIBRATION: "distance between stated confidence and the share of right decisions, in ten bins"}
)
SHARES = ("choice_flip", "score_crossing", "noul_move", "noul_crossing", "accuracy")
"""Measures that lie between 0 and 1."""
BINS = 10
"""Of the calibration error."""

AS_GIVEN = "as_given"
"""The channel of the presentation of the file."""
Shown = tuple[CasePresentation, Sequence[Answer]]
"""A presentation and its answers, put back into the order of the file."""
Asked = list[tuple[str, Shown]]
"""Every presentation of a state by its channel, the one of the file first."""


def instability(case: Case, shown: Sequence[Shown], channel: str) -> dict[str, float]:
    """`measure.channel` -> its mean over the questions that the channel can move; the presentation of the file among `shown`."""
    values_of: dict[str, list[float]] = {}
    for number, question in enumerate(case.questions):
        answers = [each[number] for _, each in shown]
        if channel in ("options", "levels"):
            if not may_turn(case, question, channel):
                continue
            answers = _distinct(shown, number)
        for name, value in _question_instability(question, answers, case.cutoffs[number]).items():
            values_of.setdefault(f"{name}.{channel}", []).append(value)
    return {name: float(np.mean(values)) for name, values in values_of.items()}


def _distinct(shown: Sequence[Shown], number: int) -> list[Answer]:
    """Answers to a question, one per order of its outcomes: a short list has fewer orders than a long one beside it."""
    by_order: dict[Order | None, Answer] = {}
    for presentation, answers in shown:
        by_order.setdefault(presentation.outcomes[number] if presentation.outcomes else None, answers[number])
    return list(by_order.values())


def _question_instability(question: Question, answers: Sequence[Answer], cutoff: float) -> dict[str, float]:
    if isinstance(question, Choice):
        return {"choice_flip": _flip(question, answers, cutoff)}
    values = np.array([value_of(question, answer) for answer in answers])
    moves = [abs(a - b) for a, b in combinations(values, 2)]
    return {
        f"{question.kind}_move": float(np.mean(moves)) if moves else math.nan,
        f"{question.kind}_crossing": _flip(question, answers, cutoff),
    }


def _flip(question: Question, answers: Sequence[Answer], cutoff: float) -> float:
    return float(change([decided_answer(question, answer, cutoff) for answer in answers]))


def value_of(question: Question, answer: Answer) -> float:
    """What a cutoff is held against: the probability of yes, or the expected level."""
    return answer.probabilities[0] if isinstance(question, Noul) else answer.expected_level


def decided_answer(question: Question, answer: Answer, cutoff: float) -> int | bool:
    """What was decided: an option, or whether the cutoff was reached."""
    return answer.best if isinstance(question, Choice) else value_of(question, answer) >= cutoff


def words(question: Question, answer: Answer, cutoff: float) -> str:
    """What was decided, in words."""
    decided = decided_answer(question, answer, cutoff)
    if isinstance(question, Choice):
        return question.outcomes[decided]
    yes, no = ("yes", "no") if isinstance(question, Noul) else ("kept", "dropped")
    return f"{yes if decided else no} ({value_of(question, answer):.2f})"


# -- quality


def quality(case: Case, answers: Sequence[Answer]) -> dict[str, float]:
    """`measure.as_given` -> its mean over the questions that have gold."""
    values_of: dict[str, list[float]] = {}
    for question, answer, gold, cutoff in zip(case.questions, answers, case.gold, case.cutoffs, strict=True):
        if gold is None:
            continue
        values_of.setdefault("accuracy.as_given", []).append(float(_decided(question, answer, cutoff) == gold))
        values_of.setdefault("brier.as_given", []).append(
            sum((p - (place == gold)) ** 2 for place, p in enumerate(answer.probabilities))
        )
        if isinstance(question, Score):
            values_of.setdefault("score_error.as_given", []).append(abs(answer.expected_level - gold))
    return {name: float(np.mean(values)) for name, values in values_of.items()}


def _decided(question: Question, answer: Answer, cutoff: float) -> int:
    """The outcome that is decided: of a score the level nearest to the expected one."""
    if isinstance(question, Choice):
        return answer.best
    if isinstance(question, Noul):
        return 0 if answer.probabilities[0] >= cutoff else 1
    return math.floor(answer.expected_level + 0.5)


def calibration_error(cases: Sequence[Case], answers: Sequence[Sequence[Answer]]) -> float:
    """Expected calibration error: |confidence - accuracy| of the likeliest outcomes, by bins of confidence; NaN without gold."""
    rows = [
        (answer.confidence, float(answer.probabilities.index(answer.confidence) == gold))
        for case, given in zip(cases, answers, strict=True)
        for answer, gold in zip(given, case.gold, strict=True)
        if gold is not None
    ]
    if not rows:
        return math.nan
    confidence, right = np.array(rows).T
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = [abs((confidence - right)[bins == b].sum()) for b in range(BINS)]
    return float(np.sum(gaps) / len(rows))


def stack(rows: Sequence[Mapping[str, float]]) -> dict[str, Array]:
    """Measure -> (S,) over states, NaN where a state has none; measures that no state has are left out."""
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: np.array([row.get(name, math.nan) for row in rows]) for name in names}
    return {name: values for name, values in columns.items() if not np.isnan(values).all()}


def measure_state(case: Case, asked: Asked) -> dict[str, float]:
    """`measure.channel` -> its value, of one state: its presentations by channel (noise included) beside the one of the file."""
    given = asked[0][1]
    measured = quality(case, given[1])
    for channel in dict.fromkeys(channel for channel, _ in asked[1:]):
        measured |= instability(case, [given, *(shown for one, shown in asked[1:] if one == channel)], channel)
    return measured


# -- one state twice, reordered, with what was decided each time


LONGEST = 280
"""Characters shown of a candidate."""
WORDS = {
    "candidates": "the order of its candidates",
    "options": "the order of the options",
    "levels": "the direction of the levels",
    "questions": "the order of the questions",
}


@dataclass(frozen=True, slots=True)
class Decided:
    """A question and what was decided under both presentations."""

    id: str
    instructions: str
    outcomes: tuple[str, str]
    differs: bool
    """Whether another option, or the other side of the cutoff, was decided."""


@dataclass(frozen=True, slots=True)
class TwoStates:
    """One state twice."""

    id: str
    changed: str
    """What differs between the two, in words."""
    shown: tuple[list[str], list[str]]
    """What was reordered, as it stood each time."""
    questions: list[Decided]


def find_example(cases: Sequence[Case], asked_of: Sequence[Asked]) -> TwoStates | None:
    """The state and presentation under which most decisions are others than in the file; None where none is."""
    best: tuple[tuple[int, float], TwoStates] | None = None
    for case, asked in zip(cases, asked_of, strict=True):
        given = asked[0][1]
        for channel, shown in asked[1:]:
            if channel not in CHANNELS:
                continue
            decided = _decide_both(case, given, shown)
            rank = (sum(each.differs for each in decided), _moved(given, shown))
            if rank[0] and (best is None or rank > best[0]):
                both = _words_of(case, channel, given), _words_of(case, channel, shown)
                best = rank, TwoStates(case.id, WORDS[channel], both, decided)
    return best[1] if best else None


def _decide_both(case: Case, given: Shown, shown: Shown) -> list[Decided]:
    return [
        Decided(question.id or "", question.instructions, (words(question, a, cutoff), words(question, b, cutoff)), a_is != b_is)
        for question, a, b, cutoff in zip(case.questions, given[1], shown[1], case.cutoffs, strict=True)
        for a_is, b_is in [(decided_answer(question, a, cutoff), decided_answer(question, b, cutoff))]
    ]


def _moved(given: Shown, shown: Shown) -> float:
    """How far probabilities moved, over all questions."""
    pairs = zip(given[1], shown[1], strict=True)
    return sum(abs(p - q) for a, b in pairs for p, q in zip(a.probabilities, b.probabilities, strict=True))


def _words_of(case: Case, channel: str, shown: Shown) -> list[str]:
    """What a channel reorders, as it stood."""
    if channel == "candidates":
        given = case.candidates
        return [_short(given[i]) for i in shown[0].candidates or range(len(given))]
    _, questions = show(case, shown[0])
    if channel == "questions":
        return [_short(question.instructions) for question in questions]
    kind = "choice" if channel == "options" else "score"
    return [f"{question.id}: {' · '.join(question.outcomes)}" for question in questions if question.kind == kind]


def _short(value: Any) -> str:
    return shorten(" ".join((value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).split()), LONGEST)
