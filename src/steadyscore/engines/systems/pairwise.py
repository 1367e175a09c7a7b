"""PairRM (Jiang et al. 2023): every ordered pair of candidates compared, made antisymmetric, counted by Copeland's rule.

The checkpoint is a DeBERTa-v3 encoder and a head on the states of three markers; both are read from its safetensors, so
no code of the repository runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import ModelError
from .. import EngineOptions
from ..local.device import device_of
from .pointwise import Score, strip_markup

SOURCE, FIRST, SECOND = "<|source|>", "<|candidate1|>", "<|candidate2|>"
SOURCE_TOKENS, CANDIDATE_TOKENS = 1224, 412
PAIRS = 8
"""Pairs per forward pass."""


def pair_rm(source: str, revision: str | None, options: EngineOptions) -> Score:
    import torch
    from transformers import AutoConfig, AutoTokenizer, DebertaV2Model

    device = device_of(options.device)
    folder = _folder(source, revision)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    config = AutoConfig.from_pretrained(folder)
    weights = _weights(folder)
    encoder: Any = DebertaV2Model(config)
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
        scores: list[float] = (left - right).mean(dim=-1).tolist()
        return scores

    def score(query: str, texts: Sequence[str]) -> list[float]:
        n = len(texts)
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        rows = [_encode(tokenizer, query, texts[i], texts[j]) for i, j in pairs]
        found = [value for k in range(0, len(rows), PAIRS) for value in logits(rows[k : k + PAIRS])]
        preferred = np.zeros((n, n))
        for (i, j), value in zip(pairs, found, strict=True):
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


def _encode(tokenizer: Any, query: str, first: str, second: str) -> list[int]:
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


def _weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    if not (files := sorted(folder.glob("*.safetensors"))):
        raise ModelError(f"{folder} holds no safetensors. Pickled weights can run code; convert them first.")
    return {name: weight.float() for file in files for name, weight in load_file(file).items()}
