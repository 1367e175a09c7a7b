"""The stability monitor: a sampled share of traffic scored under a second order in idle time.

Nobody waits for it and it keeps nothing but counts: a sample waits in memory, bounded, until no request is in flight.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

import numpy as np

from ..instability import top_k_changed
from ..metrics import Array
from ..presentation import generator, permutation
from ..terms import Instance
from .batcher import Busy, Closing
from .decide import Decision, roles
from .logs import log_fault
from .metrics import Metrics
from .service import Model, Service

WAITING = 64
"""Samples kept for a quiet moment; the oldest goes first when traffic never pauses."""
FIRST = 5
"""The budget whose overlap is measured where a request names no decision."""


@dataclass(frozen=True, slots=True)
class Sample:
    model: Model
    instance: Instance
    decision: Decision
    scores: Array
    """(n,) as they were served."""


class Monitor:
    def __init__(self, service: Service, metrics: Metrics, share: float, *, pause: float = 0.05):
        self.service, self.metrics, self.share, self.pause = service, metrics, share, pause
        self._random = generator("monitor", 0)
        self._samples: deque[Sample] = deque(maxlen=WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="monitor", daemon=True)
        if share > 0:
            self._thread.start()

    def offer(self, model: Model, instance: Instance, decision: Decision | None, scores: Array) -> None:
        """Keep a served request, with the probability the share says. A single document cannot be reordered."""
        n = len(instance.pool)
        if n < 2 or model.scorer(model.backend).capabilities.order_free or self._random.random() >= self.share:
            return
        if decision is None:
            decision = Decision("threshold", model.cutoff) if model.cutoff is not None else Decision("top_k", min(FIRST, n - 1))
        self._samples.append(Sample(model, instance, decision, scores))

    def _watch(self) -> None:
        while not self._stop.wait(self.pause):
            if self._samples and self.service.batcher.idle:
                sample = self._samples.popleft()
                try:
                    self.check(sample)
                except (Busy, Closing):
                    continue  # traffic came back, or the server ends
                except Exception as fault:  # whatever it is: a monitor that ended would look like a scorer that is stable
                    self.metrics.unsampled.labels(sample.model.name).inc()
                    log_fault("monitor failed", fault, model=sample.model.name)

    def check(self, sample: Sample) -> tuple[float, bool]:
        """Score a sample under another order; (overlap, whether the first document changed)."""
        n = len(sample.instance.pool)
        other = permutation(n, seed=int(self._random.integers(2**31)), query_id=sample.instance.query, index=0)
        service = self.service
        with service.admitted(service.windows_of(sample.model, n, 1), sample.model.name) as ticket:
            second = service.scored(sample.model, ticket, sample.instance, other[None]).scores[0]
        first_kept, second_kept = (roles(s, sample.decision) != 0 for s in (sample.scores, second))
        union = (first_kept | second_kept).sum()
        overlap = float((first_kept & second_kept).sum() / union) if union else 1.0
        flipped = bool(top_k_changed(sample.scores, np.asarray(second), k=1))
        self.metrics.overlap.labels(sample.model.name).observe(overlap)
        self.metrics.sampled.labels(sample.model.name).inc()
        if flipped:
            self.metrics.flips.labels(sample.model.name).inc()
        return overlap, flipped

    def close(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5)
