"""What Prometheus reads. One registry per server, so that two servers in one process do not share counts."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
SHARE = (0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, namespace="steadyscore", registry=self.registry)
        gauge = partial(Gauge, namespace="steadyscore", registry=self.registry)
        histogram = partial(Histogram, namespace="steadyscore", registry=self.registry)
        self.requests = counter("requests", "Requests by route and status.", ["route", "status"])
        self.latency = histogram("request_seconds", "From arrival to answer.", ["route"], buckets=SECONDS)
        self.refused = counter("refused", "Requests not scored, by reason.", ["reason"])
        self.windows = counter("windows", "Windows scored.")
        self.tokens = counter("prompt_tokens", "Prompt tokens scored.", ["model"])
        self.batch = histogram("batch_windows", "Windows per pass.", buckets=WINDOWS)
        self.sharing = histogram("batch_requests", "Requests per pass.", buckets=WINDOWS)
        self.busy = counter("engine_seconds", "Time the workers spent in the engines.")
        self.queue = gauge("queue_windows", "Windows waiting or running.")
        self.queue_tokens = gauge("queue_tokens", "Tokens waiting or running.")
        self.busy_workers = gauge("busy_workers", "Workers in a pass.")
        self.oldest_pass = gauge("oldest_pass_seconds", "Age of the oldest pass; 0 without one.")
        self.in_flight = gauge("requests_in_flight", "Requests let in and not answered yet.")
        self.ties = counter("tied_neighbours", "Neighbours in a ranking with equal scores.", ["model"])
        self.neighbours = counter("neighbours", "Neighbours in a ranking.", ["model"])
        self.overflow = counter("window_overflow", "Windows too long for the model's context, refused.", ["model"])
        sets = "Jaccard of the sets kept under two orders of sampled requests."
        self.overlap = histogram("stability_overlap", sets, ["model"], buckets=SHARE)
        self.flips = counter("stability_top1_flips", "Sampled requests whose first document changed.", ["model"])
        self.sampled = counter("stability_samples", "Requests scored a second time.", ["model"])
        self.unsampled = counter("stability_failures", "Sampled requests whose second scoring failed.", ["model"])

    def on_batch(self, windows: int, requests: int, seconds: float) -> None:
        self.windows.inc(windows)
        self.batch.observe(windows)
        self.sharing.observe(requests)
        self.busy.inc(seconds)

    def page(self) -> bytes:
        return generate_latest(self.registry)
