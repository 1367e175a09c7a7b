"""What a consumer decides, and how often that changes when only the order of the candidates does (§5, Decision metrics)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

from ..errors import InputError
from ..terms import Array

Estimator = Literal["pairwise", "modal"]


def change(outputs: Sequence[Hashable] | Array, estimator: Estimator = "pairwise") -> Array:
    """How often the output of a consumer changes between M permutations: the one definition behind every flip measure.

    `pairwise`: the probability that two permutations disagree, 1 - sum_c n_c (n_c - 1) / (M (M - 1)), as the paper
    defines it. `modal`: 1 - (share of the most frequent output), which the reference code computes; never above (M -
    1) / M. `outputs` holds M hashable values, or is an array (..., M) of codes; the result is (...), NaN when M < 2.
    """
    if estimator not in ("pairwise", "modal"):
        raise InputError(f'estimator "{estimator}" is unknown. Use "pairwise" or "modal".')
    codes = outputs if isinstance(outputs, np.ndarray) else np.array(_codes(outputs))
    permutations = codes.shape[-1]
    if permutations < 2:
        return np.full(codes.shape[:-1], np.nan)[()]
    alike = (codes[..., :, None] == codes[..., None, :]).sum(axis=-1)  # (..., M): how many share each one's output
    modal, pairwise = 1 - alike.max(axis=-1) / permutations, 1 - (alike - 1).mean(axis=-1) / (permutations - 1)
    rate: Array = modal if estimator == "modal" else pairwise
    return rate


def _codes(outputs: Sequence[Hashable]) -> list[int]:
    seen: dict[Hashable, int] = {}
    return [seen.setdefault(output, len(seen)) for output in outputs]
