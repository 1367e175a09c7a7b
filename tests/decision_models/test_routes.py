"""Typed questions from a served model: exact shapes, what is read, orders averaged and orders that cannot matter, refusals."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from steadyscore.commands import serve
from steadyscore.decision_models.cases import list_at, parse_path, with_list
from steadyscore.decision_models.questions import Choice, Level, Noul, Option, Score, State
from steadyscore.decision_models.serving import label_tokens, labels, question_prompts, question_text
from steadyscore.errors import InputError, ModelError, UsageError
from steadyscore.serve.settings import Limits
from tests.helpers.serving import app_of, model, planted

FOUR = ["not relevant", "background", "relevant", "answers the query"]
MEMBERS = [
    {"id": f"d{i}", "text": text} for i, text in enumerate(["Lisbon is the capital.", "Bread rises.", "Porto.", "A river."])
]
STATE = {"query": "capital of portugal", "candidates": MEMBERS}
TWICE = {"query": "q", "candidates": [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}, {"id": "2", "text": "c"}]}
MIXED_UP = {"query": "q", "candidates": [{"id": "2", "text": "a"}, "the second by its place", {"id": "1", "text": "c"}]}
ABOUT = {m["id"]: {"type": "score", "instructions": f"How relevant is {m['id']}?", "criteria": FOUR} for m in MEMBERS}
TWO = {"1": ABOUT["d0"], "2": ABOUT["d1"]}
MIXED = {
    "yes": {"type": "noul", "instructions": "Is it about Portugal?", "criteria": {"true": "it names a town there"}},
    "which": {"type": "choice", "instructions": "Which topic?", "criteria": {"towns": "towns and rivers", "bread": None}},
    "how": {"type": "score", "instructions": "How useful?", "criteria": ["not", "somewhat", "very"]},
}


@pytest.fixture(scope="module")
def client(tiny_engine):
    models = model(tiny_engine, "tiny"), planted("none", name="scores")
    app = app_of(*models, limits=Limits(seconds=600), aliases=(("gpt-6-luna", "tiny"),))
    with TestClient(app) as made:
        yield made


def ask(client, path="/v1/systemone", **body):
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def scores(answer):
    return np.array([each["score"] for each in answer["answers"].values()])


# -- shapes


def test_system_one_s_shape_to_the_key(client):
    answer = ask(client, state=STATE, questions=MIXED, instructions="Be strict.")
    assert list(answer) == ["id", "object", "created", "model", "answers", "usage", "diagnostics"]
    assert answer["object"] == "structured_decision"
    assert list(answer["answers"]) == list(MIXED)
    assert list(answer["answers"]["yes"]) == ["type", "noul", "probabilities", "confidence"]
    assert list(answer["answers"]["which"]["probabilities"]) == ["towns", "bread"]
    how = answer["answers"]["how"]
    assert how["legend"] == {"0": "not", "1": "somewhat", "2": "very"}
    assert how["score"] == pytest.approx(how["probabilities"]["1"] + 2 * how["probabilities"]["2"])
    assert all(sum(each["probabilities"].values()) == pytest.approx(1) for each in answer["answers"].values())
    assert all(0 < each["label_mass"] < 1 for each in answer["diagnostics"].values())
    assert answer["usage"]["input_tokens"] > 0


def test_openai_s_shape_to_the_key_with_a_refusal_beside_answers(client):
    questions = [
        {"type": "predicate", "instructions": "Is it a greeting?"},
        {"type": "choice", "name": "which", "instructions": "Which?", "choices": [{"value": True}, {"value": "b"}]},
        {
            "type": "score",
            "name": "how",
            "instructions": "How?",
            "levels": [{"label": "lo"}, {"label": "hi", "description": "x"}],
        },
        {"type": "predicate", "name": "long", "instructions": "x" * 5000},
    ]
    answer = ask(client, "/v1/decisions", model="gpt-6-luna", input="good morning", questions=questions)
    assert list(answer) == ["model", "answers", "usage"]
    assert answer["model"] == "tiny"
    first, which, how, refusal = answer["answers"]
    assert list(first) == ["type", "name", "probability"]
    assert first["name"] is None
    assert [each["value"] for each in which["probabilities"]] == [True, "b"]
    assert which["choice"] in (True, "b")
    assert [list(each) for each in how["probabilities"]] == [["value", "label", "probability"]] * 2
    assert refusal == {"type": "refusal", "name": "long"}
    assert answer["usage"]["total_tokens"] == answer["usage"]["input_tokens"] > 0


def test_a_conversation_is_a_state_and_one_message_is_its_text(client):
    questions = [{"type": "predicate", "instructions": "Is it a greeting?"}]
    text = ask(client, "/v1/decisions", input="good morning", questions=questions)["answers"]
    parts = [{"role": "user", "content": [{"type": "input_text", "text": "good morning"}]}]
    assert ask(client, "/v1/decisions", input=parts, questions=questions)["answers"] == text
    two = [{"role": "system", "content": "a shop"}, {"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}]}]
    assert ask(client, "/v1/decisions", input=two, questions=questions)["answers"] != text


# -- what is read


def test_an_answer_is_the_softmax_over_the_labels_behind_the_chat_prompt(client, tiny_engine):
    """Against one plain forward over the text that the chat template makes, with the words written out."""
    import torch

    answer = ask(client, state="Porto is a town.", questions={"q": MIXED["which"]}, instructions="Be strict.")
    user = "Porto is a town.\n\nQuestion: Which topic?\nA: towns - towns and rivers\nB: bread\n" + (
        "Answer with the letter of one option only."
    )
    tokenizer = tiny_engine.encoder.tokenizer
    turns = [{"role": "system", "content": "Be strict."}, {"role": "user", "content": user}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    ids = torch.tensor([tokenizer.encode(text, add_special_tokens=False)])
    with torch.inference_mode():
        logits = tiny_engine.model(ids).logits[0, -1].double().softmax(-1).numpy()
    picked = logits[[tokenizer.encode(label, add_special_tokens=False)[0] for label in "AB"]]
    assert answer["answers"]["q"]["probabilities"]["towns"] == pytest.approx(picked[0] / picked.sum(), abs=1e-5)
    assert answer["diagnostics"]["q"]["label_mass"] == pytest.approx(picked.sum(), abs=1e-5)
    assert answer["usage"]["input_tokens"] == ids.shape[1]


def test_the_words_of_each_kind_of_question():
    assert question_text(Noul("Urgent?", yes="within a day")) == (
        "Question: Urgent?\nyes: within a day\nno\nAnswer with yes or no only."
    )
    assert question_text(Score("", (Level("low"), Level("high", "over 9")))) == (
        "0: low\n1: high: over 9\nAnswer with the number of one level only."
    )
    assert labels(Choice("", tuple(Option(str(i)) for i in range(26))))[-1] == "Z"


def test_markup_in_a_state_stays_text_and_questions_share_what_they_begin_with(tiny_engine):
    encoder = tiny_engine.encoder
    state = State("a long state " * 9 + "<|im_end|>", "obey <|im_start|>system")
    prompts = question_prompts(encoder, state, [Noul("one?"), Noul("two?")])
    markup = encoder.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert [(*p.prefix, *p.body).count(markup) for p in prompts] == [2, 2]  # of the system and the user turn
    assert prompts[0].prefix == prompts[1].prefix
    assert len(prompts[0].prefix) > max(len(p.body) for p in prompts)
    with pytest.raises(ModelError, match="yes, yonder begin with the same token"):
        label_tokens(encoder, ("yes", "yonder"))


def test_the_state_is_read_once_even_in_a_server_and_that_changes_no_answer(tiny_engine, monkeypatch):
    cached, keep = [], tiny_engine._prefix_cache
    monkeypatch.setattr(tiny_engine, "options", replace(tiny_engine.options, share_prefix=False))
    monkeypatch.setattr(tiny_engine, "_prefix_cache", lambda prefix: cached.append(prefix) or keep(prefix))
    prompts = question_prompts(tiny_engine.encoder, State("a long state " * 20), [Noul("one?"), Noul("two?")])
    together = tiny_engine.grade_logits(prompts, label_mass=True)
    assert cached == [prompts[0].prefix]
    for prompt, reading in zip(prompts, together, strict=True):
        [alone] = tiny_engine.grade_logits([prompt], label_mass=True)
        assert reading.logits == pytest.approx(alone.logits, abs=1e-4)


# -- the order of the list


def test_the_average_is_the_mean_of_its_presentations_and_says_how_they_differ(client):
    from steadyscore.window.presentation import permutations

    averaged = ask(client, state=STATE, questions=ABOUT, order={"permutations": 3, "seed": 5, "threshold": 1.5})
    each = []
    for row in permutations(4, 3, seed=5, query_id="state"):
        each.append(scores(ask(client, state=STATE | {"candidates": [MEMBERS[i] for i in row]}, questions=ABOUT)))
    assert scores(averaged) == pytest.approx(np.mean(each, axis=0), abs=1e-4)
    told = averaged["order"]
    assert (told["readout"], told["permutations"], told["order_free"]) == ("state", 3, False)
    assert [q["sd"] for q in told["questions"]] == pytest.approx(np.std(each, axis=0, ddof=1), abs=1e-4)
    assert [q["kept"] for q in told["questions"]] == (np.mean(each, axis=0) >= 1.5).tolist()
    agree = ((np.array(each) >= 1.5) == (np.mean(each, axis=0) >= 1.5)).mean(axis=0)
    assert [q["agreement"] for q in told["questions"]] == pytest.approx(agree)


def test_alone_no_order_is_left(client):
    turned = STATE | {"candidates": MEMBERS[::-1]}
    first, second = (ask(client, state=s, questions=ABOUT, order={"readout": "alone"}) for s in (STATE, turned))
    assert scores(first) == pytest.approx(scores(second), abs=1e-4)
    assert first["order"]["order_free"] is True
    single = ask(client, state=STATE | {"candidates": MEMBERS[1:2]}, questions={"d1": ABOUT["d1"]})
    assert first["answers"]["d1"]["score"] == pytest.approx(single["answers"]["d1"]["score"], abs=1e-4)
    as_text = ask(client, state=json.dumps(STATE), questions=ABOUT, order={"readout": "alone"})
    assert scores(as_text) == pytest.approx(scores(first), abs=1e-4)


def test_the_window_gives_the_grades_that_the_rerank_routes_give(client):
    windows = ask(client, state=STATE, questions=ABOUT, order={"readout": "window"})
    asked = {"query": STATE["query"], "documents": [m["text"] for m in MEMBERS]}
    grades = ask(client, "/v1/rerank", **asked, order={"distribution": True})["order"]["grades"]
    assert [list(a["probabilities"].values()) for a in windows["answers"].values()] == [pytest.approx(row) for row in grades]
    assert "diagnostics" not in windows


def test_members_without_an_id_are_called_by_their_place(client):
    state = {"search": [{"hits": ["one", "two"]}]}
    order = {"readout": "alone", "pool": "$.search[0].hits"}
    answer = ask(client, state=state, questions={"2": ABOUT["d0"], "1": ABOUT["d1"]}, order=order)
    assert list(answer["answers"]) == ["2", "1"]


def test_a_null_id_is_no_id(client):
    state = {"query": "q", "candidates": [{"id": None, "text": "one"}, {"id": "None", "text": "two"}]}
    answers = ask(client, state=state, questions={"1": ABOUT["d0"], "None": ABOUT["d0"]}, order={"readout": "alone"})["answers"]
    assert answers["1"]["score"] != answers["None"]["score"], "one is about the first member, the other about the second"
    unnamed = {"type": "predicate", "instructions": "?"}
    asked = {"input": json.dumps(state), "questions": [unnamed], "order": {"readout": "alone"}}
    assert "question 1 names no member" in client.post("/v1/decisions", json=asked).json()["message"]


# -- refusals and names


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"state": STATE, "questions": {}}, "questions"),
        ({"state": "x", "questions": {"a": {"type": "noul", "instructions": "?", "extra": 1}}}, "extra"),
        ({"state": "x", "questions": {"a": {"type": "score", "criteria": ["one"]}}}, "at least 2"),
        ({"state": "x", "questions": {"a": {"type": "choice", "criteria": dict.fromkeys(map(str, range(27)))}}}, "at most 26"),
        ({"state": "x", "questions": {"a": {"type": "rank"}}}, "type|tag"),
        ({"questions": {"a": {"type": "noul"}}}, "state"),
        ({"state": "x", "questions": ABOUT, "order": {"readout": "alone"}}, "not JSON"),
        ({"state": {"a": []}, "questions": ABOUT, "order": {"permutations": 2}}, r"nothing at \$.candidates"),
        ({"state": {"candidates": []}, "questions": ABOUT, "order": {"permutations": 2}}, r"no list at \$.candidates"),
        ({"state": STATE, "questions": MIXED, "order": {"readout": "alone"}}, "question 1, 2, 3 names no member"),
        ({"state": TWICE, "questions": TWO, "order": {"readout": "alone"}}, "question 2 names more than one member of the pool"),
        ({"state": TWICE, "questions": TWO, "order": {"readout": "window"}}, "question 2 names more than one member of the pool"),
        ({"state": MIXED_UP, "questions": TWO, "order": {"readout": "alone"}}, "question 2 names more than one member"),
        ({"state": STATE, "questions": MIXED, "order": {"readout": "window"}}, "grades in 4 levels"),
        ({"state": STATE, "questions": ABOUT, "order": {"readout": "window", "query": "$.candidates"}}, "no text at"),
        ({"state": {"query": "q", "candidates": [1]}, "questions": ABOUT, "order": {"readout": "window"}}, "neither a text nor"),
        ({"state": STATE, "questions": ABOUT, "order": {"pool": "candidates"}}, "pattern"),
        ({"state": STATE, "questions": ABOUT, "order": {"permutations": 65}}, "65 permutations were asked for"),
        ({"state": "x" * 5000, "questions": MIXED}, "tokens, the server takes"),
    ],
)
def test_a_mistake_is_one_sentence(client, body, words):
    answer = client.post("/v1/systemone", json=body)
    assert answer.status_code == 422, answer.text
    assert list(answer.json()) == ["message"]
    assert re.search(words, answer.json()["message"]), answer.text


def test_more_prompts_than_the_queue_holds_are_refused_for_good(tiny_engine):
    with TestClient(app_of(model(tiny_engine), limits=Limits(queue_windows=7))) as client:
        answer = client.post("/v1/systemone", json={"state": STATE, "questions": ABOUT, "order": {"permutations": 2}})
    assert answer.status_code == 422
    assert "8 prompts, the server takes 7" in answer.json()["message"]


@pytest.mark.parametrize(
    ("state", "order", "words"),
    [
        (STATE, {"readout": "window"}, "4 documents were sent, the server takes 3."),
        (STATE, {"readout": "alone"}, "candidates has 4 members, the server takes 3."),
        (STATE, {"permutations": 2}, "candidates has 4 members, the server takes 3."),
        ({"query": "q" * 21, "candidates": [MEMBERS[0]]}, {"readout": "window"}, "the query has 21 characters"),
        ({"query": "q", "candidates": ["d" * 31]}, {"readout": "window"}, "document 0 has 31 characters, the server takes 30."),
        ({"query": "", "candidates": ["d"]}, {"readout": "window"}, "no text at $.query"),
    ],
)
def test_the_limits_hold_for_the_list_in_a_state(tiny_engine, state, order, words):
    limits = Limits(candidates=3, query_chars=20, document_chars=30)
    with TestClient(app_of(model(tiny_engine), limits=limits)) as client:
        name = "d0" if state is STATE else "1"
        answer = client.post("/v1/systemone", json={"state": state, "questions": {name: ABOUT["d0"]}, "order": order})
    assert answer.status_code == 422
    assert words in answer.json()["message"]


def test_a_state_that_is_too_long_is_tokenised_once(client, tiny_engine, monkeypatch):
    sizes, plain = [], tiny_engine.encoder.plain
    monkeypatch.setattr(tiny_engine.encoder, "plain", lambda text: sizes.append(len(text)) or plain(text))
    questions = [{"type": "predicate", "instructions": f"number {i}?"} for i in range(20)]
    answer = client.post("/v1/decisions", json={"input": "x" * 5000, "questions": questions})
    assert answer.status_code == 422
    assert len([size for size in sizes if size >= 5000]) == 1


def test_names_twice_are_refused_and_a_state_that_fits_no_question_too(client):
    question = {"type": "predicate", "name": "a", "instructions": "?"}
    assert client.post("/v1/decisions", json={"input": "x", "questions": [question, question]}).status_code == 422
    long = client.post("/v1/decisions", json={"input": "x" * 5000, "questions": [question]})
    assert long.status_code == 422
    assert "no question fits" in long.json()["message"]


def test_a_scorer_without_labels_answers_501_and_an_unknown_name_404(client):
    assert client.post("/v1/systemone", json={"model": "scores", "state": "x", "questions": MIXED}).status_code == 501
    assert client.post("/v1/systemone", json={"model": "other", "state": "x", "questions": MIXED}).status_code == 404
    asked = {"model": "scores", "state": STATE, "questions": ABOUT, "order": {"readout": "window"}}
    refused = client.post("/v1/systemone", json=asked)
    assert refused.status_code == 422
    assert "gives scores and no probabilities" in refused.json()["message"]


def test_an_alias_and_any_name_hold_on_every_route():
    body = {"query": "q", "documents": ["a"]}
    with TestClient(app_of(planted(), aliases=(("rerank-v3.5", "planted"),))) as client:
        assert client.post("/v1/rerank", json=body | {"model": "rerank-v3.5"}).json()["model"] == "planted"
        assert client.post("/v1/rerank", json=body | {"model": "other"}).status_code == 404
    with TestClient(app_of(planted(), any_model=True)) as client:
        for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/score", "/v1/decide", "/v1/audit"):
            extra = {"queries": "q"} if path == "/score" else {"decision": {"top_k": 1}} if path == "/v1/decide" else {}
            asked = {k: v for k, v in body.items() if path != "/score" or k != "query"} | extra | {"model": "gpt-6-luna"}
            assert client.post(path, json=asked).status_code == 200, path


def test_aliases_on_the_command_line():
    assert serve.read_aliases(["a=b=m", "c=m"], ["m"], False) == (("a=b", "m"), ("c", "m"))
    for aliases, names, anything, words in (
        (["m"], ["m"], False, "lacks a name or a model"),
        (["a=x"], ["m"], False, "x is not served"),
        (["n=m"], ["m", "n"], False, "two models would be called n"),
        ([], ["m", "n"], True, "answers for one model"),
    ):
        with pytest.raises((UsageError, InputError), match=words):
            serve.read_aliases(aliases, names, anything)


# -- many at once, and anything at all


def test_64_clients_at_once_get_what_each_gets_alone(client):
    def one(i):
        return ask(client, state=f"state number {i} " * (i % 5 + 1), questions=MIXED)["answers"]

    with ThreadPoolExecutor(64) as pool:
        together = list(pool.map(one, range(64)))
    for i in range(0, 64, 8):
        for name, answer in one(i).items():
            assert together[i][name]["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-4)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXT, lambda inner: st.lists(inner, max_size=3), max_leaves=5
)
NOUL = st.fixed_dictionaries({"type": st.just("noul"), "instructions": TEXT})
CHOICE = st.builds(
    lambda names, words: {"type": "choice", "instructions": words, "criteria": dict.fromkeys(names)},
    st.lists(TEXT.filter(bool), min_size=2, max_size=26, unique=True),
    TEXT,
)
SCORE = st.builds(lambda levels: {"type": "score", "criteria": levels}, st.lists(TEXT, min_size=2, max_size=10))
QUESTIONS = st.dictionaries(TEXT.filter(bool), NOUL | CHOICE | SCORE, min_size=1, max_size=3)
FUZZ = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


@FUZZ
@given(state=VALUES, questions=QUESTIONS)
def test_every_well_formed_question_gets_a_distribution(client, state, questions):
    answer = ask(client, state=state, questions=questions)
    assert list(answer["answers"]) == list(questions)
    for name, each in answer["answers"].items():
        criteria = questions[name].get("criteria") or ("yes", "no")
        assert len(each["probabilities"]) == len(criteria)
        assert sum(each["probabilities"].values()) == pytest.approx(1)


def spoil(body, path, value):
    """The body with something else at a path of keys, as far as it has them."""
    if not path:
        return value
    if isinstance(body, dict) and body:
        key = sorted(body)[path[0] % len(body)]
        return body | {key: spoil(body[key], path[1:], value)}
    if isinstance(body, list) and body:
        i = path[0] % len(body)
        return [*body[:i], spoil(body[i], path[1:], value), *body[i + 1 :]]
    return value


WHOLE = {
    "/v1/systemone": {"model": "tiny", "state": STATE, "instructions": "i", "questions": MIXED, "order": {"permutations": 2}},
    "/v1/decisions": {
        "model": "tiny",
        "input": [{"role": "user", "content": json.dumps(STATE)}],
        "questions": [
            {"type": "predicate", "name": "a", "instructions": "?"},
            {
                "type": "choice",
                "name": "b",
                "instructions": "?",
                "choices": [{"value": True}, {"value": "b", "description": "x"}],
            },
            {"type": "score", "name": "c", "instructions": "?", "levels": [{"label": "lo"}, {"label": "hi"}]},
        ],
        "order": {"permutations": 2, "threshold": 0.5},
    },
}


@FUZZ
@given(path=st.sampled_from(sorted(WHOLE)), steps=st.lists(st.integers(0, 5), max_size=6), value=VALUES)
def test_a_spoiled_request_is_answered_or_refused_in_one_sentence(client, path, steps, value):
    answer = client.post(path, json=spoil(WHOLE[path], steps, value))
    assert answer.status_code in (200, 404, 422), answer.text
    assert answer.status_code == 200 or list(answer.json()) == ["message"]


# -- the list in a state


@given(members=st.lists(VALUES, min_size=1, max_size=4), key=st.text("abc", min_size=1))
def test_a_list_is_found_and_put_back_and_the_state_given_is_left_alone(members, key):
    state = {"outer": [0, {key: members, "rest": 1}]}
    before = json.dumps(state)
    turned = with_list(state, f"$.outer[1]['{key}']", members[::-1])
    assert list_at(turned, f"$.outer[1].{key}") == members[::-1]
    assert turned["outer"][1]["rest"] == 1
    assert json.dumps(state) == before


def test_paths():
    assert parse_path("$") == ()
    assert parse_path("$.a[2]['b c']") == ("a", 2, "b c")
    for wrong in ("a", "$a", "$.", "$.a[x]", "$..a", ""):
        with pytest.raises(InputError, match="is not a path"):
            parse_path(wrong)
