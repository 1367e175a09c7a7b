"""Presentations change what they say and nothing else, and answers come back to the order of the file."""

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from steadyscore.decision_models.cases import Case, with_value
from steadyscore.decision_models.presentations import AS_GIVEN, CHANNELS, irrelevance, presentations, put_back, show
from steadyscore.decision_models.questions import Answer, Choice, Level, Noul, Option, Score, State
from tests.helpers.decision_server import hashed
from tests.helpers.decisions import PATIENT, questions


def answer_by_name(question):
    """What a model without any effect of presentation says: a function of the outcomes' own names."""
    weights = [1 + hashed(f"{question.id}{name}") for name in question.outcomes]
    return Answer(tuple(weight / math.fsum(weights) for weight in weights))


@st.composite
def cases(draw):
    asked = draw(questions(openai=False))
    asked = tuple(
        replace(q, levels=tuple(Level(f"level {i}") for i in range(len(q.levels)))) if isinstance(q, Score) else q for q in asked
    )
    pool = draw(st.lists(st.integers(), max_size=5))
    return Case("s", State({"q": 1, "pool": pool}), asked, ("pool",), (None,) * len(asked), (0.5,) * len(asked))


@PATIENT
@given(cases(), st.sampled_from(CHANNELS), st.integers(1, 6), st.integers(0, 3))
def test_answers_that_depend_on_names_alone_come_back_the_same(case, channel, count, seed):
    expected = [answer_by_name(question).probabilities for question in case.questions]
    for presentation in presentations(case, channel, count, seed):
        _, asked = show(case, presentation)
        back = put_back(presentation, [answer_by_name(question) for question in asked])
        assert [answer.probabilities for answer in back] == expected


@PATIENT
@given(cases(), st.sampled_from(CHANNELS), st.integers(1, 6))
def test_presentations_are_distinct_and_hold_the_same_things(case, channel, count):
    given_state, given_questions = show(case, AS_GIVEN)
    assert (given_state, given_questions) == (case.state, case.questions)
    found = presentations(case, channel, count, 0)
    assert len(found) == len(set(found)) <= count
    assert bool(found) == (irrelevance(case, channel) is None)
    assert found == presentations(case, channel, count, 0)
    for presentation in found:
        assert presentation != AS_GIVEN
        state, asked = show(case, presentation)
        assert sorted(state.content["pool"]) == sorted(case.candidates)
        assert sorted(q.id for q in asked) == sorted(q.id for q in case.questions)
        assert all(sorted(q.outcomes) == sorted(next(c for c in case.questions if c.id == q.id).outcomes) for q in asked)


def test_a_channel_that_cannot_matter_says_why():
    keep = Noul("Keep?", "keep")
    alone = Case("s", State({"pool": ["x"]}), (keep,), ("pool",), (None,), (0.5,))
    assert irrelevance(alone, "candidates") == "the list of candidates has fewer than two"
    assert irrelevance(replace(alone, path=None), "candidates") == "no list of candidates is marked"
    assert irrelevance(alone, "options") == "no question is a choice whose options may be reordered"
    assert irrelevance(alone, "levels") == "no question is a score whose levels may be reordered"
    assert irrelevance(alone, "questions") == "there is one question"
    tone = Choice("Tone?", (Option("a"), Option("b")), "tone")
    assert irrelevance(replace(alone, questions=(tone,), fixed=frozenset({"tone"})), "options")


def test_an_option_that_the_server_names_is_put_back_too():
    tone = Choice("Tone?", (Option("a"), Option("b"), Option("c")), "tone")
    case = Case("s", State(""), (tone,), None, (None,), (float("nan"),))
    for presentation in presentations(case, "options", 5, 0):
        _, [asked] = show(case, presentation)
        place = asked.outcomes.index("c")  # the server names c, though all are as likely
        likeliest = Answer((1 / 3, 1 / 3, 1 / 3), named=None if place == 0 else place)
        [back] = put_back(presentation, [likeliest])
        assert tone.outcomes[back.best] == "c"


def test_a_value_inside_a_state_is_replaced_in_a_copy():
    content = {"a": [{"b": [1, 2]}, 3]}
    assert with_value(content, ("a", 0, "b"), [2, 1]) == {"a": [{"b": [2, 1]}, 3]}
    assert content == {"a": [{"b": [1, 2]}, 3]}
