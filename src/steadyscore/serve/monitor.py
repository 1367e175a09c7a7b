"""The stability monitor: a sampled share of traffic scored under a second order in idle time.

No request waits for it and it keeps nothing but counts: a sample stays in memory, bounded, until no request is in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from ..measures.instability import top_k_changed
from ..measures.settling import DecisionRule, ThresholdRule, TopKRule, roles
from ..terms import Array, Instance
from ..window.presentation import generator, permutation
from .batcher import Busy, ShuttingDown
from .operations import Metrics, log_fault
from .service import Model, Service

WAITING = 64
"""Samples kept until the server is idle; the oldest is dropped first when traffic never pauses."""
BUDGET = 5
"""The budget whose overlap is measured where a request names no decision."""


@dataclass(frozen=True, slots=True)
class Sample:
    model: Model
    instance: Instance
    rule: DecisionRule
    scores: Array
    """(n,) as they were answered."""
    width: int | None = None
    """Documents in a window, where the request asked for another than the model's."""


class Monitor:
    def __init__(self, service: Service, metrics: Metrics, share: float, *, pause: float = 0.05):
        self.service, self.metrics, self.share, self.pause = service, metrics, share, pause
        self._random = generator("monitor", 0)
        self._samples: deque[Sample] = deque(maxlen=WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)
        if share > 0:
            self._thread.start()

    def offer(self, model: Model, instance: Instance, rule: DecisionRule | None, scores: Array, width: int | None = None) -> None:
        """Keep a scored request, with the probability that the share states. A single document cannot be reordered."""
        n = len(instance.pool)
        if n < 2 or model.scorer(width=width).capabilities.order_free or self._random.random() >= self.share:
            return
        if rule is None:
            rule = ThresholdRule(model.cutoff) if model.cutoff is not None else TopKRule(min(BUDGET, n - 1))
        self._samples.append(Sample(model, instance, rule, scores, width))

    def _watch(self) -> None:
        while not self._stop.wait(self.pause):
            if self._samples and not self.service.batcher.in_flight:
                sample = self._samples.popleft()
                try:
                    self.check(sample)
                except (Busy, ShuttingDown):
                    continue  # traffic came back, or the server ends
                except Exception as fault:  # any: a monitor that stopped would look like a scorer that is stable
                    self.metrics.unsampled.labels(sample.model.name).inc()
                    log_fault("monitor failed", fault, model=sample.model.name)

    def check(self, sample: Sample) -> None:
        """Score a sample under another order; count its overlap, and whether the first document changed."""
        n = len(sample.instance.pool)
        other = permutation(n, seed=int(self._random.integers(2**31)), query_id=sample.instance.query, index=0)
        service, model, width = self.service, sample.model, sample.width
        with service.batcher.admit(service.count_windows(model, n, 1, width), service.limits.seconds, model.name) as admission:
            second = service.score_orders(model, admission, sample.instance, other[None], width).scores[0]
        first_kept, second_kept = (roles(s, sample.rule) != 0 for s in (sample.scores, second))
        union = (first_kept | second_kept).sum()
        self.metrics.overlap.labels(model.name).observe(float((first_kept & second_kept).sum() / union) if union else 1.0)
        self.metrics.sampled.labels(model.name).inc()
        if top_k_changed(sample.scores, second, k=1):
            self.metrics.flips.labels(model.name).inc()

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
