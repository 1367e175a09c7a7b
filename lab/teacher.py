"""The lab's teacher: the cosine of all-MiniLM-L6-v2, stretched over the grade scale. It reads candidates one at a time.

    MINILM=FOLDER steadyscore label --scorer python:teacher:score --data OUT/train.jsonl --teacher-orders 1 --out OUT/labels

FOLDER is the encoder as transformers reads it (../shared/models/get_model minilm). Run from this folder.
"""

from __future__ import annotations

import os
from functools import lru_cache

import numpy as np

KNOTS = (0.30, 0.80)
"""Cosines of grade 0 and grade 3; between them a grade is linear, which spreads the training pools over the scale."""


@lru_cache(maxsize=1)
def _encoder():
    import torch
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    return AutoTokenizer.from_pretrained(os.environ["MINILM"]), AutoModel.from_pretrained(os.environ["MINILM"]).eval()


def embeddings(texts: list[str]) -> np.ndarray:
    """(n, 384) unit vectors: mean over tokens, as the encoder was trained."""
    import torch

    tokenizer, model = _encoder()
    with torch.inference_mode():
        batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
        hidden, mask = model(**batch).last_hidden_state, batch.attention_mask.unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1).numpy()


def score(query: str, candidates: list[str]) -> list[float]:
    found = embeddings([query, *candidates])
    return np.interp(found[1:] @ found[0], KNOTS, np.linspace(0, 1, len(KNOTS))).tolist()
