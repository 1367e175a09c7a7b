"""Engines `systemone` and `decisions`: an endpoint that answers typed questions about a state, as a grader.

The state is the query and the candidates of a window, as every engine shows them; the questions are one `score` per candidate,
whose levels are the task's grades. What comes back is the distribution over the grades itself: nothing is written, nothing
parsed. A refusal, a missing question or numbers that are no distribution are asked for again, and then the query is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from ..engines import PAID, Address, Capabilities, EngineOptions, Generator, Grader, Kind, Listing
from ..engines.answers import Malformed, slot_probabilities
from ..engines.chat import Chat
from ..engines.http import Endpoint, Refused, TooLong, Unusable
from ..engines.servers import model_and_base
from ..errors import InputError
from ..machine.credentials import KEY, NEXT
from ..terms import JsonObject
from ..window.prompt import PromptText, state_text
from ..window.readout import SlotLogits
from . import openai_shape, system_one
from .questions import Answer, Choice, Level, Option, Question, Request, Score, State
from .shape import usage_of

WORDING = 1
"""Counts the changes of how a window becomes a state and questions: runs of two wordings are two scorers."""
TOO_MANY = re.compile(r"at most|maximum|too many|limit|fewer|exceed|no more than", re.IGNORECASE)
"""How servers say that a request has too many questions."""
PROBE = (State("Query: capital of France\n\n[1] Paris."), Score("Is [1] relevant?", (Level("no"), Level("yes")), "1"))
"""Asked when an engine is opened: whether the address answers, and whether it tells the label mass."""


SHAPES = {"systemone": system_one.SHAPE, "decisions": openai_shape.SHAPE}


class DecisionModel(Grader, Generator):
    """A model behind `/v1/systemone` or `/v1/decisions`: it grades by `score` questions and gives verdicts by `choice`."""

    endpoint: Endpoint

    def __init__(self, endpoint: Endpoint, model: str, kind: str):
        self.endpoint, self.model, self.kind, self.shape = endpoint, model, kind, SHAPES[kind]
        self.name = f"{kind}:{model}@{endpoint.base}"
        self._path = _path_behind(endpoint.base, self.shape.path)
        self._most = self.shape.most_questions
        self.capabilities = Capabilities(gives="distribution", distribution="exact", label_mass=self._tells_label_mass())

    def identity(self) -> JsonObject:
        return {"kind": self.kind, "model": self.model, "wording": WORDING}

    def grade_logits(self, prompts: Sequence[PromptText], *, label_mass: bool = False) -> list[SlotLogits]:
        return self.endpoint.map(lambda prompt: self._grade(prompt, label_mass), prompts)

    async def _grade(self, prompt: PromptText, label_mass: bool) -> SlotLogits:
        answers = await self.ask(State(state_text(prompt)), grade_questions(prompt))
        logits = slot_probabilities(np.array([answer.probabilities for answer in answers])).logits
        return SlotLogits(logits, np.array([answer.label_mass for answer in answers], float) if label_mass else None)

    async def ask(self, state: State, questions: Sequence[Question]) -> list[Answer]:
        """Answers in the order of the questions, in as many requests about the one state as the server's limit makes of them."""
        answers: list[Answer] = []
        while len(answers) < len(questions):
            part = tuple(questions[len(answers) : len(answers) + self._most])
            try:
                answers += await self._request(state, part)
            except TooLong:  # of this state: the next may fit with all its questions
                raise
            except Refused as refusal:
                if not self._lower_limit(len(part), str(refusal)):
                    raise
        return answers

    async def _request(self, state: State, questions: tuple[Question, ...]) -> list[Answer]:
        body = self.shape.write_request(Request(self.model, state, questions))
        return await self.endpoint.post(self._path, body, lambda answer: self._read(questions, answer))

    def _read(self, questions: tuple[Question, ...], body: Any) -> list[Answer]:
        answers = [answer for answer in self.shape.read_answers(questions, body) if answer is not None]
        if refused := len(questions) - len(answers):
            raise Malformed(f"{refused} of {len(questions)} questions were refused")
        return answers

    def _lower_limit(self, count: int, refusal: str) -> bool:
        """Ask fewer questions at once where a refusal says that they were too many: as many as it says, or half."""
        if count == 1 or "question" not in refusal.lower() or not TOO_MANY.search(refusal):
            return False
        named = [int(number) for number in re.findall(r"\d+", refusal.partition("HTTP ")[2].partition(":")[2])]
        self._most = min(self._most, max((n for n in named if 0 < n < count), default=count // 2))
        self.endpoint.counts["questions a request"] = self._most
        return True

    def label_log_probabilities(self, prompts: Sequence[Chat], labels: Sequence[str]) -> np.ndarray:
        """(P, L): the log-probability of each label as an option of one choice."""
        options = tuple(Option(label) for label in labels)

        async def ask(chat: Chat) -> tuple[float, ...]:
            system, user = (message["content"] for message in chat)
            [answer] = await self.ask(State(user, system), [Choice("Which label is right?", options, "label")])
            return answer.probabilities

        with np.errstate(divide="ignore"):
            logarithms: np.ndarray = np.log(np.array(self.endpoint.map(ask, prompts)))
        return logarithms

    def generate(self, prompts: Sequence[Chat], most_tokens: int) -> list[str]:
        raise InputError(f"{self.name} gives verdicts and writes no answers. Choose a chat model, such as openai:<model>@<url>.")

    def _tells_label_mass(self) -> bool:
        state, question = PROBE
        try:
            [[answer]] = self.endpoint.map(lambda asked: self._request(state, (asked,)), [question])
        except Unusable as failure:
            raise InputError(f"{self.name} cannot be asked: {failure}.") from failure
        return answer.label_mass is not None


def grade_questions(prompt: PromptText) -> list[Question]:
    """One question per candidate of a window, named after its marker."""
    levels = tuple(Level(level) for level in prompt.task.levels)
    return [Score(prompt.task.question.format(marker), levels, marker) for marker in prompt.markers]


def open_decision_model(address: Address, options: EngineOptions) -> DecisionModel:
    """`<model>@<base url>`, such as jev-1.14@https://api.typesafe.ai/v1 or gpt-6-luna@https://api.openai.com/v1."""
    model, base = model_and_base(address, "/v1")
    keys = (KEY, SHAPES[address.kind].key)
    return DecisionModel(Endpoint(base, options, keys=keys, usage=usage_of, cached=True), model, address.kind)


def _path_behind(base: str, path: str) -> str:
    """A base may be a server, its /v1, or the route itself; several servers have it all in common."""
    place = urlsplit(NEXT.split(base)[0]).path.rstrip("/")
    return "" if place.endswith(path) else path if place else "/v1" + path


KINDS = tuple(
    Kind(
        kind,
        open_decision_model,
        takes="text",
        listed=(Listing(f"{kind}:<model>@<base url>", "distribution"),),
        options=PAID,
        needs=lambda rest: ("httpx2",),
        is_server=True,
        reads=True,
    )
    for kind in SHAPES
)
