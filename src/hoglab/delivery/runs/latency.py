"""Latency of deliveries, for Prometheus: of all together, and by function within a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import Histogram

if TYPE_CHECKING:
    from datetime import datetime

MAX_SERIES = 200
"""Maximum number of functions with series of their own; later ones, until the next start, are counted as `OTHERS`."""
OTHERS = "other"

_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
_ACCEPTED = Histogram(
    "hoglab_delivery_accepted_to_request_seconds",
    "Time from the acceptance of an event to the first request of a run on it, by function.",
    ["function"],
    buckets=_BUCKETS,
)
_RUNS = Histogram(
    "hoglab_delivery_run_seconds",
    "Computing and requests of a run, over all its attempts and without the waits between them, by function.",
    ["function"],
    buckets=_BUCKETS,
)


class Latencies:
    """Records latencies. Used by one thread."""

    def __init__(self, max_series: int = MAX_SERIES) -> None:
        self._max_series = max_series
        self._series: dict[
            str, tuple[Histogram, Histogram]
        ] = {}  # looking up a series costs as much as counting

    def first_request(self, function_id: str, accepted_at: datetime, now: datetime) -> None:
        self._of(function_id)[0].observe(max(0.0, (now - accepted_at).total_seconds()))

    def run_ended(self, function_id: str, took_s: float) -> None:
        self._of(function_id)[1].observe(took_s)

    def _of(self, function_id: str) -> tuple[Histogram, Histogram]:
        histograms = self._series.get(function_id)
        if histograms is None:
            if len(self._series) >= self._max_series:
                return _ACCEPTED.labels(OTHERS), _RUNS.labels(OTHERS)
            histograms = self._series[function_id] = _ACCEPTED.labels(function_id), _RUNS.labels(function_id)
        return histograms
