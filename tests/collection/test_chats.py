"""Chats in cells: what they begin with is the prompt, what follows the answers, however the messages are written."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from steadyscore.collection import from_records, open_collection
from steadyscore.collection.tables import chats_as_text
from steadyscore.errors import InputError


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def shared_gpt(messages):
    return [{"from": "human" if each["role"] == "user" else "gpt", "value": each["content"]} for each in messages]


ASKED = [user("why?")]
PAIRS = {
    "prompt beside": {"prompt": "why?", "chosen": [assistant("so")], "rejected": [assistant("no")]},
    "prompt as a chat": {"prompt": ASKED, "chosen": [assistant("so")], "rejected": [assistant("no")]},
    "prompt twice": {"prompt": "why?", "chosen": [*ASKED, assistant("so")], "rejected": [*ASKED, assistant("no")]},
    "prompt in both": {"chosen": [*ASKED, assistant("so")], "rejected": [*ASKED, assistant("no")]},
    "from and value": {"chosen": shared_gpt([*ASKED, assistant("so")]), "rejected": shared_gpt([*ASKED, assistant("no")])},
    "a and b": {"conversation_a": [*ASKED, assistant("so")], "conversation_b": [*ASKED, assistant("no")], "winner": "model_a"},
    "a list of chats": {"prompt": "why?", "responses": [[*ASKED, assistant("so")], [*ASKED, assistant("no")]], "ratings": [3, 0]},
}


@pytest.mark.parametrize("shape", PAIRS)
def test_a_pair_of_chats_is_a_prompt_and_two_answers(shape, tmp_path):
    rows = [PAIRS[shape]] * 2
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    for data in (rows, tmp_path / "x.parquet", pd.read_parquet(tmp_path / "x.parquet")):
        source = open_collection(data)
        assert source.collection.task == "response_ranking"
        for instance in source.instances():
            assert instance.query == "why?"
            assert {(each.text, each.relevance) for each in instance.pool} == {("so", 3), ("no", 0)}


def test_turns_before_the_last_are_told_by_who_spoke():
    begin = [user("hi"), assistant("hello"), user("why?")]
    instance = next(from_records([{"chosen": [*begin, assistant("so")], "rejected": [*begin, assistant("no")]}]).instances())
    assert instance.query == "user: hi\n\nassistant: hello\n\nuser: why?"
    assert {each.text for each in instance.pool} == {"so", "no"}


def test_conversations_that_part_early_share_what_is_before():
    apart = {f"conversation_{side}": [user("q"), assistant(side), user("more"), assistant(side * 2)] for side in "ab"}
    instance = next(from_records([apart]).instances())
    assert instance.query == "q"
    assert instance.pool[0].text == "assistant: a\n\nuser: more\n\nassistant: aa"


def test_equal_chats_keep_their_last_message_as_the_answer():
    instance = next(from_records([{"chosen": [*ASKED, assistant("x")], "rejected": [*ASKED, assistant("x")]}]).instances())
    assert (instance.query, [each.text for each in instance.pool]) == ("why?", ["x", "x"])


def test_a_row_per_answer_may_hold_a_chat():
    rows = [{"prompt": "why?", "response": [*ASKED, assistant(text)], "label": grade} for text, grade in (("so", 1), ("no", 0))]
    (instance,) = from_records(rows).instances()
    assert [(each.text, each.relevance) for each in instance.pool] == [("so", 1), ("no", 0)]


@pytest.mark.parametrize(
    "cell", ["text", 7, None, [], ["a"], [{"text": "a"}], [{"role": "user"}], [{"role": "user", "content": 7}]]
)
def test_what_is_no_chat_stays_as_it_is(cell):
    assert chats_as_text({"x": cell}, []) == {"x": cell}


def test_pairs_without_a_prompt_are_told_what_is_missing():
    with pytest.raises(InputError, match=r"no column is recognised as query among chosen, rejected\. Say it: --columns query"):
        from_records([{"chosen": "Human: why? Assistant: so", "rejected": "Human: why? Assistant: no"}])
