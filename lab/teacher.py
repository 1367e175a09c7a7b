"""The lab's teachers, for `steadyscore label` and as reference rows. Each reads candidates one at a time.

    steadyscore label --scorer python:teacher:score --data OUT/train.jsonl --teacher-orders 1 --out OUT/labels

`score` is the cosine of all-MiniLM-L6-v2 (the teacher of the shipped adapters; needs MINILM). `mixture` is a weighted sum that
`study.py` fitted, the one of `mixture.json` that MIXTURE names, and `graded` the same with human grades where the collection
named by GRADED has them. `members.py` says which folders the environment must name. Run from this folder.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from members import CHARS, MEMBERS, embeddings, pools

KNOTS = (0.30, 0.80)
"""Cosines of grade 0 and grade 3; between them a grade is linear, which spreads the training pools over the scale."""

HUMAN_SHARE = 0.5
"""Of a label, where a human grade exists: half, because most sources know only "the answer" and "not the answer"."""


def score(query: str, candidates: list[str]) -> list[float]:
    found = embeddings([query, *candidates])
    return np.interp(found[1:] @ found[0], KNOTS, np.linspace(0, 1, len(KNOTS))).tolist()


@lru_cache(maxsize=1)
def _fitted() -> dict:
    return json.loads((Path(__file__).parent / "mixture.json").read_text())[os.environ["MIXTURE"]]


def weighted_sum(query: str, candidates: list[str]) -> np.ndarray:
    return sum(weight * MEMBERS[name](query, candidates) for name, weight in _fitted()["weights"].items() if weight)


def mixture(query: str, candidates: list[str]) -> list[float]:
    return np.interp(weighted_sum(query, candidates), _fitted()["knots"], (0, 1)).tolist()


@lru_cache(maxsize=1)
def _grades() -> dict[tuple[str, str], float]:
    found = pools(Path(os.environ["GRADED"]))
    return {(p["query"], c["text"][:CHARS]): c["relevance"] / 3 for p in found for c in p["candidates"] if "relevance" in c}


def graded(query: str, candidates: list[str]) -> list[float]:
    silver = mixture(query, candidates)
    human = [_grades().get((query, text), grade) for text, grade in zip(candidates, silver, strict=True)]
    return ((1 - HUMAN_SHARE) * np.array(silver) + HUMAN_SHARE * np.array(human)).tolist()
