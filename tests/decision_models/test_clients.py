"""The clients of decision APIs that people already run, unmodified, against a real server on loopback."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

from tests.helpers.serving import FORGETFUL_CLIENTS, app_of, listening, model

pytestmark = FORGETFUL_CLIENTS
KEY = "open-sesame"


LUNA = "gpt-6-luna"
"""The only model name that OpenAI's own clients send."""


@pytest.fixture(scope="module")
def url(tiny_engine) -> Iterator[str]:
    with listening(app_of(model(tiny_engine, "tiny"), keys=(KEY,), aliases=((LUNA, "tiny"),))) as address:
        yield f"{address}/v1"


@pytest.fixture
def openai(url):
    module = pytest.importorskip("openai", "3.49", reason="pip install 'openai>=3.49'")
    with module.OpenAI(api_key=KEY, base_url=url, max_retries=0) as client:
        yield client


QUESTIONS = [
    {"type": "predicate", "name": "urgent", "instructions": "Is this urgent?"},
    {
        "type": "choice",
        "instructions": "Which team?",
        "choices": [{"value": "billing", "description": "money"}, {"value": "technical"}, {"value": False}],
    },
    {
        "type": "score",
        "name": "severity",
        "instructions": "How severe?",
        "levels": [{"label": "low"}, {"label": "middle", "description": "there is a way around"}, {"label": "high"}],
    },
    {"type": "predicate", "name": "long", "instructions": "x" * 5000},
]


def test_the_openai_client_reads_all_three_types_and_a_refusal(openai):
    decision = openai.decisions.create(model=LUNA, input="The export fails.", questions=QUESTIONS, safety_identifier="me")
    urgent, team, severity, refusal = decision.answers
    assert (urgent.type, urgent.name) == ("predicate", "urgent")
    assert 0 < urgent.probability < 1
    assert (team.type, team.name) == ("choice", None)
    assert [each.value for each in team.probabilities] == ["billing", "technical", False]
    assert team.choice in ("billing", "technical", False)
    assert sum(each.probability for each in team.probabilities) == pytest.approx(1)
    assert [(each.value, each.label) for each in severity.probabilities] == [(0, "low"), (1, "middle"), (2, "high")]
    assert severity.score == pytest.approx(sum(each.value * each.probability for each in severity.probabilities))
    assert (refusal.type, refusal.name) == ("refusal", "long")
    assert decision.model == "tiny"
    assert decision.usage.total_tokens == decision.usage.input_tokens > 0
    assert decision.usage.input_tokens_details.cached_tokens == 0


def test_what_is_ours_travels_in_one_key_that_the_openai_client_keeps(openai):
    state = [{"role": "user", "content": [{"type": "input_json", "data": {"candidates": [{"id": "a"}, {"id": "b"}]}}]}]
    order = {"order": {"permutations": 2}}
    decision = openai.decisions.create(model=LUNA, input=state, questions=QUESTIONS[:1], extra_body=order)
    assert decision.model_extra["order"]["permutations"] == 2
    assert 0 <= decision.model_extra["order"]["questions"][0]["agreement"] <= 1


def test_the_openai_client_is_told_what_is_wrong(openai, url):
    import openai as module

    with pytest.raises(module.NotFoundError, match="is not served here"):
        openai.decisions.create(model="gpt-7", input="x", questions=QUESTIONS[:1])
    with pytest.raises(module.UnprocessableEntityError, match="stands more than once"):
        openai.decisions.create(model=LUNA, input="x", questions=[QUESTIONS[0], QUESTIONS[0]])
    with pytest.raises(module.UnprocessableEntityError, match="no question fits"):
        openai.decisions.create(model=LUNA, input="x", questions=QUESTIONS[3:])
    with module.OpenAI(api_key="wrong", base_url=url, max_retries=0) as stranger, pytest.raises(module.AuthenticationError):
        stranger.decisions.create(model=LUNA, input="x", questions=QUESTIONS[:1])


def test_langchain_s_decisions(url):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # langchain warns about itself
        module = pytest.importorskip("langchain_openai.decisions", reason="pip install 'langchain-openai>=1.7'")
        decisions = module.OpenAIDecisions(model=LUNA, api_key=KEY, base_url=url, max_retries=0)
        asked = {
            "urgent": module.Predicate(instructions="Is this urgent?"),
            "team": module.Choice(instructions="Which team?", choices={"billing": "money", "technical": None}),
            "severity": module.Score(instructions="How severe?", levels=["low", module.Level(label="high", description="lost")]),
            "long": module.Predicate(instructions="x" * 5000),
        }
        answer = decisions.invoke({"input": {"ticket": "The export fails.", "seen": [1, 2]}, "questions": asked})
    assert 0 < answer.predicates["urgent"].probability < 1
    assert answer.choices["team"].choice in ("billing", "technical")
    assert answer.scores["severity"].legend == {0: "low", 1: "high"}
    assert list(answer.refusals) == ["long"]
    assert answer.usage.input_tokens > 0
    assert answer.request_id
