"""Systems that are a prompt to a causal language model: read at one slot, or written.

A pointwise reranker is one slot with two tokens of the local engine, FIRST one slot with a letter per candidate; batches, memory
and precision are the engine's. RankZephyr, RankGPT and LightOn's listwise rerankers write an order: they see a window of
candidates at a time, from the end of the list to its head (RankGPT, Sun et al. 2023; RankZephyr, Pradeep et al. 2023), and
give nothing but an order: scores are n - rank.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, ModelError
from . import Address, EngineOptions, prompts_behind

if TYPE_CHECKING:
    from .local.model import TransformersEngine

MOST_TOKENS = 8192
"""Of a prompt of a pointwise reranker."""
WORDS = 300
"""Words kept of each candidate at first; fewer where a window would not fit."""
ANSWER_TOKENS = 6
"""Tokens to write per candidate: `[12] > `."""
LIGHTON_TOKENS, LIGHTON_WRITTEN = 2048, 30
"""Tokens of a prompt and of an answer of LightOn's listwise rerankers."""
RANKLLM = "You are RankLLM, an intelligent assistant that can rank passages based on their relevancy to the query"
RANKGPT = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."

Score = Callable[[str, Sequence[str]], list[float]]
"""(query, texts) -> their scores."""
Load = Callable[[str, str | None, EngineOptions], Score]
"""(source, revision, options) -> what scores a pool."""
Messages = list[dict[str, str]]
Ask = Callable[[str, list[str]], Messages]
OrderWindow = Callable[[str, list[str]], list[int]]
"""(query, texts) -> indices, best first; may leave some out."""


# -- one candidate, two tokens


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A prompt for one candidate in pieces that are tokenised one by one, as its model was trained; the text alone is cut."""

    before: str
    pieces: Callable[[str, str], list[str]]
    """(query, text) -> what stands between."""
    after: tuple[str, ...]
    words: tuple[str, str]
    """What the model replies: no and yes."""
    gives_share: bool = False
    """Whether a score is P(yes) against P(no) and not the difference of their logits."""


# Qwen3-Reranker: its grade mode is the model behind `hf:`, with our skeleton.
QWEN3 = Pointwise(
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    lambda query, text: [
        "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n"
        f"<Query>: {query}\n<Document>: {text}"
    ],
    ("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",),
    ("no", "yes"),
    gives_share=True,
)
# mxbai-rerank v2.
MXBAI = Pointwise(
    "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    lambda query, text: [f"query: {query}", "\n", f"document: {text}"],
    (
        "\n",
        "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, "
        "carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
        "(0 for not relevant, 1 for relevant).\nRelevance:",
        "<|im_end|>\n<|im_start|>assistant\n",
    ),
    ("0", "1"),
)


def two_tokens(engine: TransformersEngine, how: Pointwise) -> Score:
    """The second word's logit less the first's, as the next token, or its share."""
    tokenizer = engine.encoder.tokenizer

    def encode(parts: Sequence[str]) -> list[int]:
        return [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]

    head, tail = encode([how.before]), encode(how.after)
    sides = (encode([how.words[0]])[0], encode([how.words[1]])[0])
    room = min(MOST_TOKENS, engine.context) - len(head) - len(tail)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        query = strip_markup(tokenizer, query)
        rows = [[*head, *encode(how.pieces(query, strip_markup(tokenizer, text)))[:room], *tail] for text in texts]
        readings = engine.grade_logits(prompts_behind(rows, [sides] * len(rows)))
        margins = [float(reading.logits[0, 1] - reading.logits[0, 0]) for reading in readings]
        # Softmax over two logits is the logistic function of their difference.
        return [float(1 / (1 + np.exp(-margin))) for margin in margins] if how.gives_share else margins

    return score


def load(auto: Any, source: str, revision: str | None, options: EngineOptions, **extra: Any) -> tuple[Any, Any]:
    """A model and its tokenizer through one of transformers' auto classes, on the device the options name."""
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging

    from .local.device import device_of

    device = device_of(options.device)
    logging.disable_progress_bar()
    where = {"revision": revision, "trust_remote_code": options.trust_remote_code}
    tokenizer = AutoTokenizer.from_pretrained(source, **where)
    model = auto.from_pretrained(source, dtype=getattr(torch, options.dtype), use_safetensors=True, **where, **extra)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device).eval(), tokenizer


def strip_markup(tokenizer: Any, text: str) -> str:
    """Somebody's text without the tokenizer's markup, so that it cannot speak for the template."""
    for markup in tokenizer.all_special_tokens:
        text = text.replace(markup, " ")
    return text


def causal(how: Callable[[TransformersEngine], Score]) -> Load:
    """A system on the local engine of a causal language model."""
    return lambda source, revision, options: how(open_causal(source, revision, options))


def open_causal(source: str, revision: str | None, options: EngineOptions) -> TransformersEngine:
    """The local engine of a system's model. Its identity is the system's."""
    from transformers import AutoModelForCausalLM

    from .local.model import TransformersEngine

    model, tokenizer = load(AutoModelForCausalLM, source, revision, options)
    tokenizer.chat_template = tokenizer.chat_template or "{{ messages }}"  # of a pointwise prompt, which needs none
    return TransformersEngine(model, tokenizer, source, options, {})


# -- the order of a window


def rank_zephyr(engine: TransformersEngine) -> Score:
    """RankZephyr: one turn, numbered passages, a generated `[2] > [1] > ...`."""
    return sliding(written_order(engine, single_turn_prompt))


def rank_gpt(source: str, revision: str | None, options: EngineOptions) -> Score:
    """RankGPT's conversation with any chat model: a local one, or `openai:<model>@<base url>`."""
    if source.startswith("openai:"):
        write = _hosted(source, options)
        return sliding(lambda query, texts: parse_order(write(conversation_prompt(query, texts)), len(texts)))
    return sliding(written_order(open_causal(source, revision, options), conversation_prompt))


def lighton(engine: TransformersEngine, thought: str = "") -> Score:
    """LightOn-rerank LW: windows of four, stride two; an answer that does not order the whole window leaves it as it was.

    One that thinks unless its answer begins behind an empty thought is given that `thought`.
    """
    tokenizer = engine.encoder.tokenizer

    def order(query: str, texts: list[str]) -> list[int]:
        query, texts = strip_markup(tokenizer, query), [strip_markup(tokenizer, text) for text in texts]
        ids = tokenizer.encode(lighton_prompt(query, texts) + thought, add_special_tokens=False)
        [answer] = engine.generate([ids[:LIGHTON_TOKENS]], LIGHTON_WRITTEN)
        written = re.search(r"\s*>\s*".join([r"\[(\d+)\]"] * len(texts)), answer)
        ranking = [int(number) - 1 for number in written.groups()] if written else []
        return ranking if sorted(ranking) == list(range(len(texts))) else list(range(len(texts)))

    return sliding(order, window=4, stride=2, fills_last=True)


def lighton_prompt(query: str, texts: Sequence[str]) -> str:
    body = "\n".join(f"[{i}]: {text}" for i, text in enumerate(texts, 1))
    user = f"Query: {query}\n\nRank these passages from most to least relevant:\n{body}\n\nRanking:"
    return f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n"


def first_token(engine: TransformersEngine) -> Score:
    """FIRST (Reddy et al. 2024): letters for names, and the order of their logits as the first one would be written."""
    tokenizer = engine.encoder.tokenizer
    bracket = tokenizer.encode("[", add_special_tokens=False)

    def order(query: str, texts: list[str]) -> list[int]:
        names = [tokenizer.encode("[" + chr(ord("A") + i), add_special_tokens=False)[len(bracket) :] for i in range(len(texts))]
        if any(len(name) != 1 for name in names):
            raise ModelError(f"the tokenizer of {engine.name} does not write [A as a bracket and a letter.")
        ids = fit_window(engine, letter_prompt, query, texts)
        [reading] = engine.grade_logits(prompts_behind([[*ids, *bracket]], [tuple(name[0] for name in names)]))
        return sorted(range(len(texts)), key=lambda i: (-reading.logits[0, i], i))

    return sliding(order)


def sliding(order: OrderWindow, window: int = 20, stride: int = 10, *, fills_last: bool = False) -> Score:
    """n - rank after one pass from the end of the list to its head, the better half of each window carried on.

    The last window may have fewer candidates than the others, unless `fills_last`.
    """

    def score(query: str, texts: Sequence[str]) -> list[float]:
        ranking = list(range(len(texts)))
        end = len(texts)
        while end > 0:
            start = max(0, end - window)
            shown = ranking[start:end]
            ranking[start:end] = [shown[i] for i in complete_order(order(query, [texts[i] for i in shown]), len(shown))]
            end = 0 if start == 0 else max(end - stride, window if fills_last else 0)
        return from_ranking(ranking)

    return score


def complete_order(order: Sequence[int], n: int) -> list[int]:
    """An order with repeats dropped and what it left out appended in input order."""
    kept = list(dict.fromkeys(i for i in order if 0 <= i < n))
    return kept + [i for i in range(n) if i not in set(kept)]


def from_ranking(ranking: Sequence[int]) -> list[float]:
    """n - rank of each candidate: an order as scores. Differences between them mean nothing."""
    scores = [0.0] * len(ranking)
    for rank, candidate in enumerate(ranking):
        scores[candidate] = float(len(ranking) - rank)
    return scores


def parse_order(text: str, n: int) -> list[int]:
    """0-based indices in the order their numbers were written; what is out of range is left to `complete_order`."""
    return [int(number) - 1 for number in re.findall(r"\[(\d+)\]", text)] or [int(k) - 1 for k in re.findall(r"\d+", text)][:n]


# -- what a window's model is asked


def single_turn_prompt(query: str, texts: list[str]) -> Messages:
    body = "\n".join(f"[{i}] {text}" for i, text in enumerate(texts, 1))
    return _request(query, body, len(texts), "a numerical", "[2] > [1]")


def letter_prompt(query: str, texts: list[str]) -> Messages:
    body = "\n".join(f"[{chr(ord('A') + i)}] {text}" for i, text in enumerate(texts))
    return _request(query, body, len(texts), "an alphabetical", "[B] > [A]")


def _request(query: str, body: str, count: int, kind: str, example: str) -> Messages:
    request = (
        f"I will provide you with {count} passages, each indicated by {kind} identifier []. "
        f"Rank the passages based on their relevance to the search query: {query}.\n{body}\n"
        f"Search Query: {query}.\nRank the {count} passages above based on their relevance to the search query. "
        "All the passages should be included and listed using identifiers, in descending order of relevance. "
        f"The output format should be [] > [], e.g., {example}, "
        "Answer concisely and directly and only respond with the ranking results, do not say any word or explain."
    )
    return [{"role": "system", "content": RANKLLM}, {"role": "user", "content": request}]


def conversation_prompt(query: str, texts: list[str]) -> Messages:
    count = len(texts)
    opening = (
        f"I will provide you with {count} passages, each indicated by number identifier [].\n"
        f"Rank the passages based on their relevance to query: {query}."
    )
    closing = (
        f"Search Query: {query}.\nRank the {count} passages above based on their relevance to the search query. The passages "
        "should be listed in descending order using identifiers. The most relevant passages should be listed first. The "
        "output format should be [] > [], e.g., [1] > [2]. Only response the ranking results, do not say any word or explain."
    )
    turns = [("system", RANKGPT), ("user", opening), ("assistant", "Okay, please provide the passages.")]
    for i, text in enumerate(texts, 1):
        turns += [("user", f"[{i}] {text}"), ("assistant", f"Received passage [{i}].")]
    return [{"role": role, "content": content} for role, content in [*turns, ("user", closing)]]


def written_order(engine: TransformersEngine, ask: Ask) -> OrderWindow:
    """The order that a local model writes of a window."""

    def order(query: str, texts: list[str]) -> list[int]:
        [text] = engine.generate([fit_window(engine, ask, query, texts)], ANSWER_TOKENS * len(texts))
        return parse_order(text, len(texts))

    return order


def fit_window(engine: TransformersEngine, ask: Ask, query: str, texts: list[str]) -> list[int]:
    """The prompt with as many words of each candidate as 4096 tokens take, at most 300."""
    tokenizer, context = engine.encoder.tokenizer, min(4096, engine.context)
    query, texts = strip_markup(tokenizer, query), [strip_markup(tokenizer, text) for text in texts]
    room = context - ANSWER_TOKENS * len(texts)

    def ids(words: int) -> list[int]:
        messages = ask(query, [" ".join(text.split()[:words]) for text in texts])
        return list(tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])

    if len(ids(WORDS)) <= room:
        return ids(WORDS)
    fits = bisect_right(range(WORDS), room, key=lambda words: len(ids(words))) - 1  # the most words that fit
    if fits < 1:
        raise InputError(f"{len(texts)} candidates do not fit {context} tokens even with one word each.")
    return ids(fits)


def _hosted(address: str, options: EngineOptions) -> Callable[[Messages], str]:
    from .chat import open_openai, written_text

    engine = open_openai(Address("openai", "", address.removeprefix("openai:")), options)

    def write(messages: Messages) -> str:
        body = {"model": engine.model, "messages": messages, "temperature": 0}
        return engine.endpoint.map(lambda b: engine.endpoint.post("/chat/completions", b, written_text), [body])[0]

    return write
