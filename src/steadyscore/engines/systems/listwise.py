"""Listwise systems: jina-reranker-v3 in one context, and rankers that a chat model's words or first token express.

A ranker sees twenty candidates at a time, from the end of the list to its head, ten further each time (RankGPT, Sun et
al. 2023; RankZephyr, Pradeep et al. 2023). It gives an order and nothing else: scores are n - rank.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from ...errors import InputError, ModelError
from .. import Address, EngineOptions
from ..local.device import device_of
from .pointwise import Score, load, strip_markup

WINDOW, STRIDE = 20, 10
WORDS = 300
"""Words kept of each candidate at first; fewer where a window would not fit."""
ANSWER_TOKENS = 6
"""Tokens to write per candidate: `[12] > `."""
RANKLLM = "You are RankLLM, an intelligent assistant that can rank passages based on their relevancy to the query"
RANKGPT = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."

Messages = list[dict[str, str]]
OrderWindow = Callable[[str, list[str]], list[int]]
"""(query, texts) -> indices, best first; may leave some out."""


def jina(source: str, revision: str | None, options: EngineOptions) -> Score:
    """jina-reranker-v3 through its own `rerank`: cosines of all candidates in one context (512 and 2048 tokens kept)."""
    import torch
    from transformers import AutoModel

    if not options.trust_remote_code:
        raise InputError(
            f"{source} brings its own code (pinned to revision {revision or 'of the folder'}). "
            "Read it, then pass --trust-remote-code."
        )
    device = device_of(options.device)
    model = AutoModel.from_pretrained(source, revision=revision, dtype=getattr(torch, options.dtype), trust_remote_code=True)
    model = model.to(device).eval()

    def score(query: str, texts: Sequence[str]) -> list[float]:
        found = {result["index"]: float(result["relevance_score"]) for result in model.rerank(query, list(texts))}
        if found.keys() != set(range(len(texts))):
            raise ModelError(f"{source} gave {len(found)} scores for {len(texts)} candidates.")
        return [found[i] for i in range(len(texts))]

    return score


def rank_zephyr(source: str, revision: str | None, options: EngineOptions) -> Score:
    """RankZephyr: one turn, numbered passages, a generated `[2] > [1] > ...`."""
    return sliding(Chat(source, revision, options).ranker(single_turn_prompt))


def rank_gpt(source: str, revision: str | None, options: EngineOptions) -> Score:
    """RankGPT's conversation with any chat model: a local one, or `openai:<model>@<base url>`."""
    if source.startswith("openai:"):
        write = _hosted(source, options)
        return sliding(lambda query, texts: parse_order(write(conversation_prompt(query, texts)), len(texts)))
    return sliding(Chat(source, revision, options).ranker(conversation_prompt))


def first_token(source: str, revision: str | None, options: EngineOptions) -> Score:
    """FIRST (Reddy et al. 2024): letters for names, and the order of their logits as the first one would be written."""
    chat = Chat(source, revision, options)

    def order(query: str, texts: list[str]) -> list[int]:
        logits = chat.next_letters(chat.fit(letter_prompt, query, texts), len(texts))
        return sorted(range(len(texts)), key=lambda i: (-logits[i], i))

    return sliding(order)


# -- the order of a whole pool from windows


def sliding(order: OrderWindow, window: int = WINDOW, stride: int = STRIDE) -> Score:
    """n - rank after one pass from the end of the list to its head, the better half of each window carried on."""

    def score(query: str, texts: Sequence[str]) -> list[float]:
        ranking = list(range(len(texts)))
        end = len(texts)
        while end > 0:
            start = max(0, end - window)
            shown = ranking[start:end]
            ranking[start:end] = [shown[i] for i in complete_order(order(query, [texts[i] for i in shown]), len(shown))]
            end = 0 if start == 0 else end - stride
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


# -- three ways to ask


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


# -- who answers


class Chat:
    """A local chat model that writes greedily."""

    def __init__(self, source: str, revision: str | None, options: EngineOptions):
        from transformers import AutoModelForCausalLM

        self.model, self.tokenizer = load(AutoModelForCausalLM, source, revision, options)
        self.context = min(4096, int(self.model.config.max_position_embeddings))

    def ranker(self, ask: Callable[[str, list[str]], Messages]) -> OrderWindow:
        """The order that the model writes of a window."""

        def order(query: str, texts: list[str]) -> list[int]:
            return parse_order(self.write(self.fit(ask, query, texts), ANSWER_TOKENS * len(texts)), len(texts))

        return order

    def fit(self, ask: Callable[[str, list[str]], Messages], query: str, texts: list[str]) -> list[int]:
        """The prompt with as many words of each candidate as the context takes, at most 300."""
        query, texts = strip_markup(self.tokenizer, query), [strip_markup(self.tokenizer, text) for text in texts]
        room = self.context - ANSWER_TOKENS * len(texts)

        def ids(words: int) -> list[int]:
            messages = ask(query, [" ".join(text.split()[:words]) for text in texts])
            return list(self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"])

        if len(ids(WORDS)) <= room:
            return ids(WORDS)
        fits = bisect_right(range(WORDS), room, key=lambda words: len(ids(words))) - 1  # the most words that fit
        if fits < 1:
            raise InputError(f"{len(texts)} candidates do not fit {self.context} tokens even with one word each.")
        return ids(fits)

    def write(self, ids: list[int], most: int) -> str:
        import torch

        inputs = torch.tensor([ids], device=self.model.device)
        with torch.inference_mode():
            written = self.model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                max_new_tokens=most,
                do_sample=False,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        return str(self.tokenizer.decode(written[0, len(ids) :], skip_special_tokens=True))

    def next_letters(self, ids: list[int], count: int) -> list[float]:
        """Logits of A, B, C, ... behind an opened bracket."""
        import torch

        bracket = self.tokenizer.encode("[", add_special_tokens=False)
        letters = [self.tokenizer.encode("[" + chr(ord("A") + i), add_special_tokens=False)[len(bracket) :] for i in range(count)]
        if any(len(letter) != 1 for letter in letters):
            raise ModelError(f"the tokenizer of {self.model.name_or_path} does not write [A as a bracket and a letter.")
        with torch.inference_mode():
            logits = self.model(torch.tensor([[*ids, *bracket]], device=self.model.device), logits_to_keep=1).logits[0, -1]
        scores: list[float] = logits[[letter[0] for letter in letters]].float().tolist()
        return scores


def _hosted(address: str, options: EngineOptions) -> Callable[[Messages], str]:
    from ..chat import open_openai, written_text

    engine = open_openai(Address("openai", "", address.removeprefix("openai:")), options)

    def write(messages: Messages) -> str:
        body = {"model": engine.model, "messages": messages, "temperature": 0}
        return engine.endpoint.map(lambda b: engine.endpoint.post("/chat/completions", b, written_text), [body])[0]

    return write
