"""Readers on every engine that is asked over HTTP: the same verdicts and answers as `hf`, and nothing invented by a fault."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from steadyscore.cli import main
from steadyscore.engines import EngineOptions, Generator, http, token_prompt
from steadyscore.engines.answers import Malformed
from steadyscore.engines.chat import parse_label, parse_label_logprobs
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.synthetic import SyntheticReranker
from steadyscore.errors import InputError, ModelError
from steadyscore.readers.outputs import reader_label
from steadyscore.readers.reader import VERDICTS, Reader, ask_reader, build_question, encode_question, open_reader
from steadyscore.results.load import load_run
from steadyscore.scoring.config import AuditConfig
from steadyscore.scoring.score import score_collection
from steadyscore.scoring.scorer import Scorer, Settings
from steadyscore.tasks import TASKS
from steadyscore.terms import Candidate, Instance
from tests.engines.test_http import served
from tests.helpers.endpoint import NETWORK_FAULTS, Server
from tests.helpers.pools import some_claims

OPTIONS = EngineOptions(timeout=60, retries=8, concurrency=3)
POOL = Instance("q1", "Is it so?", tuple(Candidate(f"d{i}", f"evidence {i}") for i in range(3)), answers=("yes",))
SERVED = ("vllm", "sglang", "llamacpp")


@pytest.fixture(autouse=True)
def _own_cache_and_in_a_hurry(tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    open_reader.cache_clear()


# -- honest answers, and two ways to spoil each


def continuing(engine, folder):
    """What servers answer a reader, from the tiny model that `hf` reads."""
    import torch

    graded = served(engine, folder)

    def answer(path, body):
        if path == "/v1/completions" and "prompt_logprobs" in body:
            assert (body["prompt_logprobs"], body["temperature"]) == (0, 0)
            with torch.inference_mode():
                told = engine.model(torch.tensor([body["prompt"]])).logits[0].float().log_softmax(-1)
            rows = [{str(t): {"logprob": float(told[i, t])}} for i, t in enumerate(body["prompt"][1:])]
            return {"choices": [{"text": "x", "prompt_logprobs": [None, *rows]}]}
        if path == "/v1/completions":
            return {"choices": [{"text": engine.generate([body["prompt"]], body["max_tokens"])[0]}]}
        if path == "/generate" and "token_ids_logprob" not in body:
            assert body["sampling_params"]["temperature"] == 0
            return {"text": engine.generate([body["input_ids"]], body["sampling_params"]["max_new_tokens"])[0]}
        if path == "/completion" and "n_probs" not in body:
            return {"content": engine.generate([body["prompt"]], body["n_predict"])[0]}
        return graded(path, body)

    return answer


def chat(path, body):
    """A chat model whose verdict is that of the first evidence's length, and whose answer is the first evidence."""
    said = body["messages"][-1]["content"]
    first = said.split("[1] ")[1].split("\n")[0]
    label = VERDICTS[len(first) % 3]
    answer = {"choices": [{"message": {"content": label.capitalize() + "." if "Claim:" in said else first}}]}
    if body.get("logprobs"):
        given = [{"token": token, "logprob": -1.0 - (token != label[:3])} for token in ("SUP", "REF", "NOT")]
        written = [{"token": "\n", "top_logprobs": []}, {"token": label[:3], "top_logprobs": given}]
        answer["choices"][0]["logprobs"] = {"content": written}
    return answer | {"usage": {"prompt_tokens": 100, "completion_tokens": 5}}


def spoiled(kind, answer):
    """An answer that says nothing usable: another text, or no number where one should be."""
    choice = (answer.get("choices") or [{}])[0]
    if "message" in choice:
        choice["message"]["content"] = "It is hard to tell." if kind == "short" else None
        if "logprobs" in choice:
            tops = choice["logprobs"]["content"][1]["top_logprobs"]
            tops[:] = [t | {"token": "?"} for t in tops] if kind == "short" else [t | {"logprob": math.nan} for t in tops]
    elif "prompt_logprobs" in choice:
        rows = choice["prompt_logprobs"]
        rows[1:] = [] if kind == "short" else [{token: {"logprob": math.nan} for token in row} for row in rows[1:]]
    elif "completion_probabilities" in answer:
        answer["completion_probabilities"] = []
    else:
        answer.pop("meta_info", None)
    return answer


HOSTED = ("openai:m@{}/v1", "openai+logprobs:m@{}/v1")
READERS = (*HOSTED, *(kind + ":tiny@{}" for kind in SERVED))


@pytest.fixture(params=READERS)
def network(request):
    answer = chat
    if request.param not in HOSTED:
        answer = continuing(request.getfixturevalue("tiny_engine"), request.getfixturevalue("tiny_folder"))
    with Server(answer, spoiled) as server:
        server.address = request.param.format(server.url)
        server.options = replace(OPTIONS, tokenizer=str(request.getfixturevalue("tiny_folder")))
        yield server


def run_of(tmp_path, name="run", effect="slot"):
    source = some_claims(tmp_path, candidates=4)
    scorer = Scorer(SyntheticReranker(effect, 0.5), TASKS["claim_verification"], Settings())
    return source, score_collection(scorer, source, tmp_path / name, AuditConfig(permutations=2))


# -- who reads


def test_a_label_s_token_is_read_from_the_position_before_it():
    prompt = token_prompt([7, 8, 9], [1, 2], 1)
    ids = [*prompt.prefix, *prompt.body]
    assert ids == [7, 8, 9, 1, 2]
    assert [ids[slot + 1] for slot in prompt.slots] == list(prompt.grade_tokens) == [2]


@pytest.mark.parametrize("kind", SERVED)
def test_every_server_reads_what_hf_reads(kind, tiny_engine, tiny_folder):
    prompts = [
        encode_question(tiny_engine.encoder, build_question(TASKS["claim_verification"], c, POOL.pool))
        for c in ("a claim", "another")
    ]
    labels = [tiny_engine.encoder.plain(label) for label in VERDICTS]
    with Server(continuing(tiny_engine, tiny_folder)) as server:
        engine = open_reader(f"{kind}:tiny@{server.url}", replace(OPTIONS, tokenizer=str(tiny_folder)))
        assert isinstance(engine, Generator)
        found = engine.label_log_probabilities(prompts, labels)
        assert found == pytest.approx(tiny_engine.label_log_probabilities(prompts, labels), abs=1e-4)
        assert engine.generate(prompts, 8) == tiny_engine.generate(prompts, 8)


@pytest.mark.parametrize("address", HOSTED)
def test_a_chat_endpoint_answers_and_judges(address):
    with Server(chat) as server:
        engine = open_reader(address.format(server.url), OPTIONS)
        assert Reader(engine, TASKS["multidoc_qa"]).read(POOL, [[1, 0], [2]]) == ["evidence 1", "evidence 2"]
        assert [body["max_tokens"] for body in server.requests] == [64, 64]
        expected = VERDICTS[len("evidence 0") % 3]
        assert Reader(engine, TASKS["claim_verification"]).read(POOL, [[0], [0, 1], [0]]) == [expected] * 3
        assert len(server.requests) == 4  # equal evidence is asked once


def test_who_cannot_read_says_so_in_a_sentence(tiny_folder):
    with pytest.raises(InputError, match=r"^synthetic:none:0 cannot read: it writes no text\. Choose hf:"):
        Reader(open_engine("synthetic:none:0"), TASKS["multidoc_qa"])


def test_labels_without_any_probability_are_not_a_verdict(tiny_engine, monkeypatch):
    monkeypatch.setattr(type(tiny_engine), "label_log_probabilities", lambda *_: np.full((1, 3), -np.inf))
    with pytest.raises(ModelError, match="none of the labels any probability on query q1"):
        Reader(tiny_engine, TASKS["claim_verification"]).read(POOL, [[0]])


# -- what can go wrong


def test_faults_that_pass_leave_no_trace(network, tmp_path, monkeypatch):
    source, run = run_of(tmp_path)
    ask_reader(run, source, network.address, k=1, options=network.options)
    label = reader_label(network.address, 1)
    clean = load_run(run).outputs(label)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "another cache"))
    network.faults = list(NETWORK_FAULTS)
    found = ask_reader(run, source, network.address, k=1, options=network.options)
    assert network.faults == []
    assert found.failed == []
    assert load_run(run).outputs(label) == clean


def test_what_stays_unusable_is_a_named_query_and_is_asked_again(network, tmp_path, tiny_engine):
    source, run = run_of(tmp_path)

    def is_second(body):
        ids = body.get("input_ids") or body.get("prompt")
        return "short" if "thing 1" in (tiny_engine.encoder.tokenizer.decode(ids) if ids else str(body)) else None

    network.always = is_second
    options = replace(network.options, retries=1)
    found = ask_reader(run, source, network.address, k=1, options=options)
    assert [failure.query_id for failure in found.failed] == ["c1"]
    assert "no usable answer in 2 tries" in found.failed[0].reason
    assert np.isnan(found.values["verdict_flip"]).tolist() == [False, True, False]
    label = reader_label(network.address, 1)
    assert load_run(run).outputs(label).keys() == {"c0", "c2"}
    network.always = lambda body: None
    before = len(network.requests)
    again = ask_reader(run, source, network.address, k=1, options=options)
    assert again.failed == []
    assert again.asked > 0
    assert load_run(run).outputs(label).keys() == {"c0", "c1", "c2"}
    assert all("thing 1" in str(body) or body.get("prompt") or body.get("input_ids") for body in network.requests[before:])
    before = len(network.requests)
    assert ask_reader(run, source, network.address, k=1, options=options).asked == 0
    assert len(network.requests) == before


def test_evidence_that_does_not_fit_is_refused_with_its_query(network, tmp_path):
    source, run = run_of(tmp_path)
    if network.address.startswith("openai"):
        network.always, network.refusal = (lambda body: "400"), "This model's maximum context length is 200 tokens."
        expected = "evidence of query c[0-3] does not fit: .*maximum context length is 200 tokens.*Lower reader_k"
    else:
        open_reader(network.address, network.options).context = 200
        expected = r"evidence of query c[0-3] does not fit: it needs [\d,]+ tokens, .* takes 200"
    with pytest.raises(InputError, match=expected):
        ask_reader(run, source, network.address, k=1, options=network.options)


def test_an_endpoint_that_never_answers_with_a_label_stops_the_command(tmp_path):
    source, run = run_of(tmp_path)
    perhaps = Server(lambda path, body: {"choices": [{"message": {"content": "perhaps"}}]})
    with perhaps as server, pytest.raises(InputError, match=r"read none of the 3 queries: .*'perhaps'"):
        ask_reader(run, source, f"openai:m@{server.url}/v1", options=replace(OPTIONS, retries=0))


@pytest.mark.parametrize("said", ["SUPPORTED", " Supported. ", "**SUPPORTED**", '"supported"\n'])
def test_a_written_verdict_is_the_label_and_nothing_else(said):
    answer = {"choices": [{"message": {"content": said}}]}
    assert parse_label(VERDICTS, answer) == [0, -math.inf, -math.inf]


@pytest.mark.parametrize("said", ["NOT SUPPORTED", "SUPPORTED or REFUTED", "It is SUPPORTED", "", "enough info", "SUPPORT"])
def test_anything_else_is_no_verdict(said):
    with pytest.raises(Malformed, match="no label"):
        parse_label(VERDICTS, {"choices": [{"message": {"content": said}}]})


def test_log_probabilities_of_a_label_are_those_of_its_beginnings():
    tokens = {" NOT": -1.0, "Not": -3.0, "S": -2.0, "The": -0.1, "": -5.0}
    first = {"token": "The", "top_logprobs": [{"token": t, "logprob": p} for t, p in tokens.items()]}
    found = parse_label_logprobs(VERDICTS, {"choices": [{"logprobs": {"content": [first]}}]})
    assert found == [-2.0, -math.inf, pytest.approx(np.log(np.exp(-1) + np.exp(-3)))]
    with pytest.raises(Malformed, match="use openai: without"):
        parse_label_logprobs(VERDICTS, {"choices": [{"logprobs": {"content": None}}]})


# -- through the command


def test_an_audit_with_two_hosted_readers(tmp_path, capsys):
    """Control and second reader as with a local one; what was spent and who was not read stand in --json."""
    source = some_claims(tmp_path, candidates=4)
    with Server(chat, spoiled) as server:
        readers = [pattern.format(server.url) for pattern in HOSTED]
        words = ["audit", "--scorer", "synthetic:none", "--scorer", "synthetic:slot", "--data", source, "--permutations", "3"]
        words += [part for reader in readers for part in ("--reader", reader)]
        words += ["--set", "reader_k=2", "--set", "price=1000,1000", "--set", "retries=0", "--no-report", "--json", "--out"]
        assert main([*words, str(tmp_path / "out")]) == 0
        told = json.loads(capsys.readouterr().out)["runs"]
        second = told[1]["readers"][readers[0]]
        assert set(told[1]["readers"]) == set(readers)
        assert second["same_evidence"]["against"] == "synthetic:none:0.2"
        assert second["measures"] == told[1]["readers"][readers[1]]["measures"]  # both readers say the same here
        spent = told[0]["readers"][readers[0]]["spent"]
        assert spent["cost"] == pytest.approx(spent["requests"] * 0.105)
        server.always = lambda body: "short" if "thing 2" in str(body) else None
        assert main([*words, str(tmp_path / "other"), "--set", "cache=no", "--set", "reader_k=3"]) == 4
        out = capsys.readouterr()
        assert [f["query_id"] for f in json.loads(out.out)["runs"][0]["readers"][readers[0]]["failed"]] == ["c2"]
        assert f"1 of the queries of synthetic:none:0.2 could not be read by {readers[0]}: c2" in out.err
