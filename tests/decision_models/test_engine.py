"""Decision endpoints as graders: planted effects come back, windows are split at the server's limit, no fault leaves a trace."""

import json
from collections import Counter

import numpy as np
import pytest

from steadyscore import audit
from steadyscore.collection import open_collection
from steadyscore.decision_models.audit import audit_decisions
from steadyscore.engines import EngineOptions, Price
from steadyscore.engines.http import TooLong, Unusable
from steadyscore.engines.kinds import open_engine
from steadyscore.errors import InputError
from steadyscore.measures.decomposition import slot_residual
from steadyscore.readers.reader import Reader
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.estimate import estimate
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Settings
from steadyscore.tasks import TASKS
from steadyscore.window import readout
from steadyscore.window.prompt import prompt_text
from tests.helpers import decision_server
from tests.helpers.decision_server import DecisionServer, hashed
from tests.helpers.endpoint import Server
from tests.helpers.pools import some_instances, write_collection

OPTIONS = EngineOptions(timeout=30, retries=8, concurrency=3)
KINDS = ("systemone", "decisions")
FAULTS = ("429", "500", "truncated", "short", "nan")


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    decision_server.ask_in_a_hurry(monkeypatch, tmp_path)


@pytest.fixture
def model():
    return DecisionServer()


@pytest.fixture
def server(model):
    with Server(model.answer, decision_server.spoiled) as server:
        yield server


def window(*texts):
    return prompt_text(TASKS["passage_reranking"], "query", texts)


def grades(engine, *prompts):
    return [readout.expected_grade(readout.grade_distribution(found.logits)) for found in engine.grade_logits(prompts)]


def honest(text):
    return 1 + 2 * hashed(text)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", ["", "/v1", "/v1/{kind}"])
def test_the_probabilities_are_the_grades_wherever_the_address_ends(server, kind, base):
    engine = open_engine(f"{kind}:m@{server.url}{base.format(kind=kind)}", OPTIONS)
    [found] = grades(engine, window("one", "two", "three"))
    assert found == pytest.approx([honest(text) for text in ("one", "two", "three")])
    assert engine.capabilities.gives == "distribution"
    assert engine.capabilities.distribution == "exact"


def test_the_state_is_the_window_and_the_levels_are_the_rubric(server):
    grades(open_engine(f"systemone:m@{server.url}", OPTIONS), window("one", "two"))
    asked = server.requests[-1]
    instruction = TASKS["passage_reranking"].instruction
    assert asked["state"] == f"Instruction: {instruction}\nQuery: query\n\nDocuments:\n[1] one\n[2] two"
    assert asked["questions"]["2"] == {
        "type": "score",
        "instructions": "How relevant to the query is document [2]?",
        "criteria": [
            "not relevant",
            "weakly relevant or topical background",
            "strongly relevant but incomplete",
            "directly and completely answers the query",
        ],
    }


@pytest.mark.parametrize(("kind", "slot"), [("systemone", 0.0), ("systemone", 0.6), ("decisions", 0.6)])
def test_a_planted_slot_effect_comes_back(server, model, kind, slot, tmp_path):
    model.slot = slot
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=4))
    config = AuditConfig(permutations=12)
    scorer = scorer_for(open_engine(f"{kind}:m@{server.url}", OPTIONS), open_collection(str(pools)).collection, config)
    run = score_collection(scorer, str(pools), tmp_path / "run", config)
    profile = np.mean([slot_residual(query.permuted, query.slots[1:], 4).profile for query in run.read_queries()], axis=0)
    assert profile[0] - profile[-1] == pytest.approx(slot / 3, abs=0.08 if slot else 1e-12)
    assert run.record.failed == []


def test_one_candidate_a_state_has_no_order(server, model, tmp_path):
    model.slot = 0.6
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=4))
    config = AuditConfig(permutations=3, settings=Settings(width=1))
    scorer = scorer_for(open_engine(f"systemone:m@{server.url}", OPTIONS), open_collection(str(pools)).collection, config)
    run = score_collection(scorer, str(pools), tmp_path / "run", config)
    assert all(np.ptp(query.scores, axis=0).max() == 0 for query in run.read_queries())


def test_the_label_mass_is_kept_where_the_server_tells_it(server, model):
    assert not open_engine(f"systemone:m@{server.url}", OPTIONS).capabilities.label_mass
    model.label_mass = 0.75
    engine = open_engine(f"systemone:n@{server.url}", OPTIONS)
    assert engine.capabilities.label_mass
    [found] = engine.grade_logits([window("one", "two")], label_mass=True)
    assert found.label_mass == pytest.approx([0.75, 0.75])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("refusal", ["at most {} questions are allowed", "too many questions"])
def test_a_window_beyond_the_server_s_limit_is_split_over_requests_that_share_the_state(server, kind, refusal):
    limit, texts = 4, [f"text {i}" for i in range(11)]
    server.refusal = refusal.format(limit)
    server.always = lambda body: "400" if len(body["questions"]) > limit else None
    engine = open_engine(f"{kind}:m@{server.url}", OPTIONS)
    [found] = grades(engine, window(*texts))
    assert found == pytest.approx([honest(text) for text in texts])
    counts = [len(body["questions"]) for body in server.requests[1:] if len(body["questions"]) <= limit]
    assert sum(counts) == 11
    assert len({json.dumps(body.get("state") or body.get("input")) for body in server.requests[1:]}) == 1


@pytest.mark.parametrize(("kind", "most", "state"), [("systemone", 64, "state"), ("decisions", 200, "input")])
def test_vllm_refuses_no_request_for_its_size_or_its_fields(server, kind, most, state):
    """Version 0.33 serves both routes: so many questions a request, and no field that it does not know."""
    server.always = lambda body: "400" if len(body["questions"]) > most or {*body} != {"model", state, "questions"} else None
    texts = [f"text {i}" for i in range(most + 1)]
    [found] = grades(open_engine(f"{kind}:m@{server.url}", OPTIONS), window(*texts))
    assert found == pytest.approx([honest(text) for text in texts])
    assert [len(body["questions"]) for body in server.requests[1:]] == [most, 1]


def test_a_state_that_is_too_long_lowers_no_limit(server):
    engine = open_engine(f"systemone:m@{server.url}", OPTIONS)
    server.refusal = "the state and question 1 exceed the maximum context length of 8192 tokens"
    server.always = lambda body: "400" if "long" in body["state"] else None
    with pytest.raises(TooLong, match="context length"):
        grades(engine, window("long", "two", "three"))
    asked = len(server.requests)
    grades(engine, window("one", "two", "three"))
    assert len(server.requests) == asked + 1


def test_a_refusal_about_something_else_is_named(server):
    engine = open_engine(f"systemone:m@{server.url}", OPTIONS)
    server.refusal, server.always = "a label is not one token", lambda body: "400"
    with pytest.raises(Unusable, match="a label is not one token"):
        grades(engine, window("one", "two"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_question_is_asked_again_and_then_named(server, model, kind):
    engine = open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=1, cache=False))
    said = model.answer

    def refuse(path, body):
        answer = said(path, body)
        first = next(iter(answer["answers"])) if kind == "systemone" else 0
        answer["answers"][first] = {"type": "refusal", "name": "1"}
        return answer

    server.answer = refuse
    with pytest.raises(Unusable, match="1 of 2 questions were refused"):
        grades(engine, window("one", "two"))
    assert len(server.requests) == 3  # the one that opened it, and two tries


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_faults_lose_and_double_nothing(server, kind):
    prompts = [window(*(f"text {i} {j}" for j in range(3))) for i in range(50)]
    engine = open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=5, concurrency=8, cache=False))
    clean = grades(engine, *prompts)
    asked = len(server.requests)
    tries: Counter[str] = Counter()

    def fail_four_times(body):
        tries[key := json.dumps(body)] += 1
        return FAULTS[(len(tries) + tries[key]) % len(FAULTS)] if tries[key] <= 4 else None

    server.always = fail_four_times
    faulty = grades(engine, *prompts)
    assert len(server.requests) - asked == len(prompts) + 200  # each fault cost one request, and no answer was asked for twice
    assert all(np.array_equal(a, b) for a, b in zip(clean, faulty, strict=True))
    assert sum(count for what, count in engine.endpoint.counts.items() if what.startswith("retried")) == 200


def of_each(change):
    """A change of every answer, in a list or a map."""
    return lambda answers: (
        [change(answer) for answer in answers]
        if isinstance(answers, list)
        else {key: change(answer) for key, answer in answers.items()}
    )


def unnamed(answers):
    return [{key: value for key, value in answer.items() if key != "name"} for answer in answers]


def with_probabilities(change):
    """A change of the four probabilities of every answer, in either shape; the first answer to open the engine has two."""

    def changed(answer):
        given = answer["probabilities"]
        values = change(
            [p if isinstance(given, dict) else p["probability"] for p in (given.values() if isinstance(given, dict) else given)]
        )
        if isinstance(given, dict):
            return answer | {"probabilities": dict(zip(given, values, strict=True))}
        return answer | {"probabilities": [entry | {"probability": p} for entry, p in zip(given, values, strict=True)]}

    return of_each(changed)


def legend(answer):
    """The words of the levels, in reverse."""
    if "legend" in answer:
        return answer | {"legend": dict(zip(answer["legend"], list(answer["legend"].values())[::-1], strict=True))}
    labels = [entry["label"] for entry in answer["probabilities"]][::-1]
    return answer | {"probabilities": [e | {"label": label} for e, label in zip(answer["probabilities"], labels, strict=True)]}


LIES = {
    "score-99": of_each(lambda answer: answer | {"score": 99}),
    "score-of-a-reversed-scale": of_each(lambda answer: answer | {"score": 3 - answer["score"]}),
    "score-from-0-to-1": of_each(lambda answer: answer | {"score": answer["score"] / 3}),
    "score-text": of_each(lambda answer: answer | {"score": "high"}),
    "words-reversed": of_each(legend),
    "sums-to-2": with_probabilities(lambda values: [2 * p for p in values]),
    "sums-to-0": with_probabilities(lambda values: [0.0] * len(values)),
    "below-0": with_probabilities(lambda values: [-0.5, 1.5, *[0.0] * (len(values) - 2)]),
    "per-cent": with_probabilities(lambda values: [100 * p for p in values]),
    "probabilities-reversed": with_probabilities(lambda values: values[::-1]),
    "another-type": of_each(lambda answer: answer | {"type": "choice"}),
    "one-level-less": of_each(lambda answer: answer | {"probabilities": type(answer["probabilities"])()}),
}
NAMELESS = {
    "no-names": unnamed,
    "no-names-reversed": lambda answers: unnamed(answers)[::-1],
    "one-name-missing": lambda answers: [*answers[:-1], *unnamed(answers[-1:])],
    "one-name-twice": lambda answers: [*answers[:-1], answers[0]],
    "a-name-of-nothing": lambda answers: [*answers[:-1], answers[-1] | {"name": "9"}],
    "names-are-numbers": lambda answers: [answer | {"name": int(answer["name"])} for answer in answers],
}
TOLD = [
    *((kind, lie, change) for kind in KINDS for lie, change in LIES.items()),
    *(("decisions", *lie) for lie in NAMELESS.items()),
]


@pytest.mark.parametrize(
    ("kind", "change"), [(kind, change) for kind, _, change in TOLD], ids=[f"{kind}-{lie}" for kind, lie, _ in TOLD]
)
def test_a_lie_is_refused(server, model, kind, change):
    engine = open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=0))
    server.answer = lambda path, body: (answer := model.answer(path, body)) | {"answers": change(answer["answers"])}
    with pytest.raises(Unusable):
        engine.grade_logits([window("one", "two", "four")])


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_joined_by_name(server, model, kind):
    engine = open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=0))
    expected = grades(engine, window("one", "two", "four"))

    def answer(path, body):
        found = model.answer(path, body)
        names = list(found["answers"])
        turned = names[::-1] if kind == "decisions" else {key: found["answers"][key] for key in reversed(names)}
        return found | {"answers": turned}

    server.answer = answer
    again = open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=0, cache=False))
    np.testing.assert_array_equal(grades(again, window("one", "two", "four")), expected)


def test_one_answer_needs_no_name_and_rounding_is_no_lie(server, model):
    rounded = of_each(lambda answer: answer | {"score": round(answer["score"], 1)})
    server.answer = lambda path, body: (answer := model.answer(path, body)) | {"answers": unnamed(rounded(answer["answers"]))}
    [found] = grades(open_engine(f"decisions:m@{server.url}", EngineOptions(retries=0)), window("one"))
    assert found == pytest.approx([honest("one")])


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_that_answered_is_recorded_and_said_once(server, model, kind, tmp_path):
    server.answer = lambda path, body: model.answer(path, body) | {"model": "jev-1.13.0"}
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=4))
    found = audit(f"{kind}:jev-latest@{server.url}", pools, permutations=2, out=tmp_path / "run", quiet=True)
    assert found[0].record.coverage.spent["answered by: jev-1.13.0"] > 0
    assert str(found).count("was asked for jev-latest and answered as jev-1.13.0.") == 1
    decided = audit_decisions(f"{kind}:jev-latest@{server.url}", "tickets", tmp_path / "decided", permutations=1, quiet=True)
    assert str(decided).count("was asked for jev-latest and answered as jev-1.13.0.") == 1


@pytest.mark.parametrize(("kind", "variable"), [("systemone", "TYPESAFE_API_KEY"), ("decisions", "OPENAI_API_KEY")])
def test_the_key_is_read_from_the_environment_and_is_in_no_record(server, kind, variable, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, "secret-of-the-endpoint")
    pools = write_collection(tmp_path / "pools.jsonl", some_instances(queries=1, candidates=3))
    config = AuditConfig(permutations=2)
    scorer = scorer_for(open_engine(f"{kind}:m@{server.url}", OPTIONS), open_collection(str(pools)).collection, config)
    score_collection(scorer, str(pools), tmp_path / "run", config)
    assert set(server.keys) == {"Bearer secret-of-the-endpoint"}
    written = [file for folder in ("run", "cache") for file in (tmp_path / folder).rglob("*") if file.is_file()]
    assert written
    assert not any(b"secret-of-the-endpoint" in file.read_bytes() for file in written)
    monkeypatch.setenv("STEADYSCORE_API_KEY", "another-key-of-ours")
    open_engine(f"{kind}:other@{server.url}", OPTIONS)
    assert server.keys[-1] == "Bearer another-key-of-ours"


def test_tokens_from_the_server_s_cache_are_counted_apart(server):
    engine = open_engine(f"decisions:m@{server.url}", EngineOptions(price=Price(2.0, 10.0)))
    grades(engine, window("one", "two"))
    spent = engine.spent()
    assert (spent["prompt_tokens"], spent["cached_prompt_tokens"], spent["completion_tokens"]) == (2000, 800, 0)
    assert spent["cost"] == pytest.approx(2000 * 2.0 / 1e6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_question_that_opens_an_engine_is_never_answered_from_the_cache(server, model, kind):
    assert not open_engine(f"{kind}:m@{server.url}", OPTIONS).capabilities.label_mass
    model.label_mass = 0.75  # after an upgrade, say
    assert open_engine(f"{kind}:m@{server.url}", OPTIONS).capabilities.label_mass == (kind == "systemone")
    assert len(server.requests) == 2
    server.always = lambda body: "500"
    with pytest.raises(InputError, match="cannot be asked"):
        open_engine(f"{kind}:m@{server.url}", EngineOptions(retries=0))


def test_a_plan_counts_no_written_tokens(tmp_path):
    pools = str(write_collection(tmp_path / "pools.jsonl", some_instances(queries=2, candidates=3)))
    plan = estimate("systemone:m@http://127.0.0.1:9", pools, AuditConfig(permutations=2), price=Price(0.0, 10.0))
    assert plan.cost == 0


def test_a_reader_s_verdict_is_a_choice(server):
    reader = Reader(open_engine(f"decisions:m@{server.url}", OPTIONS), TASKS["claim_verification"])
    instance = next(iter(open_collection("passages").instances()))
    [verdict] = reader.read(instance, [[0, 1]])
    assert [option["value"] for option in server.requests[-1]["questions"][0]["choices"]] == [
        "SUPPORTED",
        "REFUTED",
        "NOT ENOUGH INFO",
    ]
    assert verdict in ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
    with pytest.raises(InputError, match="writes no answers"):
        Reader(reader.engine, TASKS["multidoc_qa"]).read(instance, [[0]])


@pytest.mark.parametrize("kind", KINDS)
def test_an_address_that_does_not_answer_or_is_incomplete_is_one_sentence(kind):
    with pytest.raises(InputError, match="cannot be asked"):
        open_engine(f"{kind}:m@http://127.0.0.1:9", EngineOptions(retries=0))
    with pytest.raises(InputError, match=f"Write {kind}:<model>@<base url>"):
        open_engine(f"{kind}:m")
