"""What Prometheus reads. One registry per server, so that two servers in one process do not share counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
WINDOWS = (1, 2, 4, 8, 16, 32, 64)
SHARE = (0.0, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter("steadyscore_requests", "Requests by route and status.", ["route", "status"], registry=registry)
        self.latency = Histogram(
            "steadyscore_request_seconds", "From arrival to answer.", ["route"], buckets=SECONDS, registry=registry
        )
        self.refused = Counter("steadyscore_refused", "Requests not scored, by reason.", ["reason"], registry=registry)
        self.windows = Counter("steadyscore_windows", "Windows scored.", registry=registry)
        self.tokens = Counter("steadyscore_prompt_tokens", "Prompt tokens scored.", ["model"], registry=registry)
        self.batch = Histogram("steadyscore_batch_windows", "Windows per pass.", buckets=WINDOWS, registry=registry)
        self.sharing = Histogram("steadyscore_batch_requests", "Requests per pass.", buckets=WINDOWS, registry=registry)
        self.busy = Counter("steadyscore_engine_seconds", "Time the workers spent in the engines.", registry=registry)
        self.queue = Gauge("steadyscore_queue_windows", "Windows waiting or running.", registry=registry)
        self.in_flight = Gauge("steadyscore_requests_in_flight", "Requests let in and not answered yet.", registry=registry)
        self.ties = Counter(
            "steadyscore_tied_neighbours", "Neighbours in a ranking with equal scores.", ["model"], registry=registry
        )
        self.neighbours = Counter("steadyscore_neighbours", "Neighbours in a ranking.", ["model"], registry=registry)
        self.overflow = Counter(
            "steadyscore_window_overflow", "Windows too long for the model's context, refused.", ["model"], registry=registry
        )
        self.overlap = Histogram(
            "steadyscore_stability_overlap",
            "Jaccard of the sets kept under two orders of sampled requests.",
            ["model"],
            buckets=SHARE,
            registry=registry,
        )
        self.flips = Counter(
            "steadyscore_stability_top1_flips", "Sampled requests whose first document changed.", ["model"], registry=registry
        )
        self.sampled = Counter("steadyscore_stability_samples", "Requests scored a second time.", ["model"], registry=registry)
        self.unsampled = Counter(
            "steadyscore_stability_failures", "Sampled requests whose second scoring failed.", ["model"], registry=registry
        )

    def on_batch(self, windows: int, requests: int, seconds: float) -> None:
        self.windows.inc(windows)
        self.batch.observe(windows)
        self.sharing.observe(requests)
        self.busy.inc(seconds)

    def page(self) -> bytes:
        return generate_latest(self.registry)
