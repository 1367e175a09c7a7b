"""Rerankers and reward models that score one candidate at a time: order-free by construction.

Each in the input format it was trained with, through transformers or sentence-transformers. Batches are padded, which
moves a score in its last digits; nothing else a candidate stands with can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from .. import EngineOptions
from ..local.device import Passes, device_of

T = TypeVar("T", str, list[int])
Score = Callable[[str, Sequence[str]], list[float]]

QWEN_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
QWEN_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. "
    'Note that the answer can only be "yes" or "no".'
)
MXBAI_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
MXBAI_TASK = (
    "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, "
    "carefully analyze the semantic relationship between them, then provide your binary relevance judgment "
    "(0 for not relevant, 1 for relevant).\nRelevance:"
)


def cross_encoder(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Any sequence-classification reranker through sentence-transformers, with the activation its card names."""
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        source,
        revision=revision,
        device=options.device and device_of(options.device),
        trust_remote_code=options.trust_remote_code,
        model_kwargs={"dtype": options.dtype},
    )

    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores: list[float] = model.predict([(query, text) for text in texts], show_progress_bar=False).astype(float).tolist()
        return scores

    return score


def mono_t5(source: str, revision: str | None, options: EngineOptions) -> Score:
    """monoT5 (Nogueira et al. 2020): P(true) against P(false) for the first token written."""
    import torch
    from transformers import AutoModelForSeq2SeqLM

    model, tokenizer = load(AutoModelForSeq2SeqLM, source, revision, options)
    sides = [tokenizer.encode(word, add_special_tokens=False)[0] for word in ("false", "true")]

    passes = Passes(options.batch_tokens)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        prompts = [f"Query: {query} Document: {text} Relevant:" for text in texts]
        return passes.fit(partial(read, prompts), [len(prompt) // 4 for prompt in prompts])

    @torch.inference_mode()
    def read(prompts: list[str], tokens: int) -> list[float]:
        found: list[float] = []
        for part in _batches(prompts, 4 * tokens):  # about four characters a token
            inputs = tokenizer(part, padding=True, truncation=True, max_length=512, return_tensors="pt").to(model.device)
            begin = torch.full((len(part), 1), model.config.decoder_start_token_id, device=model.device)
            logits = model(**inputs, decoder_input_ids=begin).logits[:, 0, sides].float()
            found += logits.softmax(-1)[:, 1].tolist()
        return found

    return score


def qwen3_reranker(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Qwen3-Reranker: P(yes) against P(no), 8192 tokens. Its grade mode is the model behind `hf:`, with our skeleton."""

    def pieces(query: str, text: str) -> list[str]:
        return [f"<Instruct>: {QWEN_INSTRUCTION}\n<Query>: {query}\n<Document>: {text}"]

    before = [f"<|im_start|>system\n{QWEN_SYSTEM}<|im_end|>\n<|im_start|>user\n"]
    after = ["<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"]
    logits = _two_tokens(source, revision, options, ("no", "yes"), before, pieces, after)
    # Softmax over two logits is the logistic function of their difference.
    return lambda query, texts: [float(1 / (1 + np.exp(-value))) for value in logits(query, texts)]


def mxbai(source: str, revision: str | None, options: EngineOptions) -> Score:
    """mxbai-rerank v2: the logit of "1" less that of "0", 8192 tokens."""

    def pieces(query: str, text: str) -> list[str]:
        return [f"query: {query}", "\n", f"document: {text}"]

    before = [f"<|im_start|>system\n{MXBAI_SYSTEM}<|im_end|>\n<|im_start|>user\n"]
    after = ["\n", MXBAI_TASK, "<|im_end|>\n<|im_start|>assistant\n"]
    return _two_tokens(source, revision, options, ("0", "1"), before, pieces, after)


def reward_model(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Skywork-Reward-V2 and its like: one logit for a user turn and an assistant turn, 4096 tokens."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = load(AutoModelForSequenceClassification, source, revision, options, num_labels=1)

    @torch.inference_mode()
    def score(query: str, texts: Sequence[str]) -> list[float]:
        found = []
        for text in texts:  # one by one, as the model card has it: padding would move the last token that is read
            turns = [{"role": "user", "content": query}, {"role": "assistant", "content": text}]
            inputs = tokenizer.apply_chat_template(
                turns, tokenize=True, return_dict=True, truncation=True, max_length=4096, return_tensors="pt"
            ).to(model.device)
            found.append(float(model(**inputs).logits[0, 0]))
        return found

    return score


def _two_tokens(
    source: str,
    revision: str | None,
    options: EngineOptions,
    words: tuple[str, str],
    before: list[str],
    pieces: Callable[[str, str], list[str]],
    after: list[str],
    most: int = 8192,
) -> Score:
    """The second word's logit less the first's, as a causal model's next token.

    Pieces are tokenised one by one, as each model was trained; the template is never cut, the text is.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model, tokenizer = load(AutoModelForCausalLM, source, revision, options)

    def encode(parts: Sequence[str]) -> list[int]:
        return [token for part in parts for token in tokenizer.encode(part, add_special_tokens=False)]

    head, tail, sides = encode(before), encode(after), [encode([word])[0] for word in words]
    room = min(most, model.config.max_position_embeddings) - len(head) - len(tail)

    passes = Passes(options.batch_tokens)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        rows = [
            [*head, *encode(pieces(strip_markup(tokenizer, query), strip_markup(tokenizer, text)))[:room], *tail]
            for text in texts
        ]
        return passes.fit(partial(read, rows), list(map(len, rows)))

    @torch.inference_mode()
    def read(rows: list[list[int]], tokens: int) -> list[float]:
        found: list[float] = []
        for part in _batches(rows, tokens):
            inputs = tokenizer.pad({"input_ids": part}, padding_side="left", return_tensors="pt").to(model.device)
            logits = model(**inputs, logits_to_keep=1).logits[:, -1, sides].float()
            found += (logits[:, 1] - logits[:, 0]).tolist()
        return found

    return score


def load(auto: Any, source: str, revision: str | None, options: EngineOptions, **extra: Any) -> tuple[Any, Any]:
    """A model and its tokenizer through one of transformers' auto classes, on the device the options name."""
    import torch
    from transformers import AutoTokenizer
    from transformers.utils import logging

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


def _batches(prompts: list[T], most: int) -> Iterator[list[T]]:
    """Prompts in the order given, until their padded length reaches `most`. At least one each."""
    batch: list[T] = []
    for prompt in prompts:
        if batch and (len(batch) + 1) * max(len(prompt), *map(len, batch)) > most:
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch
