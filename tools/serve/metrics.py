"""What a server counts, in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class Metrics:
    """The metrics of one server."""

    def __init__(self, sizes: list[int], queued: Callable[[], int]):
        """sizes: of batches. queued: how many requests wait."""
        disable_created_metrics()  # a second series for each: when it began
        self.registry = CollectorRegistry()
        each: dict[str, Any] = {"labelnames": ["model", "version"], "registry": self.registry}
        self.requests = Counter(
            "plait_requests", "answered requests, by the path's last word and the HTTP status",
            ["what", "model", "version", "code"], registry=self.registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "plait_request_seconds", "from a request's first byte to its answer's", buckets=SECONDS,
            **each,
        )  # fmt: skip
        self.waited = Histogram(
            "plait_queue_seconds", "a request waited for others or the processor", buckets=SECONDS,
            **each,
        )  # fmt: skip
        self.computed = Histogram("plait_compute_seconds", "a batch took", buckets=SECONDS, **each)
        self.rows = Histogram("plait_batch_rows", "rows of a batch", buckets=sizes, **each)
        self.padded = Counter("plait_padded_rows", "rows computed to fill a size", **each)
        self.ready = Gauge("plait_model_ready", "1: the model answers", **each)
        length = Gauge("plait_queue_length", "requests that wait", registry=self.registry)
        length.set_function(queued)
        ProcessCollector(registry=self.registry)

    def text(self) -> bytes:
        """All of them."""
        return generate_latest(self.registry)
