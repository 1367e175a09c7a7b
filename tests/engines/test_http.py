"""Every network engine against a server that fails in every way it can: no row lost, no score invented, runs resume."""

import base64
import io
import math
import re
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from email.utils import formatdate

import numpy as np
import pytest

from steadyscore.collection import open_collection
from steadyscore.engines import EngineOptions, Price, http
from steadyscore.engines import served as served_engines
from steadyscore.engines.answers import Malformed
from steadyscore.engines.http import Endpoint, EndpointDown, TooLong, Unusable, retry_after
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import compare, compare_readout, probe_prompts
from steadyscore.errors import InputError
from steadyscore.scoring.config import AuditConfig, scorer_for
from steadyscore.scoring.score import score_collection
from steadyscore.window import readout
from tests.helpers import decision_server
from tests.helpers.decision_server import DecisionServer
from tests.helpers.endpoint import NETWORK_FAULTS, Server
from tests.helpers.pools import some_instances, write_collection

CONFIG = AuditConfig(permutations=2)
OPTIONS = EngineOptions(timeout=60, retries=8, concurrency=3)
"""Patient: nothing is slow on purpose, but the machine may be."""


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("STEADYSCORE_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


# -- honest answers, and the two ways to spoil each


def grade_of(text):
    return sum(map(ord, text)) % 4


def shown(body):
    """(marker, text) of the candidates in a chat request."""
    return re.findall(r"^\[(\d+)\] (.*)$", body["messages"][-1]["content"], re.M)


def chat(path, body):
    lines = [f"[{marker}] Grade: {grade_of(text)}\n" for marker, text in shown(body)]
    answer = {"choices": [{"message": {"content": "".join(lines)}}], "usage": {"prompt_tokens": 1000, "completion_tokens": 10}}
    if body.get("logprobs"):
        answer["choices"][0]["logprobs"] = {"content": [entry for line in lines for entry in tokens(line)]}
    return answer


def tokens(line):
    head, grade = line[:-2], line[-2]
    other = {str(g): -1.0 - abs(g - int(grade)) for g in range(4)}
    yield {"token": head, "logprob": -0.1, "top_logprobs": []}
    yield {"token": grade, "logprob": -1.0, "top_logprobs": [{"token": t, "logprob": p} for t, p in other.items()]}
    yield {"token": "\n", "logprob": -0.1, "top_logprobs": []}


def spoiled_chat(kind, answer):
    choice = answer["choices"][0]
    if choice.get("logprobs"):
        entries = choice["logprobs"]["content"]
        graded = next(entry for entry in entries if entry["top_logprobs"])
        graded["top_logprobs"][0]["logprob"] = math.nan
        if kind == "short":
            del graded["top_logprobs"][3]
    lines = choice["message"]["content"].splitlines(keepends=True)
    choice["message"]["content"] = "".join(lines[:-1] if kind == "short" else [*lines[:-1], "[1] Grade: NaN\n"])
    return answer


def rerank(path, body):
    texts = body.get("documents") or body["texts"]
    scored = sorted(((grade_of(text) + len(text) / 1000, i) for i, text in enumerate(texts)), reverse=True)
    if "texts" in body:
        return [{"index": i, "score": score} for score, i in scored]
    return {"results": [{"index": i, "relevance_score": score} for score, i in scored]}


def spoiled_rerank(kind, answer):
    results = answer if isinstance(answer, list) else answer["results"]
    if kind == "short":
        results.pop()
    else:
        results[0] = {name: math.nan if "score" in name else value for name, value in results[0].items()}
    return answer


def served(engine, folder):
    """vLLM's and SGLang's answers, from the tiny model that `hf` reads."""
    import torch

    def answer(path, body):
        if path == "/v1/models":
            adapter = {"id": "tuned", "root": "/adapters/tuned", "parent": "tiny"}
            return {"data": [{"id": "tiny", "root": str(folder), "max_model_len": 4096}, adapter]}
        if path == "/props":
            return {"default_generation_settings": {"n_ctx": 4096}}
        ids = body["input"][0] if path == "/pooling" else body.get("input_ids") or body.get("token_ids") or body["prompt"]
        with torch.inference_mode():
            logits = engine.model(torch.tensor([ids])).logits[0].float()
        if path == "/pooling":
            assert body["task"] == "token_classify"
            four = logits[:, [engine.encoder.tokenizer.convert_tokens_to_ids(g) for g in "0123"]].softmax(-1)
            return {"data": [{"index": 0, "data": four.tolist()}]}
        if path == "/inference/v1/generate":
            asked, told = body["sampling_params"], logits.log_softmax(-1)
            assert len(asked["prompt_logprob_token_ids"]) == len(ids) - 1 - asked["prompt_logprob_start"]
            rows = enumerate(asked["prompt_logprob_token_ids"], asked["prompt_logprob_start"])
            return {"prompt_token_id_logprobs": npy([told[i, wanted].tolist() for i, wanted in rows])}
        if path == "/v1/completions":
            # Alternatives where a grade follows; elsewhere the token itself: an honest answer would be megabytes here.
            told, slot = logits.log_softmax(-1), list(engine.encoder.fixed("Grade: "))
            itself = told[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()
            rows = [{str(token): {"logprob": p}} for token, p in zip(ids[1:], itself, strict=True)]
            for i in range(len(slot) - 1, len(rows)):
                if ids[i - len(slot) + 1 : i + 1] == slot:
                    rows[i] = {str(token): {"logprob": p} for token, p in enumerate(told[i].tolist())}
            return {"choices": [{"text": "", "prompt_logprobs": [None, *rows]}]}
        if path == "/completion":
            top = logits[-1].log_softmax(-1).topk(min(body["n_probs"], 272))
            alternatives = zip(top.indices.tolist(), top.values.tolist(), strict=True)
            return {"completion_probabilities": [{"top_logprobs": [{"id": i, "logprob": p} for i, p in alternatives]}]}
        start, wanted = body["logprob_start_len"], body["token_ids_logprob"]
        logprobs = logits.log_softmax(-1)[:, wanted].tolist()
        rows = [[[p, t, None] for p, t in zip(logprobs[i - 1], wanted, strict=True)] for i in range(start + 1, len(ids))]
        return {"meta_info": {"input_token_ids_logprobs": [None, *rows]}}

    return answer


def npy(rows):
    """An array as vLLM's server writes it."""
    with io.BytesIO() as buffer:
        np.save(buffer, np.array(rows, dtype=np.float32), allow_pickle=False)
        return base64.b64encode(buffer.getvalue()).decode()


def spoiled_served(kind, answer):
    if "prompt_token_id_logprobs" in answer:
        return {"prompt_token_id_logprobs": None if kind == "short" else npy([[math.nan] * 4])}
    if "choices" in answer:
        rows = answer["choices"][0]["prompt_logprobs"]
        rows[1:] = [{} if kind == "short" else {token: {"logprob": math.nan} for token in row} for row in rows[1:]]
        return answer
    if "completion_probabilities" in answer:
        given = answer["completion_probabilities"][0]["top_logprobs"]
        given[:] = given[:1] if kind == "short" else [entry | {"logprob": math.nan} for entry in given]
        return answer
    rows = answer["data"][0]["data"] if "data" in answer else answer["meta_info"]["input_token_ids_logprobs"]
    if kind == "short":
        rows.pop()
    elif "data" in answer:
        rows[:] = [[math.nan] * 4 for _ in rows]
    else:
        rows[1:] = [[[math.nan, t, None] for _, t, _ in row] for row in rows[1:]]
    return answer


ENGINES = {
    "openai:m@{}/v1": (chat, spoiled_chat),
    "openai+logprobs:m@{}/v1": (chat, spoiled_chat),
    "systemone:m@{}/v1": (DecisionServer(label_mass=0.5).answer, decision_server.spoiled),
    "decisions:m@{}/v1": (DecisionServer().answer, decision_server.spoiled),
    "rerank:{}/v2/rerank": (rerank, spoiled_rerank),
    "rerank+tei:{}/rerank": (rerank, spoiled_rerank),
    "rerank+jina:jina-reranker@{}/v1/rerank": (rerank, spoiled_rerank),
    "vllm:tiny@{}": (None, spoiled_served),
    "vllm+token-ids:tiny@{}": (None, spoiled_served),
    "vllm+top-k:tiny@{}": (None, spoiled_served),
    "sglang:tiny@{}": (None, spoiled_served),
    "llamacpp:tiny@{}": (None, spoiled_served),
}


@pytest.fixture(params=ENGINES)
def network(request, monkeypatch):
    answer, spoiled = ENGINES[request.param]
    if answer is None:
        folder = request.getfixturevalue("tiny_folder")
        answer = served(request.getfixturevalue("tiny_engine"), folder)
        monkeypatch.setattr(served_engines, "TOP", 272)  # the tiny model's whole vocabulary: its grades are among the rarest
        # llama.cpp's server does not say where a tokenizer is
        monkeypatch.setattr(sys.modules[__name__], "OPTIONS", replace(OPTIONS, tokenizer=str(folder)))
    with Server(answer, spoiled) as server:
        server.pattern, server.address = request.param, request.param.format(server.url)
        yield server


@pytest.fixture
def pools(tmp_path):
    return write_collection(tmp_path / "pools.jsonl", some_instances(queries=4, candidates=3))


def score(server, pools, folder, **changes):
    scorer = scorer_for(open_engine(server.address, replace(OPTIONS, **changes)), open_collection(str(pools)).collection, CONFIG)
    return score_collection(scorer, str(pools), folder, CONFIG)


def table(run):
    return {query.query_id: query.scores for query in run.read_queries()}


def test_faults_that_pass_leave_no_trace(network, pools, tmp_path, monkeypatch):
    clean = table(score(network, pools, tmp_path / "clean"))
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "another cache"))
    backend = open_engine(network.address, OPTIONS)
    network.faults = list(NETWORK_FAULTS)
    scorer = scorer_for(backend, open_collection(str(pools)).collection, CONFIG)
    run = score_collection(scorer, str(pools), tmp_path / "faulty", CONFIG)
    assert network.faults == []
    assert run.record.failed == []
    found = table(run)
    assert all(np.array_equal(found[query], clean[query]) for query in clean)
    assert sum(count for what, count in backend.endpoint.counts.items() if what.startswith("retried")) >= len(NETWORK_FAULTS)


def test_an_answer_that_stays_unusable_is_a_named_query(network, pools, tmp_path):
    fault = ("short", "nan", "truncated")[list(ENGINES).index(network.pattern) % 3]
    clean = table(score(network, pools, tmp_path / "clean"))
    asked = {id_: f"thing {i} number" for i, id_ in enumerate(clean)}

    def is_second(body):
        text = str(body)
        ids = body.get("input_ids") or body.get("token_ids") or body.get("prompt") or body.get("input", [None])[0]
        if hasattr(network, "decode"):
            text = network.decode(ids)
        return fault if asked["q1"] in text else None

    if network.pattern.startswith(("vllm", "sglang", "llamacpp")):
        network.decode = open_engine(network.address, OPTIONS).encoder.tokenizer.decode
    network.always = is_second
    run = score(network, pools, tmp_path / "faulty", retries=1, cache=False)
    assert [failure.query_id for failure in run.record.failed] == ["q1"]
    assert "Unusable" in run.record.failed[0].reason
    found = table(run)
    assert found.keys() == clean.keys() - {"q1"}
    assert all(np.array_equal(found[query], clean[query]) for query in found)


def test_a_run_goes_on_when_the_endpoint_is_back(network, pools, tmp_path):
    clean = table(score(network, pools, tmp_path / "clean"))
    backend = open_engine(network.address, replace(OPTIONS, retries=0, cache=False, concurrency=1))
    scorer = scorer_for(backend, open_collection(str(pools)).collection, CONFIG)
    before = len(network.requests)
    asks = 3 * (3 if network.pattern.startswith("llamacpp") else 1)  # requests of a query: orders, and slots of each
    network.always = lambda body: "500" if len(network.requests) > before + asks else None
    with pytest.raises(EndpointDown, match="run the same command again"):
        score_collection(scorer, str(pools), tmp_path / "run", CONFIG)
    network.always = lambda body: None
    before = len(network.requests)
    run = score_collection(scorer, str(pools), tmp_path / "run", CONFIG)
    assert len(network.requests) - before == 3 * asks + asks // 3  # the first query was on disk: one order of it is asked again
    found = table(run)
    assert found.keys() == clean.keys()
    assert all(np.array_equal(found[query], clean[query]) for query in clean)


def test_llama_cpp_s_server_passes_the_parity_gate(tiny_engine, tiny_folder):
    with Server(served(tiny_engine, tiny_folder)) as server:
        engine = open_engine(f"llamacpp:tiny@{server.url}", replace(OPTIONS, tokenizer=str(tiny_folder)))
        found = compare(engine, tiny_engine)
    assert found.difference < 1e-5
    assert found.label_mass == pytest.approx(compare_readout(tiny_engine).label_mass, abs=1e-5)
    assert engine.capabilities.distribution == "top_k"


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_served_models_pass_the_parity_gate(tiny_engine, tiny_folder, kind):
    with Server(served(tiny_engine, tiny_folder)) as server:
        engine = open_engine(f"{kind}:tiny@{server.url}", OPTIONS)
        found = compare(engine, tiny_engine)
        assert found.passed
        assert found.difference < 1e-5
        assert engine.context == 4096
        adapted = open_engine(f"{kind}:tuned@{server.url}", OPTIONS)  # an adapter has its parent's tokenizer and context
        assert (adapted.encoder.name, adapted.context) == (str(tiny_folder), 4096)
        with pytest.raises(InputError, match="It serves tiny, tuned"):
            open_engine(f"{kind}:other@{server.url}", OPTIONS)


def test_a_server_that_classifies_over_other_tokens_fails_the_gate(tiny_engine, tiny_folder):
    honest = served(tiny_engine, tiny_folder)

    def turned(path, body):
        answer = honest(path, body)
        if path == "/pooling":
            answer["data"][0]["data"] = [row[::-1] for row in answer["data"][0]["data"]]
        return answer

    with Server(turned) as server:
        assert not compare(open_engine(f"vllm:tiny@{server.url}", OPTIONS), tiny_engine).passed


def test_sglang_tells_the_label_mass_and_vllm_does_not(tiny_engine, tiny_folder):
    prompt = probe_prompts(tiny_engine)[0]
    with Server(served(tiny_engine, tiny_folder)) as server:
        engine = open_engine(f"sglang:tiny@{server.url}", OPTIONS)
        [reading] = engine.grade_logits([prompt], label_mass=True)
        [plain] = tiny_engine.grade_logits([prompt], label_mass=True)
        assert reading.label_mass == pytest.approx(plain.label_mass, abs=1e-5)
        assert not open_engine(f"vllm:tiny@{server.url}", OPTIONS).capabilities.label_mass


# -- manners


def test_retry_after_is_a_number_or_a_date():
    assert retry_after({"retry-after": "7"}) == 7
    assert 900 < retry_after({"retry-after": formatdate(time.time() + 1000)}) <= 1000
    assert retry_after({"retry-after": "soon"}) == retry_after({}) == 0


def test_an_answer_after_the_timeout_is_asked_for_again():
    with Server(lambda path, body: {"n": 1}) as server:
        server.faults = ["slow"]
        client = Endpoint(server.url, replace(OPTIONS, timeout=0.5))
        assert client.ask("/", {}, lambda answer: answer["n"]) == 1
        assert client.counts["retried: timeout"] >= 1


def waits(monkeypatch):
    """The seconds that every request waits from now on, without waiting them."""
    waited = []

    async def note(seconds):
        waited.append(seconds)

    monkeypatch.setattr(http, "sleep", note)
    return waited


def test_retry_after_is_obeyed(monkeypatch):
    with Server(lambda path, body: {"n": 1}) as server:
        server.faults = ["429"]
        client = Endpoint(server.url, OPTIONS)
        waited = waits(monkeypatch)
        assert client.ask("/", {}, lambda answer: answer["n"]) == 1
        assert waited[0] >= 0.05


def test_a_query_that_fails_does_not_end_the_retries_of_another(monkeypatch):
    """Two queries of one endpoint at the same time, as threads of one program ask them."""
    monkeypatch.setattr(http.random, "uniform", lambda low, high: 0.5)  # time in which the other query fails
    waiting, asked = threading.Event(), Counter()

    def fault(body):
        asked[body["query"]] += 1
        if body["query"] == "refused":
            return "400"
        waiting.set()
        return "500" if asked["retried"] == 1 else None

    with Server(lambda path, body: {"score": 1}) as server, ThreadPoolExecutor(1) as other:
        server.always = fault
        shared = Endpoint(server.url, OPTIONS)

        def ask(query):
            return shared.map(lambda body: shared.post("/score", body, lambda answer: answer["score"]), [{"query": query}])

        retried = other.submit(ask, "retried")
        assert waiting.wait(120)
        with pytest.raises(Unusable):
            ask("refused")
        assert retried.result(120) == [1]
    assert asked == {"refused": 1, "retried": 2}


def test_all_callers_together_ask_no_more_at_a_time_than_one_may():
    """Several queries under way at once share the endpoint's concurrency, and each gets its own answers in order."""
    under_way, most, lock = Counter(), [], threading.Lock()

    def answer(path, body):
        with lock:
            under_way["now"] += 1
            most.append(under_way["now"])
        time.sleep(0.02)
        with lock:
            under_way["now"] -= 1
        return body

    with Server(answer) as server, ThreadPoolExecutor(4) as callers:
        shared = Endpoint(server.url, EngineOptions(concurrency=2, timeout=60))

        def query(name):
            return shared.map(lambda i: shared.post("/", {"i": i, "query": name}, lambda answer: answer), range(5))

        answers = list(callers.map(query, "abcd"))
    assert answers == [[{"i": i, "query": name} for i in range(5)] for name in "abcd"]
    assert max(most) == 2


def test_an_answer_that_was_asked_for_is_kept_when_its_query_fails_meanwhile(tmp_path):
    has_failed = threading.Event()
    with Server(lambda path, body: has_failed.wait(60) and body) as server:
        server.always = lambda body: "400" if body["query"] == "refused" else None
        paid = Endpoint(server.url, OPTIONS, cached=True)
        with paid.keeping_answers(tmp_path):
            with pytest.raises(Unusable):
                paid.map(lambda body: paid.post("/", body, lambda answer: answer), [{"query": "long"}, {"query": "refused"}])
            has_failed.set()
            deadline = time.monotonic() + 60
            while not list(tmp_path.glob("*.json")) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert paid.ask("/", {"query": "long"}, lambda answer: answer["query"]) == "long"
        assert paid.counts["cached"] == 1
        assert len(server.requests) == 2


def test_the_rate_is_kept():
    with Server(lambda path, body: {}) as server:
        client = Endpoint(server.url, EngineOptions(rate=60 / 0.05, concurrency=4))
        began = time.monotonic()
        client.map(lambda i: client.post("/", {"i": i}, lambda answer: answer), range(5))
        assert time.monotonic() - began > 4 * 0.05


@pytest.mark.parametrize("status", ["401", "404"])
def test_a_wrong_key_or_address_stops_at_once(status):
    with Server(lambda path, body: {}) as server:
        server.always = lambda body: status
        with pytest.raises(InputError, match=f"HTTP {status}.*Check the address"):
            Endpoint(server.url, OPTIONS).ask("/", {}, lambda answer: answer)
        assert len(server.requests) == 1


@pytest.mark.parametrize("address", ["vllm:m@http://127.0.0.1:9", "sglang:m@http://127.0.0.1:9", "rerank:http://127.0.0.1:9"])
def test_a_server_that_is_not_there_is_one_sentence(address):
    with pytest.raises(InputError, match="Connect"):
        open_engine(address, EngineOptions(retries=1))


def test_an_address_without_scheme_is_refused():
    with pytest.raises(InputError, match="begins with http"):
        open_engine("rerank:localhost:80")
    with pytest.raises(InputError, match="Write openai:<model>@<base url>"):
        open_engine("openai:gpt-5.4")


def test_the_key_is_sent_and_not_recorded(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    with Server(chat) as server:
        engine = open_engine(f"openai:m@{server.url}/v1", OPTIONS)
        engine.grade_logits([window(["a"])])
        assert server.keys == ["Bearer secret"]
        assert "secret" not in str(engine.identity()) + str(engine.spent()) + engine.name


# -- hosted graders


def window(texts, markers="numeric"):
    from steadyscore.tasks import PASSAGE_RERANKING
    from steadyscore.window.prompt import prompt_text

    return prompt_text(PASSAGE_RERANKING, "why", texts, markers=markers)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1] Grade: 2", "1 of 2 candidates got no grade"),
        ("[1] Grade: 2\n[2] Grade: 1\n[1] Grade: 2", "graded twice"),
        ("[1] Grade: 2\n[2] Grade: 4", "not on the scale"),
        ("[1] Grade: 2\n[2] Grade: -1", "not on the scale"),
        ("[1] Grade: 2\n[2] Grade: 2.5", "not on the scale"),
        ("[1] Grade: 2\n[2] Grade: 12", "not on the scale"),
        ("[1] Grade: 2\n[2] Grade: 1\n[3] Grade: 1", "graded but not shown"),
        ("I cannot help with that.", "2 of 2"),
        ("", "2 of 2"),
        (None, "no text"),
    ],
)
def test_grades_are_parsed_strictly(content, why):
    from steadyscore.engines.chat import parse_grades

    with pytest.raises(Malformed, match=why):
        parse_grades(("1", "2"), {"choices": [{"message": {"content": content}}]})


def test_written_grades_are_scores_on_the_grid():
    from steadyscore.engines.chat import parse_grades

    content = "Here you are:\n[2] grade: 0\n[1]  Grade : 3\n"
    reading = parse_grades(("1", "2"), {"choices": [{"message": {"content": content}}]})
    assert readout.score(readout.grade_distribution(reading.logits)).tolist() == [1.0, 0.0]


def test_log_probabilities_become_a_distribution():
    with Server(chat) as server:
        engine = open_engine(f"openai+logprobs:m@{server.url}/v1", OPTIONS)
        [reading] = engine.grade_logits([window(["abc", "d"])])
    assert engine.capabilities.distribution == "top_k"
    assert readout.argmax_grade(readout.grade_distribution(reading.logits)).tolist() == [grade_of("abc"), grade_of("d")]
    assert (reading.label_mass < 1).all()


def test_an_answer_is_kept_where_and_while_it_is_asked_for(tmp_path):
    options = EngineOptions(price=Price(2.0, 10.0))
    asked = [window(["abc", "d"])]
    with Server(chat) as server:
        for _ in range(2):  # two processes
            engine = open_engine(f"openai:m@{server.url}/v1", options)
            with engine.endpoint.keeping_answers(tmp_path / "run"):
                kept = engine.grade_logits(asked)[0].logits.tolist()
        assert len(server.requests) == 1
        assert engine.spent() == {"cached": 1, "prompt_tokens": 0, "completion_tokens": 0, "cost": 0.0}
        assert engine.grade_logits(asked)[0].logits.tolist() == kept  # the noise floor asks the same window again
        with engine.endpoint.keeping_answers(tmp_path / "another run"):
            engine.grade_logits(asked)
        assert len(server.requests) == 3


def test_the_cost_counts_answers_that_could_not_be_used():
    from steadyscore.engines.chat import estimate_cost

    with Server(chat, spoiled_chat) as server:
        server.faults = ["short"]
        engine = open_engine(f"openai:m@{server.url}/v1", EngineOptions(price=Price(2.0, 10.0)))
        engine.grade_logits([window(["abc", "d"])])
    assert engine.spent()["cost"] == pytest.approx((2000 * 2 + 20 * 10) / 1e6)
    assert estimate_cost(1_000_000, 1000, Price(2.0, 10.0)) == pytest.approx(2.09)


def test_a_setting_that_the_model_refuses_is_left_out_and_counted():
    with Server(chat) as server:
        server.always = lambda body: "400" if "max_tokens" in body else None
        server.refusal = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        engine = open_engine(f"openai:m@{server.url}/v1", OPTIONS)
        assert engine.grade_logits([window(["abc"])])
        assert [body.get("max_completion_tokens") for body in server.requests] == [None, 1536]
        assert engine.spent()["left out: max_tokens"] == 1
        server.always, server.refusal = (lambda body: "400"), "content was filtered"
        with pytest.raises(Unusable, match="content was filtered"):
            engine.grade_logits([window(["another"])])


def test_a_chat_that_is_too_long_changes_no_setting():
    with Server(chat) as server:
        server.always = lambda body: "400" if "long" in body["messages"][-1]["content"] else None
        server.refusal = (
            "'max_tokens' or 'max_completion_tokens' is too large: 1536. This model's maximum context length is 4096 tokens."
        )
        engine = open_engine(f"openai:m@{server.url}/v1", OPTIONS)
        with pytest.raises(TooLong, match="too large"):
            engine.grade_logits([window(["long"])])
        engine.grade_logits([window(["abc"])])
        assert [body.get("max_tokens") for body in server.requests] == [1536, 1536]


# -- /rerank


def test_the_shape_is_found_by_asking():
    def tei_only(path, body):
        return rerank(path, body) if "texts" in body else {"error": "missing field texts"}

    with Server(rerank) as server:
        assert open_engine(f"rerank:{server.url}", OPTIONS).shape == "cohere"
    with Server(tei_only) as server:
        server.always = lambda body: None if "texts" in body else "422"
        assert open_engine(f"rerank:{server.url}", OPTIONS).shape == "tei"
    with Server(rerank) as server:  # one that stumbles over the other question
        server.always = lambda body: None if "texts" in body else "500"
        assert open_engine(f"rerank:{server.url}", EngineOptions(retries=0)).shape == "tei"
    with Server(lambda path, body: "hello") as server, pytest.raises(InputError, match="neither shape"):
        open_engine(f"rerank:{server.url}", EngineOptions(retries=0))


def test_a_server_that_is_down_is_not_asked_for_its_shape():
    with Server(rerank) as server:
        server.always = lambda body: "reset"
        with pytest.raises(InputError, match=r"cannot be reached: .* in 2 tries.*Is the server running there\?"):
            open_engine(f"rerank:{server.url}", EngineOptions(retries=1))
        assert ["documents" in body for body in server.requests] == [True, True]


@pytest.mark.parametrize(
    "answer",
    [
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 0, "relevance_score": 0.5}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 2, "relevance_score": 0.5}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": None}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": True}]},
        {"results": [{"index": 0, "relevance_score": 1.0}, {"relevance_score": 1}]},
        {"detail": "no"},
        [],
        "hello",
    ],
)
def test_results_that_do_not_fit_are_refused(answer):
    from steadyscore.engines.rerank import parse_scores

    with pytest.raises(Malformed):
        parse_scores(answer, ["a", "b"])
