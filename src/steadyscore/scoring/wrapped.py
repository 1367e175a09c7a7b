"""A scorer that presents pools through another one: what a mitigation and a condition of the width study share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..terms import Instance
from .scorer import PoolScorer, in_pool_order


class WrappedScorer(PoolScorer):
    """Whatever is not its own is that of the scorer inside; `score` follows from `score_orders`."""

    scorer: PoolScorer

    def __init__(self, scorer: PoolScorer):
        self.scorer = scorer
        self.backend, self.task, self.settings, self.shrunk = scorer.backend, scorer.task, scorer.settings, scorer.shrunk
        self.mitigations = scorer.mitigations

    @property
    def tokens(self) -> int:
        return self.scorer.tokens

    @property
    def width(self) -> int | None:
        return self.scorer.width

    def score(self, instance: Instance, order: Sequence[int] | None = None) -> np.ndarray:
        presented = np.arange(len(instance.pool)) if order is None else np.asarray(order)
        return in_pool_order(self.score_orders(instance, presented[None], [0]), instance)
