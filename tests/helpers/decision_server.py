"""A decision model on loopback, in both request shapes, with effects of presentation that are known."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

import numpy as np

from steadyscore.decision_models.questions import Answer, Choice, Noul
from steadyscore.engines import http
from tests.helpers.decision_shapes import ANSWERS, read_request


def hashed(text: str) -> float:
    """A number in [0, 1) that is a function of a text."""
    return sum((i + 1) * ord(letter) for i, letter in enumerate(text)) % 97 / 97


def peaked(n: int, at: float) -> np.ndarray:
    """A distribution over n levels whose mean is `at`: the two levels beside it share all."""
    low = min(int(at), n - 2)
    found = np.zeros(n)
    found[low], found[low + 1] = 1 - (at - low), at - low
    return found


@dataclass
class DecisionServer:
    """`answer(path, body)` for `tests.helpers.endpoint.Server`; every effect is 0 unless planted."""

    slot: float = 0.0
    """Levels that a score loses when the candidate it asks about stands last instead of first; a noul loses as much of 1."""
    option: bool = False
    """The first option shown is always chosen."""
    level: float = 0.0
    """Levels that a score moves towards the level shown first."""
    question: float = 0.0
    """Levels that a score loses when its question is asked last instead of first."""
    noise: bool = False
    """Every second answer is another one: what identical requests do to each other."""
    label_mass: float | None = None
    asked: int = 0

    def answer(self, path, body):
        self.asked += 1
        name = path.rpartition("/")[2]
        request = read_request(name, body)
        text = request.state.text
        answers = tuple(self.decide(text, q, i / max(len(request.questions) - 1, 1)) for i, q in enumerate(request.questions))
        return ANSWERS[name](request.questions, answers, request.model)

    def decide(self, state, question, asked_at):
        item, place = self.item(state, question)
        mass = self.label_mass
        if isinstance(question, Noul):
            yes = min(max(hashed(item) - self.slot * place, 0.0), 1.0)
            return Answer((yes, 1 - yes), mass)
        names = question.outcomes
        if isinstance(question, Choice):
            chosen = 0 if self.option else max(range(len(names)), key=lambda i: hashed(item + names[i]))
            if self.noise and self.asked % 2:
                chosen = (chosen + 1) % len(names)
            return Answer(tuple(0.7 if i == chosen else 0.3 / (len(names) - 1) for i in range(len(names))), mass)
        numbers = [re.search(r"\d+", name) for name in names]
        order = sorted(range(len(names)), key=lambda i: int(numbers[i][0]) if numbers[i] else i)
        ascending = [order.index(i) for i in range(len(names))]  # the level that stands at each place
        top = len(names) - 1
        at = 1 + hashed(item) * (top - 1) - self.slot * place - self.question * asked_at
        if self.level and ascending[0] == top:
            at += self.level
        wanted = peaked(len(names), min(max(at, 0.0), top))
        return Answer(tuple(float(wanted[level]) for level in ascending), mass)

    @staticmethod
    def item(state, question):
        """The candidate that a question names in brackets and its place from 0 to 1; else the whole state, sorted."""
        named = re.search(r"\[(\w+)\]", question.instructions)
        try:
            items = json.loads(state)["candidates"]
            shown = [(str(item["id"]), item["text"]) for item in items]
        except (ValueError, KeyError, TypeError):
            shown = re.findall(r"^\[(\w+)\] (.*)$", state, re.M)
        for place, (id, text) in enumerate(shown):
            if named and id == named[1]:
                return text, place / max(len(shown) - 1, 1)
        return "".join(sorted(state)), 0.0


def spoiled(kind, answer):
    """One question short, or a NaN."""
    answers = answer["answers"]
    if kind == "short":
        answers.pop(next(iter(answers)) if isinstance(answers, dict) else 0)
        return answer
    for given in answers.values() if isinstance(answers, dict) else answers:
        if isinstance(given.get("probabilities"), dict):
            given["probabilities"] = dict.fromkeys(given["probabilities"], math.nan)
        elif isinstance(given.get("probabilities"), list):
            given["probabilities"] = [entry | {"probability": math.nan} for entry in given["probabilities"]]
        else:
            given["probability"] = math.nan
    return answer


def ask_in_a_hurry(monkeypatch, tmp_path):
    """Retries without a wait, a cache of the test's own, and no key."""
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    monkeypatch.setenv("STEADYSCORE_CACHE", str(tmp_path / "cache"))
    for name in ("STEADYSCORE_API_KEY", "OPENAI_API_KEY", "TYPESAFE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
