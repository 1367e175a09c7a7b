"""States, questions and answers of every kind, for property tests."""

import math
from dataclasses import replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from steadyscore.decision_models.questions import Answer, Choice, Level, Noul, Option, Request, Score, State

PATIENT = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
"""Nested values take a while to draw on a busy machine."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES = TEXTS.filter(bool)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
"""What `json.loads` may return, NaN and infinity too."""


def options(booleans: bool):
    values = st.booleans() | NAMES if booleans else NAMES
    return st.lists(
        st.builds(Option, values, st.none() | TEXTS), min_size=2, max_size=5, unique_by=lambda option: option.name
    ).map(tuple)


def levels(described: bool):
    return st.lists(st.builds(Level, TEXTS, st.none() | TEXTS if described else st.none()), min_size=2, max_size=10).map(tuple)


@st.composite
def questions(draw, *, openai: bool, most: int = 4):
    """Distinctly named questions, with only what the shape has fields for."""
    ids = draw(st.lists(NAMES, min_size=1, max_size=most, unique=True))
    kinds = (
        st.builds(Noul, TEXTS) if openai else st.builds(Noul, TEXTS, st.none(), st.none() | TEXTS, st.none() | TEXTS),
        st.builds(Choice, TEXTS, options(openai)),
        st.builds(Score, TEXTS, levels(openai)),
    )
    asked = []
    for id in ids:
        question = draw(st.one_of(*kinds))
        asked.append(replace(question, id=id if not openai or draw(st.booleans()) else None))
    return tuple(asked)


@st.composite
def requests(draw, *, openai: bool):
    messages = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": TEXTS}), min_size=2, max_size=3)
    state = State(draw(TEXTS | messages)) if openai else State(draw(JSON_VALUES), draw(st.none() | TEXTS))
    return Request(draw(NAMES), state, draw(questions(openai=openai)))


@st.composite
def answers(draw, asked, *, openai: bool):
    """To each question, or None where it is declined."""
    found = []
    for question in asked:
        if draw(st.integers(0, 9)) == 0:
            found.append(None)
            continue
        if isinstance(question, Noul):
            yes = draw(st.floats(0, 1))
            probabilities = (yes, 1 - yes)
        else:
            weights = draw(st.lists(st.integers(0, 99), min_size=len(question.outcomes), max_size=len(question.outcomes)))
            weights = weights if any(weights) else [1] * len(weights)
            probabilities = tuple(weight / math.fsum(weights) for weight in weights)
        named = None
        if isinstance(question, Choice):
            other = draw(st.integers(0, len(probabilities) - 1))
            named = None if other == probabilities.index(max(probabilities)) else other
        told = not openai and draw(st.booleans())
        found.append(Answer(probabilities, draw(st.floats(0, 1)) if told else None, named))
    return found
