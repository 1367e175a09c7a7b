"""The page of an audit of decisions: the table, and one state twice, reordered, with what was decided each time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..machine.names import shorten
from ..machine.places import Place
from ..report import templating
from ..results.table import Table
from .cases import Case
from .measures import MEANINGS, Shown, decided_answer, words
from .presentations import CHANNELS, show
from .run import Asked

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


@dataclass(frozen=True, slots=True)
class DecisionsSection:
    """One audit on the page."""

    table: Table
    example: TwoStates | None
    channels: Mapping[str, str]
    failed: int


def write_decisions_page(sections: Sequence[DecisionsSection], folder: Place) -> Place:
    """Write folder/index.html and folder/report.md, each whole or not at all; returns the page."""
    if not sections:
        raise InputError("no audit of decisions was given to report. Name at least one folder.")
    return templating.write_page("decisions", folder, meanings=MEANINGS, sections=sections)


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
