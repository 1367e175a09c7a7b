"""Systems whose model has a head of its own: cross-encoders, monoT5, reward models, PairRM, jina-reranker.

Each in the input format it was trained with, through transformers or sentence-transformers. Batches are padded, which
moves a score in its last digits; nothing else a candidate stands with can, but for jina-reranker's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, ModelError
from .. import EngineOptions
from ..local.device import Passes, device_of

if TYPE_CHECKING:
    import torch

Score = Callable[[str, Sequence[str]], list[float]]

SOURCE, FIRST, SECOND = "<|source|>", "<|candidate1|>", "<|candidate2|>"
SOURCE_TOKENS, CANDIDATE_TOKENS = 1224, 412
PAIRS = 8
"""Pairs per forward pass of PairRM."""


def cross_encoder(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Any reranker that sentence-transformers' `CrossEncoder` opens, with the activation and the prompt its card names."""
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

    from ..local.windows import passes

    model, tokenizer = load(AutoModelForSeq2SeqLM, source, revision, options)
    sides = [tokenizer.encode(word, add_special_tokens=False)[0] for word in ("false", "true")]
    memory = Passes(options.batch_tokens)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        rows = [f"Query: {query} Document: {text} Relevant:" for text in texts]
        ids = tokenizer(rows, truncation=True, max_length=512)["input_ids"]
        return memory.fit(partial(read, ids), list(map(len, ids)))

    @torch.inference_mode()
    def read(ids: list[list[int]], tokens: int) -> list[float]:
        scores = [0.0] * len(ids)
        for batch in passes(list(map(len, ids)), tokens, 0):
            inputs = tokenizer.pad({"input_ids": [ids[i] for i in batch]}, return_tensors="pt").to(model.device)
            begin = torch.full((len(batch), 1), model.config.decoder_start_token_id, device=model.device)
            logits = model(**inputs, decoder_input_ids=begin).logits[:, 0, sides].float()
            for i, share in zip(batch, logits.softmax(-1)[:, 1].tolist(), strict=True):
                scores[i] = share
        return scores

    return score


def reward_model(source: str, revision: str | None, options: EngineOptions) -> Score:
    """Skywork-Reward-V2 and its like: one logit for a user turn and an assistant turn, 4096 tokens."""
    import torch
    from transformers import AutoModelForSequenceClassification

    model, tokenizer = load(AutoModelForSequenceClassification, source, revision, options, num_labels=1)

    @torch.inference_mode()
    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores = []
        for text in texts:  # one by one, as the model card has it: padding would move the last token that is read
            turns = [{"role": "user", "content": query}, {"role": "assistant", "content": text}]
            inputs = tokenizer.apply_chat_template(
                turns, tokenize=True, return_dict=True, truncation=True, max_length=4096, return_tensors="pt"
            ).to(model.device)
            scores.append(float(model(**inputs).logits[0, 0]))
        return scores

    return score


def jina(source: str, revision: str | None, options: EngineOptions) -> Score:
    """jina-reranker-v3 and v3.5 through their own `rerank`: cosines of all candidates in one context."""
    from transformers import AutoModel

    if not options.trust_remote_code:
        raise InputError(
            f"{source} brings its own code (pinned to revision {revision or 'of the folder'}). "
            "Read it, then pass --set trust_remote_code=yes."
        )
    model, _ = load(AutoModel, source, revision, options)

    def score(query: str, texts: Sequence[str]) -> list[float]:
        scores = {result["index"]: float(result["relevance_score"]) for result in model.rerank(query, list(texts))}
        if scores.keys() != set(range(len(texts))):
            raise ModelError(f"{source} gave {len(scores)} scores for {len(texts)} candidates.")
        return [scores[i] for i in range(len(texts))]

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


# -- PairRM (Jiang et al. 2023): every ordered pair of candidates compared, made antisymmetric, counted by Copeland's rule


def pair_rm(source: str, revision: str | None, options: EngineOptions) -> Score:
    """A DeBERTa-v3 encoder and a head on the states of three markers, read from safetensors: no code of the repository runs."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, DebertaV2Model

    device = device_of(options.device)
    folder = _folder(source, revision)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    weights = _weights(folder)
    encoder: Any = DebertaV2Model(AutoConfig.from_pretrained(folder))
    encoder.load_state_dict({k.removeprefix("pretrained_model."): v for k, v in weights.items() if k.startswith("pretrained")})
    # Linear, tanh, linear; dropout stands at 0 and 3 in the checkpoint's numbering.
    inner, outer = ((weights[f"head_layer.{i}.weight"], weights[f"head_layer.{i}.bias"]) for i in (1, 4))
    encoder = encoder.to(device).eval()
    markers = [tokenizer.convert_tokens_to_ids(marker) for marker in (SOURCE, FIRST, SECOND)]

    def head(states: Any) -> Any:
        hidden = torch.tanh(torch.nn.functional.linear(states, *(w.to(device) for w in inner)))
        return torch.nn.functional.linear(hidden, *(w.to(device) for w in outer))

    @torch.inference_mode()
    def logits(rows: list[list[int]]) -> list[float]:
        inputs = tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(device)
        states = encoder(**inputs).last_hidden_state
        at = [states[inputs["input_ids"] == marker] for marker in markers]  # one of each per row, (pairs, hidden)
        left, right = (head(torch.cat([at[0], candidate], dim=-1)) for candidate in at[1:])
        margins: list[float] = (left - right).mean(dim=-1).tolist()
        return margins

    def score(query: str, texts: Sequence[str]) -> list[float]:
        n = len(texts)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        rows = [_encode_pair(tokenizer, query, texts[i], texts[j]) for i, j in pairs]
        margins = [value for k in range(0, len(rows), PAIRS) for value in logits(rows[k : k + PAIRS])]
        preferred = np.zeros((n, n))
        for (i, j), value in zip(pairs, margins, strict=True):
            preferred[i, j] = value
        scores: list[float] = copeland(preferred).tolist()
        return scores

    return score


def copeland(logits: np.ndarray) -> np.ndarray:
    """Duels won, (n,), with the mean margin as the tie-break: always less than half a win.

    `logits[i, j]` prefers i over j with i shown first; (L - Lᵀ) / 2 no longer depends on which was shown first.
    """
    margins = (logits - logits.T) / 2
    others = max(len(logits) - 1, 1)
    wins: np.ndarray = (margins > 0).sum(axis=1) + (margins == 0).sum(axis=1) / 2
    standing: np.ndarray = wins - 0.5 + np.tanh(margins.sum(axis=1) / others) / 4.01
    return standing


def _encode_pair(tokenizer: Any, query: str, first: str, second: str) -> list[int]:
    query, first, second = (_strip_markers(strip_markup(tokenizer, text)) for text in (query, first, second))
    source = tokenizer.encode(SOURCE + query, max_length=SOURCE_TOKENS, truncation=True)
    room = (SOURCE_TOKENS + 2 * CANDIDATE_TOKENS - len(source)) // 2  # what the query leaves goes to the candidates
    sides = [tokenizer.encode(m + text, max_length=room, truncation=True) for m, text in ((FIRST, first), (SECOND, second))]
    return [*source, *sides[0], *sides[1]]


def _strip_markers(text: str) -> str:
    for marker in (SOURCE, FIRST, SECOND):
        text = text.replace(marker, " ")
    return text


def _folder(source: str, revision: str | None) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(source, revision=revision))


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    if not (files := sorted(folder.glob("*.safetensors"))):
        raise ModelError(f"{folder} holds no safetensors. Pickled weights can run code; convert them first.")
    return {name: weight.float() for file in files for name, weight in load_file(file).items()}
