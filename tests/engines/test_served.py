"""vLLM's server by each of its routes: which one is taken, and what is read from it."""

from dataclasses import replace

import pytest

from steadyscore.engines import EngineOptions, http
from steadyscore.engines import served as served_engines
from steadyscore.engines.http import Unreachable, Unusable
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import compare, probe_prompts
from tests.engines.test_http import served
from tests.helpers.endpoint import Server

OPTIONS = EngineOptions(timeout=60, concurrency=3)
POOLING, SCORING, RANKING = "/pooling", "/inference/v1/generate", "/v1/completions"


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch, tmp_path):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(served_engines, "TOP", 272)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))


class Offering(Server):
    """A server that has some of the routes and answers the others as vLLM does: 404, or 400 without the V2 runner."""

    def __init__(self, answer, *routes, refused="404"):
        super().__init__(answer)
        self.always = lambda body: None if route_of(body) in routes else refused


def route_of(body):
    return POOLING if "input" in body else SCORING if "token_ids" in body else RANKING


@pytest.fixture
def answer(tiny_engine, tiny_folder):
    return served(tiny_engine, tiny_folder)


@pytest.mark.parametrize(
    ("offers", "refused", "route", "distribution"),
    [
        ((POOLING,), "404", "classifier", "exact"),
        ((SCORING, RANKING), "404", "token-ids", "exact"),
        ((RANKING,), "404", "top-k", "top_k"),
        ((RANKING,), "400", "top-k", "top_k"),
    ],
)
def test_the_best_route_that_a_server_offers_is_taken_and_said(answer, tiny_engine, offers, refused, route, distribution):
    with Offering(answer, *offers, refused=refused) as server:
        engine = open_engine(f"vllm:tiny@{server.url}", OPTIONS)
        assert engine.name == f"vllm+{route}:tiny@{server.url}"
        assert engine.identity()["route"] == route
        assert engine.capabilities.distribution == distribution
        assert engine.context == (4096 if route == "classifier" else 4095)  # one token is generated
        assert compare(engine, tiny_engine).difference < 1e-5


def test_a_server_that_is_overloaded_is_not_taken_for_one_without_the_route(answer):
    with Offering(answer, RANKING, refused="500") as server, pytest.raises(Unreachable):
        open_engine(f"vllm:tiny@{server.url}", replace(OPTIONS, retries=1))


@pytest.mark.parametrize("route", ["token-ids", "top-k"])
def test_log_probabilities_come_with_the_label_mass(answer, tiny_engine, route):
    prompt = probe_prompts(tiny_engine)[0]
    with Server(answer) as server:
        engine = open_engine(f"vllm+{route}:tiny@{server.url}", OPTIONS)
        [reading], [plain] = (e.grade_logits([prompt], label_mass=True) for e in (engine, tiny_engine))
    assert reading.label_mass == pytest.approx(plain.label_mass, abs=1e-5)


def told(answer, change):
    """An honest answer whose row at the second slot is changed."""

    def changed(path, body):
        found = answer(path, body)
        if path == RANKING:
            rows = found["choices"][0]["prompt_logprobs"]
            change(rows)
        return found

    return changed


@pytest.mark.parametrize("fault", ["left out", "floored"])
def test_a_missing_grade_is_an_error_with_slot_and_token_and_never_a_constant(answer, tiny_engine, fault):
    prompt = probe_prompts(tiny_engine)[0]
    token = str(prompt.grade_tokens[3])

    def change(rows):
        row = rows[prompt.slots[1] + 1]
        if fault == "left out":
            del row[token]
        else:
            row[token]["logprob"] = -9999.0  # what vLLM writes for -inf

    with Server(told(answer, change)) as server:
        engine = open_engine(f"vllm+top-k:tiny@{server.url}", replace(OPTIONS, retries=0))
        with pytest.raises(Unusable, match=f"slot 2 of 3: grade token {token} is not among the 271 that came back; use route"):
            engine.grade_logits([prompt])


def test_logits_are_not_taken_for_log_probabilities(answer, tiny_engine):
    def change(rows):
        for row in filter(None, rows):
            for entry in row.values():
                entry["logprob"] += 9

    with Server(told(answer, change)) as server:
        engine = open_engine(f"vllm+top-k:tiny@{server.url}", replace(OPTIONS, retries=0))
        with pytest.raises(Unusable, match="rows are not log-probabilities"):
            engine.grade_logits(probe_prompts(tiny_engine)[:1])
