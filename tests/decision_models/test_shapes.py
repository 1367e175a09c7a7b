"""Both request shapes: what is written is read back, and odd requests and answers raise only errors of ours."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from steadyscore.decision_models.engine import SHAPES
from steadyscore.decision_models.openai_shape import DecisionsRequest
from steadyscore.decision_models.questions import Answer, Choice, Level, Noul, Option, Request, Score, State
from steadyscore.decision_models.shape import DecisionOrderAnswer, usage_of
from steadyscore.decision_models.system_one import SystemOneRequest
from steadyscore.engines.answers import Malformed
from tests.helpers.decision_shapes import ANSWERS, REQUESTS, read_request
from tests.helpers.decisions import ANYTHING, PATIENT, answers, questions, requests

KEEP = Noul("Keep it?", "keep", "It answers.", "It does not.")
TONE = Choice("Which tone?", (Option("calm"), Option("angry", "Insults.")), "tone")
GRADE = Score("How relevant?", (Level("no"), Level("partly"), Level("fully")), "grade")


def by_wire(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize("name", SHAPES)
@PATIENT
@given(data=st.data())
def test_a_request_is_read_as_it_was_written(name, data):
    request = data.draw(requests(openai=name == "decisions"))
    assert read_request(name, by_wire(SHAPES[name].write_request(request))) == request


@pytest.mark.parametrize("name", SHAPES)
@PATIENT
@given(data=st.data())
def test_answers_are_read_as_they_were_written(name, data):
    openai = name == "decisions"
    asked = data.draw(questions(openai=openai))
    given = data.draw(answers(asked, openai=openai))
    body = by_wire(ANSWERS[name](asked, given))
    assert SHAPES[name].read_answers(asked, body) == given
    assert usage_of(body) == {"prompt": 1000, "cached_prompt": 400, "completion": 0}


@pytest.mark.parametrize("name", SHAPES)
@PATIENT
@given(body=ANYTHING | st.fixed_dictionaries({"model": ANYTHING, "state": ANYTHING, "input": ANYTHING, "questions": ANYTHING}))
def test_any_request_is_read_or_refused_with_its_mistakes(name, body):
    with contextlib.suppress(ValidationError):
        REQUESTS[name].model_validate(body)


@pytest.mark.parametrize("name", SHAPES)
@PATIENT
@given(data=st.data())
def test_a_question_of_any_shape_is_read_or_refused_with_its_mistakes(name, data):
    fields = {"type": st.sampled_from(["noul", "predicate", "choice", "score"]), "instructions": st.just("Q")}
    extra = dict.fromkeys(("criteria", "choices", "levels", "name"), ANYTHING)
    asked = data.draw(st.fixed_dictionaries(fields, optional=extra))
    listed = {"q": asked} if name == "systemone" else [asked]
    with contextlib.suppress(ValidationError):
        read_request(name, {"model": "m", "state": "", "input": "", "questions": listed})


@pytest.mark.parametrize("name", SHAPES)
@PATIENT
@given(data=st.data())
def test_any_change_of_an_answer_is_read_as_distributions_or_named(name, data):
    openai = name == "decisions"
    asked = data.draw(questions(openai=openai))
    body = by_wire(ANSWERS[name](asked, data.draw(answers(asked, openai=openai))))
    spot, key = body, "answers"
    for _ in range(data.draw(st.integers(0, 4))):
        inner = spot[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        spot, key = inner, data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    if data.draw(st.booleans()):
        spot[key] = data.draw(ANYTHING)
    elif isinstance(spot, dict | list):
        del spot[key]
    try:
        read = SHAPES[name].read_answers(asked, body)
    except Malformed:
        return
    assert all(count >= 0 for count in usage_of(body).values())
    for question, answer in zip(asked, read, strict=True):
        if answer is not None:
            assert len(answer.probabilities) == len(question.outcomes)
            assert abs(math.fsum(answer.probabilities) - 1) <= 0.011


def test_the_written_shapes_are_those_of_the_public_servers():
    request = Request("m", State({"items": [1]}, "Be strict."), (KEEP, TONE, GRADE))
    assert SHAPES["systemone"].write_request(request) == {
        "model": "m",
        "state": {"items": [1]},
        "instructions": "Be strict.",
        "questions": {
            "keep": {"type": "noul", "instructions": "Keep it?", "criteria": {"true": "It answers.", "false": "It does not."}},
            "tone": {"type": "choice", "instructions": "Which tone?", "criteria": {"calm": None, "angry": "Insults."}},
            "grade": {"type": "score", "instructions": "How relevant?", "criteria": ["no", "partly", "fully"]},
        },
    }
    assert SHAPES["decisions"].write_request(request) == {
        "model": "m",
        "input": 'Be strict.\n\n{\n  "items": [\n    1\n  ]\n}',
        "questions": [
            {"type": "predicate", "name": "keep", "instructions": "Keep it?\nYes = It answers.\nNo = It does not."},
            {
                "type": "choice",
                "name": "tone",
                "instructions": "Which tone?",
                "choices": [{"value": "calm"}, {"value": "angry", "description": "Insults."}],
            },
            {
                "type": "score",
                "name": "grade",
                "instructions": "How relevant?",
                "levels": [{"label": "no"}, {"label": "partly"}, {"label": "fully"}],
            },
        ],
    }


def test_the_written_answers_are_those_of_the_public_servers():
    asked, given = (KEEP, TONE, GRADE), [Answer((0.75, 0.25), 0.9), Answer((0.25, 0.75)), Answer((0.25, 0.25, 0.5))]
    order = DecisionOrderAnswer(readout="alone", permutations=1, order_free=True, questions=[])
    written = SystemOneRequest.answer(Request("m", State(""), asked), given, 9).model_dump(exclude_unset=True)
    assert written.pop("id").startswith("decision-")
    assert written.pop("created") > 1.7e9
    assert written == {
        "object": "structured_decision",
        "model": "m",
        "answers": {
            "keep": {"type": "noul", "noul": 0.75, "probabilities": {"yes": 0.75, "no": 0.25}, "confidence": 0.75},
            "tone": {"type": "choice", "choice": "angry", "probabilities": {"calm": 0.25, "angry": 0.75}, "confidence": 0.75},
            "grade": {
                "type": "score",
                "score": 1.25,
                "legend": {"0": "no", "1": "partly", "2": "fully"},
                "probabilities": {"0": 0.25, "1": 0.25, "2": 0.5},
                "confidence": 0.5,
            },
        },
        "usage": {"input_tokens": 9, "output_tokens": 0},
        "diagnostics": {"keep": {"label_mass": 0.9}},
    }
    assert SHAPES["systemone"].read_answers(asked, written) == given
    listed = DecisionsRequest.answer(Request("m", State(""), (GRADE, TONE)), [given[2], None], 9, order=order)
    written = listed.model_dump(exclude_unset=True)
    assert written["answers"] == [
        {
            "type": "score",
            "name": "grade",
            "score": 1.25,
            "probabilities": [
                {"value": 0, "label": "no", "probability": 0.25},
                {"value": 1, "label": "partly", "probability": 0.25},
                {"value": 2, "label": "fully", "probability": 0.5},
            ],
            "confidence": 0.5,
        },
        {"type": "refusal", "name": "tone"},
    ]
    assert written["usage"]["total_tokens"] == 9
    assert written["order"] == {"readout": "alone", "permutations": 1, "order_free": True, "questions": []}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda answers: answers.pop("grade"), "question grade was not answered"),
        (lambda answers: answers["grade"]["probabilities"].pop("2"), "the probabilities are not those of 0, 1, 2"),
        (lambda answers: answers["grade"]["probabilities"].update({"0": math.nan}), "nan, not a probability"),
        (lambda answers: answers["grade"]["probabilities"].update({"0": 0.9}), "sum to 1.4, not to 1"),
        (lambda answers: answers["tone"].update(choice="bored"), "'bored' is not among the options"),
        (lambda answers: answers.update(tone="calm"), "the answer is not an object"),
    ],
)
def test_half_an_answer_is_named(change, reason):
    asked = (TONE, GRADE)
    body = ANSWERS["systemone"](asked, (Answer((0.25, 0.75)), Answer((0.5, 0.25, 0.25))))
    change(body["answers"])
    with pytest.raises(Malformed, match=reason):
        SHAPES["systemone"].read_answers(asked, body)


def test_an_option_that_the_server_names_against_its_probabilities_is_what_was_decided():
    body = ANSWERS["systemone"]((TONE,), (Answer((0.5, 0.5)),))
    body["answers"]["tone"]["choice"] = "angry"
    [answer] = SHAPES["systemone"].read_answers((TONE,), body)
    assert answer.best == 1
