"""Metrics of a service in the text format of Prometheus. This module needs `pip install 'tsforecast[serve]'`."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tsforecast.live.owner import Owner
from tsforecast.live.rules import OUTCOMES

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PATHS = ("observations", "forecasts", "items", "health", "metrics", "openapi.json")  # no label grows with requests
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Metrics:
    """The counts and times of a service."""

    def __init__(self, owner: Owner) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_OfOwner(owner))
        self._requests = Counter(
            "tsforecast_requests", "Requests by first part of the path and status", ["path", "status"],
            registry=self._registry,
        )  # fmt: skip
        self._seconds = Histogram(
            "tsforecast_request_seconds", "Seconds from a request to its answer", ["path"], registry=self._registry,
            buckets=_SECONDS,
        )  # fmt: skip

    def note(self, path: str, status: int, seconds: float) -> None:
        """Count a request."""
        first = path.split("/", 2)[1] if path.startswith("/") else ""
        name = first if first in _PATHS else "other"
        self._requests.labels(name, status).inc()
        self._seconds.labels(name).observe(seconds)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)


class _OfOwner(Collector):
    """Reads the counts of an owner when they are asked for."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner

    def collect(self) -> Iterator[Metric]:
        """Return the metrics of the store."""
        store, tally = self.owner.store, self.owner.tally
        observations = CounterMetricFamily("tsforecast_observations", "Observations by outcome", labels=["outcome"])
        for outcome in OUTCOMES:
            observations.add_metric([outcome], tally[outcome])
        yield observations
        counters = {
            "tsforecast_micro_batches": ("Micro-batches", tally["batches"]),
            "tsforecast_series_forecast": ("Forecasts, each of a series", tally["forecasts"]),
            "tsforecast_snapshots": ("Snapshots", tally["snapshots"]),
            "tsforecast_busy_seconds": ("Seconds in which the owner of the beliefs worked", self.owner.busy_seconds),
            "tsforecast_far_values": ("Values too far from their series, which count as missing", store.far),
        }
        for name, (text, value) in counters.items():
            yield CounterMetricFamily(name, text, value)
        gauges = {
            "tsforecast_series": ("Series", len(store.rows)),
            "tsforecast_waiting_observations": ("Observations that wait", self.owner.waiting),
            "tsforecast_log_bytes": ("Size of the log since the last snapshot", store.log_bytes),
            "tsforecast_healthy": ("Whether the service takes observations", int(self.owner.is_alive)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value)
