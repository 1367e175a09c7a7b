"""What every kind of engine sends over HTTP, and the list of kinds, against files that were frozen: the same to the key.

`STEADYSCORE_FREEZE=1 pytest tests/engines/test_bodies.py` writes them anew: only after a change that is
meant to change a question.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from steadyscore.cli import main
from steadyscore.engines import EngineOptions
from steadyscore.engines.kinds import open_engine
from steadyscore.engines.local.checks import probe_prompts
from steadyscore.tasks import PASSAGE_RERANKING
from steadyscore.window.prompt import prompt_text
from tests.engines.test_http import ENGINES, served
from tests.helpers.endpoint import Server
from tests.test_golden import frozen

TEXTS = ["Short waves of light scatter more in air.", "The ferry leaves at nine.", "Blue paint was made from a stone."]
CHAT = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "Is it so?"}]
SERVED = ("vllm", "sglang", "llamacpp")


def short(value: Any) -> Any:
    """Long rows of token ids by their length and a digest."""
    if isinstance(value, list) and len(value) > 8 and isinstance(value[0], int | list):
        return f"{len(value)} items {hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]}"
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    return [short(one) for one in value] if isinstance(value, list) else value


def labelling(path: str, body: Any) -> Any:
    """Answers of a reader: a label, a text, and what a server says of a prompt's own tokens."""
    ids = body["prompt"] if isinstance(body.get("prompt"), list) else []
    choice = {"message": {"content": "YES"}, "text": "YES"}
    choice["prompt_logprobs"] = [None, *({str(token): {"logprob": -1.0}} for token in ids[1:])]
    return {"choices": [choice], "text": "YES", "content": "YES"}


def use(engine: Any) -> None:
    """One window, and where the engine gives scores one pool."""
    if hasattr(engine, "encoder") and engine.encoder is not None:
        engine.grade_logits(probe_prompts(engine)[:1], label_mass=engine.capabilities.label_mass)
    elif hasattr(engine, "grade_logits"):
        engine.grade_logits([prompt_text(PASSAGE_RERANKING, "why is the sky blue", TEXTS)])
    else:
        engine.score("why is the sky blue", TEXTS)


def read(engine: Any, pattern: str) -> None:
    """A written answer and two labels, of an engine that can read."""
    if pattern.startswith(SERVED):
        engine.generate([list(range(5, 9))], 7)
        if pattern.startswith("vllm"):
            engine.label_log_probabilities([list(range(5, 9))], [[3, 4], [6]])
    elif pattern.startswith("openai:"):
        engine.generate([CHAT], 7)
        engine.label_log_probabilities([CHAT], ["YES", "NO"])


@pytest.mark.parametrize("pattern", ENGINES)
def test_an_engine_sends_what_it_always_sent(pattern, request, monkeypatch, tmp_path):
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path))
    for name in ("STEADYSCORE_API_KEY", "OPENAI_API_KEY", "TYPESAFE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    folder = request.getfixturevalue("tiny_folder")
    honest = ENGINES[pattern][0] or served(request.getfixturevalue("tiny_engine"), folder)
    sent: list[Any] = []
    answers = [honest]

    def answer(path: str, body: Any) -> Any:
        if body is not None:
            sent.append([path, short(body)])
        return answers[-1](path, body)

    with Server(answer) as server:
        options = EngineOptions(retries=0, tokenizer=str(folder) if pattern.startswith(SERVED) else None)
        engine = open_engine(pattern.format(server.url), options, check_parity=False)
        asked_to_open = len(sent)
        use(engine)
        answers.append(labelling)
        read(engine, pattern)
    questions = sorted(map(json.dumps, sent[asked_to_open:]))
    found = {"opening": sent[:asked_to_open], "asking": [json.loads(one) for one in questions], "identity": engine.identity()}
    said = {**found, "name": engine.name, "capabilities": engine.capabilities.to_json()}
    text = json.dumps(said).replace(server.url, "http://server").replace(str(folder), "<folder>")
    kind = pattern.partition(":")[0].replace("+", "-")
    frozen(f"bodies/{kind}", json.loads(text))


def test_a_system_behind_an_endpoint_sends_what_it_always_sent():
    sent: list[Any] = []

    def answer(path: str, body: Any) -> Any:
        sent.append([path, body])
        return {"choices": [{"message": {"content": "[2] > [1] > [3]"}}]}

    with Server(answer) as server:
        engine = open_engine(f"system:rankgpt@openai:m@{server.url}/v1", EngineOptions(retries=0))
        assert engine.score("why is the sky blue", TEXTS) == [2.0, 3.0, 1.0]
    frozen("bodies/system", {"asking": sent})


def test_the_list_of_scorers_is_what_it_was(capsys):
    assert main(["list", "scorers", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = [{k: row[k] for k in ("address", "system", "gives", "flags")} for row in told]
    frozen("bodies/scorers", {"rows": sorted(rows, key=json.dumps)})
