"""A decisions file: what it says is read, every mistake is named at once, and nothing else is raised."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadyscore.decision_models.cases import read_case, read_cases
from steadyscore.decision_models.questions import Choice, Noul, Score
from steadyscore.errors import InputError
from tests.helpers.decisions import ANYTHING, PATIENT

QUESTIONS = {
    "keep": {"type": "score", "instructions": "How relevant is [a]?", "criteria": ["no", "partly", "fully"]},
    "yes": {"type": "noul", "instructions": "Answered?", "criteria": None},
    "tone": {"type": "choice", "instructions": "Tone?", "criteria": {"calm": None, "angry": "Insults."}},
}
STATE = {"query": "q", "pool": {"candidates": ["x", "y"]}}
ROW = {"id": "s", "state": STATE, "candidates": "$.pool.candidates", "questions": QUESTIONS}


def write(folder, text):
    file = folder / "file.jsonl"
    file.write_text(text)
    return file


def test_a_row_is_a_state_with_questions_gold_and_cutoffs():
    case = read_case({**ROW, "gold": {"keep": "fully", "yes": False, "tone": "calm"}, "cutoffs": {"keep": 1.5}})
    assert [type(question) for question in case.questions] == [Score, Noul, Choice]
    assert case.candidates == ["x", "y"]
    assert case.gold == (2, 1, 0)
    assert case.cutoffs[:2] == (1.5, 0.5)
    assert math.isnan(case.cutoffs[2])


def test_lines_a_list_and_shared_fields_are_the_same_states(tmp_path):
    rows = [{**ROW, "id": "a"}, {**ROW, "id": "b"}]
    shared = {key: value for key, value in ROW.items() if key not in ("id", "state")}
    forms = [
        "\n".join(map(json.dumps, rows)),
        json.dumps(rows),
        json.dumps({**shared, "states": [{"id": "a", "state": STATE}, {"id": "b", "state": STATE}]}),
    ]
    first, *others = [read_cases(write(tmp_path, form)) for form in forms]
    for other in others:
        assert [(c.id, c.state, c.questions, c.path) for c in other] == [(c.id, c.state, c.questions, c.path) for c in first]


def test_a_mark_at_the_beginning_and_a_line_separator_in_a_text_are_text(tmp_path):
    state = STATE | {"query": "a\u2028b"}
    rows = [json.dumps(ROW | {"id": name, "state": state}, ensure_ascii=False) for name in "ab"]
    cases = read_cases(write(tmp_path, "\ufeff" + "\n".join(rows)))
    assert [case.state.content["query"] for case in cases] == ["a\u2028b"] * 2


def test_a_key_that_stands_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="line 1: an object has the key 'id' twice"):
        read_cases(write(tmp_path, '{"id": "a", "id": "b"}\n{}'))


def test_every_mistake_of_a_file_is_named_at_once(tmp_path):
    rows = [
        {**ROW, "candidates": "$.nothing"},
        {**ROW, "id": "t", "gold": {"tone": "bored", "other": 1}},
        {**ROW, "id": "u", "cutoffs": {"tone": 1, "keep": 9}, "gold": {"keep": 5}},
        {**ROW, "colour": 1, "questions": {}},
    ]
    with pytest.raises(InputError) as refusal:
        read_cases(write(tmp_path, "\n".join(map(json.dumps, rows))))
    text = str(refusal.value)
    for said in (
        "there is no list at $.nothing",
        "no question is called other",
        "cutoffs.tone: a choice has none",
        "cutoffs.keep is 9: give a number from 0 to 2",
        "gold.keep is 5: give one of 0, 1, 2",
        "state s: colour: there is no such field",
    ):
        assert said in text


def test_every_mistake_of_a_question_is_named_at_once():
    questions = {
        "a": {"type": "rank", "instructions": "Q"},
        "b": {"type": "score", "criteria": ["one"]},
        "c": {"type": "choice", "instructions": "Q", "criteria": {"x": 1, "y": None}, "weight": 2},
        "": {"type": "noul", "instructions": "Q"},
    }
    with pytest.raises(InputError) as refusal:
        read_case({"id": 1, "questions": questions, "fixed": "a"})
    text = str(refusal.value)
    for place in ("state", "questions.a", "questions.b.score.instructions", "questions.b.score.criteria", "fixed"):
        assert f"{place}: " in text
    assert "questions.c.choice.weight: there is no such field" in text
    assert "questions.c.choice.criteria.x: " in text


def test_a_choice_of_a_file_may_have_more_options_than_a_local_model_has_letters():
    options = {str(i): None for i in range(255)}
    question = {"type": "choice", "instructions": "Which?", "criteria": options}
    assert len(read_case({"id": 1, "state": "", "questions": {"q": question}}).questions[0].options) == 255
    with pytest.raises(InputError, match="at most 255"):
        read_case({"id": 1, "state": "", "questions": {"q": question | {"criteria": options | {"one more": None}}}})


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"states": 3}', '{"id": 1}\n{"id": 1}'])
def test_a_file_of_something_else_is_refused_in_our_words(tmp_path, text):
    with pytest.raises(InputError, match=r"file\.jsonl"):
        read_cases(write(tmp_path, text))


@PATIENT
@given(st.dictionaries(st.sampled_from(["id", "state", "candidates", "questions", "gold", "cutoffs", "fixed"]), ANYTHING))
def test_any_row_is_read_or_refused_in_our_words(row):
    with contextlib.suppress(InputError):
        read_case({**ROW, **row})
