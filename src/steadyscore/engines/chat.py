"""Engine `openai`: any OpenAI-compatible chat endpoint as a grader (GPT-5.4's row of the paper).

The model is shown the same window as every other engine and writes the answer skeleton itself. Each line is one grade,
and every marker must be graded exactly once with 0, 1, 2 or 3: an answer that is not so is asked for again, and then the
query is named as failed. `openai+logprobs:` reads the alternatives to each written grade instead, where the endpoint
gives them; one that is missing is an error, never a small constant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..machine.credentials import KEY
from ..terms import GRADES, JsonObject
from ..window.prompt import PromptText, messages
from ..window.readout import SlotLogits
from . import PAID, Address, Capabilities, EngineOptions, Generator, Grader, Kind, Listing, Price
from .answers import Malformed, as_object, field, number, slot_log_probabilities, text_of, token_counts
from .http import Endpoint, Refused, TooLong
from .servers import model_and_base

T = TypeVar("T")
Chat = list[dict[str, str]]

TOP = 20
"""Alternatives asked for per written token: the most that endpoints give."""
LINE = re.compile(r"\[(?P<marker>[^\[\]\n]+)\]\s*Grade\s*:\s*(?P<grade>-?\d+(?:\.\d+)?)", re.IGNORECASE)
ADAPTED = ("max_tokens", "temperature")
"""Decoding settings that an endpoint may refuse by name."""
TOKENS_PER_LINE = 9
"""`[12] Grade: 3` and its line break: what one grade costs to write, for estimates."""


class HostedEngine(Grader, Generator):
    """A chat model that writes one grade per candidate."""

    endpoint: Endpoint

    def __init__(self, endpoint: Endpoint, model: str, logprobs: bool = False):
        self.endpoint, self.model, self.logprobs = endpoint, model, logprobs
        self.name = f"openai{'+logprobs' if logprobs else ''}:{model}@{endpoint.base}"
        self.capabilities = (
            Capabilities(gives="distribution", distribution="top_k", label_mass=True) if logprobs else Capabilities(gives="score")
        )
        self._settings: dict[str, object] = {"temperature": 0, "max_tokens": 1536}

    def identity(self) -> JsonObject:
        return {"kind": "openai", "model": self.model, "logprobs": self.logprobs}

    def grade_logits(self, prompts: Sequence[PromptText], *, label_mass: bool = False) -> list[SlotLogits]:
        return self.endpoint.map(self._grade, prompts)

    async def _grade(self, prompt: PromptText) -> SlotLogits:
        read = parse_grade_logprobs if self.logprobs else parse_grades
        return await self._ask(messages(prompt), lambda answer: read(prompt.markers, answer), self.logprobs)

    def generate(self, prompts: Sequence[Chat], most_tokens: int) -> list[str]:
        """What the model writes at temperature 0."""
        return self.endpoint.map(lambda chat: self._ask(chat, written_text, most_tokens=most_tokens), prompts)

    def label_log_probabilities(self, prompts: Sequence[Chat], labels: Sequence[str]) -> np.ndarray:
        """(P, L): 0 for the label that was written, or what `openai+logprobs:` reads of every label's beginning."""
        read = parse_label_logprobs if self.logprobs else parse_label
        return np.array(
            self.endpoint.map(lambda chat: self._ask(chat, lambda answer: read(labels, answer), self.logprobs), prompts)
        )

    async def _ask(self, chat: Chat, read: Callable[[Any], T], logprobs: bool = False, most_tokens: int | None = None) -> T:
        body: dict[str, object] = {"model": self.model, "messages": chat}
        if logprobs:
            body |= {"logprobs": True, "top_logprobs": TOP}
        while True:
            sent = self._decoding(most_tokens)
            try:
                return await self.endpoint.post("/chat/completions", body | sent, read)
            except TooLong:  # of this chat, whatever setting it names
                raise
            except Refused as refusal:
                # By what this request sent: of several that were refused at once, one has changed the settings for all.
                name = next((name for name in ADAPTED if name in sent and name in str(refusal)), None)
                if name is None:
                    raise
                self._leave_out(name, str(refusal))

    def _decoding(self, most_tokens: int | None) -> dict[str, object]:
        """The decoding settings of a request, as the endpoint is known to take them."""
        settings = dict(self._settings)
        if most_tokens and "max_tokens" in settings:  # a model that thinks refuses it, and needs room to think
            settings["max_tokens"] = most_tokens
        return settings

    def _leave_out(self, name: str, refusal: str) -> None:
        """Send no more what the endpoint refuses by name: reasoning models fix their own decoding."""
        if name not in self._settings:
            return
        value = self._settings.pop(name)
        if name == "max_tokens" and "max_completion_tokens" in refusal:
            self._settings["max_completion_tokens"] = value
        self.endpoint.counts[f"left out: {name}"] = 1


def usage_of(answer: Any) -> dict[str, int]:
    """The tokens that an answer says it took."""
    usage = as_object(as_object(answer).get("usage"))
    return token_counts(prompt=usage.get("prompt_tokens"), completion=usage.get("completion_tokens"))


def open_openai(address: Address, options: EngineOptions) -> HostedEngine:
    """`<model>@<base url>`, such as gpt-5.4@https://api.openai.com/v1."""
    model, base = model_and_base(address, "/v1")
    endpoint = Endpoint(base, options, keys=(KEY, "OPENAI_API_KEY"), usage=usage_of, cached=True)
    return HostedEngine(endpoint, model, address.variant == "logprobs")


def grade_places(text: str, markers: Sequence[str]) -> list[tuple[int, int]]:
    """(grade, offset of its digit) per marker, in slot order; every marker once, every grade on the scale."""
    places: dict[str, tuple[int, int]] = {}
    for line in LINE.finditer(text):
        marker, grade = line["marker"].strip(), line["grade"]
        if marker not in markers:
            raise Malformed(f"[{marker}] was graded but not shown")
        if marker in places:
            raise Malformed(f"[{marker}] was graded twice")
        if grade not in map(str, GRADES):
            raise Malformed(f"[{marker}] got {grade}, which is not on the scale")
        places[marker] = (int(grade), line.start("grade"))
    if absent := [marker for marker in markers if marker not in places]:
        raise Malformed(f"{len(absent)} of {len(markers)} candidates got no grade, the first [{absent[0]}]")
    return [places[marker] for marker in markers]


def parse_grades(markers: Sequence[str], answer: Any) -> SlotLogits:
    """Generated grades: all probability on the one that was written."""
    grades = [grade for grade, _ in grade_places(written_text(answer), markers)]
    logits = np.full((len(grades), len(GRADES)), -np.inf)
    logits[np.arange(len(grades)), grades] = 0.0
    return SlotLogits(logits)


def parse_grade_logprobs(markers: Sequence[str], answer: Any) -> SlotLogits:
    """The four grades among the alternatives to each written one, (B, 4) log-probabilities."""
    tokens = _written_tokens(answer)
    pieces = [field(token, "token") for token in tokens]
    ends = np.cumsum([len(piece) for piece in pieces])
    rows = []
    for marker, (grade, offset) in zip(markers, grade_places("".join(pieces), markers), strict=True):
        at = int(np.searchsorted(ends, offset, side="right"))
        if pieces[at].strip() != str(grade):
            raise Malformed(f"the grade of [{marker}] is part of the token {pieces[at]!r}")
        spelling = pieces[at].replace(str(grade), "{}")
        given = {field(entry, "token"): field(entry, "logprob") for entry in field(tokens, at, "top_logprobs")}
        if absent := [g for g in GRADES if spelling.format(g) not in given]:
            raise Malformed(f"grade {absent[0]} is not among the {len(given)} alternatives at [{marker}]")
        rows.append([number(given[spelling.format(g)], "a log-probability") for g in GRADES])
    return slot_log_probabilities(rows)


def _written_tokens(answer: Any) -> list[Any]:
    """Every token that was written, with the alternatives to it."""
    tokens = field(answer, "choices", 0, "logprobs", "content")
    if not isinstance(tokens, list):
        raise Malformed("the endpoint gives no log-probabilities; use openai: without +logprobs")
    return tokens


def parse_label(labels: Sequence[str], answer: Any) -> list[float]:
    """(L,) 0 for the one label that is the whole answer, -inf for the others; any other answer is asked for again."""
    text = written_text(answer)
    bare = " ".join(re.sub(r"[^\w\s]", " ", text).upper().split())
    if bare not in labels:
        raise Malformed(f"no label: the answer is {text[:60]!r}, not one of {', '.join(labels)}")
    return [0.0 if label == bare else -math.inf for label in labels]


def parse_label_logprobs(labels: Sequence[str], answer: Any) -> list[float]:
    """(L,) log-probability of each label's beginning: the alternatives to the first written token that begin it, together.

    No two verdicts begin alike. A label that no alternative begins is less likely than each of them: -inf. If that is
    every label, the answer cannot be used.
    """
    first = next((token for token in _written_tokens(answer) if field(token, "token").strip()), None)
    given = [(field(e, "token").strip().upper(), field(e, "logprob")) for e in field(first, "top_logprobs")]
    begun = [[number(p, "a log-probability") for token, p in given if token and label.startswith(token)] for label in labels]
    if not any(begun):
        raise Malformed(f"no label: none of the {len(given)} alternatives to {field(first, 'token')!r} begins one")
    return [float(np.logaddexp.reduce(logprobs)) if logprobs else -math.inf for logprobs in begun]


def estimate_cost(prompt_tokens: int, grades: int, price: Price) -> float:
    """What a run will cost before it begins: tokens as `estimate.estimate` counts them, and one written line per grade."""
    return price.of(prompt_tokens, math.ceil(grades * TOKENS_PER_LINE))


def written_text(answer: Any) -> str:
    """What the model wrote."""
    return text_of(answer, "choices", 0, "message", "content")


KINDS = (
    Kind(
        "openai",
        open_openai,
        takes="text",
        listed=(
            Listing("openai:<model>@<base url>", "score"),
            Listing("openai+logprobs:<model>@<base url>", "distribution"),
        ),
        options=PAID,
        needs=lambda rest: ("httpx2",),
        variants=("logprobs",),
        is_server=True,
        reads=True,
    ),
)
