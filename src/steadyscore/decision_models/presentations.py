"""The ways to present one state and its questions, and answers put back into the order of the file.

Four channels may change while what is asked stays the same: the order of the candidates in the state, of the options of a
choice, of the levels of a score, of the questions. Levels are turned around and not shuffled: a scale read from its other end is
still a scale. Everything is a function of (seed, state id, channel).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from ..window.presentation import permutations
from .cases import Case, with_value
from .questions import Answer, Choice, Question, Score, State

Channel = Literal["candidates", "options", "levels", "questions"]
CHANNELS: tuple[Channel, ...] = ("candidates", "options", "levels", "questions")
Order = tuple[int, ...]
"""Place -> number, in the file, of what is shown there."""


@dataclass(frozen=True, slots=True)
class CasePresentation:
    """One way to present a case. Without any order it is the one of the file."""

    candidates: Order | None = None
    questions: Order | None = None
    outcomes: tuple[Order | None, ...] = ()
    """Per question of the file, the order of its options or levels."""


AS_GIVEN = CasePresentation()


def irrelevance(case: Case, channel: Channel) -> str | None:
    """Why a channel cannot matter for a state; None where it can."""
    if channel == "candidates":
        if case.path is None:
            return "no list of candidates is marked"
        return None if len(case.candidates) > 1 else "the list of candidates has fewer than two"
    if channel == "questions":
        return None if len(case.questions) > 1 else "there is one question"
    if not any(may_turn(case, question, channel) for question in case.questions):
        kind, what = ("choice", "options") if channel == "options" else ("score", "levels")
        return f"no question is a {kind} whose {what} may be reordered"
    return None


def presentations(case: Case, channel: Channel, count: int, seed: int) -> list[CasePresentation]:
    """Up to `count` presentations that differ from the file's in this channel, all different; none where it cannot matter."""
    if irrelevance(case, channel):
        return []
    if channel == "candidates":
        return [
            CasePresentation(candidates=order) for order in _other_orders(len(case.candidates), count, seed, f"{case.id}/state")
        ]
    if channel == "questions":
        return [
            CasePresentation(questions=order) for order in _other_orders(len(case.questions), count, seed, f"{case.id}/asked")
        ]
    by_question = [_outcome_orders(case, question, channel, count, seed) for question in case.questions]
    return [
        CasePresentation(outcomes=tuple(orders[i % len(orders)] if orders else None for orders in by_question))
        for i in range(max(map(len, by_question)))
    ]


def _outcome_orders(case: Case, question: Question, channel: Channel, count: int, seed: int) -> list[Order]:
    if not may_turn(case, question, channel):
        return []
    n = len(question.outcomes)
    if channel == "levels":
        return [tuple(reversed(range(n)))]
    return _other_orders(n, count, seed, f"{case.id}/options/{question.id}")


def may_turn(case: Case, question: Question, channel: str) -> bool:
    """Whether a channel puts the options or levels of a question into another order."""
    return isinstance(question, Choice if channel == "options" else Score) and question.id not in case.fixed


def _other_orders(n: int, count: int, seed: int, key: str) -> list[Order]:
    """Distinct orders of n things, the given one left out; as many as there are, up to `count`."""
    rows = permutations(n, count + 1, seed=seed, query_id=key, scheme="distinct")
    return [order for row in rows if (order := tuple(int(i) for i in row)) != tuple(range(n))][:count]


def show(case: Case, presentation: CasePresentation) -> tuple[State, tuple[Question, ...]]:
    """What a server is sent."""
    state = case.state
    if presentation.candidates is not None and case.path is not None:
        given = case.candidates
        state = replace(state, content=with_value(state.content, case.path, [given[i] for i in presentation.candidates]))
    questions = case.questions
    if presentation.outcomes:
        questions = tuple(_turn(question, order) for question, order in zip(questions, presentation.outcomes, strict=True))
    if presentation.questions is not None:
        questions = tuple(questions[i] for i in presentation.questions)
    return state, questions


def _turn(question: Question, order: Order | None) -> Question:
    if order is None:
        return question
    if isinstance(question, Choice):
        return replace(question, options=tuple(question.options[i] for i in order))
    assert isinstance(question, Score)
    return replace(question, levels=tuple(question.levels[i] for i in order))


def put_back(presentation: CasePresentation, answers: list[Answer]) -> list[Answer]:
    """Answers in the order of the file's questions, their probabilities in the order of its options and levels."""
    asked = presentation.questions or tuple(range(len(answers)))
    by_question: list[Answer] = [answer for _, answer in sorted(zip(asked, answers, strict=True), key=lambda pair: pair[0])]
    if not presentation.outcomes:
        return by_question
    return [_turn_back(answer, order) for answer, order in zip(by_question, presentation.outcomes, strict=True)]


def _turn_back(answer: Answer, order: Order | None) -> Answer:
    if order is None:
        return answer
    decided = order[answer.best]
    by_outcome = [p for _, p in sorted(zip(order, answer.probabilities, strict=True))]
    likeliest = by_outcome.index(max(by_outcome))
    return replace(answer, probabilities=tuple(by_outcome), named=None if decided == likeliest else decided)
